// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/operator/app"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// claimed are the Deployments that scalers claim.
type claimed struct {
	mu          sync.Mutex
	deployments map[types.NamespacedName]bool
}

func (c *claimed) set(d *appsv1.Deployment, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deployments[client.ObjectKeyFromObject(d)] = is; !is {
		delete(c.deployments, client.ObjectKeyFromObject(d))
	}
}

func (c *claimed) IsClaimed(d types.NamespacedName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deployments[d]
}

func (c *claimed) AllClaimed(context.Context, string) ([]types.NamespacedName, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.deployments)), nil
}

func (*claimed) HasSynced() bool { return true }

// Only the pods of claimed Deployments are stored, and nothing is lost when a claim comes, goes, or comes back.
func TestOnlyPodsOfClaimedDeploymentsAreStored(t *testing.T) {
	namespace := env.Namespace(t)
	run := func(name string) (*appsv1.Deployment, *corev1.Pod) {
		t.Helper()
		d := testkit.Deployment(namespace, name)
		create(t, d)
		pod, err := env.Run(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		return d, pod
	}
	first, firstPod := run("first") // claimed before all pods are listed
	late, latePod := run("late")    // claimed later
	run("foreign")                  // never claimed

	claims := &claimed{deployments: map[types.NamespacedName]bool{client.ObjectKeyFromObject(first): true}}
	made, err := inventory.NewCache(env.Config, cache.Options{Scheme: app.Scheme(), DefaultNamespaces: map[string]cache.Config{namespace: {}}})
	if err != nil {
		t.Fatal(err)
	}
	cached := made.(*inventory.Cache)
	pods := cached.Pods
	cached.Deployments.Watch(claims)
	pods.Watch(claims)
	var mu sync.Mutex
	told := map[string]int{}
	pods.OnChange(func(deployment types.NamespacedName, _, _ *workload.Pod) {
		mu.Lock()
		defer mu.Unlock()
		told[deployment.Name]++
	})
	changes := 0
	informer, err := cached.GetInformer(t.Context(), &appsv1.Deployment{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(_, obj any) {
		mu.Lock()
		defer mu.Unlock()
		if d := obj.(*appsv1.Deployment); d.Name == "late" && *d.Spec.Replicas == 7 {
			changes++
		}
	}}); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cached.Start(t.Context()) }()
	if !cached.WaitForCacheSync(t.Context()) {
		t.Fatal("the cache has not synced")
	}
	knows := func(d *appsv1.Deployment, want ...string) {
		t.Helper()
		testkit.Eventually(t, soon, func() string {
			found, err := pods.Of(t.Context(), d)
			if err != nil {
				return err.Error()
			}
			var got []string
			for _, pod := range found {
				got = append(got, fmt.Sprintf("%s, current: %t, terminations: %d", pod.Name, pod.Current, len(pod.Exits)))
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				return fmt.Sprintf("the pods of %s are %q, not %q", d.Name, got, want)
			}
			return ""
		})
	}
	kill := func(pod *corev1.Pod) {
		t.Helper()
		pod.Status.ContainerStatuses[0].RestartCount++
		pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
			Reason: "OOMKilled", FinishedAt: metav1.Now(), StartedAt: metav1.Now(),
		}
		if err := env.Client.Status().Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	knows(first, firstPod.Name+", current: true, terminations: 0")
	if pods, deployments := pods.Stored(), cached.Deployments.Stored(); pods != 1 || deployments != 1 {
		t.Errorf("%d pods and %d Deployments are stored, want only those that are claimed", pods, deployments)
	}

	// What has happened before the claim is seen at once, and what happens afterwards is told.
	kill(latePod)
	claims.set(late, true)
	found, err := pods.Of(t.Context(), late)
	if err != nil || len(found) != 1 || len(found[0].Kills) != 1 {
		t.Errorf("just claimed: pods %+v, %v, want one with an OOM kill", found, err)
	}
	var read appsv1.Deployment
	if err := cached.Get(t.Context(), client.ObjectKeyFromObject(late), &read); err != nil || read.UID != late.UID {
		t.Errorf("just claimed: the Deployment %s, %v", read.UID, err)
	}
	change(t, namespace, "late", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(7)) })
	testkit.Eventually(t, soon, func() string {
		mu.Lock()
		defer mu.Unlock()
		if err := cached.Get(t.Context(), client.ObjectKeyFromObject(late), &read); err != nil || *read.Spec.Replicas != 7 || changes == 0 {
			return fmt.Sprintf("told of %d changes, %d replicas, %v", changes, *read.Spec.Replicas, err)
		}
		return ""
	})
	mu.Lock()
	told["late"] = 0
	mu.Unlock()
	other := latePod.DeepCopy()
	other.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: latePod.Name + "-b", Labels: latePod.Labels, OwnerReferences: latePod.OwnerReferences}
	create(t, other)
	knows(late, latePod.Name+", current: true, terminations: 1", other.Name+", current: true, terminations: 0")
	mu.Lock()
	if told["late"] == 0 || told["foreign"] > 0 {
		t.Errorf("told of %v", told)
	}
	mu.Unlock()

	// A ReplicaSet that the Deployment adopts may have any name.
	orphan := &appsv1.ReplicaSet{}
	if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "late-5d4f8b"}, orphan); err != nil {
		t.Fatal(err)
	}
	orphan.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: "orphan", Labels: orphan.Labels}
	create(t, orphan)
	adopted := other.DeepCopy()
	adopted.ObjectMeta = metav1.ObjectMeta{
		Namespace: namespace, Name: "adopted-pod", Labels: latePod.Labels,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(orphan, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
	}
	create(t, adopted)
	orphan.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(late, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
	orphan.Annotations = map[string]string{"deployment.kubernetes.io/revision": "0"}
	if err := env.Client.Update(t.Context(), orphan); err != nil {
		t.Fatal(err)
	}
	knows(late, "adopted-pod, current: false, terminations: 0", latePod.Name+", current: true, terminations: 1", other.Name+", current: true, terminations: 0")

	// A pod that its ReplicaSet releases is dropped.
	other.OwnerReferences = nil
	if err := env.Client.Update(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	knows(late, "adopted-pod, current: false, terminations: 0", latePod.Name+", current: true, terminations: 1")

	// Without a claim nothing is kept, and a claim that comes back starts from what is there.
	claims.set(late, false)
	pods.Release(client.ObjectKeyFromObject(late))
	if got := pods.Stored(); got != 1 {
		t.Errorf("%d pods are stored after a claim has ended, want 1", got)
	}
	if err := env.Client.Delete(t.Context(), adopted, client.GracePeriodSeconds(0)); err != nil { // no kubelet ends it
		t.Fatal(err)
	}
	claims.set(late, true)
	knows(late, latePod.Name+", current: true, terminations: 1")
}

// A scaler that appears after its pods sees an OOM kill from before, without any event of the pod.
func TestAScalerThatAppearsAfterItsPods(t *testing.T) {
	namespace := env.Namespace(t)
	env.StartOperator(t, testkit.OperatorConfig(), testkit.NewUsage(), namespace)
	createScaler(t, namespace, "other", "other") // the operator runs, and has listed all pods
	sees(t, namespace, "other", absent)

	d := testkit.Deployment(namespace, "web")
	create(t, d)
	pod, err := env.Run(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	pod.Status.ContainerStatuses[0].RestartCount = 1
	pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
		Reason: "OOMKilled", FinishedAt: metav1.Now(), StartedAt: metav1.Now(),
	}
	if err := env.Client.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	createScaler(t, namespace, "web", "web")
	testkit.Eventually(t, soon, func() string {
		var now corev1.Pod
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), &now); err != nil {
			return err.Error()
		}
		if memory := now.Spec.Containers[0].Resources.Requests.Memory(); memory.Value() <= 128<<20 {
			return fmt.Sprintf("the pod that was OOM-killed still requests %s", memory)
		}
		return ""
	})
}

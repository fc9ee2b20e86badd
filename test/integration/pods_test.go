// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"fmt"
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

	"github.com/verticalscaler/verticalscaler-operator/cmd/operator/app"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// All pods are known, whatever the names of their ReplicaSets, and changes are told.
func TestAllPodsAreKnown(t *testing.T) {
	namespace := env.Namespace(t)
	d := testkit.Deployment(namespace, "web")
	create(t, d)
	first, err := env.Run(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	made, err := inventory.NewCache(env.Config, cache.Options{Scheme: app.Scheme(), DefaultNamespaces: map[string]cache.Config{namespace: {}}})
	if err != nil {
		t.Fatal(err)
	}
	cached := made.(*inventory.Cache)
	pods := cached.Pods
	var mu sync.Mutex
	told, kills, changes := 0, 0, 0
	pods.OnChange(func(_ types.NamespacedName, before, after *workload.Pod) {
		mu.Lock()
		defer mu.Unlock()
		if told++; after != nil && workload.IsKilledSince(before, after) {
			kills++
		}
	})
	informer, err := cached.GetInformer(t.Context(), &appsv1.Deployment{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(_, obj any) {
		mu.Lock()
		defer mu.Unlock()
		if d := obj.(*appsv1.Deployment); *d.Spec.Replicas == 7 {
			changes++
		}
	}}); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cached.Start(t.Context()) }()
	if !cached.WaitForCacheSync(t.Context()) {
		t.Fatal("the cache has not synced")
	}
	if told > 0 {
		t.Errorf("told %d times of what was there", told)
	}
	knows := func(want ...string) {
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
			slices.Sort(want)
			if !slices.Equal(got, want) {
				return fmt.Sprintf("the pods are %q, not %q", got, want)
			}
			return ""
		})
	}
	knows(first.Name + ", current: true, terminations: 0")
	first.Status.ContainerStatuses[0].RestartCount++
	first.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
		Reason: "OOMKilled", FinishedAt: metav1.Now(), StartedAt: metav1.Now(),
	}
	if err := env.Client.Status().Update(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	knows(first.Name + ", current: true, terminations: 1")
	change(t, namespace, "web", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(7)) })
	testkit.Eventually(t, soon, func() string {
		mu.Lock()
		defer mu.Unlock()
		var read appsv1.Deployment
		if err := cached.Get(t.Context(), client.ObjectKeyFromObject(d), &read); err != nil || *read.Spec.Replicas != 7 || changes == 0 || kills != 1 {
			return fmt.Sprintf("told of %d changes and %d OOM kills, %v", changes, kills, err)
		}
		return ""
	})

	// A ReplicaSet that the Deployment adopts may have any name.
	orphan := &appsv1.ReplicaSet{}
	if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "web-5d4f8b"}, orphan); err != nil {
		t.Fatal(err)
	}
	orphan.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: "orphan", Labels: orphan.Labels}
	create(t, orphan)
	adopted := first.DeepCopy()
	adopted.ObjectMeta = metav1.ObjectMeta{
		Namespace: namespace, Name: "adopted-pod", Labels: first.Labels,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(orphan, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
	}
	create(t, adopted)
	orphan.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
	orphan.Annotations = map[string]string{"deployment.kubernetes.io/revision": "0"}
	if err := env.Client.Update(t.Context(), orphan); err != nil {
		t.Fatal(err)
	}
	knows("adopted-pod, current: false, terminations: 0", first.Name+", current: true, terminations: 1")

	// A pod that its ReplicaSet releases is not the Deployment's any more.
	adopted.OwnerReferences = nil
	if err := env.Client.Update(t.Context(), adopted); err != nil {
		t.Fatal(err)
	}
	knows(first.Name + ", current: true, terminations: 1")
}

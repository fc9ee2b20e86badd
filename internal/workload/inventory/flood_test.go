// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

const (
	// mostStored is the largest object that etcd takes, and most the live heap that one may cost: the limit of 512Mi of the
	// manifest holds 20,000 of them.
	mostStored = 1 << 20
	most       = 24 << 10
)

// long is a text of about a part of the largest object, which differs in each object.
func long(i, parts int) string {
	text := fmt.Sprintf("%06d", i)
	return strings.Repeat(text, mostStored/parts/len(text))
}

// many are the keys of entries that fill the largest object, with prefixes of ours.
func many(i int) map[string]string {
	out := map[string]string{}
	for n := range 8_000 {
		out[fmt.Sprintf("autoscaling.verticalscaler.io/%d-%d", i, n)] = strings.Repeat("v", 60)
	}
	return out
}

func selectorOfAll(i int) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: many(i)}
}

// ofTenants are the shapes in which a user fills one namespace: the first ones take the role edit, those of our kinds verticalscaler-editor.
func ofTenants() map[string]func(i int) client.Object {
	meta := func(i int) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "tenant", Name: fmt.Sprintf("web-%d", i), UID: types.UID(fmt.Sprint(i)), ResourceVersion: "1"}
	}
	controller := func(apiVersion, kind, name, uid string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(uid), Controller: ptr.To(true)}}
	}
	scaled := func(i int) []metav1.OwnerReference {
		return controller("autoscaling.verticalscaler.io/v1beta1", "ScaledDeployment", "web", fmt.Sprint(i))
	}
	containers := func(i int) (out []corev1.Container) {
		for n := range 8_000 {
			out = append(out, corev1.Container{Name: fmt.Sprintf("app-%d-%d", i, n), Image: "none", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": *resource.NewMilliQuantity(int64(n), resource.DecimalSI)},
			}})
		}
		return out
	}
	devices := func(i int) []corev1.Container {
		requests := corev1.ResourceList{}
		for key := range many(i) {
			requests[corev1.ResourceName(key)] = resource.MustParse("1")
		}
		return []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{Requests: requests}}}
	}
	deployment := func(change func(i int, d *appsv1.Deployment)) func(int) client.Object {
		return func(i int) client.Object {
			d := &appsv1.Deployment{ObjectMeta: meta(i)}
			d.Spec.Replicas, d.Spec.Template.Spec.Containers = ptr.To[int32](0), []corev1.Container{{Name: "app", Image: "none"}}
			change(i, d)
			return d
		}
	}
	pod := func(change func(i int, p *corev1.Pod)) func(int) client.Object {
		return func(i int) client.Object {
			p := &corev1.Pod{ObjectMeta: meta(i)}
			p.OwnerReferences, p.Spec.Containers = controller("apps/v1", "ReplicaSet", "web-1", "set"), []corev1.Container{{Name: "app", Image: "none"}}
			change(i, p)
			return p
		}
	}
	return map[string]func(i int) client.Object{
		"a Deployment of a ScaledDeployment, with a variable": deployment(func(i int, d *appsv1.Deployment) {
			d.OwnerReferences = scaled(i)
			d.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "X", Value: long(i, 1)}}
		}),
		"a Deployment of a ScaledDeployment, with fields of a scaler": deployment(func(i int, d *appsv1.Deployment) {
			d.OwnerReferences = scaled(i)
			d.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "verticalscaler", Operation: "Update", FieldsV1: metav1.NewFieldsV1(`{"f:` + long(i, 1) + `":{}}`)}}
		}),
		"a Deployment with the UID of an owner":  deployment(func(i int, d *appsv1.Deployment) { d.OwnerReferences = controller("v1", "X", "x", long(i, 1)) }),
		"a Deployment with the name of an owner": deployment(func(i int, d *appsv1.Deployment) { d.OwnerReferences = controller("v1", "X", long(i, 1), "x") }),
		"a Deployment with labels":               deployment(func(i int, d *appsv1.Deployment) { d.Labels = many(i) }),
		"a Deployment with annotations":          deployment(func(i int, d *appsv1.Deployment) { d.Annotations = many(i) }),
		"a Deployment with finalizers":           deployment(func(i int, d *appsv1.Deployment) { d.Finalizers = []string{long(i, 1)} }),
		"a Deployment with a selector":           deployment(func(i int, d *appsv1.Deployment) { d.Spec.Selector = selectorOfAll(i) }),
		"a Deployment with containers":           deployment(func(i int, d *appsv1.Deployment) { d.Spec.Template.Spec.Containers = containers(i) }),
		"a Deployment with init containers":      deployment(func(i int, d *appsv1.Deployment) { d.Spec.Template.Spec.InitContainers = containers(i) }),
		"a Deployment with devices":              deployment(func(i int, d *appsv1.Deployment) { d.Spec.Template.Spec.Containers = devices(i) }),
		"a Deployment with a refusal": deployment(func(i int, d *appsv1.Deployment) {
			d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: "True", Reason: "FailedCreate", Message: long(i, 1)}}
		}),
		"a pod with containers":           pod(func(i int, p *corev1.Pod) { p.Spec.Containers = containers(i) }),
		"a pod with devices":              pod(func(i int, p *corev1.Pod) { p.Spec.Containers = devices(i) }),
		"a pod with annotations":          pod(func(i int, p *corev1.Pod) { p.Annotations = many(i) }),
		"a pod with the UID of an owner":  pod(func(i int, p *corev1.Pod) { p.OwnerReferences[0].UID = types.UID(long(i, 1)) }),
		"a pod with the name of an owner": pod(func(i int, p *corev1.Pod) { p.OwnerReferences[0].Name = long(i, 1) }),
		"a ReplicaSet with an owner": func(i int) client.Object {
			set := &metav1.PartialObjectMetadata{ObjectMeta: meta(i)}
			set.Annotations, set.OwnerReferences = many(i), controller("apps/v1", "Deployment", long(i, 4), long(i, 4))
			return set
		},
		"an HPA": func(i int) client.Object {
			h := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta(i)}
			h.OwnerReferences, h.Finalizers = controller("keda.sh/v1", "ScaledObject", long(i, 4), "x"), []string{long(i, 4)}
			h.Spec.ScaleTargetRef.Name = long(i, 4)
			for range 2_000 {
				h.Spec.Metrics = append(h.Spec.Metrics, autoscalingv2.MetricSpec{Resource: &autoscalingv2.ResourceMetricSource{
					Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To[int32](50)},
				}})
			}
			return h
		},
		"a scaler": func(i int) client.Object {
			s := &v1beta1.VerticalScaler{ObjectMeta: meta(i)}
			s.Labels, s.Annotations, s.Finalizers = many(i), many(i), []string{long(i, 4)}
			s.Annotations[v1beta1.PausedAnnotation], s.OwnerReferences = long(i, 4), controller("v1", "X", long(i, 4), "x")
			return s
		},
		"a ScaledDeployment": func(i int) client.Object {
			s := &v1beta1.ScaledDeployment{ObjectMeta: meta(i)}
			s.Labels, s.Annotations, s.Finalizers = many(i), many(i), []string{long(i, 4)}
			s.Spec.Selector, s.Status.Selector = selectorOfAll(i), long(i, 4)
			s.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Env: []corev1.EnvVar{{Name: "X", Value: long(i, 1)}}}}
			return s
		},
		"a policy": func(i int) client.Object {
			p := &v1beta1.ScalingPolicy{ObjectMeta: meta(i)}
			p.Labels, p.Annotations, p.Finalizers = many(i), many(i), []string{long(i, 4)}
			p.Spec.DeploymentSelector, p.Spec.Exclude = selectorOfAll(i), &v1beta1.DeploymentExclusions{DeploymentSelector: selectorOfAll(i)}
			return p
		},
		"the sizes of new pods": func(i int) client.Object {
			s := &v1beta1.NewPodSizes{ObjectMeta: meta(i)}
			s.Labels, s.Annotations, s.OwnerReferences = many(i), many(i), controller("v1", "X", long(i, 4), "x")
			return s
		},
		"a LimitRange": func(i int) client.Object {
			l := &corev1.LimitRange{ObjectMeta: meta(i)}
			l.Labels, l.Annotations, l.Finalizers = many(i), many(i), []string{long(i, 4)}
			return l
		},
	}
}

// kept is the stored part of an object.
func kept(t *testing.T, o client.Object) any {
	t.Helper()
	switch o := o.(type) {
	case *appsv1.Deployment:
		return newDeploymentRecord(o)
	case *corev1.Pod:
		return newPodRecord(o)
	case *metav1.PartialObjectMetadata:
		return newSetRecord(o)
	}
	out, err := Trim(o)
	must.Succeed(t, err)
	return out
}

// Users with rights in one namespace must not fill the memory of the operator, which serves all others.
func TestNoObjectOfATenantIsKeptWhole(t *testing.T) {
	for name, build := range ofTenants() {
		t.Run(name, func(t *testing.T) {
			const objects = 4
			_ = kept(t, build(0)) // fills caches of the packages
			before := heap()
			var all []any
			for i := range objects {
				all = append(all, kept(t, build(i+1)))
			}
			each := (int64(heap()) - int64(before)) / objects
			runtime.KeepAlive(all)
			if each > most {
				t.Errorf("%d KiB of it are kept, so %d fill the limit of 512Mi", each>>10, 512<<20/each)
			}
		})
	}
}

// While the namespace of a tenant is full, the OOM kill of a pod in another one is reported, and the heap stays.
func TestAFullNamespaceHidesNoOOMKillInAnother(t *testing.T) {
	victim := richPod()
	victim.Namespace, victim.Name, victim.UID = "shop", "web-1-a", "victim"
	victim.ManagedFields = nil
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: victim.OwnerReferences[0].Name, UID: victim.OwnerReferences[0].UID,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "web", Controller: ptr.To(true)}},
	}}
	api := apiOf(t, interceptor.Funcs{}, victim, set)
	cached := Over(nil, plainAPI{api})
	killed := make(chan types.NamespacedName, 10_000)
	cached.Pods.OnChange(func(of types.NamespacedName, _, after *workload.Pod) {
		if after != nil && len(after.Kills) > 0 {
			killed <- of
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { _ = cached.Deployments.Start(ctx) }()
	go func() { _ = cached.Pods.Start(ctx) }()
	must.Succeed(t, cached.Deployments.WaitForSync(ctx))
	must.Succeed(t, cached.Pods.WaitForSync(ctx))
	for name, build := range ofTenants() {
		if o := build(len(name)); strings.HasPrefix(name, "a pod") || strings.HasPrefix(name, "a Deployment") {
			o.SetName(fmt.Sprintf("object-%x", name))
			o.SetResourceVersion("")
			o.SetManagedFields(nil)
			must.Succeed(t, api.Create(ctx, o))
		}
	}
	victim.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137, FinishedAt: metav1.Now()}
	victim.Status.ContainerStatuses[0].RestartCount++
	must.Succeed(t, api.Status().Update(ctx, victim))
	if of := <-killed; of.Namespace != "shop" {
		t.Errorf("the kill is of %s", of)
	}
	d := cached.Deployments.Get(types.NamespacedName{Namespace: "tenant", Name: fmt.Sprintf("object-%x", "a Deployment with labels")})
	if d == nil || !d.TooLarge || d.Labels != nil {
		t.Errorf("a Deployment with too many labels is seen as %+v", d)
	}
}

// Large Deployments of one namespace share a bound of memory, which is free again once they are deleted.
func TestLargeDeploymentsOfANamespaceShareABound(t *testing.T) {
	large := func(namespace string, i int) *deploymentRecord {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(namespace, i)), Labels: map[string]string{}}}
		for n := range 20 {
			d.Labels[fmt.Sprintf("%d.example.com/%d", i, n)] = strings.Repeat("v", 60)
		}
		for n := range 60 {
			d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: strings.Repeat("c", 60) + fmt.Sprint(n)})
		}
		return newDeploymentRecord(d)
	}
	var r room
	fits := 0
	for i := range 5_000 {
		if one := large("tenant", i); r.holds(one) {
			fits++
		}
	}
	if size := large("tenant", 1).size(); fits*size > mostOfNamespace || fits*size < mostOfNamespace/2 {
		t.Errorf("%d Deployments of %d bytes are kept", fits, size)
	}
	for i := range 1_000 {
		if !r.holds(newDeploymentRecord(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: fmt.Sprintf("small-%d", i), UID: types.UID(fmt.Sprintf("small-%d", i))}})) {
			t.Fatalf("large Deployments leave no room for small one %d", i)
		}
	}
	again, other := large("tenant", 4_999), large("shop", 1)
	if r.holds(again) || !r.holds(other) || !r.holds(large("tenant", 1)) {
		t.Error("the bound is not that of one namespace, or one that is kept already is not kept again")
	}
	r.free(large("tenant", 7))
	if !r.holds(again) {
		t.Error("a deleted one still counts")
	}
	if again.strip(); again.size() > mostOrdinary || !again.seen.TooLarge || again.seen.Labels != nil {
		t.Errorf("without room, %d bytes are kept of %+v", again.size(), again.seen)
	}
}

// After a watch that was away, a Deployment that was created again with its name is a change of the former one.
func TestADeploymentThatIsCreatedAgainCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := newServer(t), webDeployment()
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: strings.Repeat("c", mostOrdinary)}}
		s.put("Deployment", d.DeepCopy())
		c := s.start()
		d.UID = "again"
		s.watches["Deployment"].Action(watch.Modified, s.put("Deployment", d).Object)
		synctest.Wait()
		if taken := c.Deployments.large.taken[d.Namespace]; len(taken) != 1 || taken[d.UID] <= mostOrdinary {
			t.Errorf("the namespace has %v bytes of large Deployments", taken)
		}
	})
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build olm

package olm

import (
	"fmt"
	"maps"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// Annotations that kwok and its metrics follow, see hack/cluster.
const (
	usesCPU    = "usage.verticalscaler.io/cpu"
	usesMemory = "usage.verticalscaler.io/memory"
)

// deploy creates a Deployment whose pods request 100m and 128Mi and use more: 340m and
// 300Mi each. It does not wait.
func deploy(t *testing.T, namespace, name string, replicas int32) {
	t.Helper()
	d := testkit.Deployment(namespace, name)
	d.Spec.Replicas = ptr.To(replicas)
	// Both limits leave room, so that usage determines the recommendation.
	d.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("400m"), corev1.ResourceMemory: resource.MustParse("512Mi"),
	}
	d.Spec.Template.Annotations = map[string]string{usesCPU: "340m", usesMemory: "300Mi"}
	env.Create(t, d)
}

// enough is the maxAllowed of the tests' scalers. It is less than the recommendation for 340m of usage.
// So the decision does not depend on a measured CPU usage, which is off after a pause of the machine.
func enough() *v1beta1.ResourcePolicy {
	return &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{
		{ContainerName: "*", MaxAllowed: &v1beta1.ResourceBounds{CPU: ptr.To(resource.MustParse("300m"))}},
	}}
}

// scale creates a scaler of the Deployment with that name, without a cooldown.
func scale(t *testing.T, namespace, name string, mode v1beta1.UpdateMode) {
	t.Helper()
	space(t, namespace).Scale(name, world.InMode(mode), func(s *v1beta1.VerticalScaler) { s.Spec.ResourcePolicy = enough() })
}

// space is a namespace.
func space(t *testing.T, namespace string) *world.World {
	t.Helper()
	return world.New(t, env.Client, namespace, world.Options{RealTime: func(f func() string) {
		t.Helper()
		eventually(t, f)
	}})
}

// sized waits until every pod has its decided size without a restart, which is at least that much CPU.
func sized(t *testing.T, namespace, name, cpu string) {
	t.Helper()
	w := space(t, namespace)
	w.Until(func() string {
		if requests := w.Sized(name); requests.Cpu().Cmp(resource.MustParse(cpu)) < 0 {
			return fmt.Sprintf("the pods of %s/%s request %s CPU", namespace, name, requests.Cpu())
		}
		return ""
	})
	for _, pod := range w.Pods(name) {
		if pod.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Fatalf("pod %s/%s was restarted", namespace, pod.Name)
		}
	}
}

// fingerprint has the parts of workloads that must not change if they are not managed: identities, specs, labels,
// annotations and restarts. Statuses that Kubernetes controllers write at the end of a rollout do not count.
func fingerprint(t *testing.T, namespace string) map[string]string {
	t.Helper()
	out := map[string]string{}
	var deployments appsv1.DeploymentList
	var sets appsv1.ReplicaSetList
	var list corev1.PodList
	for _, l := range []client.ObjectList{&deployments, &sets, &list} {
		must.Succeed(t, env.Client.List(t.Context(), l, client.InNamespace(namespace)))
	}
	for _, d := range deployments.Items {
		out["Deployment "+d.Name] = metadataOf(&d)
	}
	for _, s := range sets.Items {
		out["ReplicaSet "+s.Name] = metadataOf(&s)
	}
	for _, p := range list.Items {
		if p.DeletionTimestamp != nil {
			continue
		}
		restarts := int32(0)
		for _, c := range p.Status.ContainerStatuses {
			restarts += c.RestartCount
		}
		requests := p.Spec.Containers[0].Resources.Requests
		out["Pod "+p.Name] = fmt.Sprintf("%s, restarts %d, cpu %s, memory %s", metadataOf(&p), restarts, requests.Cpu(), requests.Memory())
	}
	return out
}

// metadataOf returns an object's identity and metadata. Every change of a spec changes the
// generation.
func metadataOf(o client.Object) string {
	annotations := maps.Clone(o.GetAnnotations())
	delete(annotations, "deployment.kubernetes.io/revision") // set at the end of a rollout
	return fmt.Sprintf("uid %s, generation %d, labels %v, annotations %v", o.GetUID(), o.GetGeneration(), o.GetLabels(), annotations)
}

// ownedIn creates a ScaledDeployment with one pod and a scaler in that mode.
func ownedIn(t *testing.T, namespace, name string, mode v1beta1.UpdateMode) {
	t.Helper()
	w := space(t, namespace)
	w.Create(w.NewOwner(name, world.Scaled(mode), func(o *v1beta1.ScaledDeployment) {
		o.Spec.Replicas, o.Spec.Scaling.ResourcePolicy = ptr.To[int32](1), enough()
		o.Spec.Template.Annotations = map[string]string{usesCPU: "340m", usesMemory: "300Mi"}
		o.Spec.Template.Spec.Containers[0].Resources.Limits = nil
	}))
}

// revertsDrift changes the number of replicas by hand, and waits until the operator reverts it.
func revertsDrift(t *testing.T, namespace, name string) {
	t.Helper()
	w := space(t, namespace)
	wanted := *w.Deployment(name).Spec.Replicas
	w.Patch(w.Deployment(name), `{"spec":{"replicas":%d}}`, wanted+1)
	w.Until(func() string {
		if n := *w.Deployment(name).Spec.Replicas; n != wanted {
			return fmt.Sprintf("Deployment %s/%s has %d replicas, not %d", namespace, name, n, wanted)
		}
		return ""
	})
}

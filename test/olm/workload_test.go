// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build olm

package olm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// Annotations that kwok and its metrics follow, see hack/cluster.
const (
	usesCPU    = "usage.verticalscaler.io/cpu"
	usesMemory = "usage.verticalscaler.io/memory"
)

// deploy creates a Deployment whose pods request 100m and 128Mi and use more: 340m and
// 300Mi each. It does not wait.
func deploy(t *testing.T, namespace, name string, replicas int32, changes ...func(*appsv1.Deployment)) {
	t.Helper()
	d := testkit.Deployment(namespace, name)
	d.Spec.Replicas = ptr.To(replicas)
	// Both limits leave room, so that usage determines the recommendation.
	d.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("400m"), corev1.ResourceMemory: resource.MustParse("512Mi"),
	}
	d.Spec.Template.Annotations = map[string]string{usesCPU: "340m", usesMemory: "300Mi"}
	for _, change := range changes {
		change(d)
	}
	create(t, d)
}

// enough is the maxAllowed of the tests' scalers. It is less than the recommendation for
// 340m of usage, so that the decision does not depend on a measured CPU usage, which is off
// after a pause of the machine.
func enough() *v1beta1.ResourcePolicy {
	return &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{
		{ContainerName: "*", MaxAllowed: &v1beta1.ResourceBounds{CPU: ptr.To(resource.MustParse("300m"))}},
	}}
}

// scale creates a scaler of the Deployment with that name, without a cooldown.
func scale(t *testing.T, namespace, name string, mode v1beta1.UpdateMode) {
	t.Helper()
	s := testkit.Scaler(namespace, name, name)
	s.Spec.UpdatePolicy.UpdateMode = mode
	s.Spec.UpdatePolicy.CooldownSeconds = ptr.To[int32](0)
	s.Spec.ResourcePolicy = enough()
	create(t, s)
}

func scaler(t *testing.T, namespace, name string) *v1beta1.VerticalScaler {
	t.Helper()
	var s v1beta1.VerticalScaler
	if err := env.Client.Get(t.Context(), key(namespace, name), &s); err != nil {
		t.Fatal(err)
	}
	return &s
}

func deployment(t *testing.T, namespace, name string) *appsv1.Deployment {
	t.Helper()
	var d appsv1.Deployment
	if err := env.Client.Get(t.Context(), key(namespace, name), &d); err != nil {
		t.Fatal(err)
	}
	return &d
}

// pods returns the Deployment's pods that are not being deleted, by name.
func pods(t *testing.T, namespace, name string) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	if err := env.Client.List(t.Context(), &list, client.InNamespace(namespace), client.MatchingLabels{"app": name}); err != nil {
		t.Fatal(err)
	}
	out := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	slices.SortFunc(out, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// isRunning returns why the Deployment is not rolled out yet.
func isRunning(d *appsv1.Deployment) string {
	if s := d.Status; s.ObservedGeneration != d.Generation || s.AvailableReplicas != *d.Spec.Replicas || s.UpdatedReplicas != *d.Spec.Replicas || s.Replicas != *d.Spec.Replicas {
		return fmt.Sprintf("Deployment %s/%s has %d of %d pods available", d.Namespace, d.Name, s.AvailableReplicas, *d.Spec.Replicas)
	}
	return ""
}

// runs waits until the Deployment's pods run.
func runs(t *testing.T, namespace, name string) {
	t.Helper()
	eventually(t, func() string { return isRunning(deployment(t, namespace, name)) })
}

// sized waits until the scaler reports that all is applied, and every pod has at least that
// much CPU without a restart.
func sized(t *testing.T, namespace, name, cpu string) {
	t.Helper()
	least := resource.MustParse(cpu)
	eventually(t, func() string {
		s := scaler(t, namespace, name)
		if !meta.IsStatusConditionTrue(s.Status.Conditions, v1beta1.ConditionApplied) {
			return fmt.Sprintf("scaler %s/%s: %s", namespace, name, sayConditions(s))
		}
		list := pods(t, namespace, name)
		if d := deployment(t, namespace, name); len(list) != int(*d.Spec.Replicas) {
			return fmt.Sprintf("%d pods of %d", len(list), *d.Spec.Replicas)
		}
		for _, pod := range list {
			wanted := pod.Spec.Containers[0].Resources
			if wanted.Requests.Cpu().Cmp(least) < 0 {
				return fmt.Sprintf("pod %s/%s requests %s CPU", namespace, pod.Name, wanted.Requests.Cpu())
			}
			if len(pod.Status.ContainerStatuses) == 0 {
				return fmt.Sprintf("pod %s/%s does not run", namespace, pod.Name)
			}
			status := pod.Status.ContainerStatuses[0]
			if status.Resources == nil || !status.Resources.Requests.Cpu().Equal(*wanted.Requests.Cpu()) {
				return fmt.Sprintf("pod %s/%s: the size is not applied", namespace, pod.Name)
			}
			if status.RestartCount != 0 {
				t.Fatalf("pod %s/%s was restarted", namespace, pod.Name)
			}
		}
		return ""
	})
}

func sayConditions(s *v1beta1.VerticalScaler) string {
	if len(s.Status.Conditions) == 0 {
		return "no conditions"
	}
	var out []string
	for _, c := range s.Status.Conditions {
		out = append(out, fmt.Sprintf("%s %s (%s: %s)", c.Type, c.Status, c.Reason, c.Message))
	}
	return strings.Join(out, ", ")
}

// fingerprint is what must not change on workloads that are not managed: identities, specs,
// labels, annotations and restarts. Statuses that Kubernetes controllers write at the end
// of a rollout do not count.
func fingerprint(t *testing.T, namespace string) map[string]string {
	t.Helper()
	out := map[string]string{}
	var deployments appsv1.DeploymentList
	var sets appsv1.ReplicaSetList
	var list corev1.PodList
	for _, l := range []client.ObjectList{&deployments, &sets, &list} {
		if err := env.Client.List(t.Context(), l, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
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
	template := testkit.Deployment(namespace, name).Spec.Template
	template.Annotations = map[string]string{usesCPU: "340m", usesMemory: "300Mi"}
	template.Spec.Containers[0].Resources.Limits = nil
	create(t, &v1beta1.ScaledDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1beta1.ScaledDeploymentSpec{
			Replicas: ptr.To[int32](1), Template: template,
			Scaling: &v1beta1.Scaling{
				UpdatePolicy:   v1beta1.UpdatePolicy{UpdateMode: mode, CooldownSeconds: ptr.To[int32](0)},
				ResourcePolicy: enough(),
			},
		},
	})
}

func owner(t *testing.T, namespace, name string) *v1beta1.ScaledDeployment {
	t.Helper()
	var o v1beta1.ScaledDeployment
	if err := env.Client.Get(t.Context(), key(namespace, name), &o); err != nil {
		t.Fatal(err)
	}
	return &o
}

// available waits until the ScaledDeployment reports that its whole spec is applied.
func available(t *testing.T, namespace, name string) {
	t.Helper()
	eventually(t, func() string {
		o := owner(t, namespace, name)
		if o.Status.ObservedGeneration != o.Generation || !meta.IsStatusConditionTrue(o.Status.Conditions, v1beta1.ConditionReady) {
			return fmt.Sprintf("ScaledDeployment %s/%s: %+v", namespace, name, o.Status)
		}
		return ""
	})
}

// missing returns a message while the object exists.
func missing(t *testing.T, namespace, name string, object client.Object) string {
	t.Helper()
	err := env.Client.Get(t.Context(), key(namespace, name), object)
	if apierrors.IsNotFound(err) {
		return ""
	}
	return fmt.Sprintf("%T %s/%s is still there: %v", object, namespace, name, err)
}

// revertsDrift changes the number of replicas by hand, and waits until the operator reverts it.
func revertsDrift(t *testing.T, namespace, name string) {
	t.Helper()
	wanted := *deployment(t, namespace, name).Spec.Replicas
	patch(t, deployment(t, namespace, name), `{"spec":{"replicas":%d}}`, wanted+1)
	eventually(t, func() string {
		if n := *deployment(t, namespace, name).Spec.Replicas; n != wanted {
			return fmt.Sprintf("Deployment %s/%s has %d replicas, not %d", namespace, name, n, wanted)
		}
		return ""
	})
}

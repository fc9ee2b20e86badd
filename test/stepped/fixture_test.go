// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// fixture is a world in a namespace of its own.
type fixture struct {
	*world.World
	t *testing.T
}

// newFixture creates a namespace on an API server in memory, and an operator for it. Each option changes the operator's
// configuration.
func newFixture(t *testing.T, options ...func(*operatorconfig.Operator)) *fixture {
	t.Helper()
	capacity := corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("10000")}
	var objects []client.Object
	for _, node := range world.Nodes {
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}, Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity}})
	}
	return newFixtureOn(t, world.NewAPI(nil, objects...), "shop", nil, options...)
}

func newFixtureOn(t *testing.T, api client.WithWatch, namespace string, how []world.Option, options ...func(*operatorconfig.Operator)) *fixture {
	t.Helper()
	for _, option := range options {
		how = append(how, world.WithConfig(option))
	}
	return &fixture{world.New(t, api, namespace, how...), t}
}

// quick compresses the history: an hour of usage is enough evidence to lower a request, and its peaks are forgotten.
func quick(c *operatorconfig.Operator) {
	r := &c.Recommendation
	r.CPUHalfLife.Duration = 4 * time.Minute
	r.RecentHalfLife.Duration = 2 * time.Minute
	r.MemoryWindow.Duration = 32 * time.Minute
	r.FullEvidence.Duration = time.Hour
	r.ConfidenceUnit.Duration = time.Minute
}

// create creates an object as the user. A scaler without a policy gets a margin of 15 %, so that constant usage leads to a
// distinctive number, and a scaler without verificationSeconds gets 0. New pods start as in the template unless the scaler
// says otherwise, because the policy for new pods is for all tests of the API server.
func (w *fixture) create(o client.Object) {
	w.Helper()
	if s, ok := o.(*v1beta1.VerticalScaler); ok {
		update := &s.Spec.UpdatePolicy
		if update.NewPods == "" && update.UpdateMode != v1beta1.UpdateModeInitial && update.Fallback != v1beta1.FallbackRecreate {
			update.NewPods = v1beta1.NewPodsAsTemplate
		}
		if s.Spec.RecommendationPolicy == nil {
			s.Spec.RecommendationPolicy = &v1beta1.RecommendationPolicy{SafetyMarginPercent: ptr.To[int32](15)}
		}
		if update.VerificationSeconds == nil {
			update.VerificationSeconds = ptr.To[int32](0)
		}
	}
	w.Create(o)
}

// deploy creates a Deployment with three replicas and lets it run.
func (w *fixture) deploy(name string, changes ...func(*appsv1.Deployment)) *appsv1.Deployment {
	w.Helper()
	d := testkit.Deployment(w.Namespace, name)
	d.Spec.Replicas = ptr.To[int32](3)
	for _, change := range changes {
		change(d)
	}
	return w.Deploy(d)
}

// scale creates a scaler of the Deployment with that name, without a cooldown.
func (w *fixture) scale(name string, changes ...func(*v1beta1.VerticalScaler)) {
	w.Helper()
	s := testkit.Scaler(w.Namespace, name, name)
	s.Spec.UpdatePolicy.CooldownSeconds = ptr.To[int32](0)
	for _, change := range changes {
		change(s)
	}
	w.create(s)
}

func inMode(mode v1beta1.UpdateMode) func(*v1beta1.VerticalScaler) {
	return func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.UpdateMode = mode }
}

// sets are the generations of the ReplicaSets of an app, by name.
func (w *fixture) sets(app string) map[string]int64 {
	w.Helper()
	var list appsv1.ReplicaSetList
	if err := w.Client.List(w.t.Context(), &list, client.InNamespace(w.Namespace), client.MatchingLabels{world.AppLabel: app}); err != nil {
		w.Fatal(err)
	}
	out := map[string]int64{}
	for _, set := range list.Items {
		out[set.Name] = set.Generation
	}
	return out
}

func restarts(pods []corev1.Pod) map[string]int32 {
	out := map[string]int32{}
	for _, pod := range pods {
		for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
			if status.RestartCount > 0 {
				out[pod.Name+"/"+status.Name] += status.RestartCount
			}
		}
	}
	return out
}

// runs lets time pass until the Deployment is rolled out, and returns it.
func (w *fixture) runs(name string) (d *appsv1.Deployment) {
	w.Helper()
	w.eventually(func() string {
		d = w.Deployment(name)
		s, want := d.Status, ptr.Deref(d.Spec.Replicas, 1)
		if s.ObservedGeneration != d.Generation || s.UpdatedReplicas != want || s.AvailableReplicas != want || s.Replicas != want {
			return fmt.Sprintf("Deployment %s has %d of %d pods available, %d updated", name, s.AvailableReplicas, want, s.UpdatedReplicas)
		}
		return ""
	})
	return d
}

// wipe empties the scaler's status, as a restore from a copy does.
func (w *fixture) wipe(name string) {
	w.Helper()
	patch := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/status","value":{"observedGeneration":-1}}]`))
	if err := w.Client.Status().Patch(w.t.Context(), testkit.Scaler(w.Namespace, name, ""), patch); err != nil {
		w.Fatal(err)
	}
}

// mark is a place in the operator's writes.
func (w *fixture) mark() int { return len(w.Writes()) }

// writes are the operator's writes since a mark.
func (w *fixture) writes(mark int) []world.Write { return w.Writes()[mark:] }

// accepted are the writes that the API server has accepted.
func accepted(writes []world.Write) (out []world.Write) {
	for _, write := range writes {
		if write.Err == nil {
			out = append(out, write)
		}
	}
	return out
}

// count counts the writes of a resource, by object.
func count(writes []world.Write, resource string) map[string]int {
	out := map[string]int{}
	for _, write := range writes {
		if write.Resource == resource {
			out[write.Name]++
		}
	}
	return out
}

func total(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// eventually lets at most three hours pass until f describes nothing that is wrong.
func (w *fixture) eventually(f func() string) {
	w.Helper()
	w.Within(180, f)
}

// twoContainers adds a container "agent".
func twoContainers(d *appsv1.Deployment) {
	d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, testkit.Container("agent"))
}

// kill lets a container run out of memory.
func (w *fixture) kill(pod *corev1.Pod, container string) {
	w.Helper()
	if err := w.Kubelet.Kill(pod, container); err != nil {
		w.Fatal(err)
	}
}

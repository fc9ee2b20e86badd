// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
)

func node(name, cpu, memory string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		}},
	}
}

func TestTheLargestNode(t *testing.T) {
	const gibi = 1 << 30
	var n Nodes
	for _, step := range []struct {
		what string
		do   func()
		want quantity.Amounts
	}{
		{"none", func() {}, quantity.Amounts{}},
		{"one", func() { n.set(node("a", "4", "8Gi")) }, quantity.Amounts{CPUMillis: 4000, MemoryBytes: 8 * gibi}},
		{"another, larger in memory only", func() { n.set(node("b", "2", "16Gi")) }, quantity.Amounts{CPUMillis: 4000, MemoryBytes: 16 * gibi}},
		{"a node grows", func() { n.set(node("b", "8", "16Gi")) }, quantity.Amounts{CPUMillis: 8000, MemoryBytes: 16 * gibi}},
		{"a node shrinks", func() { n.set(node("b", "1", "16Gi")) }, quantity.Amounts{CPUMillis: 4000, MemoryBytes: 16 * gibi}},
		{"an invalid amount is ignored", func() { n.set(node("c", "-1", "1e999")) }, quantity.Amounts{CPUMillis: 4000, MemoryBytes: 16 * gibi}},
		{"a node is deleted", func() { n.remove(node("b", "1", "16Gi")) }, quantity.Amounts{CPUMillis: 4000, MemoryBytes: 8 * gibi}},
		{"a deletion was missed", func() { n.remove(cache.DeletedFinalStateUnknown{Key: "a", Obj: node("a", "4", "8Gi")}) }, quantity.Amounts{}},
		{"an object of another kind", func() { n.set(&corev1.Pod{}); n.remove("a") }, quantity.Amounts{}},
	} {
		step.do()
		if got := n.Largest(); got != step.want {
			t.Errorf("%s: %+v, want %+v", step.what, got, step.want)
		}
	}
}

func TestLargestIsUnknownBeforeTheCacheSyncs(t *testing.T) {
	n := Nodes{registration: registered(false)}
	n.set(node("a", "4", "8Gi"))
	if got := n.Largest(); got != (quantity.Amounts{}) {
		t.Errorf("the largest of some nodes is %+v", got)
	}
	n.registration = registered(true)
	if got := n.Largest(); got.CPUMillis != 4000 {
		t.Errorf("the largest node is %+v", got)
	}
}

type registered bool

func (r registered) HasSynced() bool                     { return bool(r) }
func (r registered) HasSyncedChecker() cache.DoneChecker { return nil }

func TestATrimmedNodeHasOnlyItsSize(t *testing.T) {
	n := node("a", "4", "8Gi")
	n.Labels, n.Annotations = map[string]string{"zone": "a"}, map[string]string{"note": "long"}
	n.Spec = corev1.NodeSpec{PodCIDR: "10.0.0.0/24", Taints: []corev1.Taint{{Key: "dedicated"}}}
	n.Status.Capacity = n.Status.Allocatable.DeepCopy()
	n.Status.Images = []corev1.ContainerImage{{Names: []string{"a"}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}}
	n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("110")
	assert.Equal(t, "a trimmed node", node("a", "4", "8Gi"), trimmed(t, n))
}

// All pods of a node count, with any controller, until they have ended or are deleted.
func TestWhatIsFreeOnANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mebi = 1 << 20
		s := newServer(t)
		requesting := func(name, set, cpu, memory string) *corev1.Pod {
			p := sized(name, set, "app")
			p.Spec.NodeName = "a"
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
			return p
		}
		daemon, ended, elsewhere := requesting("daemon", "", "300m", "100Mi"), requesting("job", "", "1", "1Gi"), requesting("elsewhere", "web", "1", "1Gi")
		daemon.OwnerReferences, daemon.Namespace = nil, "system"
		ended.OwnerReferences, ended.Status.Phase = nil, corev1.PodSucceeded
		elsewhere.Spec.NodeName = "b"
		for _, p := range []*corev1.Pod{daemon, ended, elsewhere, requesting("web", "web", "200m", "100Mi")} {
			s.put("Pod", p)
		}
		n := Nodes{pods: s.start().Pods}
		n.set(node("a", "1", "200Mi"))
		check := func(what string, cpu, memory int64) {
			t.Helper()
			if got, isKnown := n.Free("a"); !isKnown || got != (quantity.Amounts{CPUMillis: cpu, MemoryBytes: memory * mebi}) {
				t.Errorf("%s: %+v, %t are free, want %dm and %dMi", what, got, isKnown, cpu, memory)
			}
		}
		check("at first", 500, 0)
		raised := requesting("web", "web", "800m", "100Mi") // which its kubelet has not granted
		raised.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Resources: &requesting("web", "web", "200m", "100Mi").Spec.Containers[0].Resources}}
		s.watches["Pod"].Action(watch.Modified, s.put("Pod", raised).Object)
		synctest.Wait()
		check("with a raise that waits for room", -100, 0)
		s.watches["Pod"].Delete(daemon)
		synctest.Wait()
		check("without a pod", 200, 100)
		if got, isKnown := n.Free("b"); isKnown {
			t.Errorf("of a node that is not known, %+v are free", got)
		}
	})
}

func TestTheRoomForAReplacement(t *testing.T) {
	const gibi = 1 << 30
	amounts := func(cpu, memory int64) quantity.Amounts {
		return quantity.Amounts{CPUMillis: cpu, MemoryBytes: memory * gibi}
	}
	cordoned := node("cordoned", "64", "512Gi")
	cordoned.Spec.Unschedulable = true
	n := Nodes{pods: NewPods(nil)}
	if !n.HaveRoom(amounts(1, 1), "", quantity.Amounts{}) {
		t.Error("nodes that are not known have no room")
	}
	n.set(node("large", "4", "8Gi"))
	n.set(node("small", "1", "16Gi"))
	n.set(cordoned)
	for what, tc := range map[string]struct {
		requests, leaving quantity.Amounts
		own               string
		want              bool
	}{
		"a node has both":               {amounts(4000, 8), quantity.Amounts{}, "", true},
		"no node has both":              {amounts(4000, 16), quantity.Amounts{}, "", false},
		"a cordoned node takes no pods": {amounts(8000, 8), quantity.Amounts{}, "", false},
		"the pod leaves its own node":   {amounts(1500, 16), amounts(500, 0), "small", true},
		"but not that of another":       {amounts(1500, 16), amounts(500, 0), "large", false},
	} {
		if got := n.HaveRoom(tc.requests, tc.own, tc.leaving); got != tc.want {
			t.Errorf("%s: %t", what, got)
		}
	}
	n.set(node("cordoned", "64", "512Gi"))
	if !n.HaveRoom(amounts(8000, 8), "", quantity.Amounts{}) {
		t.Error("a node that is uncordoned has no room")
	}
}

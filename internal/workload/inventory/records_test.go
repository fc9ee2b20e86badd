// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// A stored pod is read as the pod itself. Every field of a pod gets a random value here, from words with a meaning. A
// pod without a ReplicaSet is not stored.
func TestAStoredPodIsReadAsThePod(t *testing.T) {
	for seed := range uint64(1000) {
		pod := randomPod(rand.New(rand.NewPCG(seed, 1)))
		record := newPodRecord(pod.DeepCopy())
		if !isControlled(&pod) {
			if record.pod != nil || record.set != "" {
				t.Fatalf("seed %d: stored: %+v", seed, record.pod)
			}
			continue
		}
		if diff := cmp.Diff(workload.ReadPod(&pod, false), *record.read()); diff != "" {
			t.Fatalf("seed %d: (-pod +stored):\n%s", seed, diff)
		}
	}
}

// isControlled reports whether a ReplicaSet controls the pod.
func isControlled(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "ReplicaSet"
}

// A pod differs from the stored one if a field that is read has changed.
func TestAStoredPodDiffers(t *testing.T) {
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 3))
		before := randomPod(r)
		after := before.DeepCopy()
		if other := randomPod(r); seed%3 == 0 {
			after.Status = other.Status
		} else if seed%3 == 1 {
			after.Status.Conditions, after.Annotations = other.Status.Conditions, other.Annotations
		} else {
			after.Labels, after.Status.PodIP = other.Labels, "10.0.0.1"
		}
		after.ResourceVersion = "later"
		was, is := workload.ReadPod(&before, true), workload.ReadPod(after, true)
		was.ResourceVersion = "later"
		if got, want := newPodRecord(after).differs(newPodRecord(&before)), isControlled(after) && !cmp.Equal(was, is); got != want {
			t.Fatalf("seed %d: differs() = %t, want %t:\n%s", seed, got, want, cmp.Diff(was, is))
		}
	}
}

// A cached scaler shares strings and quantities, and means the same.
func TestACachedScalerSharesWhatIsEqual(t *testing.T) {
	c := newEncodedCluster(t, 2)
	first, second := trimmed(t, c.scalerObject("web")), trimmed(t, c.scalerObject("web"))
	whole := c.scalerObject("web")
	whole.ManagedFields = nil
	assert.Equal(t, "a trimmed scaler", whole, first)
	for what, pair := range map[string][2]string{
		"a message":   {first.Status.Conditions[0].Message, second.Status.Conditions[0].Message},
		"a reason":    {first.Status.Recommendation.ContainerRecommendations[1].Reasons[1].Code, second.Status.Recommendation.ContainerRecommendations[0].Reasons[1].Code},
		"a container": {first.Status.Decision.Containers[0].ContainerName, second.Status.Recommendation.ContainerRecommendations[0].ContainerName},
	} {
		if pair[0] != pair[1] || unsafe.StringData(pair[0]) != unsafe.StringData(pair[1]) {
			t.Errorf("%s is stored twice: %q, %q", what, pair[0], pair[1])
		}
	}
	target := first.Status.Recommendation.ContainerRecommendations[0].Target
	if target.CPU != first.Status.Decision.Containers[0].Requests.CPU || target.CPU == second.Status.Decision.Containers[0].Requests.CPU {
		t.Error("quantities are shared in one scaler, and not between two")
	}
	if c := first.DeepCopy(); c.Status.Decision.Containers[0].Requests.CPU == c.Status.Recommendation.ContainerRecommendations[0].Target.CPU {
		t.Error("a copy shares quantities")
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// A hot pod among cold ones goes silent, in each way in which a source can leave it out. Nothing is lowered, and the scaler
// names the pod. When it is heard again, lowering may go on. If a pod goes silent in the middle of lowering, the other pods
// keep their size until then.
func TestNothingIsLoweredWhileAPodIsSilent(t *testing.T) {
	t.Parallel()
	w := newFixture(t, quick)
	w.Usage.Even = true // The test says what each pod uses, and which pod is silent.
	w.deploy("web", func(d *appsv1.Deployment) {
		d.Spec.Replicas = ptr.To[int32](8)
		d.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("2Gi")}
	})
	pods := w.Pods("web")
	hot, cold, last := pods[0].Name, pods[1].Name, pods[len(pods)-1].Name
	w.Uses("web", "app", 50, 60)
	w.PodUses(hot, "app", 900, 700)
	w.scale("web", func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.VerificationSeconds = ptr.To[int32](600) })
	w.hasMemory(700)
	w.Minutes(90) // evidence enough to lower

	absent := func(pod string) {
		w.Usage.Silent = func(p *corev1.Pod, _ string) bool { return p.Name == pod }
	}
	heard := func() { w.Usage.Silent, w.Usage.Refused = nil, nil }
	for how, silence := range map[string]func() string{
		"absent": func() string { absent(hot); return "pod " + hot + ": no usage reported" },
		"stale": func() string {
			w.Usage.Refused = []usage.Refused{{Pod: hot, Why: usage.Stale}}
			return "pod " + hot + ": Stale"
		},
		"not a number": func() string {
			w.Usage.Refused = []usage.Refused{{Pod: hot, Container: "app", Why: usage.NotANumber}}
			return "pod " + hot + ": container app NotANumber"
		},
	} {
		says := silence()
		w.Says("web", v1beta1.ConditionRecommendationProvided, "True", v1beta1.ReasonMetricsIncomplete, says)
		before := w.sizes()
		w.Minutes(60)
		w.notLower(how, before)
		mark := w.mark()
		w.Minutes(30)
		if writes := w.writes(mark); len(writes) > 0 {
			t.Errorf("%s: writes although nothing has changed: %v", how, writes)
		}
		heard()
		w.Says("web", v1beta1.ConditionRecommendationProvided, "True", v1beta1.ReasonEnoughHistory, "enough usage")
	}

	// More usage of another pod raises while the hot one is silent.
	absent(hot)
	w.Says("web", v1beta1.ConditionRecommendationProvided, "True", v1beta1.ReasonMetricsIncomplete, hot)
	before := w.sizes()
	w.PodUses(cold, "app", 1200, 800)
	w.hasMemory(800)
	w.notLower("with more usage", before)
	heard()
	w.Says("web", v1beta1.ConditionRecommendationProvided, "True", v1beta1.ReasonEnoughHistory, "enough usage")

	// The hot pods cool down. One pod is lowered and verified first, and then another is silent.
	w.PodUses(hot, "app", 50, 60)
	w.PodUses(cold, "app", 50, 60)
	w.eventually(func() string {
		if w.lowered() == 0 {
			return "no pod is lowered yet"
		}
		return ""
	})
	absent(last)
	w.Says("web", v1beta1.ConditionRecommendationProvided, "True", v1beta1.ReasonMetricsIncomplete, last)
	w.Says("web", v1beta1.ConditionApplied, "False", v1beta1.ReasonMetricsIncomplete, "waits until all running pods report usage (pod "+last+": no usage reported)")
	before = w.sizes()
	w.Minutes(30) // longer than the verification
	w.notLower("in the middle of lowering", before)
	if n := w.lowered(); n == len(pods) {
		t.Errorf("all %d pods are lowered", n)
	}
	heard()
	w.eventually(func() string {
		if n := w.lowered(); n < len(pods) {
			return fmt.Sprintf("%d of %d pods are lowered", n, len(pods))
		}
		return ""
	})
}

// sizes are the recommended requests, and those of the pods, in millicores and MiB.
func (w *fixture) sizes() map[string][2]int64 {
	w.Helper()
	out := map[string][2]int64{}
	for _, pod := range w.Pods("web") {
		requests := pod.Spec.Containers[0].Resources.Requests
		out[pod.Name] = [2]int64{requests.Cpu().MilliValue(), requests.Memory().Value() >> 20}
	}
	if r := w.Scaler("web").Status.Recommendation; r != nil {
		target := r.ContainerRecommendations[0].Target
		out["the target"] = [2]int64{target.CPU.MilliValue(), target.Memory.Value() >> 20}
	}
	return out
}

// notLower fails the test if a size is lower than before.
func (w *fixture) notLower(when string, before map[string][2]int64) {
	w.Helper()
	now := w.sizes()
	for what, size := range before {
		if now[what][0] < size[0] || now[what][1] < size[1] {
			w.Errorf("%s: %s falls from %v to %v", when, what, size, now[what])
		}
	}
}

// hasMemory lets time pass until the target and each pod have at least that much memory.
func (w *fixture) hasMemory(mebi int64) {
	w.Helper()
	w.eventually(func() string {
		sizes := w.sizes()
		for _, size := range sizes {
			if size[1] < mebi {
				return fmt.Sprintf("the sizes are %v", sizes)
			}
		}
		return ""
	})
}

// lowered is the number of pods that request little memory.
func (w *fixture) lowered() (n int) {
	w.Helper()
	for what, size := range w.sizes() {
		if size[1] < 700 && what != "the target" {
			n++
		}
	}
	return n
}

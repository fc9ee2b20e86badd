// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// A pod goes silent while the first pods that are lowered are verified. The others keep their size until it is heard again.
func TestNothingIsLoweredWhileAPodIsSilent(t *testing.T) {
	t.Parallel()
	w := newFixture(t, world.Quick)
	w.Usage.Even = true // with a short history, the size of uneven pods may move again before it is lowered
	w.deploy("web")
	w.Uses("web", "app", 400, 240)
	w.Scale("web")
	w.Minutes(20)
	w.Sized("web")
	w.Patch(testkit.Scaler(w.Namespace, "web", ""), `{"spec":{"updatePolicy":{"verificationSeconds":600}}}`)
	lowered := func() (n int) {
		for _, pod := range w.Pods("web") {
			if memory := world.Asked(&pod, "app").Requests.Memory(); memory.Cmp(resource.MustParse("200Mi")) < 0 {
				n++
			}
		}
		return n
	}
	w.Uses("web", "app", 50, 60)
	w.Until(func() string {
		if lowered() == 0 {
			return "no pod is lowered yet"
		}
		return ""
	})
	pods := w.Pods("web")
	silent := pods[len(pods)-1].Name
	w.Usage.Silent = func(p *corev1.Pod, _ string) bool { return p.Name == silent }
	w.Reports("web", "RecommendationProvided", "True", "MetricsIncomplete", silent)
	w.Reports("web", "Ready", "False", "MetricsIncomplete", silent)
	w.Reports("web", "Applied", "False", "MetricsIncomplete", "waits until all running pods report usage (pod "+silent+": no usage reported)")
	w.Minutes(30) // longer than the verification
	if n := lowered(); n == len(pods) {
		t.Errorf("all %d pods are lowered", n)
	}
	w.Usage.Silent = nil
	w.Until(func() string {
		if n := lowered(); n < len(pods) {
			return fmt.Sprintf("%d of %d pods are lowered", n, len(pods))
		}
		return ""
	})
}

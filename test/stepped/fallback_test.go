// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

func orRollout(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.Fallback = "Rollout" }

// The template is written once, and restored when the scaler is deleted.
func TestTheFallbackRollsTheDeploymentOut(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	before := w.deploy("web")
	w.Kubelet.Script("web", 0, world.Infeasible)
	w.Uses("web", "app", 300, 240)
	w.scale("web", orRollout)
	w.eventually(func() string {
		if d := w.Deployment("web"); d.Generation == before.Generation {
			return "the template is as it was"
		}
		return ""
	})
	requests := w.Sized("web")
	w.Between("cpu", *requests.Cpu(), "330m", "380m")
	w.Between("memory", *requests.Memory(), "307Mi", "309Mi")
	ownsOnlyResources(w.t, w.runs("web"))
	if sets := w.sets("web"); len(sets) != 2 {
		w.Errorf("%d ReplicaSets: one rollout should leave two", len(sets))
	}
	w.Says("web", "Ready", "True", "OperatingNormally")
	w.Minutes(20)
	writes := w.Writes()
	if n := count(accepted(writes), "deployments"); total(n) != 1 {
		w.Errorf("writes of Deployments: %v", n)
	}

	w.Remove(testkit.Scaler(w.Namespace, "web", "web"))
	w.Gone(testkit.Scaler(w.Namespace, "web", "web"))
	w.restored(before)
	w.runs("web")
}

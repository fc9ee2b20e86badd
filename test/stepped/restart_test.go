// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// The operator may crash between the first resize and the status write that records it.
func TestALostStatusDoesNotStrandTheOtherPods(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web")
	w.Uses("web", "app", 300, 240)
	w.Fault = func(write world.Write, n int, send func() error) error {
		if write.Resource != "pods/resize" || n > 1 {
			return send()
		}
		w.wipe("web") // while the operator is gone
		return w.Operator.KillAfter(write, send)
	}
	w.Scale("web")
	w.Sized("web")
	for _, pod := range w.Pods("web") {
		w.Between("cpu", *world.Actual(&pod, "app").Requests.Cpu(), "330m", "380m")
	}
}

func TestNothingShrinksWithALostHistory(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web")
	w.Uses("web", "app", 300, 240)
	w.Scale("web")
	w.Sized("web")
	w.Stop()
	w.wipe("web")
	w.Remove(&v1beta1.VerticalScalerCheckpoint{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "web"}})
	w.Uses("web", "app", 100, 100) // an hour of evidence is not enough to lower to this
	mark := w.mark()
	w.Start()
	kept := func() {
		t.Helper()
		for _, pod := range w.Pods("web") {
			now := world.Actual(&pod, "app").Requests
			w.Between("cpu", *now.Cpu(), "330m", "380m")
			w.Between("memory", *now.Memory(), "307Mi", "309Mi")
		}
	}
	w.Minutes(40)
	w.Reports("web", "Ready", "True", "OperatingNormally")
	kept()
	if n := count(w.writes(mark), "pods/resize"); total(n) > 0 {
		t.Errorf("resizes: %v", n)
	}

	// A new pod does not cause a reduction either.
	w.Patch(testkit.Deployment(w.Namespace, "web"), `{"spec":{"replicas":4}}`)
	w.runs("web")
	w.Minutes(5)
	kept()
}

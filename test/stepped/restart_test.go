// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// killEach kills the operator after the next write of each kind. test/faults does it at each write in turn, with sizes that
// do not depend on usage.
func (w *fixture) killEach() {
	killed := map[string]bool{}
	w.Fault = func(write world.Write, _ int, send func() error) error {
		if killed[write.Kind()] {
			return send()
		}
		killed[write.Kind()] = true
		return w.Operator.KillAfter(write, send)
	}
}

// With constant usage, a restart does not change the decision. A pod is resized once more at most, because no process
// remembers the first resize.
func TestRestartsWhilePodsAreResizedChangeNothing(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web")
	w.Uses("web", "app", 300, 240)
	w.killEach()
	w.scale("web")
	requests := w.Sized("web")
	w.Between("cpu", *requests.Cpu(), "330m", "380m")
	w.Between("memory", *requests.Memory(), "307Mi", "309Mi")
	w.Says("web", "Ready", "True", "OperatingNormally")
	if n := restarts(w.Pods("web")); len(n) > 0 {
		t.Errorf("restarts: %v", n)
	}
	if n := count(w.Writes(), "pods/resize"); len(n) != 3 || total(n) > 4 {
		t.Errorf("resizes by pod: %v", n)
	}
}

// The template is written once, and the original values are restored all the same.
func TestRestartsDuringARolloutChangeNothing(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	before := w.deploy("web")
	w.Uses("web", "app", 300, 240)
	w.killEach()
	w.scale("web", inMode("Rollout"))
	requests := w.Sized("web")
	w.Between("cpu", *requests.Cpu(), "330m", "380m")
	if n := count(w.Writes(), "deployments"); total(n) != 1 {
		t.Errorf("writes of the template: %v", n)
	}
	if n := len(w.sets("web")); n != 2 {
		t.Errorf("%d ReplicaSets: one rollout should leave two", n)
	}

	w.killEach()
	w.Patch(testkit.Scaler(w.Namespace, "web", ""), `{"spec":{"updatePolicy":{"updateMode":"Recommend"}}}`)
	w.Minutes(3)
	after := w.Deployment("web")
	if diff := cmp.Diff(before.Spec, after.Spec); diff != "" {
		t.Errorf("the spec (-before +after):\n%s", diff)
	}
	for _, entry := range after.ManagedFields {
		if entry.Manager == "verticalscaler" {
			t.Errorf("verticalscaler still manages %s", entry.FieldsV1)
		}
	}
	if s := w.Scaler("web"); len(s.Finalizers) > 0 || s.Status.OriginalResources != nil {
		t.Errorf("finalizers %v, original resources %+v", s.Finalizers, s.Status.OriginalResources)
	}
}

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
	w.scale("web")
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
	w.scale("web")
	w.Sized("web")
	w.Stop()
	w.wipe("web")
	w.Remove(&v1beta1.VerticalScalerCheckpoint{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "web"}})
	w.Uses("web", "app", 100, 100) // two hours of evidence would not be enough to lower to this
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
	w.Says("web", "Ready", "True", "OperatingNormally")
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

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"fmt"
	"math/rand/v2"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// With constant usage, a restart does not change the decision. Each pod is resized once,
// and once more for each restart between a resize and the record of its decision.
func TestRestartsWhilePodsAreResizedChangeNothing(t *testing.T) {
	t.Parallel()
	env.NeedAudit(t)
	const times = 5
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	w := newFixture(t)
	w.deploy("web")
	w.uses("web", "app", 300, 240)
	w.scale("web")
	for range times {
		until := len(w.writes(w.began)) + 1 + random.IntN(3)
		w.eventually(func() string {
			if n := len(w.writes(w.began)); n < until && w.condition("web", "Applied").Reason != "Applied" {
				return fmt.Sprintf("%d writes of %d", n, until)
			}
			return ""
		})
		w.restart()
	}
	requests := w.sized("web")
	w.between("cpu", *requests.Cpu(), "330m", "380m")
	w.between("memory", *requests.Memory(), "307Mi", "309Mi")
	w.says("web", "Ready", "True", "OperatingNormally")
	if n := restarts(w.pods("web")); len(n) > 0 {
		t.Errorf("restarts: %v", n)
	}
	writes := w.writes(w.began)
	w.tell("three pods raised, five restarts", writes)
	for pod, n := range count(accepted(writes), "pods/resize") {
		if n > 1+times {
			t.Errorf("pod %s was resized %d times", pod, n)
		}
	}
}

// The template is written once, and once more for each restart between the write and its
// record. The original values are restored all the same.
func TestRestartsDuringARolloutChangeNothing(t *testing.T) {
	t.Parallel()
	env.NeedAudit(t)
	const times = 5
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	w := newFixture(t)
	before := w.deploy("web")
	w.uses("web", "app", 300, 240)
	interrupted := func(done func() bool) {
		t.Helper()
		for range times {
			until := len(w.writes(w.began)) + 1 + random.IntN(3)
			w.eventually(func() string {
				if n := len(w.writes(w.began)); n < until && !done() {
					return fmt.Sprintf("%d writes of %d", n, until)
				}
				return ""
			})
			w.restart()
		}
	}
	w.scale("web", inMode("Rollout"))
	interrupted(func() bool { return w.condition("web", "Applied").Reason == "Applied" })
	requests := w.sized("web")
	w.between("cpu", *requests.Cpu(), "330m", "380m")
	ownsOnlyResources(t, w.deployment("web"))
	writes := w.writes(w.began)
	w.tell("a rollout, five restarts", writes)
	if n := total(count(accepted(writes), "deployments")); n > 1+times {
		t.Errorf("%d writes of the template", n)
	}
	if n := len(w.sets("web")); n != 2 {
		t.Errorf("%d ReplicaSets: one rollout should leave two", n)
	}

	w.patch(testkit.Scaler(w.namespace, "web", ""), `{"spec":{"updatePolicy":{"updateMode":"Recommend"}}}`)
	interrupted(func() bool { return len(w.scaler("web").Finalizers) == 0 })
	w.restored(before)
	w.eventually(func() string {
		if s := w.scaler("web"); len(s.Finalizers) > 0 || s.Status.OriginalResources != nil {
			return fmt.Sprintf("finalizers %v, original resources %+v", s.Finalizers, s.Status.OriginalResources)
		}
		return ""
	})
}

// The operator may crash between the first resize and the status write that records it.
func TestALostStatusDoesNotStrandTheOtherPods(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web")
	w.uses("web", "app", 300, 240)
	w.scale("web")
	w.eventually(func() string {
		for _, pod := range w.pods("web") {
			if resourcesOf(pod, "app").Requests.Cpu().String() != "100m" {
				return ""
			}
		}
		return "no pod has been resized"
	})
	w.operator.Stop(t)
	w.wipe("web")
	w.start()
	w.sized("web")
	w.eventually(func() string {
		for _, pod := range w.pods("web") {
			if actual(pod, "app").Requests.Cpu().String() == "100m" {
				return "pod " + pod.Name + " is left behind"
			}
		}
		return ""
	})
}

func TestNothingShrinksWithALostHistory(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web")
	w.uses("web", "app", 300, 240)
	w.scale("web")
	w.sized("web")
	w.operator.Stop(t)
	w.wipe("web")
	w.remove(&v1beta1.VerticalScalerCheckpoint{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web"}})
	w.uses("web", "app", 100, 100) // two hours of evidence would not be enough to lower to this
	mark := env.Mark()
	w.start()
	kept := func() {
		t.Helper()
		for _, pod := range w.pods("web") {
			now := actual(pod, "app").Requests
			w.between("cpu", *now.Cpu(), "330m", "380m")
			w.between("memory", *now.Memory(), "307Mi", "309Mi")
		}
	}
	w.says("web", "Ready", "True", "OperatingNormally")
	w.rounds(40)
	kept()
	w.tell("a lost history", w.writes(mark))
	if n := count(w.writes(mark), "pods/resize"); total(n) > 0 {
		t.Errorf("resizes: %v", n)
	}

	// A new pod does not cause a reduction either.
	w.patch(testkit.Deployment(w.namespace, "web"), `{"spec":{"replicas":4}}`)
	w.runs("web")
	w.eventually(func() string {
		for _, pod := range w.pods("web") {
			if actual(pod, "app").Requests.Cpu().String() == "100m" {
				return "pod " + pod.Name + " has the template's size only"
			}
		}
		return ""
	})
	kept()
}

// wipe empties the scaler's status, as a restore from a backup does.
func (w *fixture) wipe(name string) {
	w.Helper()
	patch := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/status","value":{"observedGeneration":-1}}]`))
	if err := env.Client.Status().Patch(w.Context(), testkit.Scaler(w.namespace, name, ""), patch); err != nil && !apierrors.IsNotFound(err) {
		w.Fatal(err)
	}
}

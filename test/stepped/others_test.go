// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package stepped

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// pipe runs the real kubectl with this input.
func (w *fixture) pipe(stdin []byte, args ...string) (string, error) {
	command := exec.CommandContext(w.Context(), env.Kubectl(), append([]string{"--kubeconfig", env.Kubeconfig(), "-n", w.Namespace}, args...)...)
	command.Stdin = bytes.NewReader(stdin)
	out, err := command.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// manifest is the Deployment "web" as a chart or a repository has it.
func (w *fixture) manifest(changes ...func(*appsv1.Deployment)) []byte {
	w.Helper()
	d := testkit.Deployment(w.Namespace, "web")
	d.TypeMeta = metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}
	d.Spec.Replicas = ptr.To(int32(2))
	for _, change := range changes {
		change(d)
	}
	content, err := json.Marshal(d)
	must.Succeed(w, err)
	var object map[string]any
	must.Succeed(w, json.Unmarshal(content, &object))
	delete(object, "status")
	if content, err = json.Marshal(object); err != nil {
		w.Fatal(err)
	}
	return content
}

func withoutResources(d *appsv1.Deployment) {
	d.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
}

// syncer applies a manifest as a common deployment tool does.
type syncer struct {
	put func(w *fixture, next []byte) error
	// writer is the scaler's name for the tool.
	writer string
}

func applies(writer string, flags ...string) syncer {
	return syncer{writer: writer, put: func(w *fixture, next []byte) error {
		_, err := w.pipe(next, append([]string{"apply", "-f", "-"}, flags...)...)
		return err
	}}
}

// syncers simulate deployment tools by the requests that they send.
var syncers = map[string]syncer{
	"kubectl apply": applies("kubectl-client-side-apply (Update)"),
	"Flux":          applies("kustomize-controller (Apply)", "--server-side", "--force-conflicts", "--field-manager=kustomize-controller"),
	"a program that replaces the whole Deployment": {writer: "replacer (Update)", put: replace},
}

func replace(w *fixture, next []byte) error {
	var d, live appsv1.Deployment
	if err := json.Unmarshal(next, &d); err != nil {
		return err
	}
	err := env.Client.Get(w.Context(), w.Key("web"), &live)
	if apierrors.IsNotFound(err) {
		return env.Client.Create(w.Context(), &d, client.FieldOwner("replacer"))
	}
	if err != nil {
		return err
	}
	d.ResourceVersion = live.ResourceVersion
	d.Annotations = live.Annotations
	return env.Client.Update(w.Context(), &d, client.FieldOwner("replacer"))
}

// healer applies a manifest again whenever the Deployment differs from it.
type healer struct {
	syncer
	fixture  *fixture
	manifest []byte
	heals    int
}

// heal applies the manifest, and reverts differences from then on.
func (w *fixture) heal(s syncer, manifest []byte) *healer {
	w.Helper()
	h := &healer{syncer: s, fixture: w}
	h.set(manifest)
	w.Others = append(w.Others, h.look)
	return h
}

// set switches to another manifest and applies it.
func (h *healer) set(manifest []byte) {
	h.fixture.Helper()
	must.Succeed(h.fixture, h.put(h.fixture, manifest))
	h.manifest = manifest
}

// look applies the manifest if a resource that it sets has another value.
func (h *healer) look() {
	var wanted appsv1.Deployment
	must.Succeed(h.fixture, json.Unmarshal(h.manifest, &wanted))
	live := h.fixture.Deployment("web")
	if drifts(wanted.Spec.Template.Spec.Containers[0].Resources, live.Spec.Template.Spec.Containers[0].Resources) {
		h.set(h.manifest)
		h.heals++
	}
}

func drifts(wanted, live corev1.ResourceRequirements) bool {
	for name, q := range wanted.Requests {
		if got, ok := live.Requests[name]; !ok || got.Cmp(q) != 0 {
			return true
		}
	}
	for name, q := range wanted.Limits {
		if got, ok := live.Limits[name]; !ok || got.Cmp(q) != 0 {
			return true
		}
	}
	return false
}

func TestTheOperatorStopsAFightOverTheTemplate(t *testing.T) {
	t.Parallel()
	for name, s := range syncers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newServed(t)
			h := w.heal(s, w.manifest())
			w.runs("web")
			w.Uses("web", "app", 300, 240)
			w.Scale("web", world.InMode("Rollout"))
			w.Reports("web", "Stalled", "True", "Contested", s.writer)
			w.Reports("web", "Ready", "False", "Contested", s.writer)
			w.Noted(w.Scaler("web").UID, "Blocked", s.writer)
			n := w.rewrites(0)
			t.Logf("%d writes by the operator, %d by the tool", n, h.heals)
			if n < 1 || n > 3 {
				t.Errorf("%d writes before the operator stopped", n)
			}
			if by := w.Scaler("web").Status.Decision.ContestedBy; len(by) != 1 || by[0] != s.writer {
				t.Errorf("contested by %q", by)
			}

			// The operator does not write another recommendation either.
			mark := w.mark()
			before := w.Scaler("web").Status.Decision.Containers
			w.Uses("web", "app", 900, 240)
			w.Until(func() string {
				if now := w.Scaler("web").Status.Decision.Containers; now[0].Requests.CPU.Cmp(*before[0].Requests.CPU) <= 0 {
					return fmt.Sprintf("decided is %v", now)
				}
				return ""
			})
			w.Minutes(10)
			w.Reports("web", "Applied", "False", "Contested", s.writer)
			if n := w.rewrites(mark); n != 0 {
				t.Errorf("%d writes after the operator stopped", n)
			}

			// An edit makes the operator try again, with the same result.
			mark = w.mark()
			w.Patch(testkit.Scaler(w.Namespace, "web", "web"), `{"spec":{"updatePolicy":{"cooldownSeconds":1}}}`)
			w.Until(func() string {
				if c := w.Condition("web", "Stalled"); w.rewrites(mark) < 1 || c.Reason != "Contested" || c.ObservedGeneration < 2 {
					return fmt.Sprintf("%d writes, %+v", w.rewrites(mark), c)
				}
				return ""
			})
			if n := w.rewrites(mark); n > 3 {
				t.Errorf("%d writes before the operator stopped again", n)
			}

			// Once the tool no longer sets the resource, the operator takes over without an edit.
			h.set(w.manifest(withoutResources))
			w.Sized("web")
			ownsOnlyResources(t, w.Deployment("web"))
			w.Reports("web", "Ready", "True", "OperatingNormally")
			w.Remove(testkit.Scaler(w.Namespace, "web", "web"))
			w.Gone(testkit.Scaler(w.Namespace, "web", "web"))
		})
	}
}

func TestAnApplyThatIsNotForcedIsRefusedAndNamesTheOperator(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	apply := func(manifest []byte) error {
		_, err := w.pipe(manifest, "apply", "-f", "-", "--server-side", "--field-manager=helm")
		return err
	}
	must.Succeed(t, apply(w.manifest()))
	w.runs("web")
	w.Uses("web", "app", 300, 240)
	w.Scale("web", world.InMode("Rollout"))
	requests := w.Sized("web")
	if err := apply(w.manifest()); err == nil || !strings.Contains(err.Error(), `with "verticalscaler"`) {
		t.Errorf("applied again: %v", err)
	}
	// A manifest without resources does not remove them: they belong to the operator.
	must.Succeed(t, apply(w.manifest(withoutResources)))
	w.Minutes(10)
	if again := w.Sized("web"); !again.Cpu().Equal(*requests.Cpu()) {
		t.Errorf("cpu is %s, not %s", again.Cpu(), requests.Cpu())
	}
	if n := w.rewrites(0); n != 1 {
		t.Errorf("%d writes by the operator", n)
	}
	if r := w.Scaler("web").Status.Decision.Reverts; r != 0 {
		t.Errorf("%d reverts", r)
	}
}

// updater reverts each resize of the pods of "web" until stop is called.
func (w *fixture) updater() (stop func()) {
	stopped := false
	w.Others = append(w.Others, func() {
		for _, pod := range w.Pods("web") {
			if stopped || world.Asked(&pod, "app").Requests.Cpu().String() == "100m" {
				continue
			}
			patch := client.RawPatch(types.StrategicMergePatchType, []byte(
				`{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"100m","memory":"128Mi"},"limits":{"cpu":"200m","memory":"256Mi"}}}]}}`))
			must.Succeed(w, env.Client.SubResource("resize").Patch(w.Context(), &pod, patch, client.FieldOwner("vpa-updater")))
		}
	})
	return func() { stopped = true }
}

func TestTheOperatorStopsAFightOverPods(t *testing.T) {
	t.Parallel()
	const writer = "vpa-updater (Update, resize)"
	w := newServed(t)
	w.deploy("web")
	stop := w.updater()
	w.Uses("web", "app", 300, 240)
	w.Scale("web")
	w.Reports("web", "Stalled", "True", "Contested", writer)
	resizes := func(since int) int { return total(count(accepted(w.writes(since)), "pods/resize")) }
	if n := resizes(0); n > 5 {
		t.Errorf("%d resizes of three pods before the operator stopped", n)
	}
	mark := w.mark()
	w.Uses("web", "app", 900, 240)
	w.Minutes(20)
	w.Restart()
	w.Minutes(10)
	w.Reports("web", "Applied", "False", "Contested", writer)
	if n := resizes(mark); n != 0 {
		t.Errorf("%d resizes after the operator stopped", n)
	}
	stop()
	w.Patch(testkit.Scaler(w.Namespace, "web", "web"), `{"spec":{"updatePolicy":{"cooldownSeconds":1}}}`)
	w.Sized("web")
	w.Reports("web", "Ready", "True", "OperatingNormally")
}

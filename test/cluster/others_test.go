// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/operator/app"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// pipe runs the real kubectl with this input.
func (w *fixture) pipe(stdin []byte, args ...string) (string, error) {
	command := exec.CommandContext(w.Context(), env.Kubectl(), append([]string{"--kubeconfig", env.Kubeconfig(), "-n", w.namespace}, args...)...)
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
	d := testkit.Deployment(w.namespace, "web")
	d.TypeMeta = metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}
	d.Spec.Replicas = ptr.To(int32(2))
	for _, change := range changes {
		change(d)
	}
	content, err := json.Marshal(d)
	if err != nil {
		w.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(content, &object); err != nil {
		w.Fatal(err)
	}
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
	put func(w *fixture, last, next []byte) error
	// writer is the scaler's name for the tool.
	writer string
}

func applies(writer string, flags ...string) syncer {
	return syncer{writer: writer, put: func(w *fixture, _, next []byte) error {
		_, err := w.pipe(next, append([]string{"apply", "-f", "-"}, flags...)...)
		return err
	}}
}

// syncers simulate deployment tools by the requests that they send.
var syncers = map[string]syncer{
	"kubectl apply":                       applies("kubectl-client-side-apply (Update)"),
	"kubectl apply by the server, forced": applies("kubectl (Apply)", "--server-side", "--force-conflicts"),
	"Argo CD":                             applies("argocd-controller (Update)", "--field-manager=argocd-controller"),
	"Argo CD with ServerSideApply":        applies("argocd-controller (Apply)", "--server-side", "--force-conflicts", "--field-manager=argocd-controller"),
	"Flux":                                applies("kustomize-controller (Apply)", "--server-side", "--force-conflicts", "--field-manager=kustomize-controller"),
	"Helm 4, forced":                      applies("helm (Apply)", "--server-side", "--force-conflicts", "--field-manager=helm"),
	"Helm 3, with a patch of three":       {writer: "helm (Update)", put: patchOfThree},
	"a program that replaces the whole Deployment": {writer: "replacer (Update)", put: replace},
}

// patchOfThree sends a three-way merge patch: it changes the live object to the next
// manifest, and removes fields that only the last manifest had.
func patchOfThree(w *fixture, last, next []byte) error {
	var live appsv1.Deployment
	err := env.Client.Get(w.Context(), w.key("web"), &live)
	if apierrors.IsNotFound(err) {
		var d appsv1.Deployment
		if err := json.Unmarshal(next, &d); err != nil {
			return err
		}
		return env.Client.Create(w.Context(), &d, client.FieldOwner("helm"))
	}
	if err != nil {
		return err
	}
	current, err := json.Marshal(live)
	if err != nil {
		return err
	}
	meta, err := strategicpatch.NewPatchMetaFromStruct(appsv1.Deployment{})
	if err != nil {
		return err
	}
	patch, err := strategicpatch.CreateThreeWayMergePatch(last, next, current, meta, true)
	if err != nil {
		return err
	}
	return env.Client.Patch(w.Context(), &live, client.RawPatch(types.StrategicMergePatchType, patch), client.FieldOwner("helm"))
}

func replace(w *fixture, _, next []byte) error {
	var d, live appsv1.Deployment
	if err := json.Unmarshal(next, &d); err != nil {
		return err
	}
	err := env.Client.Get(w.Context(), w.key("web"), &live)
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
	fixture *fixture

	mu       sync.Mutex
	manifest []byte
	heals    int
}

// heal applies the manifest, and reverts differences until the test ends.
func (w *fixture) heal(s syncer, manifest []byte) *healer {
	w.Helper()
	h := &healer{syncer: s, fixture: w}
	h.set(manifest)
	watcher, err := client.NewWithWatch(env.Config, client.Options{Scheme: app.Scheme()})
	if err != nil {
		w.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	events, err := watcher.Watch(ctx, &appsv1.DeploymentList{}, client.InNamespace(w.namespace))
	if err != nil {
		stop()
		w.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range events.ResultChan() {
			if d, ok := event.Object.(*appsv1.Deployment); ok {
				h.look(d)
			}
		}
	}()
	w.Cleanup(func() {
		events.Stop()
		stop()
		<-done
	})
	return h
}

// set switches to another manifest and applies it.
func (h *healer) set(manifest []byte) {
	h.fixture.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fixture.eventually(func() string { return said(h.put(h.fixture, h.manifest, manifest)) })
	h.manifest = manifest
}

// look applies the manifest if a resource that it sets has another value.
func (h *healer) look(live *appsv1.Deployment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var wanted appsv1.Deployment
	if err := json.Unmarshal(h.manifest, &wanted); err != nil {
		h.fixture.Error(err)
		return
	}
	if !drifts(wanted.Spec.Template.Spec.Containers[0].Resources, live.Spec.Template.Spec.Containers[0].Resources) {
		return
	}
	// A late event is superseded by a newer one in the queue.
	if err := h.put(h.fixture, h.manifest, h.manifest); err != nil && !apierrors.IsConflict(err) && h.fixture.Context().Err() == nil {
		h.fixture.Error(err)
	}
	h.heals++
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

func (h *healer) healed() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.heals
}

// rewrites counts the changes of the template that the API server accepted.
func (w *fixture) rewrites(since testkit.AuditMark) int {
	w.Helper()
	return total(count(accepted(w.writes(since)), "deployments"))
}

func TestTheOperatorStopsAFightOverTheTemplate(t *testing.T) {
	t.Parallel()
	env.NeedKwok(t)
	for name, s := range syncers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			h := w.heal(s, w.manifest())
			w.runs("web")
			w.uses("web", "app", 300, 240)
			w.scale("web", inMode("Rollout"))
			w.says("web", "Stalled", "True", "Contested", s.writer)
			w.says("web", "Ready", "False", "Contested", s.writer)
			w.noted(w.scaler("web").UID, "Blocked", s.writer)
			n := w.rewrites(w.began)
			t.Logf("%d writes by the operator, %d by the tool", n, h.healed())
			if n < 1 || n > 3 {
				t.Errorf("%d writes before the operator stopped", n)
			}
			if by := w.scaler("web").Status.Decision.ContestedBy; len(by) != 1 || by[0] != s.writer {
				t.Errorf("contested by %q", by)
			}

			// The operator does not write another recommendation either.
			mark := env.Mark()
			before := w.scaler("web").Status.Decision.Containers
			w.uses("web", "app", 900, 240)
			w.eventually(func() string {
				if now := w.scaler("web").Status.Decision.Containers; now[0].Requests.CPU.Cmp(*before[0].Requests.CPU) <= 0 {
					return fmt.Sprintf("decided is %v", now)
				}
				return ""
			})
			w.rounds(10)
			w.says("web", "Applied", "False", "Contested", s.writer)
			if n := w.rewrites(mark); n != 0 {
				t.Errorf("%d writes after the operator stopped", n)
			}

			// An edit makes the operator try again, with the same result.
			mark = env.Mark()
			w.patch(testkit.Scaler(w.namespace, "web", "web"), `{"spec":{"updatePolicy":{"cooldownSeconds":1}}}`)
			w.eventually(func() string {
				if c := w.condition("web", "Stalled"); w.rewrites(mark) < 1 || c.Reason != "Contested" || c.ObservedGeneration < 2 {
					return fmt.Sprintf("%d writes, %+v", w.rewrites(mark), c)
				}
				return ""
			})
			if n := w.rewrites(mark); n > 3 {
				t.Errorf("%d writes before the operator stopped again", n)
			}

			// Once the tool no longer sets the resource, the operator takes over without an edit.
			h.set(w.manifest(withoutResources))
			w.sized("web")
			ownsOnlyResources(t, w.deployment("web"))
			w.says("web", "Ready", "True", "OperatingNormally")
			w.remove(testkit.Scaler(w.namespace, "web", "web"))
			w.gone(testkit.Scaler(w.namespace, "web", "web"))
		})
	}
}

func TestAnApplyThatIsNotForcedIsRefusedAndNamesTheOperator(t *testing.T) {
	t.Parallel()
	env.NeedKwok(t)
	for name, manager := range map[string]string{"kubectl": "kubectl", "Helm 4": "helm"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			apply := func(manifest []byte) error {
				_, err := w.pipe(manifest, "apply", "-f", "-", "--server-side", "--field-manager="+manager)
				return err
			}
			if err := apply(w.manifest()); err != nil {
				t.Fatal(err)
			}
			w.runs("web")
			w.uses("web", "app", 300, 240)
			w.scale("web", inMode("Rollout"))
			requests := w.sized("web")
			if err := apply(w.manifest()); err == nil || !strings.Contains(err.Error(), `with "verticalscaler"`) {
				t.Errorf("applied again: %v", err)
			}
			// A manifest without resources does not remove them: they belong to the operator.
			if err := apply(w.manifest(withoutResources)); err != nil {
				t.Error(err)
			}
			w.rounds(10)
			if again := w.sized("web"); !again.Cpu().Equal(*requests.Cpu()) {
				t.Errorf("cpu is %s, not %s", again.Cpu(), requests.Cpu())
			}
			if n := w.rewrites(w.began); n != 1 {
				t.Errorf("%d writes by the operator", n)
			}
			if r := w.scaler("web").Status.Decision.Reverts; r != 0 {
				t.Errorf("%d reverts", r)
			}
		})
	}
}

// A server-side apply sets the order and the set of containers. Flux, Argo CD and Helm 4 can
// remove and rename a container, and change anything else with it, while a scaler has taken
// over the template.
func TestAServerSideApplyRemovesAndRenamesContainers(t *testing.T) {
	t.Parallel()
	testkit.Tidy(t, "it compares sizes of containers that know differently much of how uneven the pods are", testkit.UnevenUsage)
	env.NeedKwok(t)
	const image = "example.com/app:2"
	without := func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers = d.Spec.Template.Spec.Containers[:1]
		d.Spec.Template.Spec.Containers[0].Image = image
	}
	renamed := func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Image = image
		d.Spec.Template.Spec.Containers[1].Name = "aide"
	}
	for name, tc := range map[string]struct {
		next    []func(*appsv1.Deployment)
		names   []string
		reverts int32
	}{
		"a container is removed":                       {[]func(*appsv1.Deployment){without, withoutResources}, []string{"app"}, 0},
		"a container is renamed":                       {[]func(*appsv1.Deployment){renamed, withoutResources}, []string{"app", "aide"}, 0},
		"a container is removed, and sizes are undone": {[]func(*appsv1.Deployment){without}, []string{"app"}, 1},
		"a container is renamed, and sizes are undone": {[]func(*appsv1.Deployment){renamed}, []string{"app", "aide"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			apply := func(changes ...func(*appsv1.Deployment)) {
				t.Helper()
				if _, err := w.pipe(w.manifest(append([]func(*appsv1.Deployment){twoContainers}, changes...)...),
					"apply", "-f", "-", "--server-side", "--force-conflicts", "--field-manager=kustomize-controller"); err != nil {
					t.Fatal(err)
				}
			}
			apply()
			w.runs("web")
			for _, container := range []string{"app", "agent", "aide"} {
				w.uses("web", container, 300, 200)
			}
			w.scale("web", inMode("Rollout"))
			requests := w.sized("web")
			w.eventually(func() string {
				if n := len(w.scaler("web").Status.Decision.Containers); n != 2 {
					return fmt.Sprintf("%d containers are sized", n)
				}
				return ""
			})
			w.sized("web")
			ownsOnlyResources(t, w.deployment("web"))
			if got := containersOf(w.deployment("web")); !slices.Equal(got, []string{"app", "agent"}) {
				t.Errorf("the containers are %v", got)
			}

			apply(tc.next...)
			w.eventually(func() string {
				d := w.deployment("web")
				if got := containersOf(d); !slices.Equal(got, tc.names) || d.Spec.Template.Spec.Containers[0].Image != image {
					return fmt.Sprintf("the containers are %v, with the image %s", got, d.Spec.Template.Spec.Containers[0].Image)
				}
				if n := len(w.scaler("web").Status.Decision.Containers); n != len(tc.names) {
					return fmt.Sprintf("%d containers are sized", n)
				}
				for _, c := range d.Spec.Template.Spec.Containers {
					if c.Resources.Requests.Cpu().Cmp(*requests.Cpu()) != 0 {
						return fmt.Sprintf("%s requests %s of CPU", c.Name, c.Resources.Requests.Cpu())
					}
				}
				return ""
			})
			w.sized("web")
			w.says("web", "Ready", "True", "OperatingNormally")
			if s := w.scaler("web").Status.Decision; s.Reverts != tc.reverts || len(s.ContestedBy) > 0 {
				t.Errorf("%d reverts, contested by %v", s.Reverts, s.ContestedBy)
			}
			w.remove(testkit.Scaler(w.namespace, "web", "web"))
			w.gone(testkit.Scaler(w.namespace, "web", "web"))
		})
	}
}

func containersOf(d *appsv1.Deployment) (names []string) {
	for _, c := range d.Spec.Template.Spec.Containers {
		names = append(names, c.Name)
	}
	return names
}

// A LimitRange changes the decided values. The operator does not mistake that for a
// contest, however often it happens.
func TestAChangingLimitRangeIsNoContest(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	bounds := &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "bounds"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{"cpu": resource.MustParse("4")},
		}}},
	}
	w.create(bounds)
	w.deploy("web")
	w.uses("web", "app", 300, 240)
	w.scale("web", inMode("Rollout"))
	w.sized("web")
	for _, most := range []string{"600m", "580m", "560m", "540m"} {
		w.patch(bounds, `{"spec":{"limits":[{"type":"Container","max":{"cpu":%q}}]}}`, most)
		w.eventually(func() string {
			if got := w.deployment("web").Spec.Template.Spec.Containers[0].Resources.Limits.Cpu().String(); got != most {
				return fmt.Sprintf("the limit is %s: %+v", got, w.condition("web", "Applied"))
			}
			return ""
		})
		w.sized("web")
	}
}

// updater reverts each resize of the pods of "web", until the test ends or stop is called.
func (w *fixture) updater() (stop func()) {
	w.Helper()
	watcher, err := client.NewWithWatch(env.Config, client.Options{Scheme: app.Scheme()})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	events, err := watcher.Watch(ctx, &corev1.PodList{}, client.InNamespace(w.namespace))
	if err != nil {
		cancel()
		w.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range events.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || pod.DeletionTimestamp != nil || resourcesOf(*pod, "app").Requests.Cpu().String() == "100m" {
				continue
			}
			patch := client.RawPatch(types.StrategicMergePatchType, []byte(
				`{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"100m","memory":"128Mi"},"limits":{"cpu":"200m","memory":"256Mi"}}}]}}`))
			if err := env.Client.SubResource("resize").Patch(ctx, pod, patch, client.FieldOwner("vpa-updater")); client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
				w.Error(err)
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		events.Stop()
		cancel()
		<-done
	})
	w.Cleanup(stop)
	return stop
}

func TestTheOperatorStopsAFightOverPods(t *testing.T) {
	t.Parallel()
	env.NeedKwok(t)
	const writer = "vpa-updater (Update, resize)"
	for _, replicas := range []int32{1, 3} {
		t.Run(fmt.Sprintf("%d replicas", replicas), func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			w.deploy("web", func(d *appsv1.Deployment) { d.Spec.Replicas = &replicas })
			stop := w.updater()
			w.uses("web", "app", 300, 240)
			w.scale("web")
			w.says("web", "Stalled", "True", "Contested", writer)
			resizes := func(since testkit.AuditMark) int { return total(count(accepted(w.writes(since)), "pods/resize")) }
			n := resizes(w.began)
			t.Logf("%d resizes by the operator", n)
			if most := int(replicas) + 2; n > most {
				t.Errorf("%d resizes before the operator stopped, more than %d", n, most)
			}
			mark := env.Mark()
			w.uses("web", "app", 900, 240)
			w.rounds(20)
			w.restart()
			w.rounds(10)
			w.says("web", "Applied", "False", "Contested", writer)
			if n := resizes(mark); n != 0 {
				t.Errorf("%d resizes after the operator stopped", n)
			}
			stop()
			w.patch(testkit.Scaler(w.namespace, "web", "web"), `{"spec":{"updatePolicy":{"cooldownSeconds":1}}}`)
			w.sized("web")
			w.says("web", "Ready", "True", "OperatingNormally")
		})
	}
	t.Run("and continued with new pods", func(t *testing.T) {
		t.Parallel()
		w := newFixture(t)
		w.deploy("web")
		stop := w.updater()
		w.uses("web", "app", 300, 240)
		w.scale("web")
		w.says("web", "Stalled", "True", "Contested", writer)
		stop()
		w.change("web", "kubectl", func(d *appsv1.Deployment) { d.Spec.Template.Annotations = map[string]string{"restarted": "now"} })
		w.sized("web")
	})
}

// KEDA creates HPAs for its ScaledObjects.
func TestAnHPAOfKEDAKeepsItsResourceAndItsScaledObjectIsNamed(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web")
	w.create(&autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "keda-hpa-checkout", OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "keda.sh/v1alpha1", Kind: "ScaledObject", Name: "checkout", UID: "5f1a", Controller: ptr.To(true),
		}}},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			MinReplicas:    ptr.To(int32(3)), MaxReplicas: 3,
			Metrics: []autoscalingv2.MetricSpec{utilization("cpu"), {
				Type: autoscalingv2.ExternalMetricSourceType,
				External: &autoscalingv2.ExternalMetricSource{
					Metric: autoscalingv2.MetricIdentifier{Name: "s0-kafka"},
					Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: ptr.To(testkit.Container("").Resources.Requests["cpu"])},
				},
			}},
		},
	})
	w.uses("web", "app", 300, 240)
	w.scale("web")
	w.says("web", "Applied", "True", "HPAConflict", "cpu: not managed", "keda-hpa-checkout (of ScaledObject checkout)")
	for _, pod := range w.pods("web") {
		requests := resourcesOf(pod, "app").Requests
		if requests.Cpu().String() != "100m" {
			t.Errorf("pod %s has %s of CPU", pod.Name, requests.Cpu())
		}
		w.between("memory", *requests.Memory(), "270Mi", "330Mi")
	}
}

// vpaOf returns a VerticalPodAutoscaler of a Deployment.
func (w *fixture) vpaOf(name, deployment, mode string, containerPolicies ...any) *unstructured.Unstructured {
	vpa := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"targetRef":      map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment},
		"updatePolicy":   map[string]any{"updateMode": mode},
		"resourcePolicy": map[string]any{"containerPolicies": containerPolicies},
	}}}
	vpa.SetGroupVersionKind(schema.GroupVersionKind{Group: "autoscaling.k8s.io", Version: "v1", Kind: "VerticalPodAutoscaler"})
	vpa.SetNamespace(w.namespace)
	vpa.SetName(name)
	return vpa
}

func TestAVPAKeepsItsResources(t *testing.T) {
	t.Parallel()
	env.NeedKwok(t)
	t.Run("all of it", func(t *testing.T) {
		t.Parallel()
		w := newFixture(t)
		w.deploy("web")
		vpa := w.vpaOf("old", "web", "Recreate")
		w.create(vpa)
		w.uses("web", "app", 300, 240)
		w.scale("web")
		w.says("web", "Applied", "False", "VPAConflict", "app cpu", "app memory", "VerticalPodAutoscaler old")
		w.says("web", "Ready", "True", "OperatingNormally")
		w.rounds(10)
		if n := count(w.writes(w.began), "pods/resize"); total(n) > 0 {
			t.Errorf("resizes: %v", n)
		}
		// A VPA that only recommends is no conflict. Once it acts again, it is.
		w.patch(vpa, `{"spec":{"updatePolicy":{"updateMode":"Off"}}}`)
		w.sized("web")
		w.patch(vpa, `{"spec":{"updatePolicy":{"updateMode":"InPlaceOrRecreate"}}}`)
		w.says("web", "Applied", "False", "VPAConflict", "old")
		w.patch(vpa, `{"spec":{"targetRef":{"name":"other"}}}`)
		w.says("web", "Applied", "True", "WithinTolerance") // the pods have kept their resources
		w.patch(vpa, `{"spec":{"targetRef":{"name":"web"}}}`)
		w.says("web", "Applied", "False", "VPAConflict", "old")
		w.remove(vpa)
		w.says("web", "Applied", "True", "WithinTolerance")
		w.uses("web", "app", 900, 240)
		w.sized("web")
	})
	t.Run("its memory only", func(t *testing.T) {
		t.Parallel()
		w := newFixture(t)
		w.deploy("web", twoContainers)
		w.create(w.vpaOf("memory", "web", "Auto",
			map[string]any{"containerName": "*", "controlledResources": []any{"memory"}},
			map[string]any{"containerName": "agent", "mode": "Off"}))
		w.uses("web", "app", 300, 240)
		w.uses("web", "agent", 300, 240)
		w.scale("web")
		w.says("web", "Applied", "True", "VPAConflict", "app memory: not managed")
		for _, pod := range w.pods("web") {
			app, agent := resourcesOf(pod, "app").Requests, resourcesOf(pod, "agent").Requests
			w.between("cpu of app", *app.Cpu(), "330m", "400m")
			w.between("cpu of agent", *agent.Cpu(), "330m", "400m")
			w.between("memory of agent", *agent.Memory(), "270Mi", "330Mi")
			if app.Memory().String() != "128Mi" {
				t.Errorf("pod %s: app has %s of memory", pod.Name, app.Memory())
			}
		}
	})
	t.Run("the template is restored when a VPA is created later", func(t *testing.T) {
		t.Parallel()
		w := newFixture(t)
		before := w.deploy("web")
		w.uses("web", "app", 300, 240)
		w.scale("web", inMode("Rollout"))
		w.sized("web")
		w.create(w.vpaOf("late", "web", "Initial"))
		w.restored(before)
		w.says("web", "Applied", "False", "VPAConflict", "late")
	})
}

// A suspended scaler changes nothing: its values in the template stay until the mode
// changes.
func TestASuspendedScalerKeepsTheTemplateAndRecommendRestoresIt(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	before := w.deploy("web")
	w.uses("web", "app", 300, 240)
	w.scale("web", inMode("Rollout"))
	w.sized("web")
	held := w.scaler("web").Status.OriginalResources
	mark := env.Mark()
	w.patch(testkit.Scaler(w.namespace, "web", "web"), `{"spec":{"suspend":true}}`)
	w.says("web", "Ready", "True", "Suspended")
	w.uses("web", "app", 900, 240)
	w.rounds(20)
	if n := w.rewrites(mark); n != 0 {
		t.Errorf("%d writes of the template", n)
	}
	if now := w.scaler("web").Status.OriginalResources; now == nil || now.UID != held.UID {
		t.Errorf("held: %+v", now)
	}
	w.patch(testkit.Scaler(w.namespace, "web", "web"), `{"spec":{"updatePolicy":{"updateMode":"Recommend"}}}`)
	w.restored(before)
	w.eventually(func() string {
		if s := w.scaler("web"); len(s.Finalizers) > 0 || s.Status.OriginalResources != nil {
			return fmt.Sprintf("finalizers %v, original resources %+v", s.Finalizers, s.Status.OriginalResources)
		}
		return ""
	})
}

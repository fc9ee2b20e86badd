// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/schemawalk"
)

// This test makes all changes that package schemawalk derives from a schema, one after the
// other, to a workload at rest: S0 -> changed -> S0. A rejected change leaves the object as it is,
// and the error names the field. An accepted change is visible, or a table says why not. The
// workload then returns to where it was.
//
// The world is untidy: containers in no order, pods that use unevenly. But every pod reports usage
// and nothing else changes it, because the state after a change is compared with the one before.

// nearby is how far apart amounts may be that count as equal, in percent. A target is lowered only
// if it is that far above what is needed, so it may stay a bit higher than it was.
const nearby = 12

func TestGeneratedChangesOfAScaler(t *testing.T) {
	const s0 = `{
		deploymentName: web, suspend: false,
		updatePolicy: {updateMode: InPlace, fallback: Wait, minReplicas: 2, cooldownSeconds: 0, tolerancePercent: 0, verificationSeconds: 0,
			scaleUp: {cooldownSeconds: 0, maxStepPercent: 1000}, scaleDown: {cooldownSeconds: 0, maxStepPercent: 99},
			windows: [{schedule: "0 0 * * *", timeZone: Europe/Berlin, durationMinutes: 3000, directions: [ScaleUp, ScaleDown]}]},
		recommendationPolicy: {profile: Balanced, safetyMarginPercent: 40},
		resourcePolicy: {containerPolicies: [
			{containerName: web, mode: Auto, controlledResources: [cpu, memory], controlledValues: RequestsAndLimits,
				minAllowed: {cpu: 700m, memory: 32Mi}, maxAllowed: {cpu: "2", memory: 160Mi},
				limits: {headroomPercent: {cpu: 100, memory: 50}, minAllowed: {cpu: 100m, memory: 300Mi}, maxAllowed: {cpu: 1200m, memory: 1Gi}},
				startupBoost: {cpu: {type: Factor, factor: 2, durationSeconds: 10}}},
			{containerName: "*", minAllowed: {memory: 400Mi}, maxAllowed: {cpu: 90m}}]}}`
	walk(t, "VerticalScaler", s0, 24, map[string][]string{
		"the pods have their target, so there is no change to delay, bound or verify: controllers and plan have tests for these": {
			"spec.updatePolicy delete", "spec.updatePolicy null", "spec.updatePolicy empty",
			"spec.updatePolicy.cooldownSeconds", "spec.updatePolicy.tolerancePercent", "spec.updatePolicy.verificationSeconds",
			"spec.updatePolicy.scaleUp", "spec.updatePolicy.scaleUp.cooldownSeconds", "spec.updatePolicy.scaleUp.maxStepPercent",
			"spec.updatePolicy.scaleDown", "spec.updatePolicy.scaleDown.cooldownSeconds", "spec.updatePolicy.scaleDown.maxStepPercent",
			"spec.updatePolicy.windows", "spec.updatePolicy.windows[0]", "spec.updatePolicy.windows[0].durationMinutes", "spec.updatePolicy.windows[0].timeZone",
			"spec.updatePolicy.windows[0].directions", "spec.updatePolicy.windows[0].directions[0]", "spec.updatePolicy.windows[0].directions[1]",
		},
		"no resize fails, so nothing falls back: test/cluster has tests with nodes that are too small": {
			"spec.updatePolicy.fallback enum", "spec.updatePolicy.minReplicas",
		},
		"the pods started two hours ago: internal/plan has tests of starting pods": {
			"spec.resourcePolicy.containerPolicies[0].startupBoost delete", "spec.resourcePolicy.containerPolicies[0].startupBoost null",
			"spec.resourcePolicy.containerPolicies[0].startupBoost.cpu.durationSeconds", "spec.resourcePolicy.containerPolicies[0].startupBoost.cpu.factor",
		},
		"usage never changes, so all profiles choose the same CPU, and the margin is higher than any profile's": {
			"spec.recommendationPolicy.profile enum",
		},
		"another bound is closer": {
			"spec.resourcePolicy.containerPolicies[0].maxAllowed.cpu",
			"spec.resourcePolicy.containerPolicies[0].minAllowed.memory",
			"spec.resourcePolicy.containerPolicies[0].limits.minAllowed.cpu", "spec.resourcePolicy.containerPolicies[0].limits.maxAllowed.memory",
			"spec.resourcePolicy.containerPolicies[0].limits.headroomPercent.memory half", "spec.resourcePolicy.containerPolicies[0].limits.headroomPercent.memory minimum",
			"spec.resourcePolicy.containerPolicies[0].limits.headroomPercent.cpu delete", "spec.resourcePolicy.containerPolicies[0].limits.headroomPercent.cpu null",
			"spec.resourcePolicy.containerPolicies[0].limits.headroomPercent.cpu double", "spec.resourcePolicy.containerPolicies[0].limits.headroomPercent.cpu maximum",
		},
		"it means the same": {
			"spec.suspend delete", "spec.suspend null", "spec.resourcePolicy.containerPolicies reverse",
			"spec.resourcePolicy.containerPolicies[0].controlledResources", "spec.resourcePolicy.containerPolicies[1].limits",
		},
		"the limits keep their ratio, and the request is at most what it was": {
			"spec.resourcePolicy.containerPolicies[1].controlledValues enum",
		},
	})
}

// outcomes of a change.
const (
	rejected  = "rejected"
	unchanged = "the same object" // an omitted default, for example
	visible   = "visible"
	invisible = "invisible"
)

// walk makes all changes of the object, in several worlds at once. hidden has the reasons why changes
// are not visible. A "field" stands for all changes of it, and "field kind" for those of the kind.
func walk(t *testing.T, kind, s0 string, worlds int, hidden map[string][]string) {
	t.Helper()
	object := objectWith(t, kind, "", s0)
	changes := schemawalk.Changes(schemaFromFile(t, kind), object.Object, "spec")
	names := make([]string, worlds)
	for i := range names {
		names[i] = env.Namespace(t)
	}
	bystander := env.Namespace(t) // nothing changes here
	source := &unevenUsage{began: time.Now(), rounds: map[string]int{}}
	c := testkit.OperatorConfig()
	c.Collection.Interval.Duration = 250 * time.Millisecond
	r := &c.Recommendation
	r.CPUHalfLife.Duration, r.RecentHalfLife.Duration = 4*time.Minute, 2*time.Minute
	r.MemoryWindow.Duration, r.FullEvidence.Duration, r.ConfidenceUnit.Duration = 32*time.Minute, 20*time.Minute, time.Minute
	all := append([]string{bystander}, names...)
	runWorkloads(t, all)
	env.StartOperator(t, c, source, all...)
	rounds := func() int { return source.Rounds(bystander) }
	idle := &generatedWorld{ctx: t.Context(), kind: kind, namespace: bystander, s0: object.Object, rounds: rounds}
	if err := idle.settle(); err != nil {
		t.Fatalf("S0: %v", err)
	}

	results := &results{outcomes: map[schemawalk.Kind]map[string]int{}, of: map[string]map[string]string{}}
	queue := make(chan schemawalk.Change, len(changes))
	for _, change := range changes {
		queue <- change
	}
	close(queue)
	var done sync.WaitGroup
	for _, namespace := range names {
		done.Go(func() {
			w := &generatedWorld{ctx: t.Context(), kind: kind, namespace: namespace, s0: object.Object, rounds: rounds}
			if err := w.settle(); err != nil {
				t.Errorf("S0: %v", err)
				return
			}
			for change := range queue {
				outcome, err := w.try(change)
				if err != nil {
					t.Errorf("%s: %v", change, err)
					w.first = w.last
				}
				results.add(change, outcome)
			}
		})
	}
	done.Wait()
	if now, err := idle.rest(); err != nil || !idle.first.isNear(now, 1) {
		t.Errorf("the workload in another namespace has changed (%v):\n\t%s", err, idle.first.difference(now))
	}
	results.report(t, len(changes), hidden)
}

// schemaFromFile is the schema of the kind.
func schemaFromFile(t *testing.T, kind string) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	name := "autoscaling.verticalscaler.io_" + strings.ToLower(kind) + "s.yaml"
	data, err := os.ReadFile(filepath.Join(testkit.Root(), "config", "crd", "bases", name))
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(data, &crd); err != nil {
		t.Fatal(err)
	}
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema
}

// generatedWorld is a workload in its own namespace.
type generatedWorld struct {
	ctx       context.Context //nolint:containedctx // the test's
	kind      string
	namespace string
	s0        map[string]any
	rounds    func() int // the number of collection rounds of a namespace that always has a scaler
	first     *state     // at rest, before any change
	last      *state     // at rest, before the next change
}

// settle creates the world and waits until it is at rest.
func (w *generatedWorld) settle() error {
	if w.kind == "VerticalScaler" {
		d := testkit.Deployment(w.namespace, "web")
		replicas := int32(2)
		d.Spec.Replicas = &replicas
		d.Spec.Template.Spec.Containers = []corev1.Container{testkit.Container("web"), testkit.Container("agent")}
		if err := env.Client.Create(w.ctx, d); err != nil {
			return fmt.Errorf("creating the Deployment: %w", err)
		}
	}
	object := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(w.s0)}
	object.SetNamespace(w.namespace)
	if err := env.Client.Create(w.ctx, object); err != nil {
		return fmt.Errorf("creating S0: %w", err)
	}
	// All usage that the operator remembers has been seen once.
	began := w.rounds()
	if err := poll(w.ctx, busy, func() string {
		if n := w.rounds() - began; n < 40 {
			return fmt.Sprintf("%d rounds", n)
		}
		return ""
	}); err != nil {
		return err
	}
	var err error
	w.first, err = w.rest()
	w.last = w.first
	return err
}

// try makes one change and takes it back.
func (w *generatedWorld) try(change schemawalk.Change) (outcome string, err error) {
	before := w.last
	old, err := w.object()
	if err != nil {
		return "", err
	}
	if err := w.write(change.Apply(w.s0)); err != nil {
		return rejected, errors.Join(namesTheField(err, change), w.isAsBefore(old))
	}
	object, err := w.object()
	if err != nil {
		return "", err
	}
	if object.GetGeneration() == old.GetGeneration() {
		return unchanged, nil
	}
	after, restErr := w.rest()
	if err := w.write(w.s0); err != nil {
		return "", errors.Join(restErr, fmt.Errorf("back to S0: %w", err))
	}
	if err := errors.Join(restErr, w.back()); err != nil {
		return "", err
	}
	if difference := before.difference(after); difference != "" {
		return visible, nil
	}
	return invisible, nil
}

func (w *generatedWorld) object() (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(v1beta1.GroupVersion.WithKind(w.kind))
	if err := env.Client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: "web"}, object); err != nil {
		return nil, fmt.Errorf("reading the object: %w", err)
	}
	return object, nil
}

// write gives the object that spec, and repeats after a conflict with the operator's status.
func (w *generatedWorld) write(content map[string]any) error {
	for {
		object, err := w.object()
		if err != nil {
			return err
		}
		if spec, ok := content["spec"]; ok {
			object.Object["spec"] = runtime.DeepCopyJSONValue(spec)
		} else {
			delete(object.Object, "spec")
		}
		if err := env.Client.Update(w.ctx, object); !apierrors.IsConflict(err) {
			return err
		}
	}
}

var lastItem = regexp.MustCompile(`\[[0-9]+\]$`)

// namesTheField is an error if the rejection does not tell users what to edit.
func namesTheField(err error, change schemawalk.Change) error {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return fmt.Errorf("failed, but not as invalid: %w", err)
	}
	list := lastItem.ReplaceAllString(change.Field, "") // duplicates are reported at the last one
	for _, cause := range status.Status().Details.Causes {
		if strings.HasPrefix(change.Field, cause.Field) || strings.HasPrefix(cause.Field, list) {
			return nil
		}
		// A rule about two fields is reported at one of them, and its message names the other.
		if strings.Contains(cause.Message, list[strings.LastIndex(list, ".")+1:]) {
			return nil
		}
	}
	return fmt.Errorf("the rejection does not name the field: %w", err)
}

func (w *generatedWorld) isAsBefore(old *unstructured.Unstructured) error {
	now, err := w.object()
	if err != nil {
		return err
	}
	if now.GetGeneration() != old.GetGeneration() || !equality.Semantic.DeepEqual(now.Object["spec"], old.Object["spec"]) {
		return errors.New("rejected, but the object has changed")
	}
	return nil
}

// A change settles in well under a second. These are for a busy machine.
const (
	toRest = 40 * time.Second
	toBack = 60 * time.Second
)

// back waits until the world is where it began. A change may have ended the decision. Pods that have
// their target need no new one, and without a decision the limits stay what they are, so that a later
// change of their policy would not show: another minimum makes the operator decide again.
func (w *generatedWorld) back() error {
	if err := w.arrive(); err != nil || w.last.hasDecision() || !w.first.hasDecision() {
		return err
	}
	raised := runtime.DeepCopyJSON(w.s0)
	policies, _, _ := unstructured.NestedSlice(raised, "spec", "resourcePolicy", "containerPolicies")
	if err := unstructured.SetNestedField(policies[0].(map[string]any), "900m", "minAllowed", "cpu"); err != nil {
		return fmt.Errorf("raising the minimum: %w", err)
	}
	if err := unstructured.SetNestedSlice(raised, policies, "spec", "resourcePolicy", "containerPolicies"); err != nil {
		return fmt.Errorf("raising the minimum: %w", err)
	}
	if err := w.write(raised); err != nil {
		return fmt.Errorf("raising the minimum: %w", err)
	}
	if _, err := w.rest(); err != nil {
		return err
	}
	if err := w.write(w.s0); err != nil {
		return fmt.Errorf("back to S0: %w", err)
	}
	return w.arrive()
}

// arrive waits until the state is the first one.
func (w *generatedWorld) arrive() error {
	return poll(w.ctx, toBack, func() string {
		now, err := w.rest()
		if err != nil {
			return err.Error()
		}
		w.last = now
		if now.isNear(w.first, nearby) {
			return ""
		}
		return "back at S0, but the state is another one:\n\t" + w.first.difference(now)
	})
}

// rest waits until the operator has observed all generations, and nothing has changed during a
// collection round.
func (w *generatedWorld) rest() (*state, error) {
	var last *state
	round := 0
	err := poll(w.ctx, toRest, func() string {
		now, moving := w.look()
		if moving != "" {
			last = nil
			return moving
		}
		if last == nil || now.difference(last) != "" {
			what := "not at rest"
			if last != nil {
				what += ":\n\t" + last.difference(now)
			}
			last, round = now, w.rounds()
			return what
		}
		if w.rounds() <= round+1 {
			return "waiting for a round"
		}
		return ""
	})
	return last, err
}

// look reads the world. moving says what is still in progress.
func (w *generatedWorld) look() (now *state, moving string) {
	now = &state{texts: map[string]string{}, amounts: map[string]int64{}}
	for _, kind := range []string{"ScaledDeployment", "VerticalScaler"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(v1beta1.GroupVersion.WithKind(kind + "List"))
		if err := env.Client.List(w.ctx, list, client.InNamespace(w.namespace)); err != nil {
			return nil, err.Error()
		}
		for _, object := range list.Items {
			observed, _, _ := unstructured.NestedInt64(object.Object, "status", "observedGeneration")
			if observed != object.GetGeneration() {
				return nil, fmt.Sprintf("%s: generation %d of %d is observed", kind, observed, object.GetGeneration())
			}
			if isChanging(object.Object) {
				return nil, kind + ": a change is in progress"
			}
			now.add(kind+" "+object.GetName(), map[string]any{"status": object.Object["status"]})
			if kind != w.kind {
				now.add(kind+" "+object.GetName(), map[string]any{"spec": object.Object["spec"]})
			}
		}
	}
	var deployments appsv1.DeploymentList
	if err := env.Client.List(w.ctx, &deployments, client.InNamespace(w.namespace)); err != nil {
		return nil, err.Error()
	}
	for _, d := range deployments.Items {
		if d.Status.ObservedGeneration != d.Generation || d.DeletionTimestamp != nil {
			return nil, "a Deployment is changing"
		}
		spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&d.Spec)
		if err != nil {
			return nil, err.Error()
		}
		now.add("Deployment "+d.Name, spec)
	}
	var pods corev1.PodList
	if err := env.Client.List(w.ctx, &pods, client.InNamespace(w.namespace)); err != nil {
		return nil, err.Error()
	}
	for _, pod := range pods.Items {
		if !isActuated(&pod) {
			return nil, "a pod is changing"
		}
		for _, container := range pod.Spec.Containers {
			resources, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&container.Resources)
			if err != nil {
				return nil, err.Error()
			}
			now.add("pod "+pod.Name[strings.LastIndex(pod.Name, "-")+1:]+" "+container.Name, resources)
		}
	}
	return now, ""
}

// hasDecision reports whether the status has a decision.
func (s *state) hasDecision() bool {
	for name := range s.texts {
		if strings.Contains(name, ".status.decision.") {
			return true
		}
	}
	return false
}

// isChanging reports whether the operator is carrying out a change.
func isChanging(object map[string]any) bool {
	conditions, _, _ := unstructured.NestedSlice(object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, ok := c.(map[string]any)
		return ok && condition["type"] == v1beta1.ConditionChanging && condition["status"] == "True"
	})
}

// results collects the outcomes of all changes.
type results struct {
	mu       sync.Mutex
	outcomes map[schemawalk.Kind]map[string]int // by kind and outcome
	of       map[string]map[string]string       // outcome by field and change
}

func (r *results) add(change schemawalk.Change, outcome string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.outcomes[change.Kind] == nil {
		r.outcomes[change.Kind] = map[string]int{}
	}
	r.outcomes[change.Kind][outcome]++
	if r.of[change.Field] == nil {
		r.of[change.Field] = map[string]string{}
	}
	r.of[change.Field][change.String()] = outcome
}

// report prints the number of changes by kind and outcome. It fails for invisible changes that
// hidden does not explain, and for explanations that explain nothing.
func (r *results) report(t *testing.T, changes int, hidden map[string][]string) {
	t.Helper()
	t.Logf("%d changes\n%-14s %8s %8s %8s %8s", changes, "kind", rejected, "same", visible, invisible)
	for _, kind := range slices.Sorted(maps.Keys(r.outcomes)) {
		n := r.outcomes[kind]
		t.Logf("%-14s %8d %8d %8d %8d", kind, n[rejected], n[unchanged], n[visible], n[invisible])
	}
	reasons := map[string]string{} // by field, or field and kind
	for why, changes := range hidden {
		for _, change := range changes {
			reasons[change] = why
		}
	}
	used := map[string]bool{}
	for _, field := range slices.Sorted(maps.Keys(r.of)) {
		for _, change := range slices.Sorted(maps.Keys(r.of[field])) {
			outcome := r.of[field][change]
			key := explainedBy(reasons, field, change)
			switch {
			case outcome == invisible && key == "":
				t.Errorf("%s: accepted, but nothing shows it", change)
			case outcome == invisible:
				used[key] = true
			}
		}
	}
	for key := range reasons {
		if !used[key] {
			t.Errorf("the table explains %q, but no such change is invisible", key)
		}
	}
}

// explainedBy is the key of the reason for a change, or "".
func explainedBy(reasons map[string]string, field, change string) string {
	for key := range reasons {
		if key == field || strings.HasPrefix(key, field+" ") && strings.HasPrefix(change+" ", key+" ") {
			return key
		}
	}
	return ""
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package rollback_test

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/rollback"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/crdschema"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// scalerOf is a scaler with decided requests, and changes, newest first.
func scalerOf(t testing.TB, policies, decided string, changes ...string) *v1beta1.VerticalScaler {
	t.Helper()
	s := &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: v1beta1.VerticalScalerSpec{DeploymentName: "web"}}
	s.Spec.UpdatePolicy.UpdateMode = v1beta1.UpdateModeInPlace
	if policies != "" {
		s.Spec.ResourcePolicy = &v1beta1.ResourcePolicy{}
		must.Succeed(t, yaml.UnmarshalStrict([]byte(policies), &s.Spec.ResourcePolicy.ContainerPolicies))
	}
	if decided != "" {
		s.Status.Decision = &v1beta1.Decision{}
		must.Succeed(t, yaml.UnmarshalStrict([]byte(decided), &s.Status.Decision.Containers))
	}
	for _, change := range changes {
		s.Status.History = append(s.Status.History, v1beta1.HistoryEntry{Time: metav1.NewTime(time.Unix(0, 0)), Message: change})
	}
	return s
}

// deploymentOf has an app of 500m and 512Mi, a sidecar without requests, and a log with limits only.
func deploymentOf() *workload.Deployment {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
	}
	d := workload.ReadDeployment(&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Name: "app", Resources: corev1.ResourceRequirements{Requests: list("500m", "512Mi")}},
		{Name: "bare"},
		{Name: "log", Resources: corev1.ResourceRequirements{Limits: list("200m", "64Mi")}},
	}}}}})
	return &d
}

func TestRollback(t *testing.T) {
	const app = `[{containerName: app, requests: {cpu: 121m, memory: 342Mi}}]`
	for name, tc := range map[string]struct {
		policies, decided string
		history           []string
		to                rollback.To
		changes, kept     string
		want              string // container policies
		err               string
	}{
		"what was lowered may not be lowered again": {
			decided: app, history: []string{"ScaleDown: app cpu 500m->121m, memory 512Mi->342Mi", "ScaleUp: app cpu 1m->500m"},
			changes: "app cpu 121m->500m (minAllowed); app memory 342Mi->512Mi (minAllowed)",
			want:    `[{containerName: app, minAllowed: {cpu: 500m, memory: 512Mi}}]`,
		},
		"what was raised may not be raised again": {
			decided: app, history: []string{"ScaleUp: app cpu 60m->121m"},
			changes: "app cpu 121m->60m (maxAllowed)", want: `[{containerName: app, maxAllowed: {cpu: 60m}}]`,
		},
		"both directions, and several containers": {
			decided: app, history: []string{"LowerBound: app cpu 50m->121m, memory 512Mi->342Mi (restored: not verified yet); log-2 memory 64Mi->80.5Mi"},
			changes: "app cpu 121m->50m (maxAllowed); app memory 342Mi->512Mi (minAllowed); log-2 memory 80.5Mi->64Mi (maxAllowed)",
			want:    `[{containerName: app, minAllowed: {memory: 512Mi}, maxAllowed: {cpu: 50m}}, {containerName: log-2, maxAllowed: {memory: 64Mi}}]`,
		},
		"the user's policy stays, but for a bound that excludes it": {
			policies: `[{containerName: "*", controlledValues: RequestsOnly, maxAllowed: {cpu: 300m, memory: 1Gi}}, {containerName: log, mode: "Off"}]`,
			decided:  app, history: []string{"Bounds: app cpu 500m->300m"},
			changes: "app cpu 300m->500m (minAllowed)",
			want: `[{containerName: "*", controlledValues: RequestsOnly, maxAllowed: {cpu: 300m, memory: 1Gi}}, {containerName: log, mode: "Off"},
				{containerName: app, controlledValues: RequestsOnly, minAllowed: {cpu: 500m}, maxAllowed: {cpu: 500m, memory: 1Gi}}]`,
		},
		"a minAllowed that excludes it": {
			policies: `[{containerName: app, minAllowed: {cpu: 400, memory: 64Mi}}]`, decided: app, history: []string{"Bounds: app cpu 500m->1000m"},
			changes: "app cpu 1000m->500m (maxAllowed)", want: `[{containerName: app, minAllowed: {cpu: 500m, memory: 64Mi}, maxAllowed: {cpu: 500m}}]`,
		},
		"a request that there was not": {
			decided: app, history: []string{"ScaleUp: app cpu none->121m, memory 64Mi->342Mi"},
			changes: "app memory 342Mi->64Mi (maxAllowed)", kept: "app cpu: there was no request before, and a running pod cannot lose one", want: `[{containerName: app, maxAllowed: {memory: 64Mi}}]`,
		},
		"what is no longer managed": {
			policies: `[{containerName: app, controlledResources: [memory]}]`, decided: app, history: []string{"ScaleDown: app cpu 500m->121m"},
			kept: "app cpu: it is not managed any more", want: `[{containerName: app, controlledResources: [memory]}]`,
		},
		"the operator was faster": {decided: app, history: []string{"Reverted: app cpu 121m->500m (2 of 2 pods are unhealthy)"}, err: "the operator has reverted the last change itself: Reverted: app cpu 121m->500m (2 of 2 pods are unhealthy)"},
		"no history":              {decided: app, err: "its history is empty"},
		"no decision":             {err: "the operator has decided nothing for it"},
		"a history of the future": {decided: app, history: []string{"a smaller app"}, err: `the last change cannot be read: "a smaller app"`},
		"hostile amounts":         {decided: app, history: []string{"ScaleUp: app cpu 1e999999999->121m, memory 9Ei->1Gi; app2 cpu 1.2.3->5m"}, err: `the last change cannot be read: "ScaleUp: app cpu 1e999999999->121m, memory 9Ei->1Gi; app2 cpu 1.2.3->5m"`},
		"the template's requests": {
			to: rollback.Original, decided: `[{containerName: app, requests: {cpu: 121m, memory: 1Gi}}, {containerName: log, requests: {cpu: 100m, memory: 64Mi}}, {containerName: gone, requests: {cpu: 1}}]`,
			changes: "app cpu 121m->500m (minAllowed); app memory 1024Mi->512Mi (maxAllowed); log cpu 100m->200m (minAllowed)",
			want:    `[{containerName: app, minAllowed: {cpu: 500m}, maxAllowed: {memory: 512Mi}}, {containerName: log, minAllowed: {cpu: 200m}}]`,
		},
		"a template without requests": {
			to: rollback.Original, decided: `[{containerName: bare, requests: {cpu: 121m}}]`, kept: "bare cpu: the pod template has no request, and a running pod cannot lose one",
		},
		"the template's requests already": {to: rollback.Original, decided: `[{containerName: app, requests: {cpu: 500m, memory: 512Mi}}]`, err: "it has the original requests"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.to == "" {
				tc.to = rollback.Previous
			}
			s := scalerOf(t, tc.policies, tc.decided, tc.history...)
			before := s.DeepCopy()
			plan, err := rollback.Of(s, deploymentOf(), tc.to)
			if message := fmt.Sprint(err); tc.err != "" && message != tc.err || tc.err == "" && err != nil {
				t.Fatalf("%s, want %s", message, tc.err)
			}
			var changes []string
			for _, c := range plan.Changes {
				changes = append(changes, c.String())
			}
			if got, kept := strings.Join(changes, "; "), strings.Join(plan.Kept, "; "); got != tc.changes || kept != tc.kept {
				t.Errorf("changes %s, want %s\nkeeps %s, want %s", got, tc.changes, kept, tc.kept)
			}
			want := rollback.SpecOf(scalerOf(t, tc.want, "").Spec.Scaling)
			if tc.err == "" && !plan.Spec.IsEqual(want) {
				t.Errorf("%s, want %s", inJSON(plan.Spec), inJSON(want))
			}
			if inJSON(before) != inJSON(s) {
				t.Error("the scaler has changed")
			}
		})
	}
}

func inJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func TestARecordedOriginalIsRestoredByTheOperator(t *testing.T) {
	s := scalerOf(t, `[{containerName: app, maxAllowed: {cpu: 1}}]`, `[]`)
	s.Status.OriginalResources = &v1beta1.OriginalResources{DeploymentName: "web"}
	plan, err := rollback.Of(s, nil, rollback.Original)
	if err != nil || !plan.RestoresTemplate || plan.Spec.UpdateMode != v1beta1.UpdateModeRecommend || len(plan.Spec.ResourcePolicy.ContainerPolicies) != 1 {
		t.Errorf("%v: %s", err, inJSON(plan))
	}
	s.Status.OriginalResources = nil
	if _, err := rollback.Of(s, nil, rollback.Original); err == nil {
		t.Error("rolled back to a template that is not known")
	}
}

// The operator follows the spec at once, without a cooldown, as far as the template requests: lowered
// and raised, with one pod of two changed, or both.
func TestThePlanFollows(t *testing.T) {
	noon := time.Unix(1767268800, 0)
	amounts := func(cpu, memory int64) quantity.Amounts {
		return quantity.Amounts{CPUMillis: cpu, MemoryBytes: memory << 20}
	}
	of := func(requests quantity.Amounts) workload.Container {
		return workload.Container{Name: "app", Resources: workload.Resources{Requests: requests}}
	}
	pod := func(name string, requests quantity.Amounts) workload.Pod {
		return workload.Pod{
			Name: name, UID: types.UID(name), Current: true, Running: true, Ready: true, Created: noon.Add(-time.Hour), Started: noon.Add(-time.Hour),
			Containers: []workload.Container{of(requests)}, QoS: workload.QoSOf([]workload.Container{of(requests)}),
			Actual: workload.Reported{}.With("app", workload.Resources{Requests: requests}),
		}
	}
	for name, tc := range map[string]struct {
		decided   string
		history   string
		now       quantity.Amounts // of the decision
		unchanged quantity.Amounts // of the second pod
		to        rollback.To
		want      quantity.Amounts
	}{
		"lowered":                       {`[{containerName: app, requests: {cpu: 100m, memory: 128Mi}}]`, "ScaleDown: app cpu 500m->100m, memory 512Mi->128Mi", amounts(100, 128), amounts(100, 128), rollback.Previous, amounts(500, 512)},
		"lowered, and not for all pods": {`[{containerName: app, requests: {cpu: 100m, memory: 128Mi}}]`, "ScaleDown: app cpu 500m->100m, memory 512Mi->128Mi", amounts(100, 128), amounts(500, 512), rollback.Previous, amounts(500, 512)},
		"raised":                        {`[{containerName: app, requests: {cpu: 900m, memory: 900Mi}}]`, "ScaleUp: app cpu 200m->900m, memory 256Mi->900Mi", amounts(900, 900), amounts(900, 900), rollback.Previous, amounts(200, 256)},
		"both, to the template":         {`[{containerName: app, requests: {cpu: 100m, memory: 900Mi}}]`, "ScaleUp: app cpu 90m->100m", amounts(100, 900), amounts(100, 900), rollback.Original, amounts(500, 512)},
	} {
		t.Run(name, func(t *testing.T) {
			s := scalerOf(t, "", tc.decided, tc.history)
			rolled, err := rollback.Of(s, deploymentOf(), tc.to)
			must.Succeed(t, err)
			s.Spec.ResourcePolicy = rolled.Spec.ResourcePolicy
			s.Generation, s.Status.ObservedGeneration = 2, 1 // it was edited
			deployment := workload.Deployment{Namespace: "shop", Name: "web", UID: "web", Replicas: 2, UpdatedReplicas: 2, Containers: []workload.Container{of(amounts(500, 512))}}
			// The recommendation of the operator is within the new bounds.
			target := tc.now
			for _, c := range rolled.Changes {
				if c.Resource == v1beta1.ControlledCPU {
					target.CPUMillis = c.To
				} else {
					target.MemoryBytes = c.To
				}
			}
			situation := plan.Situation{
				Deployment: deployment, Pods: []workload.Pod{pod("web-1", tc.now), pod("web-2", tc.unchanged)},
				Recommendations: []recommend.Container{{Name: "app", Target: target, LowerBound: target, UpperBound: target, Uncapped: tc.now, Observed: time.Hour}},
				Decision:        &plan.Decision{Time: noon.Add(-10 * time.Second), Reason: "ScaleDown", Requests: map[string]quantity.Amounts{"app": tc.now}},
			}
			next := plan.Next(situation, scaler.PlanPolicy(s, deployment), noon)
			if next.Decision == nil || next.Decision.Requests["app"] != tc.want || next.Step == nil {
				t.Errorf("%+v %+v, want %+v: %+v", next.Decision, next.Step, tc.want, next.Verdict)
			}
		})
	}
}

// A record has the command to undo the rollback, unless the spec was edited since.
func TestTheRecord(t *testing.T) {
	before := scalerOf(t, `[{containerName: app, maxAllowed: {cpu: "0.3"}}]`, `[]`, "ScaleDown: app cpu 500m->121m")
	plan, err := rollback.Of(before, nil, rollback.Previous)
	must.Succeed(t, err)
	record := rollback.Record{To: rollback.Previous, Before: rollback.SpecOf(before.Spec.Scaling), After: plan.Spec}
	patch, err := rollback.Patch("7", false, plan.Spec, &record)
	must.Succeed(t, err)
	after := before.DeepCopy()
	must.Succeed(t, json.Unmarshal(patch, after))
	if after.ResourceVersion != "7" {
		t.Error("nothing notices an edit at the same time")
	}
	policy := &after.Spec.ResourcePolicy.ContainerPolicies[0]
	policy.Mode, policy.ControlledValues = v1beta1.ContainerModeAuto, v1beta1.RequestsAndLimitRaises // as the API server does
	read, ok := rollback.RecordOf(after.Annotations, after.Spec.Scaling)
	if !ok || !read.Before.IsEqual(record.Before) || read.To != rollback.Previous {
		t.Errorf("%t: %s", ok, inJSON(read))
	}
	after.Spec.ResourcePolicy.ContainerPolicies[0].MinAllowed.CPU.Add(resource.MustParse("1m"))
	if _, ok := rollback.RecordOf(after.Annotations, after.Spec.Scaling); ok {
		t.Error("an edit is not noticed")
	}
	for _, annotations := range []map[string]string{nil, {rollback.Annotation: "yes"}} {
		if _, ok := rollback.RecordOf(annotations, before.Spec.Scaling); ok {
			t.Errorf("%v is a record", annotations)
		}
	}
	if patch, _ := rollback.Patch("7", true, rollback.Spec{}, nil); string(patch) != `{"metadata":{"annotations":{"`+rollback.Annotation+`":null},"resourceVersion":"7"},"spec":{"scaling":{"resourcePolicy":null,"updatePolicy":{"updateMode":"InPlace"}}}}` {
		t.Errorf("%s", patch)
	}
}

// FuzzOf rolls back any change that the operator can have made: the amounts come from the history,
// each bound demands the change, and the API server accepts the spec.
func FuzzOf(f *testing.F) {
	f.Add(int64(500), int64(121), int64(512<<20), int64(342<<20), int64(300), int64(1<<30))
	f.Add(int64(1), int64(12_345), int64(1000), int64(27<<30+5), int64(0), int64(0))
	schema, err := crdschema.OfCRD(filepath.Join("..", "..", "..", ".."), "autoscaling.verticalscaler.io_verticalscalers.yaml")
	must.Succeed(f, err)
	f.Fuzz(func(t *testing.T, cpuBefore, cpuAfter, memoryBefore, memoryAfter, least, most int64) {
		within := func(v, least, most int64) int64 { return max(least, v&math.MaxInt64%(most+1)) }
		cpuBefore, cpuAfter = within(cpuBefore, 1, quantity.MaxCPUMillis), within(cpuAfter, 1, quantity.MaxCPUMillis)
		memoryBefore, memoryAfter = within(memoryBefore, 1<<20, quantity.MaxMemoryBytes), within(memoryAfter, 1<<20, quantity.MaxMemoryBytes)
		least = within(least, 1, quantity.MaxCPUMillis)
		most = within(most, least, quantity.MaxCPUMillis)
		s := scalerOf(t, fmt.Sprintf(`[{containerName: app, minAllowed: {cpu: %dm}, maxAllowed: {cpu: %dm}}]`, least, max(least, most)), `[]`, fmt.Sprintf("ScaleDown: app cpu %s->%s, memory %s->%s",
			quantity.FormatCPU(cpuBefore), quantity.FormatCPU(cpuAfter), quantity.FormatMemory(memoryBefore), quantity.FormatMemory(memoryAfter)))
		plan, err := rollback.Of(s, nil, rollback.Previous)
		if err != nil {
			if quantity.FormatCPU(cpuBefore) == quantity.FormatCPU(cpuAfter) && quantity.FormatMemory(memoryBefore) == quantity.FormatMemory(memoryAfter) {
				return
			}
			t.Fatal(err)
		}
		for _, c := range plan.Changes {
			want, bounds := cpuBefore, plan.Spec.ResourcePolicy.For("app")
			if c.Resource == v1beta1.ControlledMemory {
				want = memoryBefore
			}
			if math.Abs(float64(c.To-want)) > 0.01*float64(want) {
				t.Errorf("%s: %d, want %d", c, c.To, want)
			}
			var bound *resource.Quantity
			if c.To > c.From {
				bound = map[v1beta1.ControlledResource]*resource.Quantity{"cpu": bounds.MinAllowed.CPU, "memory": bounds.MinAllowed.Memory}[c.Resource]
			} else {
				bound = map[v1beta1.ControlledResource]*resource.Quantity{"cpu": bounds.MaxAllowed.CPU, "memory": bounds.MaxAllowed.Memory}[c.Resource]
			}
			exact := quantity.CPU(c.To)
			if c.Resource == v1beta1.ControlledMemory {
				exact = quantity.Memory(c.To)
			}
			if bound == nil || bound.Cmp(exact) != 0 {
				t.Errorf("%s has the bound %v", c, bound)
			}
		}
		s.Spec.ResourcePolicy = plan.Spec.ResourcePolicy
		var object map[string]any
		must.Succeed(t, utiljson.Unmarshal([]byte(inJSON(s)), &object))
		delete(object, "status")
		if refusals := schema.Refusals(&unstructured.Unstructured{Object: object}); len(refusals) > 0 {
			t.Errorf("the API server refuses %s: %q", inJSON(s.Spec), refusals)
		}
	})
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package argocd runs what config/components/argocd tells Argo CD about scalers, with the Lua
// engine that Argo CD uses.
package argocd

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

const (
	healthKey  = "resource.customizations.health.autoscaling.verticalscaler.io_VerticalScaler"
	ownedKey   = "resource.customizations.health.autoscaling.verticalscaler.io_ScaledDeployment"
	actionsKey = "resource.customizations.actions.autoscaling.verticalscaler.io_VerticalScaler"
)

// settings are the keys that dist/argocd.yaml adds to argocd-cm.
func settings(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "dist", "argocd.yaml"))
	must.Succeed(t, err)
	var config corev1.ConfigMap
	must.Succeed(t, yaml.UnmarshalStrict(text, &config))
	return config.Data
}

func TestTheSettingsAreThoseOfArgoCD(t *testing.T) {
	config := settings(t)
	if got := slices.Sorted(maps.Keys(config)); !slices.Equal(got, []string{actionsKey, ownedKey, healthKey}) {
		t.Errorf("the keys are %q", got)
	}
	for key, file := range map[string]string{healthKey: "health.lua", ownedKey: "health.lua", actionsKey: "actions.yaml"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "config", "components", "argocd", file))
		if err != nil || string(text) != config[key] {
			t.Errorf("dist/argocd.yaml differs from %s, run make dist: %v", file, err)
		}
	}
}

// run runs a script as Argo CD does: with the object, and without the libraries that reach files,
// processes or the clock. It returns what the script returns.
func run(t *testing.T, script string, object map[string]any) map[string]any {
	t.Helper()
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	for name, open := range map[string]lua.LGFunction{
		lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString,
	} {
		must.Succeed(t, l.CallByParam(lua.P{Fn: l.NewFunction(open), Protect: true}, lua.LString(name)))
	}
	l.SetGlobal("obj", toLua(l, object))
	must.Succeed(t, l.DoString(script))
	result, ok := toGo(l.Get(-1)).(map[string]any)
	if !ok {
		t.Fatalf("the script returns %v", l.Get(-1))
	}
	return result
}

func toLua(l *lua.LState, v any) lua.LValue {
	switch v := v.(type) {
	case map[string]any:
		table := l.NewTable()
		for key, value := range v {
			table.RawSetString(key, toLua(l, value))
		}
		return table
	case []any:
		table := l.NewTable()
		for _, value := range v {
			table.Append(toLua(l, value))
		}
		return table
	case string:
		return lua.LString(v)
	case bool:
		return lua.LBool(v)
	case int64:
		return lua.LNumber(v)
	case float64:
		return lua.LNumber(v)
	case nil:
		return lua.LNil
	}
	panic(fmt.Sprintf("%T is not in the JSON of an object", v))
}

// toGo is the value of Lua. A table with a first element is a list.
func toGo(v lua.LValue) any {
	table, ok := v.(*lua.LTable)
	if !ok {
		switch v := v.(type) {
		case lua.LString:
			return string(v)
		case lua.LBool:
			return bool(v)
		case lua.LNumber:
			return float64(v)
		}
		return nil
	}
	if table.Len() > 0 {
		var list []any
		table.ForEach(func(_, value lua.LValue) { list = append(list, toGo(value)) })
		return list
	}
	out := map[string]any{}
	table.ForEach(func(key, value lua.LValue) { out[key.String()] = toGo(value) })
	return out
}

func object(t *testing.T, o any) map[string]any {
	t.Helper()
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	must.Succeed(t, err)
	return out
}

// reconciled is a scaler that is applied, and then changed.
func reconciled(changes ...func(*v1beta1.VerticalScaler)) *v1beta1.VerticalScaler {
	vs := &v1beta1.VerticalScaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: 2},
		Spec:       v1beta1.VerticalScalerSpec{DeploymentName: "web"},
		Status:     v1beta1.VerticalScalerStatus{ObservedGeneration: 2},
	}
	for _, change := range append([]func(*v1beta1.VerticalScaler){
		with("Ready", "True", "OperatingNormally", "Operating normally"),
		with("Applied", "True", "Applied", "All pods have the decided size"),
		with("Reconciling", "False", "OperatingNormally", "No change in progress"),
		with("Stalled", "False", "OperatingNormally", "No action required"),
	}, changes...) {
		change(vs)
	}
	return vs
}

// with sets a condition.
func with(kind string, status metav1.ConditionStatus, reason, message string) func(*v1beta1.VerticalScaler) {
	return func(vs *v1beta1.VerticalScaler) {
		vs.Status.Conditions = slices.DeleteFunc(vs.Status.Conditions, func(c metav1.Condition) bool { return c.Type == kind })
		vs.Status.Conditions = append(vs.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
	}
}

func TestHealth(t *testing.T) {
	deleted := metav1.Now()
	cases := map[string]struct {
		scaler  *v1beta1.VerticalScaler
		status  string
		message string
	}{
		"just created":      {&v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Generation: 1}}, "Progressing", "Waiting for the operator to read the spec"},
		"not yet observed":  {reconciled(func(vs *v1beta1.VerticalScaler) { vs.Status.ObservedGeneration = -1 }), "Progressing", "Waiting for the operator to read the spec"},
		"edited":            {reconciled(func(vs *v1beta1.VerticalScaler) { vs.Generation = 3 }), "Progressing", "Waiting for the operator to read the spec"},
		"applied":           {reconciled(), "Healthy", "Applied: All pods have the decided size"},
		"learns":            {reconciled(with("Ready", "True", "Learning", "Collecting usage")), "Healthy", "Learning: Collecting usage"},
		"only recommends":   {reconciled(with("Ready", "True", "RecommendOnly", "Recommendations are not applied")), "Healthy", "RecommendOnly: Recommendations are not applied"},
		"waits":             {reconciled(with("Applied", "False", "Deferred", "The node has no room")), "Healthy", "Deferred: The node has no room"},
		"applies an edit":   {reconciled(with("Reconciling", "True", "Resizing", "Pod web-1 is being resized")), "Progressing", "Resizing: Pod web-1 is being resized"},
		"suspended":         {reconciled(with("Ready", "True", "Suspended", "Nothing is changed while the scaler is suspended")), "Suspended", "Suspended: Nothing is changed while the scaler is suspended"},
		"paused":            {reconciled(with("Ready", "True", "Paused", "The annotation is set")), "Suspended", "Paused: The annotation is set"},
		"stalled":           {reconciled(with("Ready", "False", "Forbidden", "no"), with("Stalled", "True", "Forbidden", "A role is missing")), "Degraded", "Forbidden: A role is missing"},
		"stalled, and busy": {reconciled(with("Reconciling", "True", "Resizing", "…"), with("Stalled", "True", "Contested", "helm (Update)")), "Degraded", "Contested: helm (Update)"},
		"not ready":         {reconciled(with("Ready", "False", "MetricsUnavailable", "Usage cannot be read")), "Degraded", "MetricsUnavailable: Usage cannot be read"},
		"unknown":           {reconciled(with("Ready", "Unknown", "Unknown", "The last reconcile failed")), "Progressing", "Unknown: The last reconcile failed"},
		"conditions wiped":  {reconciled(func(vs *v1beta1.VerticalScaler) { vs.Status.Conditions = nil }), "Progressing", "Waiting for the operator"},
		"being deleted":     {reconciled(func(vs *v1beta1.VerticalScaler) { vs.DeletionTimestamp = &deleted }), "Progressing", "Deleting"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := run(t, settings(t)[healthKey], object(t, c.scaler))
			if got["status"] != c.status || got["message"] != c.message {
				t.Errorf("%v: %v; want %s: %s", got["status"], got["message"], c.status, c.message)
			}
		})
	}
}

// A ScaledDeployment has the same conditions, but Applied.
func TestHealthOfAScaledDeployment(t *testing.T) {
	owned := &v1beta1.ScaledDeployment{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
	owned.Status.ObservedGeneration = 1
	owned.Status.Conditions = []metav1.Condition{
		{Type: "Ready", Status: "True", Reason: "Available", Message: "3 of 3 pods are available"},
		{Type: "Reconciling", Status: "False", Reason: "Available"},
		{Type: "Stalled", Status: "False", Reason: "Available"},
	}
	got := run(t, settings(t)[ownedKey], object(t, owned))
	if got["status"] != "Healthy" || got["message"] != "Available: 3 of 3 pods are available" {
		t.Errorf("the health is %v", got)
	}
}

// Every combination of conditions has a health that Argo CD knows. Degraded means that a user must
// act, and no other health hides that.
func TestEveryStateHasAHealth(t *testing.T) {
	script := settings(t)[healthKey]
	statuses := []metav1.ConditionStatus{"", "True", "False", "Unknown"}
	for _, ready := range statuses {
		for _, stalled := range statuses {
			for _, reconciling := range statuses {
				var changes []func(*v1beta1.VerticalScaler)
				for kind, status := range map[string]metav1.ConditionStatus{"Ready": ready, "Stalled": stalled, "Reconciling": reconciling} {
					changes = append(changes, with(kind, status, "Reason", ""))
				}
				got := run(t, script, object(t, reconciled(changes...)))
				if !slices.Contains([]string{"Healthy", "Progressing", "Degraded", "Suspended"}, fmt.Sprint(got["status"])) || got["message"] == "" {
					t.Errorf("Ready=%s Stalled=%s Reconciling=%s: %v", ready, stalled, reconciling, got)
				}
				if degraded := stalled == "True" || ready == "False" && reconciling != "True"; degraded != (got["status"] == "Degraded") {
					t.Errorf("Ready=%s Stalled=%s Reconciling=%s is %v", ready, stalled, reconciling, got["status"])
				}
			}
		}
	}
}

// actions are the actions as Argo CD reads them.
type actions struct {
	Discovery   string `json:"discovery.lua"`
	Definitions []struct {
		Name   string `json:"name"`
		Action string `json:"action.lua"`
	} `json:"definitions"`
}

func readActions(t *testing.T) actions {
	t.Helper()
	var out actions
	must.Succeed(t, yaml.UnmarshalStrict([]byte(settings(t)[actionsKey]), &out))
	return out
}

func TestActionsPauseAndResume(t *testing.T) {
	all := readActions(t)
	script := map[string]string{}
	for _, d := range all.Definitions {
		script[d.Name] = d.Action
	}
	enabled := func(vs *v1beta1.VerticalScaler) string {
		var names []string
		for name, action := range run(t, all.Discovery, object(t, vs)) {
			if script[name] == "" {
				t.Errorf("the action %s is offered and not defined", name)
			}
			if action.(map[string]any)["disabled"] != true {
				names = append(names, name)
			}
		}
		return strings.Join(names, " ")
	}
	after := func(action string, vs *v1beta1.VerticalScaler) *v1beta1.VerticalScaler {
		// An empty table is a list or a map; Argo CD knows which it was before.
		metadata := run(t, script[action], object(t, vs))["metadata"].(map[string]any)
		out := vs.DeepCopy()
		out.Annotations = map[string]string{}
		if left, ok := metadata["annotations"].(map[string]any); ok {
			for key, value := range left {
				out.Annotations[key] = value.(string)
			}
		}
		return out
	}
	for name, annotations := range map[string]map[string]string{"no annotations": nil, "others": {"team": "shop"}} {
		vs := reconciled()
		vs.Annotations = annotations
		if scaler.IsPaused(vs) || enabled(vs) != "pause" {
			t.Errorf("%s: at first, %q is enabled", name, enabled(vs))
		}
		paused := after("pause", vs)
		if !scaler.IsPaused(paused) || enabled(paused) != "resume" {
			t.Errorf("%s: pause leads to %v, and %q is enabled", name, paused.Annotations, enabled(paused))
		}
		resumed := after("resume", paused)
		if scaler.IsPaused(resumed) || !maps.Equal(resumed.Annotations, annotations) || enabled(resumed) != "pause" {
			t.Errorf("%s: resume leads to %v", name, resumed.Annotations)
		}
	}
}

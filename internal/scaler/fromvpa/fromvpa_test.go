// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package fromvpa_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler/fromvpa"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/golden"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

func specOf(t testing.TB, text string) (spec map[string]any) {
	t.Helper()
	must.Succeed(t, yaml.Unmarshal([]byte(text), &spec))
	return spec
}

const ofWeb = "targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}\n"

func TestWhatBecomesOfFields(t *testing.T) {
	const policies = ofWeb + "updatePolicy: {updateMode: InPlace}\nresourcePolicy:\n  containerPolicies:\n"
	for name, tc := range map[string]struct {
		spec   string
		want   string // the spec of the scaler as JSON, without deploymentName
		doubts string
	}{
		"nothing but a target":      {ofWeb, `{"updatePolicy":{"updateMode":"InPlace","fallback":"Recreate"},"resourcePolicy":{"containerPolicies":[{"containerName":"*","controlledValues":"RequestsAndLimits"}]}}`, ""},
		"off":                       {ofWeb + `updatePolicy: {updateMode: "Off"}`, `{"updatePolicy":{"updateMode":"Recommend"},"resourcePolicy":{"containerPolicies":[{"containerName":"*","controlledValues":"RequestsAndLimits"}]}}`, ""},
		"initial":                   {ofWeb + `updatePolicy: {updateMode: Initial, minReplicas: 3}`, `{"updatePolicy":{"updateMode":"Initial"},"resourcePolicy":{"containerPolicies":[{"containerName":"*","controlledValues":"RequestsAndLimits"}]}}`, ""},
		"auto":                      {ofWeb + `updatePolicy: {updateMode: Auto, minReplicas: 1}`, `{"updatePolicy":{"updateMode":"InPlace","fallback":"Recreate","minReplicas":1},"resourcePolicy":{"containerPolicies":[{"containerName":"*","controlledValues":"RequestsAndLimits"}]}}`, ""},
		"in place":                  {ofWeb + `updatePolicy: {updateMode: InPlace, evictAfterOOMSeconds: 60}`, `{"updatePolicy":{"updateMode":"InPlace","fallback":"Wait"},"resourcePolicy":{"containerPolicies":[{"containerName":"*","controlledValues":"RequestsAndLimits"}]}}`, ""},
		"evictions that are raises": {ofWeb + `updatePolicy: {minReplicas: 1, evictionRequirements: [{resources: [cpu], changeRequirement: TargetHigherThanRequests}]}`, `{"updatePolicy":{"updateMode":"InPlace","fallback":"Wait"},"resourcePolicy":{"containerPolicies":[{"containerName":"*","controlledValues":"RequestsAndLimits"}]}}`, ""},
		"a mode of the future":      {ofWeb + `updatePolicy: {updateMode: Tomorrow}`, `{"updatePolicy":{"updateMode":"Recommend"},"resourcePolicy":{"containerPolicies":[{"containerName":"*","controlledValues":"RequestsAndLimits"}]}}`, "spec.updatePolicy.updateMode"},
		"a field of the future":     {ofWeb + `maxPods: 3`, `{"updatePolicy":{"updateMode":"Recommend"},"resourcePolicy":{"containerPolicies":[{"containerName":"*","controlledValues":"RequestsAndLimits"}]}}`, "spec.maxPods"},
		"another recommender":       {ofWeb + `recommenders: [{name: mine}]`, `{"updatePolicy":{"updateMode":"InPlace","fallback":"Recreate"},"resourcePolicy":{"containerPolicies":[{"containerName":"*","controlledValues":"RequestsAndLimits"}]}}`, ""},
		"bounds": {
			policies + "  - {containerName: app, minAllowed: {cpu: 100m, memory: 64Mi}, maxAllowed: {cpu: 2, memory: 1Gi, ephemeral-storage: 1Gi}}",
			`{"updatePolicy":{"updateMode":"InPlace","fallback":"Wait"},"resourcePolicy":{"containerPolicies":[{"containerName":"app","minAllowed":{"cpu":"100m","memory":"64Mi"},"maxAllowed":{"cpu":"2","memory":"1Gi"},"controlledValues":"RequestsAndLimits"},{"containerName":"*","controlledValues":"RequestsAndLimits"}]}}`, "",
		},
		"amounts are rounded up to what a scaler accepts": {
			policies + `  - {containerName: app, minAllowed: {cpu: 1500u, memory: "1"}}`,
			`{"updatePolicy":{"updateMode":"InPlace","fallback":"Wait"},"resourcePolicy":{"containerPolicies":[{"containerName":"app","minAllowed":{"cpu":"2m","memory":"1Ki"},"controlledValues":"RequestsAndLimits"},{"containerName":"*","controlledValues":"RequestsAndLimits"}]}}`, "",
		},
		"a bound that is out of range": {
			policies + `  - {containerName: app, maxAllowed: {memory: "-1"}}`,
			`{"updatePolicy":{"updateMode":"Recommend"},"resourcePolicy":{"containerPolicies":[{"containerName":"app","controlledValues":"RequestsAndLimits"},{"containerName":"*","controlledValues":"RequestsAndLimits"}]}}`, "spec.resourcePolicy.containerPolicies[0].maxAllowed.memory",
		},
		"a bound that takes an hour to compare": {
			policies + `  - {containerName: app, maxAllowed: {cpu: 1e999999999}}`,
			`{"updatePolicy":{"updateMode":"Recommend"},"resourcePolicy":{"containerPolicies":[{"containerName":"app","controlledValues":"RequestsAndLimits"},{"containerName":"*","controlledValues":"RequestsAndLimits"}]}}`, "spec.resourcePolicy.containerPolicies[0].maxAllowed.cpu",
		},
		"a container left alone": {
			policies + `  - {containerName: proxy, mode: "Off"}`,
			`{"updatePolicy":{"updateMode":"InPlace","fallback":"Wait"},"resourcePolicy":{"containerPolicies":[{"containerName":"proxy","mode":"Off"},{"containerName":"*","controlledValues":"RequestsAndLimits"}]}}`, "",
		},
		"no resource at all": {
			policies + `  - {containerName: "*", controlledResources: []}`,
			`{"updatePolicy":{"updateMode":"InPlace","fallback":"Wait"},"resourcePolicy":{"containerPolicies":[{"containerName":"*","mode":"Off"}]}}`, "",
		},
		"a boost for all containers": {
			ofWeb + "updatePolicy: {updateMode: InPlace}\nstartupBoost: {cpu: {type: Factor, factor: 2, durationSeconds: 30}}",
			`{"updatePolicy":{"updateMode":"InPlace","fallback":"Wait"},"resourcePolicy":{"containerPolicies":[{"containerName":"*","startupBoost":{"cpu":{"type":"Factor","factor":2,"durationSeconds":30}},"controlledValues":"RequestsAndLimits"}]}}`, "",
		},
		"a boost, but CPU is not managed": {
			policies + "  - {containerName: app, controlledResources: [memory], startupBoost: {cpu: {type: Quantity, quantity: 1}}}",
			`{"updatePolicy":{"updateMode":"InPlace","fallback":"Wait"},"resourcePolicy":{"containerPolicies":[{"containerName":"app","controlledResources":["memory"],"controlledValues":"RequestsAndLimits"},{"containerName":"*","controlledValues":"RequestsAndLimits"}]}}`, "",
		},
		"a boost of a container": {
			policies + "  - {containerName: app, startupBoost: {cpu: {type: Quantity, quantity: 1}}}",
			`{"updatePolicy":{"updateMode":"InPlace","fallback":"Wait"},"resourcePolicy":{"containerPolicies":[{"containerName":"app","startupBoost":{"cpu":{"type":"Quantity","quantity":"1"}},"controlledValues":"RequestsAndLimits"},{"containerName":"*","controlledValues":"RequestsAndLimits"}]}}`, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := fromvpa.Of("shop", "web", specOf(t, tc.spec))
			if i.Scaler == nil {
				t.Fatalf("skipped: %s", i.Skipped)
			}
			if i.Scaler.Spec.DeploymentName != "web" {
				t.Errorf("for Deployment %q", i.Scaler.Spec.DeploymentName)
			}
			i.Scaler.Spec.DeploymentName = ""
			got, err := json.Marshal(i.Scaler.Spec)
			must.Succeed(t, err)
			assert.Equal(t, "policy", specOf(t, tc.want), specOf(t, string(got)))
			if doubts := strings.Join(i.Doubts, " "); doubts != tc.doubts {
				t.Errorf("doubts %q, want %q", doubts, tc.doubts)
			}
		})
	}
}

func TestTargetsWithoutAScaler(t *testing.T) {
	for spec, want := range map[string]string{
		`{}`: "spec.targetRef names nothing",
		`{"targetRef":{"apiVersion":"apps/v1","kind":"StatefulSet","name":"db"}}`:                                        `spec.targetRef names "StatefulSet" of "apps/v1": a scaler sizes Deployments only`,
		`{"targetRef":{"apiVersion":"example.com/v1","kind":"Deployment","name":"web"}}`:                                 `spec.targetRef names "Deployment" of "example.com/v1": a scaler sizes Deployments only`,
		`{"targetRef":{"apiVersion":"autoscaling.verticalscaler.io/v1beta1","kind":"ScaledDeployment","name":"orders"}}`: `spec.targetRef names ScaledDeployment "orders": set its spec.scaling instead`,
		`{"targetRef":{"apiVersion":"apps/v1","kind":"Deployment"}}`:                                                     `spec.targetRef.name "" is not the name of a Deployment`,
		`{"targetRef":null}`: "spec.targetRef names nothing",
	} {
		if i := fromvpa.Of("shop", "web", specOf(t, spec)); i.Scaler != nil || i.Skipped != want {
			t.Errorf("%s: %q, want %q", spec, i.Skipped, want)
		}
	}
	if i := fromvpa.Of("shop", "web", specOf(t, `{"targetRef":"web"}`)); i.Scaler != nil || !strings.HasPrefix(i.Skipped, "its spec cannot be read") {
		t.Errorf("a target without a name: %q", i.Skipped)
	}
	if i := fromvpa.Of("shop", strings.Repeat("a", 64), specOf(t, ofWeb)); i.Scaler != nil || !strings.Contains(i.Skipped, "more than 63 characters") {
		t.Errorf("a long name: %q", i.Skipped)
	}
}

func TestTheText(t *testing.T) {
	for _, name := range []string{"plain", "untidy", "skipped"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", name+".in.yaml"))
			must.Succeed(t, err)
			got, err := fromvpa.Of("shop", name, specOf(t, string(text))).YAML()
			must.Succeed(t, err)
			golden.Compare(t, name+".out.yaml", got)
		})
	}
}

// FuzzOf imports arbitrary specs: each field is explained, and the comments hold only comments.
func FuzzOf(f *testing.F) {
	for _, name := range []string{"plain", "untidy", "skipped"} {
		text, err := os.ReadFile(filepath.Join("testdata", name+".in.yaml"))
		must.Succeed(f, err)
		f.Add(name, string(text))
	}
	f.Add("a", ofWeb+`"x\nkind: Pod": 1`)
	f.Add("a", `targetRef: {apiVersion: apps/v1, kind: Deployment, name: "web\nkind: Pod"}`)
	f.Add("a", `targetRef: {apiVersion: apps/v1, kind: Deployment, name: "\x7f"}`)
	f.Add(strings.Repeat("a.", 100)+"a", ofWeb)
	f.Add("a", ofWeb+"resourcePolicy: {containerPolicies: null}")
	f.Fuzz(func(t *testing.T, name, text string) {
		var spec map[string]any
		if yaml.Unmarshal([]byte(text), &spec) != nil || len(validation.IsDNS1123Subdomain(name)) > 0 {
			return // no object that an API server has
		}
		i := fromvpa.Of("shop", name, spec)
		out, err := i.YAML()
		must.Succeed(t, err)
		var object map[string]any
		document, err := yaml.YAMLToJSON([]byte(out))
		if err == nil {
			err = utiljson.Unmarshal(document, &object) // with whole numbers as such
		}
		if err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
		if i.Scaler == nil {
			if len(object) > 0 {
				t.Fatalf("skipped, and yet:\n%s", out)
			}
			return
		}
		var scaler v1beta1.VerticalScaler
		if err := yaml.UnmarshalStrict([]byte(out), &scaler); err != nil || scaler.Kind != "VerticalScaler" || len(object) != 4 {
			t.Fatalf("%v:\n%s", err, out)
		}
		if len(i.Doubts) > 0 && scaler.Spec.UpdatePolicy.UpdateMode != v1beta1.UpdateModeRecommend {
			t.Errorf("changes pods in spite of %q", i.Doubts)
		}
		for field := range spec {
			if !strings.Contains(out, "# spec."+strings.TrimSpace(field)) && strings.IndexFunc(field, isStrange) < 0 && !isEmpty(spec[field]) {
				t.Errorf("nothing about %q:\n%s", field, out)
			}
		}
	})
}

// isStrange reports whether a character is not in the names of fields and objects.
func isStrange(c rune) bool {
	return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", c)
}

// isEmpty reports whether a value holds only nulls.
func isEmpty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case map[string]any:
		return !slices.ContainsFunc(slices.Collect(maps.Values(v)), func(of any) bool { return !isEmpty(of) })
	case []any:
		return !slices.ContainsFunc(v, func(of any) bool { return !isEmpty(of) })
	}
	return false
}

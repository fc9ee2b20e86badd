// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaler

import (
	"os"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

func TestWhatEachModeMayChange(t *testing.T) {
	type rights struct{ Resizes, Evicts, SizesNewPods, WritesTemplate bool }
	for _, tc := range []struct {
		mode     v1beta1.UpdateMode
		fallback v1beta1.Fallback
		applies  v1beta1.UpdateMode
		may      rights
	}{
		{"", "", "InPlace", rights{Resizes: true, SizesNewPods: true}},
		{"InPlace", "Wait", "InPlace", rights{Resizes: true, SizesNewPods: true}},
		{"InPlace", "Recreate", "InPlace", rights{Resizes: true, Evicts: true, SizesNewPods: true}},
		{"InPlace", "RecreateUnderPressure", "InPlace", rights{Resizes: true, Evicts: true, SizesNewPods: true}},
		{"InPlace", "Rollout", "InPlace", rights{Resizes: true, SizesNewPods: true, WritesTemplate: true}},
		{"InPlace", "Migrate", "InPlace", rights{Resizes: true, SizesNewPods: true}},
		{"Initial", "Recreate", "Initial", rights{SizesNewPods: true}},
		{"Rollout", "Recreate", "Rollout", rights{WritesTemplate: true}},
		{"Recommend", "Rollout", "Recommend", rights{}},
		{"Newer", "Rollout", "Recommend", rights{}},
		{"Off", "Recreate", "Recommend", rights{}},
	} {
		t.Run(string(tc.mode)+" "+string(tc.fallback), func(t *testing.T) {
			spec := &v1beta1.VerticalScalerSpec{}
			spec.UpdatePolicy = v1beta1.UpdatePolicy{UpdateMode: tc.mode, Fallback: tc.fallback}
			if got := Mode(spec); got != tc.applies {
				t.Errorf("Mode() = %s, want %s", got, tc.applies)
			}
			unknown, ok := UnknownMode(spec)
			if want := tc.mode == "Newer" || tc.mode == "Off"; ok != want || ok && unknown != tc.mode {
				t.Errorf("UnknownMode() = %q, %t", unknown, ok)
			}
			got := rights{Resizes: ResizesPods(spec), Evicts: EvictsPods(spec), SizesNewPods: SizesNewPods(spec), WritesTemplate: WritesTemplate(spec)}
			assert.Equal(t, "rights", tc.may, got)
		})
	}
}

// AsTemplate is a choice for InPlace. The other modes that size new pods exist for that.
func TestNewPodsAsTheTemplate(t *testing.T) {
	for _, tc := range []struct {
		update       v1beta1.UpdatePolicy
		sizes, needs bool
	}{
		{v1beta1.UpdatePolicy{NewPods: "Sized"}, true, false},
		{v1beta1.UpdatePolicy{NewPods: "AsTemplate"}, false, false},
		{v1beta1.UpdatePolicy{NewPods: "OfANewerVersion"}, false, false},
		{v1beta1.UpdatePolicy{NewPods: "AsTemplate", Fallback: "Rollout"}, false, false},
		{v1beta1.UpdatePolicy{NewPods: "AsTemplate", Fallback: "Recreate"}, true, true},
		{v1beta1.UpdatePolicy{NewPods: "AsTemplate", Fallback: "RecreateUnderPressure"}, true, true},
		{v1beta1.UpdatePolicy{NewPods: "AsTemplate", UpdateMode: "Initial"}, true, true},
		{v1beta1.UpdatePolicy{NewPods: "Sized", UpdateMode: "Rollout"}, false, false},
		{v1beta1.UpdatePolicy{NewPods: "Sized", UpdateMode: "Recommend"}, false, false},
	} {
		spec := &v1beta1.VerticalScalerSpec{}
		spec.UpdatePolicy = tc.update
		if sizes, needs := SizesNewPods(spec), PlanPolicy(&v1beta1.VerticalScaler{Spec: *spec}, workload.Deployment{}).NeedsSizedNewPods(); sizes != tc.sizes || needs != tc.needs {
			t.Errorf("%+v: sizes new pods %t, needs it %t", tc.update, sizes, needs)
		}
	}
}

func TestOtherProfilesCountAsBalanced(t *testing.T) {
	for name, want := range map[v1beta1.RecommendationProfile]string{"": "Balanced", "Safe": "Safe", "Calm": "Balanced", "Newer": "Balanced"} {
		spec := &v1beta1.VerticalScalerSpec{}
		spec.RecommendationPolicy = &v1beta1.RecommendationPolicy{Profile: name}
		if got := Profile(spec); string(got) != want {
			t.Errorf("Profile(%q) = %s, want %s", name, got, want)
		}
	}
}

// An object stored without defaults behaves like one with the schema's defaults.
func TestDefaultsAreThoseOfTheSchema(t *testing.T) {
	data, err := os.ReadFile("../../config/crd/bases/autoscaling.verticalscaler.io_verticalscalers.yaml")
	must.Succeed(t, err)
	var crd apiextensionsv1.CustomResourceDefinition
	must.Succeed(t, yaml.Unmarshal(data, &crd))
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	update := spec.Properties["updatePolicy"].Properties
	var empty v1beta1.VerticalScalerSpec
	for field, want := range map[string]any{
		"updateMode": Mode(&empty), "minReplicas": defaultMinReplicas,
		"cooldownSeconds": int(Cooldown(&empty) / time.Second), "tolerancePercent": TolerancePercent(&empty),
		"verificationSeconds": defaultVerificationSeconds,
	} {
		wanted, err := yaml.Marshal(want)
		must.Succeed(t, err)
		var got string
		if d := update[field].Default; d != nil {
			inYAML, err := yaml.JSONToYAML(d.Raw)
			must.Succeed(t, err)
			got = string(inYAML)
		}
		if got != string(wanted) {
			t.Errorf("updatePolicy.%s: the default is %q in the schema, and %q here", field, got, wanted)
		}
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package olmv1 compares our CRDs with released ones, with the library that OLM v1 uses.
package olmv1

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/crdify/pkg/config"
	"sigs.k8s.io/crdify/pkg/runner"
	"sigs.k8s.io/crdify/pkg/validations"
	"sigs.k8s.io/crdify/pkg/validations/property"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// olmV1 are the settings with which OLM v1 compares the CRDs of a new bundle with those of the cluster. Descriptions may change,
// and enums may get new values. A change that no check knows, such as one of a CEL rule, is rejected.
var olmV1 = config.Config{
	Conversion:           config.ConversionPolicyIgnore,
	UnhandledEnforcement: config.EnforcementPolicyError,
	Validations: []config.ValidationConfig{
		{Name: "description", Enforcement: config.EnforcementPolicyNone},
		{Name: "enum", Enforcement: config.EnforcementPolicyError, Configuration: map[string]any{"additionPolicy": property.AdditionPolicyAllow}},
	},
}

// upgradeProblems are the reasons why OLM v1 would not replace one CRD by the other.
func upgradeProblems(t *testing.T, from, to *apiextensionsv1.CustomResourceDefinition) (out []string) {
	t.Helper()
	comparison, err := runner.New(&olmV1, runner.DefaultRegistry())
	must.Succeed(t, err)
	add := func(results []validations.ComparisonResult) {
		for _, r := range results {
			out = append(append(out, r.Errors...), r.Warnings...)
		}
	}
	results := comparison.Run(from, to)
	add(results.CRDValidation)
	for _, v := range append(results.SameVersionValidation, results.ServedVersionValidation...) {
		for _, p := range v.PropertyComparisons {
			add(p.ComparisonResults)
		}
	}
	return out
}

func TestCRDsCanBeUpgraded(t *testing.T) {
	released, err := filepath.Glob(filepath.Join("testdata", "released", "*.yaml"))
	if err != nil || len(released) < 3 {
		t.Fatalf("there are %d released CRDs, %v", len(released), err)
	}
	for _, path := range released {
		from, to := readCRD(t, path), readCRD(t, filepath.Join("..", "..", "..", "config", "crd", "bases", filepath.Base(path)))
		for _, problem := range upgradeProblems(t, from, to) {
			t.Errorf("%s: %s", filepath.Base(path), problem)
		}
	}
}

func readCRD(t *testing.T, path string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	data, err := os.ReadFile(path)
	must.Succeed(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if data, err = yaml.YAMLToJSONStrict(data); err == nil {
		err = json.Unmarshal(data, crd)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return crd
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/crdify/pkg/config"
	"sigs.k8s.io/crdify/pkg/runner"
	"sigs.k8s.io/crdify/pkg/validations"
	"sigs.k8s.io/crdify/pkg/validations/property"
	"sigs.k8s.io/crdify/pkg/validators/version"
)

// olmV1 are the settings with which OLM v1 compares the CRDs of a new bundle with those of
// the cluster. Descriptions may change, and enums may get new values. A change that no
// check knows, such as one of a CEL rule, is rejected.
var olmV1 = config.Config{
	Conversion:           config.ConversionPolicyIgnore,
	UnhandledEnforcement: config.EnforcementPolicyError,
	Validations: []config.ValidationConfig{
		{Name: "description", Enforcement: config.EnforcementPolicyNone},
		{
			Name: "enum", Enforcement: config.EnforcementPolicyError,
			Configuration: map[string]any{"additionPolicy": property.AdditionPolicyAllow},
		},
	},
}

// UpgradeProblems returns the reasons why OLM v1 would not replace one CRD by the other.
func UpgradeProblems(from, to *apiextensionsv1.CustomResourceDefinition) (out []string, err error) {
	comparison, err := runner.New(&olmV1, runner.DefaultRegistry())
	if err != nil {
		return nil, fmt.Errorf("configuring crdify: %w", err)
	}
	results := comparison.Run(from, to)
	add := func(where string, results []validations.ComparisonResult) {
		for _, r := range results {
			for _, e := range append(r.Errors, r.Warnings...) {
				out = append(out, fmt.Sprintf("%s: %s: %s", where, r.Name, e))
			}
		}
	}
	add("CRD "+to.Name, results.CRDValidation)
	for _, versions := range [][]version.VersionedPropertyComparisonResult{results.SameVersionValidation, results.ServedVersionValidation} {
		for _, v := range versions {
			for _, p := range v.PropertyComparisons {
				add(v.Version+" "+p.Property, p.ComparisonResults)
			}
		}
	}
	return out, nil
}

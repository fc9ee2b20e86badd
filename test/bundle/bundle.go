// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bundle checks the bundle for OLM without a cluster: with the validators of the
// Operator Framework, and with additional rules for OpenShift's community catalog, OLM v1
// and our users. A rule returns complaints; a good bundle has none.
package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/operator-framework/api/pkg/validation"
	validationerrors "github.com/operator-framework/api/pkg/validation/errors"
	interfaces "github.com/operator-framework/api/pkg/validation/interfaces"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// Bundle is a parsed bundle.
type Bundle struct {
	*manifests.Bundle

	// Dir is the bundle's folder. The Dockerfile of its image is beside it.
	Dir string
	// Annotations are the annotations in metadata/annotations.yaml.
	Annotations map[string]string
	// Dockerfile is the text of the Dockerfile.
	Dockerfile string
	// Examples are the objects of alm-examples; ExamplesError is the error of decoding them.
	Examples      []*unstructured.Unstructured
	ExamplesError error
}

// Read reads the bundle in a folder.
func Read(dir string) (*Bundle, error) {
	read, err := manifests.GetBundleFromDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the manifests: %w", err)
	}
	b := &Bundle{Bundle: read, Dir: dir}
	data, err := os.ReadFile(filepath.Join(dir, "metadata", "annotations.yaml"))
	if err != nil {
		return nil, fmt.Errorf("reading the annotations: %w", err)
	}
	var file struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return nil, fmt.Errorf("reading the annotations: %w", err)
	}
	b.Annotations = file.Annotations
	dockerfile, err := os.ReadFile(dir + ".Dockerfile")
	if err != nil {
		return nil, fmt.Errorf("reading the Dockerfile: %w", err)
	}
	b.Dockerfile = string(dockerfile)
	var examples []map[string]any
	// Decode as the API server does: integers stay integers.
	b.ExamplesError = utiljson.Unmarshal([]byte(b.CSV.Annotations["alm-examples"]), &examples)
	for _, example := range examples {
		b.Examples = append(b.Examples, &unstructured.Unstructured{Object: example})
	}
	return b, nil
}

// deployments are the Deployments that OLM creates for the operator: one.
func (b *Bundle) deployments() []v1alpha1.StrategyDeploymentSpec {
	return b.CSV.Spec.InstallStrategy.StrategySpec.DeploymentSpecs
}

// exists reports whether the bundle has a file or folder.
func (b *Bundle) exists(path ...string) bool {
	_, err := os.Stat(filepath.Join(append([]string{b.Dir}, path...)...))
	return !errors.Is(err, fs.ErrNotExist)
}

// A Rule is a requirement on a bundle.
type Rule struct {
	Name  string
	Check func(*Bundle) []string
}

// Rules are all rules, the validators of the Operator Framework first.
func Rules() []Rule {
	rules := make([]Rule, 0, 32)
	for _, v := range validators {
		rules = append(rules, Rule{v.name, validated(v.validator)})
	}
	rules = append(rules, catalogRules...)
	rules = append(rules, contentRules...)
	rules = append(rules, podRules...)
	rules = append(rules, rightsRules...)
	return append(rules, apiRules...)
}

// Complaints returns the complaints of all rules about the bundle in a folder, each with
// the name of its rule in front.
func Complaints(dir string) (out []string) {
	b, err := Read(dir)
	if err != nil {
		return []string{err.Error()}
	}
	for _, rule := range Rules() {
		for _, complaint := range rule.Check(b) {
			out = append(out, rule.Name+": "+complaint)
		}
	}
	return out
}

// validators are all validators of the library, except the one for several architectures,
// which needs images that have been pushed, and the one for the former bundle format.
var validators = []struct {
	name      string
	validator interfaces.Validator
}{
	{"ClusterServiceVersionValidator", validation.ClusterServiceVersionValidator},
	{"CustomResourceDefinitionValidator", validation.CustomResourceDefinitionValidator},
	{"BundleValidator", validation.BundleValidator},
	{"OperatorHubV2Validator", validation.OperatorHubV2Validator},
	{"StandardCategoriesValidator", validation.StandardCategoriesValidator},
	{"StandardCapabilitiesValidator", validation.StandardCapabilitiesValidator},
	{"ObjectValidator", validation.ObjectValidator},
	{"OperatorGroupValidator", validation.OperatorGroupValidator},
	{"CommunityOperatorValidator", validation.CommunityOperatorValidator},
	{"AlphaDeprecatedAPIsValidator", validation.AlphaDeprecatedAPIsValidator},
	{"GoodPracticesValidator", validation.GoodPracticesValidator},
}

// validated converts a validator to a rule: its errors and warnings are complaints.
func validated(v interfaces.Validator) func(*Bundle) []string {
	return func(b *Bundle) (out []string) {
		values := map[string]string{"k8s-version": kubernetesOf(b), "index-path": b.Dir + ".Dockerfile"}
		for _, result := range v.Validate(append(b.ObjectsToValidate(), values)...) {
			for _, e := range append(append([]validationerrors.Error{}, result.Errors...), result.Warnings...) {
				out = append(out, strings.TrimSpace(e.Error()))
			}
		}
		return out
	}
}

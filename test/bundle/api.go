// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/crdschema"
)

// Checks of the API in the bundle: its CRDs, their display in consoles, and the examples.
var apiRules = []Rule{
	{"CRDs", crds},
	{"descriptors", descriptors},
	{"internal objects", internalObjects},
	{"examples", examples},
}

// crds requires that an API server accepts the CRDs, and that they are owned. The
// validators do not check CEL rules and schemas.
func crds(b *Bundle) (out []string) {
	owned := map[string]int{}
	for _, d := range b.CSV.Spec.CustomResourceDefinitions.Owned {
		owned[d.Name+" "+d.Version]++
	}
	for _, crd := range b.V1CRDs {
		internal, err := internalCRD(crd)
		if err != nil {
			out = append(out, err.Error())
			continue
		}
		for _, problem := range crdvalidation.ValidateCustomResourceDefinition(context.Background(), internal) {
			// The API server sets it.
			if problem.Field != "status.storedVersions" {
				out = append(out, fmt.Sprintf("CRD %s: %v", crd.Name, problem))
			}
		}
		for _, v := range crd.Spec.Versions {
			if n := owned[crd.Name+" "+v.Name]; n != 1 {
				out = append(out, fmt.Sprintf("version %s of CRD %s is owned %d times", v.Name, crd.Name, n))
			}
			delete(owned, crd.Name+" "+v.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(owned)) {
		out = append(out, fmt.Sprintf("%s is owned, but not in the bundle", name))
	}
	return out
}

// internalCRD is the CRD as the API server reads it, with defaults.
func internalCRD(crd *apiextensionsv1.CustomResourceDefinition) (*apiextensions.CustomResourceDefinition, error) {
	crd = crd.DeepCopy()
	apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	out := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, out, nil); err != nil {
		return nil, fmt.Errorf("converting CRD %s: %w", crd.Name, err)
	}
	return out, nil
}

// descriptors requires a description of each top-level field of spec and status, no
// descriptions of missing fields, and the kinds that a scaler works with.
func descriptors(b *Bundle) (out []string) {
	for _, d := range b.CSV.Spec.CustomResourceDefinitions.Owned {
		if d.DisplayName == "" || d.Description == "" {
			out = append(out, fmt.Sprintf("%s has no name to display or no description", d.Kind))
		}
		if len(d.Resources) == 0 {
			out = append(out, fmt.Sprintf("%s names no resources", d.Kind))
		}
		root := schemaOf(b, d)
		if root == nil {
			out = append(out, fmt.Sprintf("%s has no schema", d.Kind))
			continue
		}
		var spec, status []described
		for _, s := range d.SpecDescriptors {
			spec = append(spec, described{s.Path, s.DisplayName, s.Description})
		}
		for _, s := range d.StatusDescriptors {
			status = append(status, described{s.Path, s.DisplayName, s.Description})
		}
		out = append(out, describedFully(d.Kind+".spec", root.Properties["spec"], spec)...)
		out = append(out, describedFully(d.Kind+".status", root.Properties["status"], status)...)
	}
	return out
}

// described are the common fields of the descriptors of spec and status.
type described struct{ path, displayName, description string }

func describedFully(part string, schema apiextensionsv1.JSONSchemaProps, list []described) (out []string) {
	seen := map[string]bool{}
	for _, d := range list {
		if d.displayName == "" || d.description == "" {
			out = append(out, fmt.Sprintf("%s.%s has no name to display or no description", part, d.path))
		}
		if seen[d.path] {
			out = append(out, fmt.Sprintf("%s.%s is described twice", part, d.path))
		}
		seen[d.path] = true
		if !hasField(schema, strings.Split(d.path, ".")) {
			out = append(out, fmt.Sprintf("%s.%s is described, but does not exist", part, d.path))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		if !seen[name] {
			out = append(out, fmt.Sprintf("%s.%s has no descriptor", part, name))
		}
	}
	return out
}

func hasField(schema apiextensionsv1.JSONSchemaProps, path []string) bool {
	if len(path) == 0 {
		return true
	}
	name, _, isList := strings.Cut(path[0], "[")
	next, ok := schema.Properties[name]
	if !ok {
		return false
	}
	if isList && next.Items != nil && next.Items.Schema != nil {
		next = *next.Items.Schema
	}
	return hasField(next, path[1:])
}

// schemaOf is the schema of an owned version.
func schemaOf(b *Bundle, d v1alpha1.CRDDescription) *apiextensionsv1.JSONSchemaProps {
	for _, crd := range b.V1CRDs {
		for _, v := range crd.Spec.Versions {
			if crd.Name == d.Name && v.Name == d.Version && v.Schema != nil {
				return v.Schema.OpenAPIV3Schema
			}
		}
	}
	return nil
}

// internalObjects are the kinds that consoles hide. They must be kinds of the bundle.
func internalObjects(b *Bundle) (out []string) {
	const key = "operators.operatorframework.io/internal-objects"
	var names []string
	if err := json.Unmarshal([]byte(b.CSV.Annotations[key]), &names); err != nil {
		return []string{key + " is not a list: " + err.Error()}
	}
	for _, name := range names {
		if !slices.ContainsFunc(b.V1CRDs, func(crd *apiextensionsv1.CustomResourceDefinition) bool { return crd.Name == name }) {
			out = append(out, fmt.Sprintf("%s is internal, but not in the bundle", name))
		}
	}
	for _, want := range []string{"newpodsizes.autoscaling.verticalscaler.io", "verticalscalercheckpoints.autoscaling.verticalscaler.io"} {
		if !slices.Contains(names, want) {
			out = append(out, fmt.Sprintf("%s is not internal", want))
		}
	}
	return out
}

// examples requires an example of each kind. An API server must accept all of them, and their
// statuses together must show every field.
func examples(b *Bundle) (out []string) {
	if b.ExamplesError != nil {
		return []string{"alm-examples cannot be read: " + b.ExamplesError.Error()}
	}
	for _, d := range b.CSV.Spec.CustomResourceDefinitions.Owned {
		schema := schemaOf(b, d)
		if schema == nil {
			continue // the rule for CRDs reports it
		}
		of := slices.DeleteFunc(slices.Clone(b.Examples), func(example *unstructured.Unstructured) bool {
			return example.GetKind() != d.Kind || !strings.HasSuffix(example.GetAPIVersion(), "/"+d.Version)
		})
		if len(of) == 0 {
			out = append(out, fmt.Sprintf("%s has no example", d.Kind))
		}
		shown := map[string]bool{}
		for _, example := range of {
			for _, problem := range exampleProblems(schema, example, shown) {
				out = append(out, fmt.Sprintf("%s %s: %s", d.Kind, example.GetName(), problem))
			}
		}
		for _, key := range slices.Sorted(maps.Keys(schema.Properties["status"].Properties)) {
			if !shown[key] {
				out = append(out, fmt.Sprintf("no example of %s shows status.%s", d.Kind, key))
			}
		}
	}
	return out
}

// exampleProblems checks one example and adds the status fields that it has to shown.
func exampleProblems(schema *apiextensionsv1.JSONSchemaProps, example *unstructured.Unstructured, shown map[string]bool) []string {
	out := refusals(schema, example)
	status, _, err := unstructured.NestedMap(example.Object, "status")
	if err != nil {
		out = append(out, err.Error())
	}
	if _, has := schema.Properties["status"]; has && len(status) == 0 {
		out = append(out, "has no status")
	}
	for key := range status {
		shown[key] = true
	}
	return out
}

// refusals are the reasons why an API server would reject the object, including its status,
// or drop a field of it.
func refusals(schema *apiextensionsv1.JSONSchemaProps, o *unstructured.Unstructured) []string {
	checked, err := crdschema.Of(schema)
	if err != nil {
		return []string{err.Error()}
	}
	return checked.Refusals(o)
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crdschema checks objects against the schema of a CRD as an API server does, without one.
package crdschema

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// Schema is a schema that objects are checked against.
type Schema struct {
	structural *structuralschema.Structural
	validator  validation.SchemaValidator
	rules      *cel.Validator
}

// Of reads a schema.
func Of(schema *apiextensionsv1.JSONSchemaProps) (*Schema, error) {
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(schema, internal, nil); err != nil {
		return nil, fmt.Errorf("converting the schema: %w", err)
	}
	structural, err := structuralschema.NewStructural(internal)
	if err != nil {
		return nil, fmt.Errorf("reading the schema: %w", err)
	}
	validator, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		return nil, fmt.Errorf("reading the schema: %w", err)
	}
	return &Schema{structural, validator, cel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
}

// OfCRD reads the schema of the last version in a file of config/crd/bases. root is the folder of
// the source tree.
func OfCRD(root, file string) (*Schema, error) {
	text, err := os.ReadFile(filepath.Join(root, "config", "crd", "bases", file))
	if err != nil {
		return nil, fmt.Errorf("reading the CRD: %w", err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return Of(crd.Spec.Versions[len(crd.Spec.Versions)-1].Schema.OpenAPIV3Schema)
}

// Default sets the defaults of an object's fields.
func (s *Schema) Default(object map[string]any) { defaulting.Default(object, s.structural) }

// Refusals are the reasons why an API server would reject the object, including its status, or drop
// a field of it.
func (s *Schema) Refusals(o *unstructured.Unstructured) (out []string) {
	object := o.DeepCopy().Object
	track := structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
	for _, path := range pruning.PruneWithOptions(object, s.structural, true, track) {
		out = append(out, fmt.Sprintf("unknown field %q", path))
	}
	s.Default(object)
	var problems field.ErrorList
	problems = append(problems, validation.ValidateCustomResource(nil, object, s.validator)...)
	problems = append(problems, listtype.ValidateListSetsAndMaps(nil, s.structural, object)...)
	if s.rules != nil {
		broken, _ := s.rules.Validate(context.Background(), nil, s.structural, object, nil, celconfig.RuntimeCELCostBudget)
		problems = append(problems, broken...)
	}
	for _, problem := range problems {
		out = append(out, problem.Error())
	}
	return out
}

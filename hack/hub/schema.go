// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// A schema is what may be in a YAML file. It has the keywords of JSON Schema that the hubs use.
type schema struct {
	// kind is string, boolean, array or object.
	kind     string
	enum     []string
	items    *schema
	minItems int
	unique   bool
	// fields are those of an object. Others are refused if it is closed.
	fields   map[string]schema
	required []string
	closed   bool
}

var (
	anyText = schema{kind: "string"}
	yesNo   = schema{kind: "boolean"}
	texts   = schema{kind: "array", items: &anyText, minItems: 1}
	set     = schema{kind: "array", items: &anyText, minItems: 1, unique: true}
)

// ciSchema is operatorcert/schemas/ci-schema.json.
var ciSchema = schema{kind: "object", fields: map[string]schema{
	"updateGraph":     {kind: "string", enum: []string{"replaces-mode", "semver-mode"}},
	"reviewers":       texts,
	"merge":           yesNo,
	"cert_project_id": anyText,
	"fbc": {kind: "object", closed: true, fields: map[string]schema{
		"enabled":                    yesNo,
		"version_promotion_strategy": {kind: "string", enum: []string{"review-needed", "always", "never"}},
		"catalog_mapping": {kind: "array", items: &schema{
			kind: "object", required: []string{"template_name", "type", "catalog_names"}, fields: map[string]schema{
				"template_name": anyText,
				"catalog_names": set,
				"type":          {kind: "string", enum: []string{"olm.template.basic", "olm.semver"}},
			},
		}},
	}},
}}

// releaseSchema is operatorcert/schemas/release-config-schema.json.
var releaseSchema = schema{kind: "object", closed: true, required: []string{"catalog_templates"}, fields: map[string]schema{
	"merge": yesNo,
	"catalog_templates": {kind: "array", minItems: 1, unique: true, items: &schema{
		kind: "object", required: []string{"template_name", "channels"}, fields: map[string]schema{
			"template_name":  anyText,
			"channels":       set,
			"defaultChannel": anyText,
			"replaces":       anyText,
			"skips":          set,
			"skipRange":      anyText,
		},
	}},
}}

// problems says what is wrong with a value at a path.
func (s schema) problems(path string, value any) []string {
	switch value := value.(type) {
	case string:
		if s.kind == "string" && len(s.enum) > 0 && !slices.Contains(s.enum, value) {
			return []string{fmt.Sprintf("%s is %q, must be one of %v", path, value, s.enum)}
		}
		return s.wrongKind(path, "string")
	case bool:
		return s.wrongKind(path, "boolean")
	case []any:
		return append(s.wrongKind(path, "array"), s.problemsOfItems(path, value)...)
	case map[string]any:
		return append(s.wrongKind(path, "object"), s.problemsOfFields(path, value)...)
	default:
		return s.wrongKind(path, fmt.Sprintf("%T", value))
	}
}

func (s schema) wrongKind(path, kind string) []string {
	if s.kind == kind {
		return nil
	}
	return []string{fmt.Sprintf("%s is of type %s, must be %s", path, kind, s.kind)}
}

func (s schema) problemsOfItems(path string, items []any) (out []string) {
	if s.items == nil {
		return nil
	}
	if len(items) < s.minItems {
		out = append(out, fmt.Sprintf("%s has %d items, must have at least %d", path, len(items), s.minItems))
	}
	for i, item := range items {
		out = append(out, s.items.problems(fmt.Sprintf("%s[%d]", path, i), item)...)
		for _, other := range items[:i] {
			if s.unique && reflect.DeepEqual(item, other) {
				out = append(out, fmt.Sprintf("%s[%d] is in the list twice", path, i))
			}
		}
	}
	return out
}

func (s schema) problemsOfFields(path string, o map[string]any) (out []string) {
	for _, name := range s.required {
		if _, ok := o[name]; !ok {
			out = append(out, fmt.Sprintf("%s.%s is missing", path, name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o)) {
		field, known := s.fields[name]
		switch {
		case known:
			out = append(out, field.problems(path+"."+name, o[name])...)
		case s.closed:
			out = append(out, fmt.Sprintf("%s.%s is not known", path, name))
		}
	}
	return out
}

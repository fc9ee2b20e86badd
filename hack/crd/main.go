// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command crd writes each paragraph of the descriptions in a CustomResourceDefinition in one line. Below
// a field, if one is named, it removes the descriptions and bounds the quantities.
//
//	go run ./hack/crd <file> [spec.template]
//
// "kubectl explain" breaks lines at 80 columns, and keeps the line breaks of a description. Those of a Go
// comment would leave every second line almost empty.
//
// The schema of a pod template contains a quarter of a megabyte of Kubernetes' own
// descriptions. That is too much for kubectl apply, which stores a copy in an annotation,
// and "kubectl explain deployment.spec.template" shows them anyway. The field's own
// description stays.
//
// The pattern of a quantity allows any exponent, and to decode 1e-99999999 a Go client works for
// twenty minutes. If such a template were stored, no operator could list the objects again.
package main

import (
	"fmt"
	"os"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 2 && len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: crd <file> [<field>], such as: crd config/crd/bases/some.yaml spec.template")
		os.Exit(2)
	}
	var field []string
	if len(os.Args) == 3 {
		field = strings.Split(os.Args[2], ".")
	}
	if err := rewrite(os.Args[1], field); err != nil {
		fmt.Fprintln(os.Stderr, "crd:", err)
		os.Exit(1)
	}
}

// rewrite joins the lines of the descriptions in the file. Below a field, if one is named, it removes the
// descriptions and bounds the quantities.
func rewrite(file string, field []string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var crd map[string]any // not the type, which would add a status
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	var typed apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &typed); err != nil {
		return fmt.Errorf("%s is not a CustomResourceDefinition: %w", file, err)
	}
	for _, version := range at(crd, "spec", "versions").([]any) {
		schema := at(version, "schema", "openAPIV3Schema")
		joinDescriptions(schema)
		if len(field) == 0 {
			continue
		}
		for _, name := range field {
			schema = at(schema, "properties", name)
		}
		below, ok := schema.(map[string]any)
		if !ok {
			return fmt.Errorf("%s has no field %s", file, strings.Join(field, "."))
		}
		for _, value := range below {
			silence(value)
			bound(value)
		}
	}
	text, err = yaml.Marshal(crd)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append([]byte("---\n"), text...), 0o644)
}

// at follows keys through nested maps; nil if one is missing.
func at(value any, keys ...string) any {
	for _, key := range keys {
		m, _ := value.(map[string]any)
		value = m[key]
	}
	return value
}

// silence removes all descriptions, but keeps properties with that name.
func silence(value any) {
	switch v := value.(type) {
	case map[string]any:
		if _, isText := v["description"].(string); isText {
			delete(v, "description")
		}
		for _, inner := range v {
			silence(inner)
		}
	case []any:
		for _, inner := range v {
			silence(inner)
		}
	}
}

// joinDescriptions writes each paragraph of all descriptions in one line, but not properties with that
// name.
func joinDescriptions(value any) {
	switch v := value.(type) {
	case map[string]any:
		if text, isText := v["description"].(string); isText {
			v["description"] = joined(text)
		}
		for _, inner := range v {
			joinDescriptions(inner)
		}
	case []any:
		for _, inner := range v {
			joinDescriptions(inner)
		}
	}
}

// joined is a text with each paragraph and each item of a list in one line.
func joined(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		if last := len(lines) - 1; last >= 0 && line != "" && lines[last] != "" && !strings.HasPrefix(line, "- ") {
			lines[last] += " " + line
			continue
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// The pattern of quantities, and the part of it that allows any exponent.
const (
	quantity        = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`
	anyExponent     = `(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`
	boundedExponent = `[0-9]{1,2}))?$`
)

// longestQuantity is enough for every quantity that anyone needs, as text.
const longestQuantity = 64

// bound limits quantities to exponents of two digits, and their length.
func bound(value any) {
	switch v := value.(type) {
	case map[string]any:
		if v["pattern"] == quantity {
			v["pattern"] = strings.TrimSuffix(quantity, anyExponent) + boundedExponent
			v["maxLength"] = longestQuantity
		}
		for _, inner := range v {
			bound(inner)
		}
	case []any:
		for _, inner := range v {
			bound(inner)
		}
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command crd writes each paragraph of the descriptions in CustomResourceDefinitions in one line. Below the pod template of a
// ScaledDeployment, it removes the descriptions and bounds the quantities.
//
//	go run ./hack/crd <file>...
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

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func main() {
	for _, file := range os.Args[1:] {
		if err := rewrite(file); err != nil {
			fmt.Fprintln(os.Stderr, "crd:", err)
			os.Exit(1)
		}
	}
}

// rewrite rewrites one file.
func rewrite(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var crd map[string]any // not the type, which would add a status
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	versions, found, err := unstructured.NestedSlice(crd, "spec", "versions")
	if err != nil || !found {
		return fmt.Errorf("%s is not a CustomResourceDefinition: %w", file, err)
	}
	kind, _, _ := unstructured.NestedString(crd, "spec", "names", "kind")
	for _, version := range versions {
		eachSchema(version, func(schema map[string]any) {
			if text, isText := schema["description"].(string); isText {
				schema["description"] = joined(text)
			}
		})
		if kind != "ScaledDeployment" {
			continue
		}
		template, found, err := unstructured.NestedMap(version.(map[string]any), podTemplate...)
		if err != nil || !found {
			return fmt.Errorf("%s has no pod template: %w", file, err)
		}
		own := template["description"]
		eachSchema(template, reduce)
		template["description"] = own
		if err := unstructured.SetNestedMap(version.(map[string]any), template, podTemplate...); err != nil {
			return err
		}
	}
	if err := unstructured.SetNestedSlice(crd, versions, "spec", "versions"); err != nil {
		return err
	}
	if text, err = yaml.Marshal(crd); err != nil {
		return err
	}
	return os.WriteFile(file, append([]byte("---\n"), text...), 0o644)
}

// podTemplate is the path of a ScaledDeployment's pod template in a version of its CRD.
var podTemplate = []string{"schema", "openAPIV3Schema", "properties", "spec", "properties", "template"}

// eachSchema calls do for each map in the value.
func eachSchema(value any, do func(map[string]any)) {
	switch v := value.(type) {
	case map[string]any:
		do(v)
		for _, inner := range v {
			eachSchema(inner, do)
		}
	case []any:
		for _, inner := range v {
			eachSchema(inner, do)
		}
	}
}

// reduce removes the description of a schema, but not a property with that name, and limits a quantity to an exponent of two
// digits.
func reduce(schema map[string]any) {
	if _, isText := schema["description"].(string); isText {
		delete(schema, "description")
	}
	if schema["pattern"] == quantity {
		schema["pattern"] = strings.TrimSuffix(quantity, anyExponent) + boundedExponent
		schema["maxLength"] = int64(longestQuantity)
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

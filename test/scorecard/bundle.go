// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scorecard

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// readCSV reads the ClusterServiceVersion of a bundle.
func readCSV(bundle string) (*operatorsv1alpha1.ClusterServiceVersion, error) {
	files, err := filepath.Glob(filepath.Join(bundle, "manifests", "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("listing the bundle's manifests: %w", err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading the bundle: %w", err)
		}
		var csv operatorsv1alpha1.ClusterServiceVersion
		if err := yaml.Unmarshal(content, &csv.TypeMeta); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		if csv.Kind != operatorsv1alpha1.ClusterServiceVersionKind {
			continue
		}
		if err := yaml.Unmarshal(content, &csv); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		return &csv, nil
	}
	return nil, fmt.Errorf("there is no ClusterServiceVersion in %s", filepath.Join(bundle, "manifests"))
}

// examplesOf lists the examples of a kind in a ClusterServiceVersion. None is an
// error: there would be nothing to test.
func examplesOf(csv *operatorsv1alpha1.ClusterServiceVersion, kind string) (examples []*unstructured.Unstructured, err error) {
	text := csv.Annotations["alm-examples"]
	if text == "" {
		return nil, errors.New("the ClusterServiceVersion has no alm-examples")
	}
	var all []map[string]any
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("decoding the alm-examples: %w", err)
	}
	for _, object := range all {
		if example := (&unstructured.Unstructured{Object: object}); example.GetKind() == kind {
			examples = append(examples, example)
		}
	}
	if len(examples) == 0 {
		return nil, fmt.Errorf("the alm-examples hold no %s", kind)
	}
	return examples, nil
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// The images that tests run from, and the folder of the program in each.
const (
	stockImage = "quay.io/operator-framework/scorecard-test"
	ourImage   = "ghcr.io/verticalscaler/verticalscaler-operator-scorecard"

	// pathInImage is where a program is that is given without a folder.
	pathInImage = "/usr/local/bin"
)

// readConfig reads the bundle's configuration of the scorecard.
func readConfig(bundle string) (config v1alpha3.Configuration, err error) {
	content, err := os.ReadFile(filepath.Join(bundle, "tests", "scorecard", "config.yaml"))
	if err != nil {
		return config, fmt.Errorf("reading the scorecard's configuration: %w", err)
	}
	if err := yaml.UnmarshalStrict(content, &config); err != nil {
		return config, fmt.Errorf("decoding the scorecard's configuration: %w", err)
	}
	return config, nil
}

// selectTests leaves the stages with the tests that are wanted. None is an error: it
// would look like success.
func selectTests(config v1alpha3.Configuration, selector labels.Selector) (stages []v1alpha3.StageConfiguration, err error) {
	for _, s := range config.Stages {
		selected := v1alpha3.StageConfiguration{Parallel: s.Parallel}
		for _, t := range s.Tests {
			if selector.Matches(labels.Set(t.Labels)) {
				selected.Tests = append(selected.Tests, t)
			}
		}
		if len(selected.Tests) > 0 {
			stages = append(stages, selected)
		}
	}
	if len(stages) == 0 {
		return nil, fmt.Errorf("no test has the labels %q", selector)
	}
	return stages, nil
}

// programs are what is run in place of images.
type programs struct {
	stock, ours string
	version     string // of the bundle
}

// programOf is the program of a test's image. An image that we have no program of, or
// another version of, is an error: what runs here is what would run in pods.
func (p programs) programOf(test v1alpha3.TestConfiguration) (string, error) {
	if len(test.Entrypoint) == 0 {
		return "", errors.New("a test has no entrypoint")
	}
	repository, tag, _ := strings.Cut(test.Image, ":")
	switch repository {
	case stockImage:
		if !strings.HasSuffix(p.stock, "-"+tag) {
			return "", fmt.Errorf("the bundle wants %s, and %s is another version", test.Image, filepath.Base(p.stock))
		}
		return p.stock, nil
	case ourImage:
		if tag != "v"+p.version {
			return "", fmt.Errorf("the bundle is version %s, and wants %s", p.version, test.Image)
		}
		return p.ours, nil
	}
	return "", fmt.Errorf("there is no program for image %s", test.Image)
}

// needsCluster says whether a test talks to one.
func needsCluster(test v1alpha3.TestConfiguration) bool {
	return strings.HasPrefix(test.Image, ourImage+":")
}

func anyNeedsCluster(stages []v1alpha3.StageConfiguration) bool {
	for _, s := range stages {
		for _, t := range s.Tests {
			if needsCluster(t) {
				return true
			}
		}
	}
	return false
}

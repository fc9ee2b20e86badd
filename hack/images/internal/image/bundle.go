// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/yaml"
)

// FromBundle returns the image of the bundle for OLM in a folder: what bundle.Dockerfile describes, with the bundle's
// annotations as labels. It fails if the folder has no manifests or no metadata/annotations.yaml, and for symbolic links.
func FromBundle(folder string) (v1.Image, error) {
	file := filepath.Join(folder, "metadata", "annotations.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s is no bundle: %w", folder, err)
	}
	var metadata struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := yaml.Unmarshal(text, &metadata); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	if len(metadata.Annotations) == 0 {
		return nil, fmt.Errorf("%s has no annotations", file)
	}
	// Nothing in a bundle can be executed, so one platform serves all.
	recipe := Recipe{Architecture: "amd64", Config: v1.Config{Labels: metadata.Annotations}}
	for _, name := range []string{"manifests", "metadata", "tests"} {
		from := filepath.Join(folder, name)
		if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) && name == "tests" {
			continue // optional
		} else if err != nil {
			return nil, fmt.Errorf("%s is no bundle: %w", folder, err)
		}
		recipe.Copies = append(recipe.Copies, Copy{From: from, To: name, Mode: 0o644})
	}
	return recipe.Build()
}

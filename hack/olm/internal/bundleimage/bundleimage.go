// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bundleimage makes the image of a bundle for OLM from the bundle's folder, without a container tool.
//
// The image holds what bundle.Dockerfile would put there: one layer with manifests, metadata and tests, and the bundle's
// annotations as labels. It follows from the names and contents of the files alone: the same folder gives the same digest,
// wherever and whenever a program built with the same Go makes it.
package bundleimage

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

// The folders of a bundle. Tests are optional; nothing else belongs into the image.
var folders = []struct {
	name     string
	required bool
}{
	{"manifests", true},
	{"metadata", true},
	{"tests", false},
}

// FromFolder returns the image of the bundle in a folder. It fails if the folder has no manifests or no
// metadata/annotations.yaml, and for links and other files that are not regular.
func FromFolder(folder string) (v1.Image, error) {
	labels, err := labelsOf(folder)
	if err != nil {
		return nil, err
	}
	content, err := layerOf(folder)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer),
	)
	if err != nil {
		return nil, fmt.Errorf("packing %s: %w", folder, err)
	}

	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.AppendLayers(image, layer); err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	// Nothing in a bundle can be executed, so one platform serves all.
	file.OS, file.Architecture = "linux", "amd64"
	file.Config.Labels = labels
	return mutate.ConfigFile(image, file)
}

// labelsOf returns the bundle's annotations, which are the image's labels too.
func labelsOf(folder string) (map[string]string, error) {
	path := filepath.Join(folder, "metadata", "annotations.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s is no bundle: %w", folder, err)
	}
	var metadata struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := yaml.Unmarshal(text, &metadata); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if len(metadata.Annotations) == 0 {
		return nil, fmt.Errorf("%s has no annotations", path)
	}
	return metadata.Annotations, nil
}

// layerOf returns the bundle's files as a tar stream, sorted and without times.
func layerOf(folder string) ([]byte, error) {
	var buffer bytes.Buffer
	layer := tar.NewWriter(&buffer)
	for _, f := range folders {
		files, err := readAll(folder, f.name)
		if errors.Is(err, fs.ErrNotExist) && !f.required {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s is no bundle: %w", folder, err)
		}
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if err := write(layer, name, files[name]); err != nil {
				return nil, err
			}
		}
	}
	if err := layer.Close(); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}

// readAll returns the files below a folder by their names in the image. Folders are there with nil for content.
func readAll(root, folder string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		switch {
		case entry.IsDir():
			files[name] = nil
			return nil
		case !entry.Type().IsRegular():
			return fmt.Errorf("%s is neither a file nor a folder", path)
		}
		content, err := os.ReadFile(path)
		files[name] = append([]byte{}, content...)
		return err
	})
	return files, err
}

func write(layer *tar.Writer, name string, content []byte) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content))}
	if content == nil {
		header.Typeflag, header.Name, header.Mode = tar.TypeDir, name+"/", 0o755
	}
	if err := layer.WriteHeader(header); err != nil {
		return err
	}
	_, err := layer.Write(content)
	return err
}

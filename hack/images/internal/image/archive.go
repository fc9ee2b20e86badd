// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Save writes images of one name, one for each platform, to an OCI archive. Containerd, docker and podman load it under that
// name, which must have a tag.
func Save(name string, images []v1.Image, archive string) error {
	colon := strings.LastIndex(name, ":")
	if colon <= strings.LastIndex(name, "/") {
		return fmt.Errorf("image name %q has no tag", name)
	}
	scratch, err := os.MkdirTemp(filepath.Dir(archive), ".image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	target, err := layout.Write(scratch, empty.Index)
	if err != nil {
		return err
	}
	// The standard's annotation holds the tag. Containerd reads the full name from its own.
	annotations := layout.WithAnnotations(map[string]string{
		"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name[colon+1:],
	})
	if len(images) == 1 {
		err = errors.Join(target.AppendImage(images[0], annotations), writeDockerList(scratch, name, images[0]))
	} else {
		index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		for _, image := range images {
			config, err := image.ConfigFile()
			if err != nil {
				return err
			}
			index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: config.Platform()}})
		}
		err = target.AppendIndex(index, annotations)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", archive, err)
	}
	return writeTar(scratch, archive)
}

// writeDockerList adds the list that "docker load" wants beside that of OCI. It cannot name images of several platforms.
func writeDockerList(folder, name string, image v1.Image) error {
	manifest, err := image.Manifest()
	if err != nil {
		return err
	}
	blob := func(d v1.Descriptor) string { return path.Join("blobs", d.Digest.Algorithm, d.Digest.Hex) }
	var layers []string
	for _, layer := range manifest.Layers {
		layers = append(layers, blob(layer))
	}
	text, err := json.Marshal([]map[string]any{{"Config": blob(manifest.Config), "RepoTags": []string{name}, "Layers": layers}})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "manifest.json"), text, 0o644)
}

// writeTar puts a folder into an archive, sorted and without times and owners. The archive gets its name last.
func writeTar(folder, archive string) (err error) {
	file, err := os.CreateTemp(filepath.Dir(archive), ".archive-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	writer := tar.NewWriter(file)
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: filepath.ToSlash(name), Mode: 0o644, Size: int64(len(content))}
		if err := writer.WriteHeader(header); err != nil {
			return err
		}
		_, err = writer.Write(content)
		return err
	})
	if err = errors.Join(err, writer.Close(), file.Chmod(0o644), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), archive)
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ociarchive reads and writes images in single files: OCI archives, and what "docker save" writes.
package ociarchive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Annotations that name an image in an archive: the standard's, which holds a tag, and that of containerd, which holds the
// full name.
const (
	tagAnnotation  = "org.opencontainers.image.ref.name"
	nameAnnotation = "io.containerd.image.name"
)

// Content is what an archive holds: one image, or one index of images for several platforms. The other is nil.
type Content struct {
	Image v1.Image
	Index v1.ImageIndex
}

// Digest is that of the manifest or of the index.
func (c Content) Digest() (v1.Hash, error) {
	if c.Index != nil {
		return c.Index.Digest()
	}
	return c.Image.Digest()
}

// Images returns the image, or those of the index.
func (c Content) Images() ([]v1.Image, error) {
	if c.Index == nil {
		return []v1.Image{c.Image}, nil
	}
	manifest, err := c.Index.IndexManifest()
	if err != nil {
		return nil, err
	}
	images := make([]v1.Image, 0, len(manifest.Manifests))
	for _, descriptor := range manifest.Manifests {
		image, err := c.Index.Image(descriptor.Digest)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", descriptor.Digest, err)
		}
		images = append(images, image)
	}
	return images, nil
}

// Open reads an archive, which is unpacked in the scratch folder as far as that is needed. The content reads from there and
// from the archive: neither may be removed before it is no longer used.
func Open(archive, scratch string) (Content, error) {
	isOCI, err := contains(archive, "oci-layout")
	if err != nil {
		return Content{}, fmt.Errorf("reading %s: %w", archive, err)
	}
	if !isOCI {
		image, err := tarball.ImageFromPath(archive, nil)
		if err != nil {
			return Content{}, fmt.Errorf("%s is neither an OCI archive nor one of docker with one image: %w", archive, err)
		}
		return Content{Image: image}, nil
	}
	folder, err := os.MkdirTemp(scratch, "layout-")
	if err != nil {
		return Content{}, err
	}
	if err := unpack(archive, folder); err != nil {
		return Content{}, fmt.Errorf("unpacking %s: %w", archive, err)
	}
	content, err := open(folder)
	if err != nil {
		return Content{}, fmt.Errorf("reading %s: %w", archive, err)
	}
	return content, nil
}

// open reads an OCI layout, which has to hold one image or one index.
func open(folder string) (Content, error) {
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return Content{}, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return Content{}, err
	}
	if n := len(manifest.Manifests); n != 1 {
		return Content{}, fmt.Errorf("there must be one image or one list of images in it, not %d", n)
	}
	only := manifest.Manifests[0]
	if only.MediaType.IsIndex() {
		inner, err := index.ImageIndex(only.Digest)
		return Content{Index: inner}, err
	}
	image, err := index.Image(only.Digest)
	return Content{Image: image}, err
}

// Pack writes an OCI layout, which has to hold one image or one index, to an archive. The name, with a tag, is what
// containerd, docker and podman call the image when they load the archive.
func Pack(folder, name, archive string) error {
	content, err := open(folder)
	if err != nil {
		return fmt.Errorf("reading %s: %w", folder, err)
	}
	colon := strings.LastIndex(name, ":")
	if colon <= strings.LastIndex(name, "/") {
		return fmt.Errorf("image name %q has no tag", name)
	}

	// Written anew: the archive has nothing that is not part of the image.
	scratch, err := os.MkdirTemp(filepath.Dir(archive), ".pack-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	target, err := layout.Write(scratch, empty.Index)
	if err != nil {
		return err
	}
	annotations := layout.WithAnnotations(map[string]string{nameAnnotation: name, tagAnnotation: name[colon+1:]})
	if content.Index != nil {
		err = target.AppendIndex(content.Index, annotations)
	} else {
		err = target.AppendImage(content.Image, annotations)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", archive, err)
	}
	return writeTar(scratch, archive)
}

// writeTar puts a folder into an archive, sorted and without times and owners. The archive gets its name last.
func writeTar(folder, archive string) (err error) {
	file, err := os.CreateTemp(filepath.Dir(archive), ".archive-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = file.Close()
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

// contains tells whether a tar file has a file of that name.
func contains(archive, name string) (bool, error) {
	file, err := os.Open(archive)
	if err != nil {
		return false, err
	}
	defer func() { _ = file.Close() }()
	reader := tar.NewReader(file)
	for {
		header, err := reader.Next()
		switch {
		case errors.Is(err, io.EOF):
			return false, nil
		case err != nil:
			return false, err
		case path.Clean(header.Name) == name:
			return true, nil
		}
	}
}

// unpack takes the regular files out of a tar file. Names that lead out of the folder are an error.
func unpack(archive, folder string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	return Extract(file, folder)
}

// Extract takes folders and regular files, with their permissions, out of a tar stream. Anything else, and names that lead
// out of the folder, are errors.
func Extract(stream io.Reader, folder string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	reader := tar.NewReader(stream)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.FromSlash(strings.TrimPrefix(path.Clean("/"+header.Name), "/"))
		if !filepath.IsLocal(filepath.FromSlash(strings.TrimPrefix(header.Name, "/"))) {
			return fmt.Errorf("%q leads out of the folder", header.Name)
		}
		switch header.Typeflag {
		case tar.TypeDir:
			if name == "" {
				continue
			}
			if err := root.MkdirAll(name, 0o755); err != nil {
				return err
			}
			if err := root.Chmod(name, header.FileInfo().Mode().Perm()); err != nil {
				return err
			}
		case tar.TypeReg:
			if err := extractFile(root, name, header.FileInfo().Mode().Perm(), reader); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%q is neither a file nor a folder", header.Name)
		}
	}
}

func extractFile(root *os.Root, name string, mode fs.FileMode, content io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close(), root.Chmod(name, mode))
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package image builds container images from Dockerfiles, without a container engine.
//
// An image follows from the names, permissions and contents of its files, from its settings and from the time that the
// caller gives: the same input results in the same digest wherever a program built with the same Go builds it.
package image

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Recipe describes an image for one platform that has no base image.
type Recipe struct {
	Architecture string
	// Created is the time of the image and of all its files.
	Created time.Time
	Config  v1.Config
	// Copies become one layer each.
	Copies []Copy
}

// Copy brings files into an image.
type Copy struct {
	// From is a file, or a folder whose contents are copied.
	From string
	// To is the path in the image that From gets.
	To string
	// Mode is the permissions of files. 0 keeps those of From.
	Mode fs.FileMode
}

// Build returns the image.
func (r Recipe) Build() (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, c := range r.Copies {
		content, err := c.layer(r.Created)
		if err != nil {
			return nil, err
		}
		layer, err := tarball.LayerFromOpener(
			func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
			tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
		if err != nil {
			return nil, fmt.Errorf("packing %s: %w", c.From, err)
		}
		image, err = mutate.Append(image, mutate.Addendum{
			Layer: layer, History: v1.History{Created: v1.Time{Time: r.Created.UTC()}, CreatedBy: "COPY to /" + c.To},
		})
		if err != nil {
			return nil, err
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Config, config.Created = "linux", r.Architecture, r.Config, v1.Time{Time: r.Created.UTC()}
	return mutate.ConfigFile(image, config)
}

// layer returns the files as a tar stream: sorted, owned by root, and with the folders that lead to them.
func (c Copy) layer(created time.Time) ([]byte, error) {
	sources := map[string]string{} // by their names in the image; "" for folders that only lead to others
	for folder := path.Dir(c.To); folder != "."; folder = path.Dir(folder) {
		sources[folder] = ""
	}
	err := filepath.WalkDir(c.From, func(source string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(c.From, source)
		sources[path.Join(c.To, filepath.ToSlash(relative))] = source
		return err
	})
	if err != nil {
		return nil, err
	}
	delete(sources, ".") // the root is there already

	var buffer bytes.Buffer
	layer := tar.NewWriter(&buffer)
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		if err := c.add(layer, name, sources[name], created); err != nil {
			return nil, err
		}
	}
	return buffer.Bytes(), layer.Close()
}

func (c Copy) add(layer *tar.Writer, name, source string, created time.Time) error {
	folder := &tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: created}
	if source == "" {
		return layer.WriteHeader(folder)
	}
	info, err := os.Lstat(source)
	if err != nil {
		return err
	}
	switch {
	case info.IsDir():
		header, err := tar.FileInfoHeader(info, "")
		if err != nil {
			return err
		}
		folder.Mode = header.Mode // with the sticky bit
		return layer.WriteHeader(folder)
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(source)
		if err != nil {
			return err
		}
		return layer.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777, ModTime: created})
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is neither a file nor a folder", source)
	}
	mode := info.Mode().Perm()
	if c.Mode != 0 {
		mode = c.Mode
	}
	content, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	if isDynamic(content) {
		return fmt.Errorf("%s is not statically linked: the image has no loader for it", source)
	}
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(mode), Size: int64(len(content)), ModTime: created}
	if err := layer.WriteHeader(header); err != nil {
		return err
	}
	_, err = layer.Write(content)
	return err
}

// isDynamic reports whether a file is a program that needs a loader.
func isDynamic(content []byte) bool {
	program, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return false // a script, or data
	}
	return slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// clean returns the name that a path in an image has in a tar file.
func clean(inside string) string {
	return strings.TrimPrefix(path.Clean("/"+inside), "/")
}

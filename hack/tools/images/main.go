// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command images writes a container image to an OCI archive: the files of a folder in one layer, without a base image. With several
// folders, it writes an index with an image for each platform. It needs no container engine, no root and no network.
//
// The same files and flags give the same bytes: files are sorted, belong to root, and have the time of the image.
package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	// The PATH that container tools set in an image without a base image.
	config := v1.Config{Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, Labels: map[string]string{}}
	flags := flag.NewFlagSet("images -name NAME:TAG -archive FILE [FLAG]... linux/ARCH=FOLDER...", flag.ContinueOnError)
	name := flags.String("name", "", "the `name` of the image, with a tag")
	archive := flags.String("archive", "", "the `file` to write")
	created := flags.Int64("created", 0, "the time of the image and its files, in `seconds` since 1970")
	flags.StringVar(&config.User, "user", "", "the `user` that runs the entrypoint")
	flags.Func("entrypoint", "the program and its first arguments, as `words`", func(words string) error {
		config.Entrypoint = strings.Fields(words)
		return nil
	})
	flags.Func("cmd", "further arguments, as `words`", func(words string) error {
		config.Cmd = strings.Fields(words)
		return nil
	})
	flags.Func("port", "the TCP `port` that the program listens on", func(port string) error {
		config.ExposedPorts = map[string]struct{}{port + "/tcp": {}}
		return nil
	})
	flags.Func("label", "a label, `KEY=VALUE`; may be repeated", func(label string) error {
		key, value, found := strings.Cut(label, "=")
		if !found {
			return errors.New("want KEY=VALUE")
		}
		config.Labels[key] = value
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *name == "" || *archive == "" || flags.NArg() == 0 {
		return errors.New("-name, -archive and a platform with its folder are required; -help explains them")
	}
	var images []v1.Image
	for _, arg := range flags.Args() {
		platform, folder, _ := strings.Cut(arg, "=")
		built, err := build(platform, folder, config, time.Unix(*created, 0).UTC())
		if err != nil {
			return fmt.Errorf("building %s for %s: %w", *name, platform, err)
		}
		images = append(images, built)
	}
	if err := os.MkdirAll(filepath.Dir(*archive), 0o755); err != nil {
		return err
	}
	return save(*name, images, *archive)
}

// build returns the image for one platform.
func build(platform, folder string, config v1.Config, created time.Time) (v1.Image, error) {
	parsed, err := v1.ParsePlatform(platform)
	if err != nil {
		return nil, err
	}
	var files bytes.Buffer
	if err := writeTar(&files, folder, created); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	image, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), mutate.Addendum{
		Layer: layer, History: v1.History{Created: v1.Time{Time: created}, CreatedBy: "hack/tools/images"},
	})
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config, file.Created = parsed.OS, parsed.Architecture, config, v1.Time{Time: created}
	return mutate.ConfigFile(image, file)
}

// writeTar writes the files of a folder.
func writeTar(out io.Writer, folder string, at time.Time) error {
	archive := tar.NewWriter(out)
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == folder {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		var link string
		if info.Mode()&fs.ModeSymlink != 0 {
			if link, err = os.Readlink(path); err != nil {
				return err
			}
		}
		file, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		header := &tar.Header{Typeflag: file.Typeflag, Name: filepath.ToSlash(name), Linkname: link, Mode: file.Mode, Size: file.Size, ModTime: at}
		if info.IsDir() {
			header.Name += "/"
		}
		if err := archive.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		_, err = archive.Write(content)
		return err
	})
	return errors.Join(err, archive.Close())
}

// save writes images of one name to an OCI archive. Containerd, docker and podman load it under that name.
func save(name string, images []v1.Image, archive string) error {
	colon := strings.LastIndex(name, ":")
	if colon <= strings.LastIndex(name, "/") {
		return fmt.Errorf("the image name %q has no tag", name)
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
		err = appendIndex(target, images, annotations)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", archive, err)
	}
	// The archive gets its name last.
	file, err := os.Create(scratch + ".tar")
	if err != nil {
		return err
	}
	if err := errors.Join(writeTar(file, scratch, time.Unix(0, 0)), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), archive)
}

func appendIndex(target layout.Path, images []v1.Image, annotations layout.Option) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, image := range images {
		config, err := image.ConfigFile()
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: config.Platform()}})
	}
	return target.AppendIndex(index, annotations)
}

// writeDockerList adds the list that "docker load" reads instead of OCI's. It cannot name images of several platforms.
func writeDockerList(folder, name string, image v1.Image) error {
	manifest, err := image.Manifest()
	if err != nil {
		return err
	}
	blob := func(d v1.Descriptor) string { return path.Join("blobs", d.Digest.Algorithm, d.Digest.Hex) }
	text, err := json.Marshal([]map[string]any{{
		"Config": blob(manifest.Config), "RepoTags": []string{name}, "Layers": []string{blob(manifest.Layers[0])},
	}})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "manifest.json"), text, 0o644)
}

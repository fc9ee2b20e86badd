// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/verticalscaler/verticalscaler-operator/hack/olm/internal/ociarchive"
)

func pack(flags *flag.FlagSet, args []string) error {
	image := flags.String("name", "", "the image's `name`, with a tag")
	folder := flags.String("layout", "", "the `folder` with the OCI layout")
	archive := flags.String("archive", "", "the `file` to write")
	if err := parse(flags, args, "name", "layout", "archive"); err != nil {
		return err
	}
	return ociarchive.Pack(*folder, *image, *archive)
}

// open calls a function with what is in an archive.
func open(archive string, use func(ociarchive.Content) error) error {
	scratch, err := os.MkdirTemp("", "registry-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	content, err := ociarchive.Open(archive, scratch)
	if err != nil {
		return err
	}
	return use(content)
}

func unpack(flags *flag.FlagSet, args []string) error {
	platform := flags.String("platform", "", "the `OS/ARCH` to unpack; may be left out if there is only one")
	archive := flags.String("archive", "", "the `file` with the image")
	folder := flags.String("folder", "", "the empty `folder` to fill; made if it does not exist")
	if err := parse(flags, args, "archive", "folder"); err != nil {
		return err
	}
	if err := os.MkdirAll(*folder, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(*folder)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty", *folder)
	}
	return open(*archive, func(content ociarchive.Content) error {
		image, err := choose(content, *platform)
		if err != nil {
			return fmt.Errorf("%s: %w", *archive, err)
		}
		files := mutate.Extract(image)
		return errors.Join(ociarchive.Extract(files, *folder), files.Close())
	})
}

// choose returns the image for a platform, which may be empty if there is only one image.
func choose(content ociarchive.Content, platform string) (v1.Image, error) {
	images, err := content.Images()
	if err != nil {
		return nil, err
	}
	if platform == "" && len(images) == 1 {
		return images[0], nil
	}
	var have []string
	for _, image := range images {
		config, err := image.ConfigFile()
		if err != nil {
			return nil, err
		}
		its := config.OS + "/" + config.Architecture
		if its == platform {
			return image, nil
		}
		have = append(have, its)
	}
	return nil, fmt.Errorf("there is no image for platform %q, but for %q", platform, have)
}

// inspect prints one fact a line, so that scripts and people can compare.
func inspect(flags *flag.FlagSet, args []string, stdout io.Writer) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("inspect wants one archive")
	}
	return open(flags.Arg(0), func(content ociarchive.Content) error {
		digest, err := content.Digest()
		if err != nil {
			return err
		}
		kind := "image"
		if content.Index != nil {
			kind = "index"
		}
		fmt.Fprintln(stdout, kind, digest)
		images, err := content.Images()
		if err != nil {
			return err
		}
		for _, image := range images {
			if err := describe(image, stdout); err != nil {
				return err
			}
		}
		return nil
	})
}

func describe(image v1.Image, stdout io.Writer) error {
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "manifest %s\n", digest)
	fmt.Fprintf(stdout, "platform %s/%s\n", config.OS, config.Architecture)
	fmt.Fprintf(stdout, "created %s\n", config.Created.UTC().Format("2006-01-02T15:04:05Z"))
	fmt.Fprintf(stdout, "user %s\n", config.Config.User)
	fmt.Fprintf(stdout, "entrypoint %q\n", config.Config.Entrypoint)
	fmt.Fprintf(stdout, "command %q\n", config.Config.Cmd)
	for _, key := range slices.Sorted(maps.Keys(config.Config.Labels)) {
		fmt.Fprintf(stdout, "label %s=%s\n", key, config.Config.Labels[key])
	}
	files := mutate.Extract(image)
	return errors.Join(list(files, stdout), files.Close())
}

// list prints the entries of a tar stream: permissions, owner, size, the checksum of the content, name.
func list(stream io.Reader, stdout io.Writer) error {
	reader := tar.NewReader(stream)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, reader); err != nil {
			return err
		}
		checksum := "-"
		if header.Typeflag == tar.TypeReg {
			checksum = fmt.Sprintf("%x", sum.Sum(nil))
		}
		fmt.Fprintf(stdout, "file %s %d:%d %d %s %s\n",
			header.FileInfo().Mode(), header.Uid, header.Gid, header.Size, checksum, strings.TrimSuffix(header.Name, "/"))
	}
}

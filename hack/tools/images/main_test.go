// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// files returns a folder with a program, a licence and a link, written at that time.
func files(t *testing.T, at time.Time) string {
	t.Helper()
	folder := t.TempDir()
	err := errors.Join(
		os.MkdirAll(filepath.Join(folder, "licenses"), 0o755),
		os.WriteFile(filepath.Join(folder, "licenses", "LICENSE"), []byte("licence"), 0o644),
		os.WriteFile(filepath.Join(folder, "tool"), []byte("program"), 0o755),
		os.Symlink("tool", filepath.Join(folder, "sh")),
		os.Chtimes(filepath.Join(folder, "tool"), at, at),
	)
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

func write(t *testing.T, folders ...string) (archive string) {
	t.Helper()
	archive = filepath.Join(t.TempDir(), "image.tar")
	err := run(append([]string{
		"-name=example.com:5000/shop/tool:v1", "-archive=" + archive, "-created=1000", "-user=65532:65532",
		"-entrypoint=/tool serve", "-cmd=-v", "-port=8080", "-label=title=A tool",
	}, folders...))
	if err != nil {
		t.Fatal(err)
	}
	return archive
}

func TestAnImage(t *testing.T) {
	archive := write(t, "linux/arm64="+files(t, time.Now()))
	// As docker reads it.
	image, err := tarball.ImageFromPath(archive, nil)
	if err != nil {
		t.Fatal(err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want := "65532:65532 [/tool serve] [-v] map[8080/tcp:{}] map[title:A tool] linux/arm64 1000"
	if got := describe(file); got != want {
		t.Errorf("the image is %s, not %s", got, want)
	}
	wantFiles := []string{`755 licenses ""`, `644 licenses/LICENSE "licence"`, `777 shtool ""`, `755 tool "program"`}
	if got := contents(t, image); !slices.Equal(got, wantFiles) {
		t.Errorf("the files are %q, not %q", got, wantFiles)
	}
}

func describe(file *v1.ConfigFile) string {
	c := file.Config
	return fmt.Sprintf("%s %v %v %v %v %s/%s %d", c.User, c.Entrypoint, c.Cmd, c.ExposedPorts, c.Labels, file.OS, file.Architecture, file.Created.Unix())
}

func contents(t *testing.T, image v1.Image) (all []string) {
	t.Helper()
	stream := mutate.Extract(image)
	defer func() { _ = stream.Close() }()
	for reader := tar.NewReader(stream); ; {
		f, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%o %s%s %q", f.Mode, f.Name, f.Linkname, content))
		if f.ModTime.Unix() != 1000 || f.Uid != 0 || f.Gid != 0 || f.Uname != "" {
			t.Errorf("%s is from %v, of %d:%d", f.Name, f.ModTime, f.Uid, f.Gid)
		}
	}
}

// The requirements of openshift-preflight for a certified image are HasRequiredLabel and HasNoProhibitedLabels in its
// internal/policy/container.
func TestTheOperatorsImageHasTheLabelsForCertification(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"name", "vendor", "version", "release", "summary", "description", "maintainer"} {
		// One line for each label: hack/images/image.sh reads it.
		line := regexp.MustCompile(`(?m)^LABEL `+name+`=(.+)$`).FindAllStringSubmatch(string(text), -1)
		if len(line) != 1 {
			t.Errorf("the Dockerfile sets the label %s %d times", name, len(line))
		} else if strings.Contains(strings.ToLower(line[0][1]), "red hat") {
			t.Errorf("the label %s names a trademark", name)
		}
	}
}

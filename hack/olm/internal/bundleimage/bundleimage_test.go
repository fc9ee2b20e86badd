// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package bundleimage

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// The repository's own bundle, and what makes its image with a container tool.
const (
	bundle     = "../../../../bundle"
	dockerfile = "../../../../bundle.Dockerfile"
)

func TestImageIsWhatTheDockerfileMakes(t *testing.T) {
	text, err := os.ReadFile(dockerfile)
	if err != nil {
		t.Fatal(err)
	}
	wantLabels := map[string]string{}
	for _, label := range regexp.MustCompile(`(?m)^LABEL ([^=]+)=(.*)$`).FindAllStringSubmatch(string(text), -1) {
		wantLabels[label[1]] = label[2]
	}
	wantFiles := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^COPY bundle/(\S+) /(\S+)/$`).FindAllStringSubmatch(string(text), -1) {
		err := filepath.WalkDir(filepath.Join(bundle, line[1]), func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			relative, _ := filepath.Rel(filepath.Join(bundle, line[1]), path)
			wantFiles[filepath.Join(line[2], relative)] = string(content)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(wantLabels) == 0 || len(wantFiles) < 3 {
		t.Fatalf("%s says too little: labels %v, %d files", dockerfile, wantLabels, len(wantFiles))
	}

	image, err := FromFolder(bundle)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantLabels, config.Config.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	stream := mutate.Extract(image)
	defer func() { _ = stream.Close() }()
	if diff := cmp.Diff(wantFiles, filesIn(t, stream)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	if len(layers) != 1 {
		t.Errorf("%d layers, want 1", len(layers))
	}
}

func TestDigestFollowsFromNamesAndContents(t *testing.T) {
	first, second := sample(t), sample(t)
	file := filepath.Join(second, "manifests", "a.yaml")
	past := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	if err := errors.Join(os.Chmod(file, 0o600), os.Chtimes(file, past, past)); err != nil {
		t.Fatal(err)
	}
	if a, b := digest(t, first), digest(t, second); a != b {
		t.Errorf("digests differ with times and permissions: %s, %s", a, b)
	}
	put(t, second, "manifests/a.yaml", "other")
	if a, b := digest(t, first), digest(t, second); a == b {
		t.Errorf("the digest does not change with the contents")
	}
}

func TestFromFolderRefuses(t *testing.T) {
	cases := map[string]struct {
		spoil func(t *testing.T, folder string)
		want  string
	}{
		"no manifests": {
			func(t *testing.T, folder string) {
				t.Helper()
				if err := os.RemoveAll(filepath.Join(folder, "manifests")); err != nil {
					t.Fatal(err)
				}
			}, "is no bundle",
		},
		"no annotations": {
			func(t *testing.T, folder string) {
				t.Helper()
				put(t, folder, "metadata/annotations.yaml", "annotations: {}")
			}, "has no annotations",
		},
		"a link": {
			func(t *testing.T, folder string) {
				t.Helper()
				if err := os.Symlink("/etc/passwd", filepath.Join(folder, "manifests", "b.yaml")); err != nil {
					t.Fatal(err)
				}
			}, "neither a file nor a folder",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			folder := sample(t)
			tc.spoil(t, folder)
			_, err := FromFolder(folder)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("FromFolder() = %v, want an error with %q", err, tc.want)
			}
		})
	}
}

func sample(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	put(t, folder, "manifests/a.yaml", "a")
	put(t, folder, "metadata/annotations.yaml", "annotations: {x: y}")
	return folder
}

func put(t *testing.T, folder, name, content string) {
	t.Helper()
	path := filepath.Join(folder, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(content), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func digest(t *testing.T, folder string) string {
	t.Helper()
	image, err := FromFolder(folder)
	if err != nil {
		t.Fatal(err)
	}
	d, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

func filesIn(t *testing.T, stream io.Reader) map[string]string {
	t.Helper()
	files := map[string]string{}
	reader := tar.NewReader(stream)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(content)
	}
}

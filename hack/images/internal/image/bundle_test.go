// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The root of the repository.
const repository = "../../../.."

func TestBundleIsWhatTheDockerfileDescribes(t *testing.T) {
	text, err := os.Open(repository + "/bundle.Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = text.Close() }()
	recipe, err := Dockerfile{Text: text, Context: repository, Architecture: "amd64"}.Recipe()
	if err != nil {
		t.Fatal(err)
	}
	want, err := recipe.Build()
	if err != nil {
		t.Fatal(err)
	}
	got, err := FromBundle(repository + "/bundle")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(labels(t, want), labels(t, got)); diff != "" {
		t.Errorf("labels (-Dockerfile +bundle):\n%s", diff)
	}
	if diff := cmp.Diff(names(files(t, want)), names(files(t, got))); diff != "" {
		t.Errorf("files (-Dockerfile +bundle):\n%s", diff)
	}
}

func TestDigestFollowsFromNamesAndContents(t *testing.T) {
	first, second := sample(t), sample(t)
	file := filepath.Join(second, "manifests", "a.yaml")
	past := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	if err := errors.Join(os.Chmod(file, 0o600), os.Chtimes(file, past, past)); err != nil {
		t.Fatal(err)
	}
	digestOf := func(folder string) string {
		image, err := FromBundle(folder)
		if err != nil {
			t.Fatal(err)
		}
		return digest(t, image)
	}
	if a, b := digestOf(first), digestOf(second); a != b {
		t.Errorf("digests differ with times and permissions: %s, %s", a, b)
	}
	put(t, second, "manifests/a.yaml", "other")
	if a, b := digestOf(first), digestOf(second); a == b {
		t.Errorf("the digest does not change with the contents")
	}
}

func TestFromBundleRefuses(t *testing.T) {
	cases := map[string]struct {
		spoil func(folder string) error
		want  string
	}{
		"no manifests": {
			func(folder string) error { return os.RemoveAll(filepath.Join(folder, "manifests")) }, "is no bundle",
		},
		"no annotations": {
			func(folder string) error {
				return os.WriteFile(filepath.Join(folder, "metadata/annotations.yaml"), []byte("annotations: {}"), 0o600)
			}, "has no annotations",
		},
		"a link": {
			func(folder string) error {
				return os.Symlink("/etc/passwd", filepath.Join(folder, "manifests", "b.yaml"))
			},
			"neither a file nor a folder",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			folder := sample(t)
			if err := tc.spoil(folder); err != nil {
				t.Fatal(err)
			}
			_, err := FromBundle(folder)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("FromBundle() = %v, want an error with %q", err, tc.want)
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
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600)); err != nil {
		t.Fatal(err)
	}
}

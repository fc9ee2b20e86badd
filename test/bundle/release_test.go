// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build sdk

package bundle

import (
	"archive/tar"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What a release publishes runs the image that was built, and no image that somebody has
// given the same tag.
func TestAReleaseNamesItsImageByDigest(t *testing.T) {
	const repository = "ghcr.io/verticalscaler/verticalscaler-operator"
	digest := "sha256:" + strings.Repeat("0123abcd", 8)
	folder := t.TempDir()
	if out, err := release(t, repository, `{"manifests": [{"digest": "`+digest+`", "size": 1}]}`, folder); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if complaints := Complaints(filepath.Join(folder, "bundle")); len(complaints) > 0 {
		t.Errorf("the bundle has problems:\n%s", listed(complaints)) // the rule "images" compares all of them
	}
	b, err := Read(filepath.Join(folder, "bundle"))
	if err != nil {
		t.Fatal(err)
	}
	if got := b.CSV.Annotations["containerImage"]; got != repository+"@"+digest {
		t.Errorf("containerImage is %s", got)
	}
	if got := b.CSV.Annotations[featurePath+"disconnected"]; got != "true" {
		t.Errorf("all images have digests, but disconnected is %q", got)
	}
	text, err := os.ReadFile(filepath.Join(folder, "install.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "image: "+repository+"@"+digest+"\n") || strings.Contains(string(text), repository+":") {
		t.Error("install.yaml does not name the image by its digest only")
	}
}

// An archive with no image, or with several, has no digest to render.
func TestAReleaseNeedsOneImage(t *testing.T) {
	for name, index := range map[string]string{
		"none": `{"manifests": []}`,
		"two":  `{"manifests": [{"digest": "sha256:` + strings.Repeat("a", 64) + `"}, {"digest": "sha256:` + strings.Repeat("b", 64) + `"}]}`,
	} {
		if out, err := release(t, "example.com/operator", index, t.TempDir()); err == nil || !strings.Contains(out, "holds not one image") {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

// release runs hack/release.sh with an archive that has this index.
func release(t *testing.T, repository, index, folder string) (out string, err error) {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.WriteHeader(&tar.Header{Name: "index.json", Mode: 0o644, Size: int64(len(index))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(index)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "operator.tar")
	if err := os.WriteFile(path, archive.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := Read(inTree("bundle"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), inTree("hack", "release.sh"), b.CSV.Spec.Version.String(), repository, path, folder)
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const name = "example.com/shop/web:v1"

func TestSave(t *testing.T) {
	for count := 1; count <= 2; count++ {
		var want []string
		var images []v1.Image
		for range count {
			one, err := random.Image(64, 2)
			if err != nil {
				t.Fatal(err)
			}
			images, want = append(images, one), append(want, digest(t, one))
		}
		scratch := t.TempDir()
		first, second := filepath.Join(scratch, "first.tar"), filepath.Join(scratch, "second.tar")
		if err := errors.Join(Save(name, images, first), Save(name, images, second)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(contentOf(t, first), contentOf(t, second)) {
			t.Error("the same images result in different archives")
		}

		scratch = t.TempDir()
		if out, err := exec.CommandContext(t.Context(), "tar", "-x", "-C", scratch, "-f", first).CombinedOutput(); err != nil {
			t.Fatalf("tar: %v\n%s", err, out)
		}
		all, err := layout.ImageIndexFromPath(scratch)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(all); err != nil {
			t.Errorf("the archive is not complete: %v", err)
		}
		var index v1.IndexManifest
		if err := json.Unmarshal(contentOf(t, filepath.Join(scratch, "index.json")), &index); err != nil {
			t.Fatal(err)
		}
		wantNames := map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": "v1"}
		if diff := cmp.Diff(wantNames, index.Manifests[0].Annotations); diff != "" {
			t.Errorf("names (-want +got):\n%s", diff)
		}
		if count > 1 {
			list, err := all.ImageIndex(index.Manifests[0].Digest)
			if err != nil {
				t.Fatal(err)
			}
			manifest, err := list.IndexManifest()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range manifest.Manifests {
				got = append(got, m.Digest.String())
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("digests (-want +got):\n%s", diff)
			}
			continue
		}
		if got := index.Manifests[0].Digest.String(); got != want[0] {
			t.Errorf("the digest is %s, want %s", got, want[0])
		}
		// "docker load" reads the same file.
		docker, err := tarball.ImageFromPath(first, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Image(docker); err != nil {
			t.Errorf("what docker would read is not complete: %v", err)
		}
	}
}

func TestSaveRefusesANameWithoutATag(t *testing.T) {
	one, err := random.Image(64, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := Save("localhost:5000/web", []v1.Image{one}, filepath.Join(t.TempDir(), "a.tar")); err == nil {
		t.Error("Save() gave no error")
	}
}

func contentOf(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func digest(t *testing.T, image v1.Image) string {
	t.Helper()
	d, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
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

func TestSaveOneImage(t *testing.T) {
	one := randomImage(t)
	archive, index, manifest := saved(t, one)
	if got, want := manifest.Manifests[0].Digest.String(), digest(t, one); got != want {
		t.Errorf("the digest is %s, want %s", got, want)
	}
	if err := validate.Index(index); err != nil {
		t.Errorf("the archive is not complete: %v", err)
	}
	// "docker load" reads the same file.
	docker, err := tarball.ImageFromPath(archive, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(docker); err != nil {
		t.Errorf("what docker would read is not complete: %v", err)
	}
}

func TestSaveImagesOfSeveralPlatforms(t *testing.T) {
	first, second := randomImage(t), randomImage(t)
	_, index, manifest := saved(t, first, second)
	if err := validate.Index(index); err != nil {
		t.Errorf("the archive is not complete: %v", err)
	}
	list, err := index.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if manifest, err = list.IndexManifest(); err != nil {
		t.Fatal(err)
	}
	got := []string{manifest.Manifests[0].Digest.String(), manifest.Manifests[1].Digest.String()}
	if diff := cmp.Diff([]string{digest(t, first), digest(t, second)}, got); diff != "" {
		t.Errorf("digests (-want +got):\n%s", diff)
	}
}

// saved saves images twice, checks that the archives are the same and name the images, and opens one of them.
func saved(t *testing.T, images ...v1.Image) (archive string, index v1.ImageIndex, manifest *v1.IndexManifest) {
	t.Helper()
	scratch := t.TempDir()
	first, second := filepath.Join(scratch, "first.tar"), filepath.Join(scratch, "second.tar")
	if err := errors.Join(Save(name, images, first), Save(name, images, second)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(contentOf(t, first), contentOf(t, second)) {
		t.Error("the same images result in different archives")
	}
	if out, err := exec.CommandContext(t.Context(), "tar", "-x", "-C", scratch, "-f", first).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	index, err := layout.ImageIndexFromPath(scratch)
	if err != nil {
		t.Fatal(err)
	}
	if manifest, err = index.IndexManifest(); err != nil {
		t.Fatal(err)
	}
	wantNames := map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": "v1"}
	if diff := cmp.Diff(wantNames, manifest.Manifests[0].Annotations); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	return first, index, manifest
}

func randomImage(t *testing.T) v1.Image {
	t.Helper()
	image, err := random.Image(64, 2)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func TestSaveRefusesANameWithoutATag(t *testing.T) {
	one := randomImage(t)
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

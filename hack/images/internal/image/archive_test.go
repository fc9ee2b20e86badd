// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const name = "example.com/shop/web:v1"

func TestSaveThenOpen(t *testing.T) {
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

		var got []string
		err := Open(first, func(images []v1.Image) error {
			var failures []error
			for _, one := range images {
				got = append(got, digest(t, one))
				failures = append(failures, validate.Image(one))
			}
			return errors.Join(failures...)
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("digests (-want +got):\n%s", diff)
		}

		scratch = t.TempDir()
		if err := unpack(first, scratch); err != nil {
			t.Fatal(err)
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
			continue
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

func TestUnpackStaysInTheFolder(t *testing.T) {
	for _, out := range []string{"../out", "a/../../out", "/out"} {
		var stream bytes.Buffer
		writer := tar.NewWriter(&stream)
		if err := errors.Join(writer.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: out}), writer.Close()); err != nil {
			t.Fatal(err)
		}
		archive := filepath.Join(t.TempDir(), "a.tar")
		if err := os.WriteFile(archive, stream.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := unpack(archive, t.TempDir()); err == nil {
			t.Errorf("unpack() of %s gave no error", out)
		}
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

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package ociarchive

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

const image = "example.com/shop/web:v1"

func TestPackKeepsDigestsAndNamesTheImage(t *testing.T) {
	single, err := random.Image(64, 2)
	if err != nil {
		t.Fatal(err)
	}
	several, err := random.Index(64, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		content Content
		images  int
	}{
		"one image":     {Content{Image: single}, 1},
		"a list of two": {Content{Index: several}, 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			scratch := t.TempDir()
			path, err := layout.Write(filepath.Join(scratch, "layout"), empty.Index)
			if err != nil {
				t.Fatal(err)
			}
			if tc.content.Index != nil {
				err = path.AppendIndex(tc.content.Index)
			} else {
				err = path.AppendImage(tc.content.Image)
			}
			if err != nil {
				t.Fatal(err)
			}

			first, second := filepath.Join(scratch, "first.tar"), filepath.Join(scratch, "second.tar")
			if err := errors.Join(Pack(string(path), image, first), Pack(string(path), image, second)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(read(t, first), read(t, second)) {
				t.Error("packing twice gives different archives")
			}

			got, err := Open(first, scratch)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(digest(t, tc.content), digest(t, got)); diff != "" {
				t.Errorf("digest (-want +got):\n%s", diff)
			}
			images, err := got.Images()
			if err != nil || len(images) != tc.images {
				t.Errorf("Images() = %d images, %v; want %d", len(images), err, tc.images)
			}
			want := map[string]string{
				"io.containerd.image.name":          "example.com/shop/web:v1",
				"org.opencontainers.image.ref.name": "v1",
			}
			if diff := cmp.Diff(want, names(t, first)); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPackWantsATag(t *testing.T) {
	path, err := layout.Write(t.TempDir(), empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	single, err := random.Image(64, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := path.AppendImage(single); err != nil {
		t.Fatal(err)
	}
	if err := Pack(string(path), "localhost:5000/web", filepath.Join(t.TempDir(), "a.tar")); err == nil {
		t.Error("Pack() takes a name without a tag")
	}
}

func TestOpenReadsWhatDockerSaves(t *testing.T) {
	single, err := random.Image(64, 1)
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(image)
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "docker.tar")
	if err := tarball.WriteToFile(archive, tag, single); err != nil {
		t.Fatal(err)
	}
	got, err := Open(archive, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	want, err := single.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	have, err := got.Image.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	if want != have {
		t.Errorf("config is %s, want %s", have, want)
	}
}

func TestExtractRefuses(t *testing.T) {
	cases := map[string]tar.Header{
		"a way out of the folder":  {Typeflag: tar.TypeReg, Name: "../out", Mode: 0o644},
		"a link":                   {Typeflag: tar.TypeSymlink, Name: "link", Linkname: "/etc/passwd"},
		"a device":                 {Typeflag: tar.TypeChar, Name: "null"},
		"a way out by two folders": {Typeflag: tar.TypeReg, Name: "a/../../out", Mode: 0o644},
	}
	for name, header := range cases {
		t.Run(name, func(t *testing.T) {
			var stream bytes.Buffer
			writer := tar.NewWriter(&stream)
			if err := errors.Join(writer.WriteHeader(&header), writer.Close()); err != nil {
				t.Fatal(err)
			}
			if err := Extract(&stream, t.TempDir()); err == nil {
				t.Error("Extract() takes it")
			}
		})
	}
}

func digest(t *testing.T, c Content) string {
	t.Helper()
	d, err := c.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// names returns the annotations of the one entry of an archive's index.
func names(t *testing.T, archive string) map[string]string {
	t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	reader := tar.NewReader(file)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			t.Fatal("there is no index.json")
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Name != "index.json" {
			continue
		}
		var index struct {
			Manifests []struct {
				Annotations map[string]string `json:"annotations"`
			} `json:"manifests"`
		}
		if err := json.NewDecoder(reader).Decode(&index); err != nil || len(index.Manifests) != 1 {
			t.Fatalf("index.json: %v, %d entries", err, len(index.Manifests))
		}
		return index.Manifests[0].Annotations
	}
}

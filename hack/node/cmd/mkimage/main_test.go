// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestArchiveIsConsistent(t *testing.T) {
	var archive bytes.Buffer
	images := []string{"example.com/stress:dev", "example.com/pause:dev=pause"}
	if err := write(&archive, "stress", []byte("program"), "amd64", images); err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := write(&again, "stress", []byte("program"), "amd64", images); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(archive.Bytes(), again.Bytes()) {
		t.Error("the same input gave different bytes")
	}

	files := map[string][]byte{}
	for r := tar.NewReader(&archive); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	// open follows a descriptor and checks what it claims.
	open := func(d descriptor) []byte {
		t.Helper()
		content, ok := files["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
		if !ok {
			t.Fatalf("blob %s is missing", d.Digest)
		}
		if got := fmt.Sprintf("sha256:%x", sha256.Sum256(content)); got != d.Digest || len(content) != d.Size {
			t.Fatalf("blob %s has digest %s and %d bytes", d.Digest, got, len(content))
		}
		return content
	}

	var index document
	if err := json.Unmarshal(files["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	var entryPoints []string
	for _, m := range index.Manifests {
		var manifest document
		if err := json.Unmarshal(open(m), &manifest); err != nil {
			t.Fatal(err)
		}
		var c config
		if err := json.Unmarshal(open(*manifest.Config), &c); err != nil {
			t.Fatal(err)
		}
		if len(manifest.Layers) != 1 || c.RootFS.DiffIDs[0] != manifest.Layers[0].Digest {
			t.Errorf("layers %v do not match %v", manifest.Layers, c.RootFS.DiffIDs)
		}
		open(manifest.Layers[0])
		entryPoints = append(entryPoints, m.Annotations["io.containerd.image.name"]+" "+strings.Join(c.Config.Entrypoint, " "))
	}
	if got, want := strings.Join(entryPoints, "; "), "example.com/stress:dev /stress; example.com/pause:dev /stress pause"; got != want {
		t.Errorf("images are %q, want %q", got, want)
	}
}

func TestNameWithoutTagIsRefused(t *testing.T) {
	if err := write(io.Discard, "stress", nil, "amd64", []string{"localhost:5000/stress"}); err == nil {
		t.Error("write() gave no error")
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestArchiveIsConsistent(t *testing.T) {
	here := t.TempDir()
	program := filepath.Join(here, "program")
	tree := filepath.Join(here, "tree")
	for path, mode := range map[string]os.FileMode{program: 0o755, filepath.Join(tree, "a", "b.yaml"): 0o600} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("text of "+filepath.Base(path)), mode); err != nil {
			t.Fatal(err)
		}
	}
	images := []image{
		{
			Name: "example.com/tool:dev", Entrypoint: []string{"/bin/tool", "serve"},
			Files: map[string]string{"/bin/tool": program}, Links: map[string]string{"/bin/sh": "tool"}, Folders: []string{"/tmp"},
		},
		{
			Name: "example.com/same:dev", User: "0:0",
			Files: map[string]string{"/bin/tool": program}, Links: map[string]string{"/bin/sh": "tool"}, Folders: []string{"/tmp"},
		},
		{
			Name: "example.com/data:v1", Labels: map[string]string{"where": "/data"},
			Files: map[string]string{"data": tree},
		},
	}
	var archive, again bytes.Buffer
	for _, w := range []io.Writer{&archive, &again} {
		if err := write(w, "amd64", images); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(archive.Bytes(), again.Bytes()) {
		t.Error("the same input gave different bytes")
	}

	files := map[string][]byte{}
	for _, e := range unpack(t, archive.Bytes()) {
		files[e.Name] = e.content
	}
	// open follows a descriptor and checks what it claims.
	open := func(d descriptor) []byte {
		t.Helper()
		content, ok := files[d.path()]
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
	var list []saved
	if err := json.Unmarshal(files["manifest.json"], &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != len(index.Manifests) {
		t.Fatalf("%d images in the one list, %d in the other", len(list), len(index.Manifests))
	}
	var got []string
	for i, m := range index.Manifests {
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
		name := m.Annotations["io.containerd.image.name"]
		if list[i].RepoTags[0] != name || list[i].Config != manifest.Config.path() || list[i].Layers[0] != manifest.Layers[0].path() {
			t.Errorf("image %s is %+v in the other list", name, list[i])
		}
		got = append(got, fmt.Sprintf("%s: user %s runs %q, labels %v", name, c.Config.User, c.Config.Entrypoint, c.Config.Labels))
		for _, e := range unpack(t, open(manifest.Layers[0])) {
			got = append(got, fmt.Sprintf("%o %s%s %q", e.Mode, e.Name, e.Linkname, e.content))
		}
	}
	want := []string{
		`example.com/tool:dev: user 65532:65532 runs ["/bin/tool" "serve"], labels map[]`,
		`755 bin/ ""`, `777 bin/shtool ""`, `755 bin/tool "text of program"`, `1777 tmp/ ""`,
		`example.com/same:dev: user 0:0 runs [], labels map[]`,
		`755 bin/ ""`, `777 bin/shtool ""`, `755 bin/tool "text of program"`, `1777 tmp/ ""`,
		`example.com/data:v1: user 65532:65532 runs [], labels map[where:/data]`,
		`755 data/ ""`, `755 data/a/ ""`, `644 data/a/b.yaml "text of b.yaml"`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("the images are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if layers := len(files) - 3 - 2*len(images); layers != 2 {
		t.Errorf("there are %d layers for two different contents", layers)
	}
}

type unpacked struct {
	*tar.Header

	content []byte
}

func unpack(t *testing.T, archive []byte) (all []unpacked) {
	t.Helper()
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, unpacked{header, content})
	}
}

func TestWhatIsRefused(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	dynamic := filepath.Join(t.TempDir(), "dynamic")
	if err := os.WriteFile(dynamic, header(t, elf.PT_LOAD, elf.PT_INTERP), 0o755); err != nil {
		t.Fatal(err)
	}
	cases := map[string]image{
		"a name without a tag":         {Name: "localhost:5000/tool"},
		"a file that is not there":     {Name: "tool:dev", Files: map[string]string{"/tool": program + "s"}},
		"a program that is not static": {Name: "tool:dev", Files: map[string]string{"/tool": dynamic}},
		"two things at one place":      {Name: "tool:dev", Files: map[string]string{"/tool": program}, Folders: []string{"tool/"}},
	}
	for name, i := range cases {
		t.Run(name, func(t *testing.T) {
			if err := write(io.Discard, "amd64", []image{i}); err == nil {
				t.Error("write() gave no error")
			}
		})
	}
}

func TestStaticProgramsAreTaken(t *testing.T) {
	if isDynamic(header(t, elf.PT_LOAD, elf.PT_GNU_STACK)) {
		t.Error("a program without a loader was taken for a dynamic one")
	}
}

// header is the beginning of a program with these segments, none of which holds anything.
func header(t *testing.T, segments ...elf.ProgType) []byte {
	t.Helper()
	const headerSize, segmentSize = 64, 56
	h := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Phoff: headerSize, Ehsize: headerSize, Phentsize: segmentSize, Phnum: uint16(len(segments)),
	}
	copy(h.Ident[:], elf.ELFMAG+string([]byte{byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}))
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, h); err != nil {
		t.Fatal(err)
	}
	for _, s := range segments {
		if err := binary.Write(&b, binary.LittleEndian, elf.Prog64{Type: uint32(s)}); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

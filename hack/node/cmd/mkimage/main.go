// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command mkimage packs files into an archive of container images, in the format of OCI and with the list that "docker
// save" adds, so that containerd, registries and Docker all read it. It needs no engine and no base image: what runs in
// these images are static programs.
//
//	mkimage -o images.tar <images.json
//
// The input is a list of images:
//
//	[{
//	  "name":       "example.com/tool:dev",                with a tag
//	  "entrypoint": ["/bin/tool", "serve"],
//	  "user":       "0:0",                                 numeric; 65532:65532 if left out
//	  "labels":     {"org.example.tool": "yes"},
//	  "files":      {"/bin/tool": "out/tool"},             path in the image: file or folder here
//	  "links":      {"/bin/sh": "tool"},                   path in the image: what the symbolic link says
//	  "folders":    ["/tmp"]                               empty, and everybody may write there
//	}]
//
// Each image has one layer; images with the same content share it. The same input gives the same bytes.
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

func main() {
	out := flag.String("o", "", "archive to write")
	arch := flag.String("arch", runtime.GOARCH, "architecture of the programs")
	flag.Parse()
	if *out == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "usage: mkimage -o ARCHIVE [-arch ARCH] <IMAGES.json")
		os.Exit(2)
	}
	if err := run(os.Stdin, *out, *arch); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out, arch string) error {
	var images []image
	decoder := json.NewDecoder(in)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&images); err != nil {
		return fmt.Errorf("reading the list of images: %w", err)
	}
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	return errors.Join(write(file, arch, images), file.Close())
}

// image is one of the input's.
type image struct {
	Name       string            `json:"name"`
	Entrypoint []string          `json:"entrypoint"`
	User       string            `json:"user"`
	Labels     map[string]string `json:"labels"`
	Files      map[string]string `json:"files"`
	Links      map[string]string `json:"links"`
	Folders    []string          `json:"folders"`
}

// descriptor is how OCI documents refer to one another.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func (d descriptor) path() string { return "blobs/sha256/" + strings.TrimPrefix(d.Digest, "sha256:") }

type document struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        *descriptor  `json:"config,omitempty"`
	Layers        []descriptor `json:"layers,omitempty"`
	Manifests     []descriptor `json:"manifests,omitempty"`
}

type config struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Config       struct {
		User       string            `json:"User"`
		Env        []string          `json:"Env"`
		Entrypoint []string          `json:"Entrypoint,omitempty"`
		Labels     map[string]string `json:"Labels,omitempty"`
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// saved is one line of the list that "docker save" adds.
type saved struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// Numeric, so that the kubelet can tell that it is not root.
const defaultUser = "65532:65532"

func write(w io.Writer, arch string, images []image) error {
	blobs := newBlobs()
	index := document{SchemaVersion: 2, MediaType: "application/vnd.oci.image.index.v1+json"}
	var list []saved
	for _, i := range images {
		slash, colon := strings.LastIndex(i.Name, "/"), strings.LastIndex(i.Name, ":")
		if colon <= slash {
			return fmt.Errorf("image name %q has no tag", i.Name)
		}
		content, err := i.content()
		if err != nil {
			return fmt.Errorf("image %s: %w", i.Name, err)
		}
		// Not compressed: the archive hardly travels, and the digest of the layer is that of its content.
		var layer bytes.Buffer
		if err := pack(&layer, content); err != nil {
			return fmt.Errorf("image %s: %w", i.Name, err)
		}
		layerIs := blobs.add("application/vnd.oci.image.layer.v1.tar", layer.Bytes())

		c := config{Architecture: arch, OS: "linux"}
		c.Config.User = i.User
		if i.User == "" {
			c.Config.User = defaultUser
		}
		c.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
		c.Config.Entrypoint, c.Config.Labels = i.Entrypoint, i.Labels
		c.RootFS.Type, c.RootFS.DiffIDs = "layers", []string{layerIs.Digest}
		configIs, err := blobs.addJSON("application/vnd.oci.image.config.v1+json", c)
		if err != nil {
			return err
		}
		manifest, err := blobs.addJSON("application/vnd.oci.image.manifest.v1+json", document{
			SchemaVersion: 2, MediaType: "application/vnd.oci.image.manifest.v1+json",
			Config: &configIs, Layers: []descriptor{layerIs},
		})
		if err != nil {
			return err
		}
		// containerd takes the full name from its own annotation; the standard one holds the tag.
		manifest.Annotations = map[string]string{
			"io.containerd.image.name":          i.Name,
			"org.opencontainers.image.ref.name": i.Name[colon+1:],
		}
		index.Manifests = append(index.Manifests, manifest)
		list = append(list, saved{Config: configIs.path(), RepoTags: []string{i.Name}, Layers: []string{layerIs.path()}})
	}
	indexText, err := json.Marshal(index)
	if err != nil {
		return err
	}
	listText, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return pack(w, append([]entry{
		file("oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)),
		file("index.json", 0o644, indexText),
		file("manifest.json", 0o644, listText),
	}, blobs.files...))
}

// content is what the layer of the image holds: folders before what is in them.
func (i image) content() ([]entry, error) {
	entries := map[string]entry{}
	add := func(e entry) error {
		if _, exists := entries[e.name]; exists {
			return fmt.Errorf("/%s is there twice", e.name)
		}
		entries[e.name] = e
		return nil
	}
	for inside, outside := range i.Files {
		err := filepath.WalkDir(outside, func(from string, found fs.DirEntry, err error) error {
			if err != nil || found.IsDir() {
				return err
			}
			// What a link leads to is what is meant, as with the path that was given.
			info, err := os.Stat(from)
			if err != nil {
				return err
			}
			text, err := os.ReadFile(from)
			if err != nil {
				return err
			}
			if isDynamic(text) {
				return fmt.Errorf("%s is not static: the image has nothing that could load it", from)
			}
			mode := int64(0o644)
			if info.Mode()&0o111 != 0 {
				mode = 0o755
			}
			relative, err := filepath.Rel(outside, from)
			if err != nil {
				return err
			}
			return add(file(clean(path.Join(inside, filepath.ToSlash(relative))), mode, text))
		})
		if err != nil {
			return nil, err
		}
	}
	for inside, target := range i.Links {
		if err := add(entry{Header: tar.Header{Typeflag: tar.TypeSymlink, Mode: 0o777, Linkname: target}, name: clean(inside)}); err != nil {
			return nil, err
		}
	}
	for _, inside := range i.Folders {
		if err := add(folder(clean(inside), 0o1777)); err != nil {
			return nil, err
		}
	}
	for name := range maps.Clone(entries) {
		for parent := path.Dir(name); parent != "."; parent = path.Dir(parent) {
			if _, exists := entries[parent]; !exists {
				entries[parent] = folder(parent, 0o755)
			}
		}
	}
	sorted := make([]entry, 0, len(entries))
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		sorted = append(sorted, entries[name])
	}
	return sorted, nil
}

// isDynamic says whether a file is a program that asks for a loader.
func isDynamic(content []byte) bool {
	program, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return false // a script, or data
	}
	return slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// clean is the name that a path in an image has in a tar file.
func clean(inside string) string { return strings.TrimPrefix(path.Clean("/"+inside), "/") }

// blobs collects content by its digest, each once.
type blobs struct {
	files []entry
	seen  map[string]bool
}

func newBlobs() *blobs { return &blobs{seen: map[string]bool{}} }

func (b *blobs) add(mediaType string, content []byte) descriptor {
	d := descriptor{MediaType: mediaType, Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(content)), Size: len(content)}
	if !b.seen[d.Digest] {
		b.seen[d.Digest] = true
		b.files = append(b.files, file(d.path(), 0o644, content))
	}
	return d
}

func (b *blobs) addJSON(mediaType string, value any) (descriptor, error) {
	text, err := json.Marshal(value)
	return b.add(mediaType, text), err
}

// entry is one of a tar file: its header without name and size, and for a file what is in it.
type entry struct {
	tar.Header

	name    string
	content []byte
}

func file(name string, mode int64, content []byte) entry {
	return entry{Header: tar.Header{Typeflag: tar.TypeReg, Mode: mode}, name: name, content: content}
}

func folder(name string, mode int64) entry {
	return entry{Header: tar.Header{Typeflag: tar.TypeDir, Mode: mode}, name: name}
}

// pack writes a tar file without times and owners, so that equal content means equal bytes.
func pack(w io.Writer, entries []entry) error {
	archive := tar.NewWriter(w)
	for _, e := range entries {
		header := e.Header
		header.Name, header.Size = e.name, int64(len(e.content))
		if header.Typeflag == tar.TypeDir {
			header.Name += "/"
		}
		if err := archive.WriteHeader(&header); err != nil {
			return err
		}
		if _, err := archive.Write(e.content); err != nil {
			return err
		}
	}
	return archive.Close()
}

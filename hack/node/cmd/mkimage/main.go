// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command mkimage packs one static program into an OCI image archive, as "ctr images import" reads it. There is no
// registry and no image builder in the node tier; an image is a handful of JSON documents and a tar file.
//
//	mkimage -o images.tar -program ./stress NAME=ARGUMENT,ARGUMENT...
//
// Every NAME becomes an image whose entry point is the program with these arguments. They share their only layer.
// The same input gives the same bytes.
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

func main() {
	out := flag.String("o", "", "archive to write")
	program := flag.String("program", "", "static program to pack")
	arch := flag.String("arch", runtime.GOARCH, "architecture of the program")
	flag.Parse()
	if *out == "" || *program == "" || flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: mkimage -o images.tar -program FILE NAME=ARGUMENT,ARGUMENT...")
		os.Exit(2)
	}
	if err := run(*out, *program, *arch, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(out, program, arch string, images []string) error {
	text, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	if err := write(&archive, filepath.Base(program), text, arch, images); err != nil {
		return err
	}
	return os.WriteFile(out, archive.Bytes(), 0o644)
}

// descriptor is how OCI documents refer to one another.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

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
		Entrypoint []string `json:"Entrypoint"`
		User       string   `json:"User"`
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// Numeric, so that the kubelet can tell that it is not root.
const user = "65532:65532"

func write(w io.Writer, name string, program []byte, arch string, images []string) error {
	blobs := newBlobs()
	// Not compressed: the archive never travels, and the digest of the layer is that of its content.
	var layer bytes.Buffer
	if err := pack(&layer, []file{{name, 0o755, program}}); err != nil {
		return err
	}
	layerIs := blobs.add("application/vnd.oci.image.layer.v1.tar", layer.Bytes())

	index := document{SchemaVersion: 2, MediaType: "application/vnd.oci.image.index.v1+json"}
	for _, image := range images {
		reference, arguments, _ := strings.Cut(image, "=")
		slash, colon := strings.LastIndex(reference, "/"), strings.LastIndex(reference, ":")
		if colon <= slash {
			return fmt.Errorf("image name %q has no tag", reference)
		}
		c := config{Architecture: arch, OS: "linux"}
		c.Config.Entrypoint = []string{"/" + name}
		if arguments != "" {
			c.Config.Entrypoint = append(c.Config.Entrypoint, strings.Split(arguments, ",")...)
		}
		c.Config.User = user
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
			"io.containerd.image.name":          reference,
			"org.opencontainers.image.ref.name": reference[colon+1:],
		}
		index.Manifests = append(index.Manifests, manifest)
	}
	indexText, err := json.Marshal(index)
	if err != nil {
		return err
	}
	return pack(w, append([]file{
		{"oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{"index.json", 0o644, indexText},
	}, blobs.files...))
}

// blobs collects content by its digest, each once.
type blobs struct {
	files []file
	seen  map[string]bool
}

func newBlobs() *blobs { return &blobs{seen: map[string]bool{}} }

func (b *blobs) add(mediaType string, content []byte) descriptor {
	sum := fmt.Sprintf("%x", sha256.Sum256(content))
	if !b.seen[sum] {
		b.seen[sum] = true
		b.files = append(b.files, file{"blobs/sha256/" + sum, 0o644, content})
	}
	return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(content)}
}

func (b *blobs) addJSON(mediaType string, value any) (descriptor, error) {
	text, err := json.Marshal(value)
	return b.add(mediaType, text), err
}

type file struct {
	name    string
	mode    int64
	content []byte
}

// pack writes a tar file without times and owners, so that equal content means equal bytes.
func pack(w io.Writer, files []file) error {
	archive := tar.NewWriter(w)
	for _, f := range files {
		if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content))}); err != nil {
			return err
		}
		if _, err := archive.Write(f.content); err != nil {
			return err
		}
	}
	return archive.Close()
}

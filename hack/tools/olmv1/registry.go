// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"os"
	"path"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// serveImages runs a registry without TLS that keeps what is pushed to it in memory.
func serveImages(ctx context.Context, flags *flag.FlagSet, args []string, _ io.Writer) error {
	address := flags.String("listen", "127.0.0.1:5000", "the address to listen on")
	if err := flags.Parse(args); err != nil {
		return err
	}
	server := &http.Server{
		Addr: *address, ReadHeaderTimeout: time.Minute,
		Handler: registry.New(registry.Logger(log.New(os.Stderr, "", log.LstdFlags))),
	}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving images: %w", err)
	}
	return nil
}

// pairs is a flag that can be repeated: -label KEY=VALUE.
type pairs map[string]string

func (p pairs) String() string { return "" }

func (p pairs) Set(text string) error {
	key, value, _ := strings.Cut(text, "=")
	p[key] = value
	return nil
}

// pushImage pushes a folder as an image of one layer, and prints its digest.
func pushImage(ctx context.Context, flags *flag.FlagSet, args []string, out io.Writer) error {
	set := pairs{}
	folder := flags.String("folder", "", "the folder to push")
	at := flags.String("at", "/", "where the folder is in the image")
	to := flags.String("to", "", "the name of the image: HOST:PORT/NAME:TAG")
	flags.Var(set, "label", "a label of the image: KEY=VALUE")
	if err := flags.Parse(args); err != nil {
		return err
	}
	tag, err := name.NewTag(*to, name.Insecure)
	if err != nil {
		return fmt.Errorf("parsing the name of the image: %w", err)
	}
	content, err := archive(os.DirFS(*folder), *at)
	if err != nil {
		return fmt.Errorf("packing %s: %w", *folder, err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil })
	if err != nil {
		return fmt.Errorf("making the layer: %w", err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return fmt.Errorf("making the image: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return fmt.Errorf("reading the image's configuration: %w", err)
	}
	config = config.DeepCopy()
	config.Config.Labels = set
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return fmt.Errorf("labeling the image: %w", err)
	}
	if err := remote.Write(tag, image, remote.WithContext(ctx)); err != nil {
		return fmt.Errorf("pushing %s: %w", tag, err)
	}
	digest, err := image.Digest()
	if err != nil {
		return fmt.Errorf("reading the digest: %w", err)
	}
	_, err = fmt.Fprintln(out, digest)
	return err
}

// archive packs the regular files of a folder.
func archive(folder fs.FS, at string) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err := fs.WalkDir(folder, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(folder, file)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: strings.TrimPrefix(path.Join(at, file), "/"), Mode: 0o644, Size: int64(len(content))}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	return out.Bytes(), errors.Join(err, w.Close())
}

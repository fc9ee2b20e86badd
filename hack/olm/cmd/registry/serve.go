// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/verticalscaler/verticalscaler-operator/hack/olm/internal/bundleimage"
	"github.com/verticalscaler/verticalscaler-operator/hack/olm/internal/ociarchive"
)

// How often the registry looks whether its parent is still there, and how long requests may take to end once it stops.
const (
	parentPeriod = 500 * time.Millisecond
	stopTime     = 2 * time.Second
)

// source is an image to serve, and where it comes from.
type source struct{ image, path string }

// sources is a flag that may be given several times: NAME:TAG=PATH.
type sources []source

func (s *sources) String() string { return "" }

func (s *sources) Set(text string) error {
	image, path, found := strings.Cut(text, "=")
	if !found || path == "" {
		return fmt.Errorf("want NAME:TAG=PATH, not %q", text)
	}
	if _, err := tagOf(image, "localhost"); err != nil {
		return err
	}
	*s = append(*s, source{image, path})
	return nil
}

// tagOf returns where the registry at an address keeps an image. The registry in the image's own name is left out: whoever
// pulls is told that this registry stands for that one.
func tagOf(image, address string) (name.Tag, error) {
	if strings.LastIndex(image, ":") <= strings.LastIndex(image, "/") {
		return name.Tag{}, fmt.Errorf("image name %q has no tag", image)
	}
	// Without the default, short names would get a longer path, as at the hub of docker.
	public, err := name.NewTag(image, name.WithDefaultRegistry("localhost"))
	if err != nil {
		return name.Tag{}, fmt.Errorf("image name %q: %w", image, err)
	}
	return name.NewTag(address+"/"+public.RepositoryStr()+":"+public.TagStr(), name.Insecure)
}

func serve(ctx context.Context, flags *flag.FlagSet, args []string, stdout io.Writer) error {
	var bundles, archives sources
	listen := flags.String("listen", "127.0.0.1:0", "the `address` to listen on; port 0 picks a free one")
	addressFile := flags.String("address-file", "", "the `file` to write host:port to, once all images are there")
	detached := flags.Bool("detached", false, "keep serving when the parent process has ended")
	verbose := flags.Bool("verbose", false, "print each request to standard error")
	flags.Var(&bundles, "bundle", "`NAME:TAG=FOLDER` of a bundle, whose image is made from the folder; may be repeated")
	flags.Var(&archives, "archive", "`NAME:TAG=FILE` of an OCI or docker archive, served as it is; may be repeated")
	if err := parse(flags, args, "listen"); err != nil {
		return err
	}
	// Asked for before anything takes time: the end of a parent meanwhile shows as another parent later.
	parent := os.Getppid()

	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", *listen)
	if err != nil {
		return err
	}
	logger := log.New(io.Discard, "", 0)
	if *verbose {
		logger = log.New(os.Stderr, "registry: ", log.LstdFlags)
	}
	server := &http.Server{
		Handler:           registry.New(registry.Logger(logger)),
		ErrorLog:          logger,
		ReadHeaderTimeout: 10 * time.Second,
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	defer func() { _ = server.Close() }()

	address := listener.Addr().String()
	if err := fill(ctx, address, bundles, archives); err != nil {
		return err
	}
	if *addressFile != "" {
		if err := writeWhole(*addressFile, address+"\n"); err != nil {
			return err
		}
	}
	// Whoever reads the first line knows that all is ready.
	fmt.Fprintln(stdout, address)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !*detached {
		go func() {
			defer cancel()
			untilOrphaned(ctx, parent)
		}()
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	stopping, cancelStop := context.WithTimeout(context.Background(), stopTime)
	defer cancelStop()
	if err := server.Shutdown(stopping); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// fill pushes the images to the registry at an address, as any client would.
func fill(ctx context.Context, address string, bundles, archives sources) error {
	for _, b := range bundles {
		image, err := bundleimage.FromFolder(b.path)
		if err != nil {
			return err
		}
		if err := push(ctx, address, b.image, ociarchive.Content{Image: image}); err != nil {
			return err
		}
	}
	if len(archives) == 0 {
		return nil
	}
	scratch, err := os.MkdirTemp("", "registry-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	for _, a := range archives {
		content, err := ociarchive.Open(a.path, scratch)
		if err != nil {
			return err
		}
		if err := push(ctx, address, a.image, content); err != nil {
			return err
		}
	}
	return nil
}

func push(ctx context.Context, address, image string, content ociarchive.Content) error {
	tag, err := tagOf(image, address)
	if err != nil {
		return err
	}
	if content.Index != nil {
		err = remote.WriteIndex(tag, content.Index, remote.WithContext(ctx))
	} else {
		err = remote.Write(tag, content.Image, remote.WithContext(ctx))
	}
	if err != nil {
		return fmt.Errorf("serving %s: %w", image, err)
	}
	return nil
}

// untilOrphaned returns when the parent has ended, which gives this process another one, or when the context has.
func untilOrphaned(ctx context.Context, parent int) {
	ticker := time.NewTicker(parentPeriod)
	defer ticker.Stop()
	for os.Getppid() == parent {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// writeWhole writes a file that nobody sees half written.
func writeWhole(path, text string) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".address-")
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if err = errors.Join(err, file.Chmod(0o644), file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}

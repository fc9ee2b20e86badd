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
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/verticalscaler/verticalscaler-operator/hack/images/internal/image"
)

// How long requests may take to end once the registry stops.
const stopTime = 2 * time.Second

// localTag returns the tag of an image in the registry at an address. The registry in the image's own name is left out,
// because clients are told that this registry stands for it.
func localTag(image, address string) (name.Tag, error) {
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

func serve(ctx context.Context, flags *flag.FlagSet, args []string, in io.Reader, out io.Writer) error {
	bundles, archives := pairs{}, pairs{}
	listen := flags.String("listen", "127.0.0.1:0", "the `address` to listen on; port 0 picks a free one")
	untilEOF := flags.Bool("until-eof", false, "also end when standard input ends")
	verbose := flags.Bool("verbose", false, "print each request to standard error")
	flags.Var(bundles, "bundle", "`NAME:TAG=FOLDER` of a bundle, whose image is built from the folder; may be repeated")
	flags.Var(archives, "archive", "`NAME:TAG=FILE` of an archive that \"build\" wrote; may be repeated")
	if err := parse(flags, args, 0, "listen"); err != nil {
		return err
	}
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", *listen)
	if err != nil {
		return err
	}
	logger := log.New(io.Discard, "", 0)
	if *verbose {
		logger = log.New(os.Stderr, "registry: ", log.LstdFlags)
	}
	server := &http.Server{Handler: registry.New(registry.Logger(logger)), ErrorLog: logger, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	defer func() { _ = server.Close() }()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if *untilEOF {
		go func() {
			defer cancel()
			_, _ = io.Copy(io.Discard, in)
		}()
	}
	if err := fill(ctx, listener.Addr().String(), bundles, archives); err != nil {
		return err
	}
	// The line tells clients that all images are there.
	fmt.Fprintln(out, listener.Addr())
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
func fill(ctx context.Context, address string, bundles, archives pairs) error {
	for public, folder := range bundles {
		tag, err := localTag(public, address)
		if err != nil {
			return err
		}
		built, err := image.FromBundle(folder)
		if err != nil {
			return err
		}
		if err := push(ctx, tag, []v1.Image{built}); err != nil {
			return err
		}
	}
	for public, archive := range archives {
		tag, err := localTag(public, address)
		if err != nil {
			return err
		}
		if err := image.Open(archive, func(images []v1.Image) error { return push(ctx, tag, images) }); err != nil {
			return err
		}
	}
	return nil
}

func pushArchive(ctx context.Context, flags *flag.FlagSet, args []string, _ io.Reader, out io.Writer) error {
	if err := parse(flags, args, 2); err != nil {
		return err
	}
	tag, err := name.NewTag(flags.Arg(0), name.StrictValidation)
	if err != nil {
		return err
	}
	err = image.Open(flags.Arg(1), func(images []v1.Image) error { return push(ctx, tag, images) })
	if err == nil {
		fmt.Fprintln(out, tag)
	}
	return err
}

// push writes images of one name to a registry, as a list if there are several.
func push(ctx context.Context, tag name.Tag, images []v1.Image) error {
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	var err error
	if len(images) == 1 {
		err = remote.Write(tag, images[0], options...)
	} else {
		var index v1.ImageIndex
		if index, err = image.Index(images); err == nil {
			err = remote.WriteIndex(tag, index, options...)
		}
	}
	if err != nil {
		return fmt.Errorf("pushing %s: %w", tag, err)
	}
	return nil
}

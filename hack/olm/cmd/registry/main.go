// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command registry serves bundles and images from memory, and looks into archives of images. With it, catalogs can be made
// and tested where there is neither a network nor a container engine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const usage = `usage: registry COMMAND ...

  serve    [-listen ADDRESS] [-address-file FILE] [-detached]
           [-bundle NAME:TAG=FOLDER]... [-archive NAME:TAG=FILE]...
           serves images over plain HTTP, from memory, until SIGTERM, SIGINT, or the end of its parent
  pack     -name NAME:TAG -layout FOLDER -archive FILE
           writes an OCI layout to an archive that containerd, docker and podman load under that name
  inspect  FILE
           prints what is in an archive of images: digests, platforms, settings, labels, files
  unpack   [-platform OS/ARCH] -archive FILE -folder FOLDER
           puts the files of an image into an empty folder

"registry COMMAND -help" explains the flags.
`

var errUnknown = errors.New("want serve, pack, inspect or unpack; -help explains them")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "registry:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("a command is missing: %w", errUnknown)
	}
	command, args := args[0], args[1:]
	flags := flag.NewFlagSet("registry "+command, flag.ContinueOnError)
	// A mistake in one flag is told in one line; all flags are explained when asked for.
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	err := errUnknown
	switch command {
	case "serve":
		err = serve(ctx, flags, args, stdout)
	case "pack":
		err = pack(flags, args)
	case "inspect":
		err = inspect(flags, args, stdout)
	case "unpack":
		err = unpack(flags, args)
	case "help", "-h", "-help", "--help":
		_, err := io.WriteString(stdout, usage)
		return err
	}
	switch {
	case errors.Is(err, errUnknown):
		return fmt.Errorf("there is no command %q: %w", command, err)
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(stderr)
		fmt.Fprintf(stderr, "Flags of registry %s:\n", command)
		flags.PrintDefaults()
	}
	return err
}

// parse reads flags, of which there may be nothing but flags, and complains about required ones that are empty.
func parse(flags *flag.FlagSet, args []string, required ...string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: there are only flags, see -help", flags.Arg(0))
	}
	for _, name := range required {
		if flags.Lookup(name).Value.String() == "" {
			return fmt.Errorf("-%s is missing, see -help", name)
		}
	}
	return nil
}

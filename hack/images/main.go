// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command images builds container images and serves them, without a container engine, root or a network.
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

	"github.com/verticalscaler/verticalscaler-operator/hack/images/internal/channels"
)

const usage = `usage: images COMMAND ...

  build     -name NAME:TAG -archive FILE [FLAG]...
            builds the image that a Dockerfile describes and writes it to an OCI archive
  push      NAME:TAG FILE
            pushes the image in an archive to a registry, with the credentials of docker or podman
  serve     [FLAG]...
            serves images over plain HTTP, from memory, until SIGTERM or SIGINT
  channels
            reads a catalog with one channel for each major version from standard input, such as "stable-v0" and "stable-v1",
            and writes it with plain channels, such as "stable"

"images COMMAND -help" explains the flags.
`

type command func(ctx context.Context, flags *flag.FlagSet, args []string, in io.Reader, out io.Writer) error

var commands = map[string]command{
	"build": build, "push": pushArchive, "serve": serve, "channels": plainChannels,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("a command is missing; -help lists the commands")
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		_, err := io.WriteString(out, usage)
		return err
	}
	command, known := commands[args[0]]
	if !known {
		return fmt.Errorf("there is no command %q; -help lists the commands", args[0])
	}
	flags := flag.NewFlagSet("images "+args[0], flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	err := command(ctx, flags, args[1:], in, out)
	if errors.Is(err, flag.ErrHelp) {
		flags.SetOutput(out)
		flags.Usage()
		return nil
	}
	return err
}

// parse reads flags that must leave a number of arguments, and complains about required flags that are empty.
func parse(flags *flag.FlagSet, args []string, count int, required ...string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != count {
		return fmt.Errorf("want %d arguments, not %q; -help explains them", count, flags.Args())
	}
	for _, name := range required {
		if flags.Lookup(name).Value.String() == "" {
			return fmt.Errorf("-%s is missing; -help explains it", name)
		}
	}
	return nil
}

func plainChannels(_ context.Context, flags *flag.FlagSet, args []string, in io.Reader, out io.Writer) error {
	if err := parse(flags, args, 0); err != nil {
		return err
	}
	catalog, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	plain, err := channels.Plain(catalog)
	if err != nil {
		return err
	}
	_, err = out.Write(plain)
	return err
}

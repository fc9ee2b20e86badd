// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command images builds container images from Dockerfiles, without a container engine, root or a network, and renames the
// channels of a catalog.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/verticalscaler/verticalscaler-operator/hack/images/internal/channels"
	"github.com/verticalscaler/verticalscaler-operator/hack/images/internal/image"
)

const usage = `usage: images build -name NAME:TAG -archive FILE [FLAG]...
       images channels <CATALOG >CATALOG

"build" builds the image that a Dockerfile describes and writes it to an OCI archive; "images build -help" explains the flags.
"channels" reads a catalog with one channel for each major version, such as "stable-v0" and "stable-v1", and writes it with
plain channels, such as "stable".
`

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("a command is missing; -help explains them")
	}
	switch args[0] {
	case "build":
		return build(args[1:], out)
	case "channels":
		return plainChannels(in, out)
	case "help", "-h", "-help", "--help":
		_, err := io.WriteString(out, usage)
		return err
	default:
		return fmt.Errorf("there is no command %q; -help explains them", args[0])
	}
}

func plainChannels(in io.Reader, out io.Writer) error {
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

// pairs is a flag that may be repeated: KEY=VALUE.
type pairs map[string]string

func (p pairs) String() string { return "" }

func (p pairs) Set(text string) error {
	key, value, found := strings.Cut(text, "=")
	if !found {
		return fmt.Errorf("want KEY=VALUE, not %q", text)
	}
	p[key] = value
	return nil
}

func build(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("images build", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	d := image.Dockerfile{Stages: pairs{}, Args: pairs{}, Labels: pairs{}}
	name := flags.String("name", "", "the image's `name`, with a tag")
	file := flags.String("file", "Dockerfile", "the Dockerfile, whose last stage must be FROM scratch")
	flags.StringVar(&d.Context, "context", ".", "the `folder` that COPY reads from")
	flags.Var(pairs(d.Stages), "stage", "`NAME=FOLDER` that COPY --from=NAME reads from; may be repeated")
	flags.Var(pairs(d.Args), "arg", "`NAME=VALUE` for ARG; may be repeated")
	flags.Var(pairs(d.Labels), "label", "`KEY=VALUE`, a further label; may be repeated")
	platforms := flags.String("platform", "linux/"+runtime.GOARCH, "`linux/ARCH`, or several separated by commas")
	created := flags.Int64("created", 0, "the time of the image and its files, in `seconds` since 1970")
	archive := flags.String("archive", "", "the `file` to write")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(out)
		flags.Usage()
		return nil
	case err != nil:
		return err
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case *name == "" || *archive == "":
		return errors.New("-name and -archive are required")
	}
	text, err := os.ReadFile(*file)
	if err != nil {
		return err
	}
	d.Created = time.Unix(*created, 0)
	var images []v1.Image
	for platform := range strings.SplitSeq(*platforms, ",") {
		arch, ok := strings.CutPrefix(platform, "linux/")
		if !ok || arch == "" || strings.Contains(arch, "/") {
			return fmt.Errorf("platform %q: want linux/ARCH, such as linux/amd64", platform)
		}
		d.Text, d.Architecture = bytes.NewReader(text), arch
		recipe, err := d.Recipe()
		if err != nil {
			return fmt.Errorf("reading %s: %w", *file, err)
		}
		built, err := recipe.Build()
		if err != nil {
			return fmt.Errorf("building %s for %s: %w", *name, platform, err)
		}
		images = append(images, built)
	}
	err = errors.Join(os.MkdirAll(filepath.Dir(*archive), 0o755), image.Save(*name, images, *archive))
	if err == nil {
		fmt.Fprintln(out, *archive)
	}
	return err
}

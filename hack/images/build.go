// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
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

	"github.com/verticalscaler/verticalscaler-operator/hack/images/internal/image"
)

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

func build(_ context.Context, flags *flag.FlagSet, args []string, in io.Reader, out io.Writer) error {
	d := image.Dockerfile{Stages: pairs{}, Args: pairs{}, Labels: pairs{}}
	name := flags.String("name", "", "the image's `name`, with a tag")
	file := flags.String("file", "Dockerfile", "the Dockerfile, or - for standard input; its last stage must be FROM scratch")
	flags.StringVar(&d.Context, "context", ".", "the `folder` that COPY reads from")
	flags.Var(pairs(d.Stages), "stage", "`NAME=FOLDER` that COPY --from=NAME reads from; may be repeated")
	flags.Var(pairs(d.Args), "arg", "`NAME=VALUE` for ARG; may be repeated")
	flags.Var(pairs(d.Labels), "label", "`KEY=VALUE`, a further label; may be repeated")
	platforms := flags.String("platform", "linux/"+runtime.GOARCH, "`linux/ARCH`, or several separated by commas")
	created := flags.Int64("created", 0, "the time of the image and its files, in `seconds` since 1970")
	archive := flags.String("archive", "", "the `file` to write")
	if err := parse(flags, args, 0, "name", "archive"); err != nil {
		return err
	}
	text, err := readFile(*file, in)
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

func readFile(file string, in io.Reader) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(in)
	}
	return os.ReadFile(file)
}

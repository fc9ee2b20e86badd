// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/verticalscaler/verticalscaler-operator/hack/images/internal/image"
)

// Longer than anything here takes on a busy machine.
const patience = time.Minute

const dockerfile = `FROM golang AS build
RUN go build
FROM scratch
ARG TARGETARCH
COPY --from=build $TARGETARCH/tool /tool
ENTRYPOINT ["/tool"]
`

func TestBuildThenServe(t *testing.T) {
	folder := t.TempDir()
	put(t, filepath.Join(folder, "amd64/tool"), "a")
	put(t, filepath.Join(folder, "arm64/tool"), "b")
	archive := filepath.Join(folder, "new", "tool.tar")
	args := []string{"build", "-name", "example.com:5000/shop/tool:v1", "-file", "-", "-stage", "build=" + folder,
		"-platform", "linux/amd64,linux/arm64", "-archive", archive}
	if err := run(t.Context(), args, strings.NewReader(dockerfile), io.Discard); err != nil {
		t.Fatal(err)
	}

	bundle := t.TempDir()
	put(t, filepath.Join(bundle, "manifests/a.yaml"), "a")
	put(t, filepath.Join(bundle, "metadata/annotations.yaml"), "annotations: {x: y}")
	its, err := image.FromBundle(bundle)
	if err != nil {
		t.Fatal(err)
	}

	address, _ := start(t, "-bundle", "example.com/shop/bundle:v1="+bundle, "-archive", "example.com:5000/shop/tool:v1="+archive)
	got, err := remote.Image(reference(t, address+"/shop/bundle:v1"))
	if err != nil {
		t.Fatal(err)
	}
	if want, got := digest(t, its), digest(t, got); got != want {
		t.Errorf("the bundle has digest %s, want %s", got, want)
	}
	index, err := remote.Index(reference(t, address+"/shop/tool:v1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Errorf("the list of images is not complete: %v", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, descriptor := range manifest.Manifests {
		platforms = append(platforms, descriptor.Platform.String())
	}
	if got := strings.Join(platforms, " "); got != "linux/amd64 linux/arm64" {
		t.Errorf("the platforms are %q", got)
	}
}

func TestPush(t *testing.T) {
	built, err := random.Image(64, 1)
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "web.tar")
	if err := image.Save("example.com/web:v1", []v1.Image{built}, archive); err != nil {
		t.Fatal(err)
	}
	address, _ := start(t)
	if err := run(t.Context(), []string{"push", address + "/shop/web:v1", archive}, nil, io.Discard); err != nil {
		t.Fatal(err)
	}
	got, err := remote.Image(reference(t, address+"/shop/web:v1"))
	if err != nil {
		t.Fatal(err)
	}
	if want, got := digest(t, built), digest(t, got); got != want {
		t.Errorf("the registry has %s, want %s", got, want)
	}
}

func TestServeEndsWithStandardInput(t *testing.T) {
	input, life := io.Pipe()
	_, done := startWith(t, input, "-until-eof")
	if err := life.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("serve ends with %v", err)
		}
	case <-time.After(patience):
		t.Errorf("it still serves %v after the end of its input", patience)
	}
}

func TestRunExplainsMistakes(t *testing.T) {
	empty := t.TempDir()
	text := filepath.Join(empty, "text")
	put(t, text, "no archive")
	cases := map[string]struct {
		args []string
		want string
	}{
		"no command":                 {nil, "a command is missing"},
		"an unknown command":         {[]string{"sreve"}, `there is no command "sreve"`},
		"an argument":                {[]string{"serve", "x"}, `not ["x"]`},
		"a bundle without a folder":  {[]string{"serve", "-bundle", "a/b:c"}, "want KEY=VALUE"},
		"a bundle without a tag":     {[]string{"serve", "-bundle", "shop/web=x"}, `image name "shop/web"`},
		"a folder that is no bundle": {[]string{"serve", "-bundle", "shop/web:v1=" + empty}, "is no bundle"},
		"a file that is no archive":  {[]string{"serve", "-archive", "shop/web:v1=" + text}, text},
		"an address that is none":    {[]string{"serve", "-listen", "nowhere"}, "nowhere"},
		"no name":                    {[]string{"build", "-archive", text}, "-name is missing"},
		"another system": {
			[]string{"build", "-name", "a:b", "-archive", text, "-file", text, "-platform", "darwin/arm64"}, "want linux/ARCH",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), tc.args, nil, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("run() = %v, want an error with %q", err, tc.want)
			}
		})
	}
}

func TestHelpNamesEveryCommand(t *testing.T) {
	var out, flags bytes.Buffer
	if err := run(t.Context(), []string{"--help"}, nil, &out); err != nil {
		t.Fatal(err)
	}
	for name := range commands {
		if !strings.Contains(out.String(), "\n  "+name) {
			t.Errorf("the help does not name %s:\n%s", name, out.String())
		}
	}
	if err := run(t.Context(), []string{"serve", "-help"}, nil, &flags); err != nil || !strings.Contains(flags.String(), "-until-eof") {
		t.Errorf("serve -help prints %q, %v", flags.String(), err)
	}
}

// start serves until the test ends.
func start(t *testing.T, args ...string) (address string, done <-chan error) {
	t.Helper()
	return startWith(t, nil, args...)
}

func startWith(t *testing.T, input io.Reader, args ...string) (address string, done <-chan error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		err := run(ctx, append([]string{"serve"}, args...), input, writer)
		_ = writer.CloseWithError(errors.Join(err, io.EOF))
		ended <- err
	}()
	t.Cleanup(func() {
		stop()
		<-finished
	})
	line, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil {
		t.Fatalf("no address: %v", err)
	}
	return strings.TrimSpace(line), ended
}

func reference(t *testing.T, text string) name.Reference {
	t.Helper()
	parsed, err := name.ParseReference(text, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func digest(t *testing.T, image v1.Image) string {
	t.Helper()
	hash, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return hash.String()
}

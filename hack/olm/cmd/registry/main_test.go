// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/verticalscaler/verticalscaler-operator/hack/olm/internal/bundleimage"
	"github.com/verticalscaler/verticalscaler-operator/hack/olm/internal/ociarchive"
)

// With this in its environment, the test program is the registry.
const asRegistry = "TEST_AS_REGISTRY"

// Longer than anything here takes on a busy machine.
const patience = time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(asRegistry) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestServe(t *testing.T) {
	scratch := t.TempDir()
	single, err := random.Image(256, 2)
	if err != nil {
		t.Fatal(err)
	}
	several, err := random.Index(256, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	folder := bundle(t)
	its, err := bundleimage.FromFolder(folder)
	if err != nil {
		t.Fatal(err)
	}
	addressFile := filepath.Join(scratch, "address")
	address := start(t, "-address-file", addressFile,
		"-bundle", "example.com/shop/web-bundle:v0.1.0="+folder,
		"-archive", "example.com:5000/shop/web:v1="+archive(t, "example.com:5000/shop/web:v1", ociarchive.Content{Image: single}),
		"-archive", "shop/multi:v1="+archive(t, "shop/multi:v1", ociarchive.Content{Index: several}))

	written, err := os.ReadFile(addressFile)
	if err != nil || strings.TrimSpace(string(written)) != address {
		t.Errorf("the address file has %q, %v; want %q", written, err, address)
	}
	// What a client gets has to be complete: each blob is read.
	if diff := cmp.Diff(digest(t, its), digest(t, pull(t, address+"/shop/web-bundle:v0.1.0"))); diff != "" {
		t.Errorf("bundle (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(digest(t, single), digest(t, pull(t, address+"/shop/web:v1"))); diff != "" {
		t.Errorf("image (-want +got):\n%s", diff)
	}
	reference, err := name.ParseReference(address+"/shop/multi:v1", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(reference, remote.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(digest(t, several), digest(t, index)); diff != "" {
		t.Errorf("list of images (-want +got):\n%s", diff)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, descriptor := range manifest.Manifests {
		pull(t, address+"/shop/multi@"+descriptor.Digest.String())
	}
}

func TestServeEndsOnASignal(t *testing.T) {
	command, address := process(t, "")
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		t.Errorf("it ends with %v", err)
	}
	if answers(address) {
		t.Error("something still answers")
	}
}

func TestServeEndsWithItsParent(t *testing.T) {
	// The shell is the parent; it reads until its input is closed.
	command, address := process(t, `"$0" "$@" & cat >/dev/null`)
	if !answers(address) {
		t.Fatal("nothing answers while the parent is there")
	}
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	deadline, tick := time.After(patience), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for answers(address) {
		select {
		case <-deadline:
			t.Fatalf("it still serves %v after the end of its parent", patience)
		case <-tick.C:
		}
	}
}

func TestRunExplainsMistakes(t *testing.T) {
	empty := t.TempDir()
	text := filepath.Join(empty, "text")
	if err := os.WriteFile(text, []byte("no archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		args []string
		want string
	}{
		"no command":                  {nil, "a command is missing: want serve, pack"},
		"an unknown command":          {[]string{"sreve"}, `there is no command "sreve"`},
		"an argument":                 {[]string{"serve", "x"}, `unexpected argument "x"`},
		"a bundle without a folder":   {[]string{"serve", "-bundle", "a/b:c"}, "want NAME:TAG=PATH"},
		"a bundle without a tag":      {[]string{"serve", "-bundle", "shop/web=x"}, `image name "shop/web"`},
		"a folder that is no bundle":  {[]string{"serve", "-bundle", "shop/web:v1=" + empty}, "is no bundle"},
		"a file that is no archive":   {[]string{"serve", "-archive", "shop/web:v1=" + text}, text},
		"an address that is none":     {[]string{"serve", "-listen", "nowhere"}, "nowhere"},
		"pack without a name":         {[]string{"pack"}, "-name is missing"},
		"unpack into a used folder":   {[]string{"unpack", "-archive", text, "-folder", empty}, "is not empty"},
		"inspect of several archives": {[]string{"inspect", "a", "b"}, "one archive"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), tc.args, io.Discard, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("run() = %v, want an error with %q", err, tc.want)
			}
		})
	}
}

func TestHelpNamesEveryCommand(t *testing.T) {
	var out, flags bytes.Buffer
	if err := run(t.Context(), []string{"--help"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"serve", "pack", "inspect", "unpack"} {
		if !strings.Contains(out.String(), "\n  "+command+" ") {
			t.Errorf("the help does not name %s:\n%s", command, out.String())
		}
	}
	if err := run(t.Context(), []string{"serve", "-help"}, io.Discard, &flags); err == nil ||
		!strings.Contains(flags.String(), "-address-file") {
		t.Errorf("serve -help prints %q, %v", flags.String(), err)
	}
}

func TestInspectAndUnpack(t *testing.T) {
	image, err := mutate.AppendLayers(empty.Image, bundleLayer(t))
	if err != nil {
		t.Fatal(err)
	}
	file := archive(t, "shop/web:v1", ociarchive.Content{Image: image})

	var out bytes.Buffer
	if err := run(t.Context(), []string{"inspect", file}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"image " + digest(t, image) + "\n",
		"file -rw-r--r-- 0:0 5 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824 manifests/a.yaml\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("inspect does not print %q:\n%s", want, out.String())
		}
	}

	folder := filepath.Join(t.TempDir(), "root")
	if err := run(t.Context(), []string{"unpack", "-archive", file, "-folder", folder}, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(folder, "manifests", "a.yaml"))
	if err != nil || string(content) != "hello" {
		t.Errorf("unpacked %q, %v", content, err)
	}
	err = run(t.Context(), []string{"unpack", "-archive", file, "-folder", folder + "2", "-platform", "linux/riscv64"},
		io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "riscv64") {
		t.Errorf("unpack of a platform that is not there: %v", err)
	}
}

// start serves in this process until the test ends, and returns the address.
func start(t *testing.T, args ...string) string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, append([]string{"serve"}, args...), writer, io.Discard)
		_ = writer.CloseWithError(errors.Join(err, io.EOF))
		done <- err
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("serve ends with %v", err)
		}
	})
	line, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil {
		t.Fatalf("no address: %v", err)
	}
	return strings.TrimSpace(line)
}

// process serves in a process, below a shell that runs a script if there is one, and returns what was started and the
// address.
func process(t *testing.T, script string) (*exec.Cmd, string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), self, "serve")
	if script != "" {
		command = exec.CommandContext(t.Context(), "sh", "-c", script, self, "serve")
	}
	command.Env = append(os.Environ(), asRegistry+"=1")
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatalf("no address: %v", err)
	}
	return command, strings.TrimSpace(line)
}

func answers(address string) bool {
	connection, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	_ = connection.Close()
	return true
}

func bundle(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for name, content := range map[string]string{
		"manifests/a.yaml":          "hello",
		"metadata/annotations.yaml": "annotations: {x: y}",
	} {
		path := filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func bundleLayer(t *testing.T) v1.Layer {
	t.Helper()
	image, err := bundleimage.FromFolder(bundle(t))
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	content, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(content)
	if err != nil {
		t.Fatal(err)
	}
	return static.NewLayer(text, types.OCILayer)
}

// archive packs content, and returns the file.
func archive(t *testing.T, image string, content ociarchive.Content) string {
	t.Helper()
	folder := t.TempDir()
	path, err := layout.Write(filepath.Join(folder, "layout"), empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if content.Index != nil {
		err = path.AppendIndex(content.Index)
	} else {
		err = path.AppendImage(content.Image)
	}
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "image.tar")
	args := []string{"pack", "-name", image, "-layout", string(path), "-archive", file}
	if err := run(t.Context(), args, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	return file
}

func pull(t *testing.T, reference string) v1.Image {
	t.Helper()
	parsed, err := name.ParseReference(reference, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(parsed, remote.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range layers {
		content, err := layer.Compressed()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, content); err != nil {
			t.Fatal(fmt.Errorf("reading a layer: %w", err))
		}
		_ = content.Close()
	}
	return image
}

func digest(t *testing.T, d interface{ Digest() (v1.Hash, error) }) string {
	t.Helper()
	hash, err := d.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return hash.String()
}

//go:build images

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

const operatorName = "localhost/verticalscaler-operator-check:dev"

// The second build is from a copy of the sources in another folder, with another mask and another time zone, and our own
// packages are compiled again. With COLD=1 it has an empty build cache: all dependencies are compiled again too, which takes
// minutes.
func TestOperatorImageIsReproducible(t *testing.T) {
	t.Setenv("PLATFORMS", "linux/"+runtime.GOARCH)
	t.Setenv("REVISION", "") // the commit is a label, and the copy has no history
	first, second, elsewhere := t.TempDir(), t.TempDir(), t.TempDir()
	want := buildImage(t, repository, first, "operator", operatorName)

	copySources(t, elsewhere)
	t.Setenv("TZ", "Pacific/Chatham")
	var removed []string
	if os.Getenv("COLD") != "" {
		t.Setenv("GOCACHE", t.TempDir())
	} else {
		removed = forgetOwnPackages(t)
	}
	got := buildImage(t, elsewhere, second, "operator", operatorName)
	for _, file := range removed {
		if _, err := os.Stat(file); err != nil {
			t.Errorf("the second build did not compile one of our packages again: %v", err)
		}
	}
	if program := filepath.Join("operator/out", runtime.GOARCH, "manager"); !bytes.Equal(
		read(t, filepath.Join(first, program)), read(t, filepath.Join(second, program))) {
		t.Error("the programs differ")
	}
	if !bytes.Equal(read(t, want), read(t, got)) {
		t.Errorf("the images differ (-first +second):\n%s", cmp.Diff(describe(t, want), describe(t, got)))
	}
}

func TestOperatorImageHoldsTheProgramAndTheLicence(t *testing.T) {
	t.Setenv("PLATFORMS", "linux/"+runtime.GOARCH)
	work, version := t.TempDir(), os.Getenv("VERSION")
	archive := buildImage(t, repository, work, "operator", operatorName)
	root, config := unpack(t, archive)

	line := func(name string, mode fs.FileMode, content []byte) string {
		return fmt.Sprintf("%s %v 0:0 %x", name, mode, sha256.Sum256(content))
	}
	want := []string{
		"licenses drwxr-xr-x 0:0",
		line("licenses/LICENSE", 0o644, read(t, repository+"/LICENSE")),
		line("manager", 0o755, read(t, filepath.Join(work, "operator/out", runtime.GOARCH, "manager"))),
	}
	if diff := cmp.Diff(want, describe(t, archive)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if config.User != "65532:65532" || fmt.Sprint(config.Entrypoint, config.Cmd) != "[/manager] []" {
		t.Errorf("the image runs %q %q as %s", config.Entrypoint, config.Cmd, config.User)
	}
	for _, name := range []string{"title", "description", "version", "source", "licenses", "vendor"} {
		value := config.Labels["org.opencontainers.image."+name]
		if value == "" || name == "version" && value != version || name == "licenses" && value != "Apache-2.0" {
			t.Errorf("the label org.opencontainers.image.%s is %q", name, value)
		}
	}

	for name, want := range map[string]string{"version": version, "vendor": config.Labels["org.opencontainers.image.vendor"]} {
		if got := config.Labels[name]; got != want {
			t.Errorf("the label %s is %q, want %q", name, got, want)
		}
	}

	// The program runs as the image's user on a read-only root.
	said := command(t, "unshare", "--mount", "sh", "-ec", `
		mount --bind "$1" "$1"
		mount -o remount,bind,ro "$1"
		if touch "$1/written" 2>/dev/null; then echo "the root can be written to" >&2; exit 1; fi
		exec chroot --userspec="$2" "$1" /manager -version`, "sh", root, config.User)
	if strings.TrimSpace(said) != version {
		t.Errorf("the program says that it is %q, want %s", said, version)
	}
}

// buildImage builds one of the operator's images from a folder with sources, and returns the archive in the work folder.
func buildImage(t *testing.T, sources, work, kind, name string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root, to run programs in the image's files as its user")
	}
	archive := filepath.Join(work, kind+".tar")
	t.Setenv("WORK", work)
	t.Setenv("IMAGE_ARCHIVE", archive)
	mask := "022"
	if sources != repository {
		mask = "077"
	}
	command(t, "sh", "-c", `umask "$0"; exec "$@"`, mask, filepath.Join(sources, "hack/images/image.sh"), kind, name)
	return archive
}

// unpack returns a folder with the files of an image, and its settings.
func unpack(t *testing.T, archive string) (root string, config v1.Config) {
	t.Helper()
	root = t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	open(t, archive, func(i v1.Image, files io.Reader) error {
		file, err := i.ConfigFile()
		if err != nil {
			return err
		}
		config = file.Config
		program := exec.CommandContext(t.Context(), "tar", "-x", "-p", "-C", root)
		program.Stdin, program.Stderr = files, os.Stderr
		return program.Run()
	})
	return root, config
}

func open(t *testing.T, archive string, use func(i v1.Image, files io.Reader) error) {
	t.Helper()
	folder := t.TempDir()
	command(t, "tar", "-x", "-C", folder, "-f", archive)
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%d images, %v; want one", len(manifest.Manifests), err)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	files := mutate.Extract(image)
	if err := errors.Join(use(image, files), files.Close()); err != nil {
		t.Fatal(err)
	}
}

// describe returns a line for each file of an image: name, permissions, owner, checksum.
func describe(t *testing.T, archive string) []string {
	t.Helper()
	var lines []string
	open(t, archive, func(_ v1.Image, files io.Reader) error {
		reader := tar.NewReader(files)
		for {
			header, err := reader.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			sum := sha256.New()
			if _, err := io.Copy(sum, reader); err != nil {
				return err
			}
			line := fmt.Sprintf("%s %v %d:%d", header.Name, header.FileInfo().Mode(), header.Uid, header.Gid)
			if header.Typeflag == tar.TypeReg {
				line += fmt.Sprintf(" %x", sum.Sum(nil))
			}
			lines = append(lines, line)
		}
	})
	slices.Sort(lines)
	return lines
}

// copySources copies what the image is built from, with other times and permissions.
func copySources(t *testing.T, to string) {
	t.Helper()
	for _, name := range []string{
		"LICENSE", "Dockerfile", "go.mod", "go.sum", "main.go", "api", "controllers", "internal", "config/manager/kustomization.yaml",
		"config/manifests/bases", "hack/images",
	} {
		target := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			t.Fatal(err)
		}
		command(t, "cp", "-r", filepath.Join(repository, name), target)
	}
	err := filepath.WalkDir(to, func(path string, _ fs.DirEntry, err error) error {
		past := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
		return errors.Join(err, os.Chtimes(path, past, past))
	})
	if err != nil {
		t.Fatal(err)
	}
	command(t, "chmod", "-R", "go=", to)
}

// forgetOwnPackages removes what has been compiled of our own packages from Go's build cache, and returns the removed files.
// A file there is named by a hash of the package's input, the start of which is the first half of the package's build ID.
func forgetOwnPackages(t *testing.T) []string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-trimpath", "-buildvcs=false",
		"-f", "{{with .Module}}{{if or .Main .Replace}}{{$.BuildID}}{{end}}{{end}}", ".")
	list.Dir = repository
	list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOWORK=off", "GOFLAGS=-mod=readonly")
	ids, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	cache := strings.TrimSpace(command(t, "go", "env", "GOCACHE"))
	var removed []string
	for id := range strings.FieldsSeq(string(ids)) {
		first, _, _ := strings.Cut(id, "/")
		hash, err := base64.RawURLEncoding.DecodeString(first)
		if err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(fmt.Sprintf("%s/%x/%x*-a", cache, hash[:1], hash))
		if err != nil {
			t.Fatal(err)
		}
		removed = append(removed, files...)
	}
	if len(removed) < 10 {
		t.Fatalf("%d of our packages are in Go's build cache, want all", len(removed))
	}
	for _, file := range removed {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	return removed
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/krew/pkg/index"
	"sigs.k8s.io/yaml"
)

// tree is the root of the source tree.
var tree = filepath.Join("..", "..")

// hello returns a release of a small program instead of the plugin.
func hello(folder string) release {
	return release{
		version: "v1.2.3", created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), root: tree, module: ".", pkg: "./testdata/hello", folder: folder,
		platforms: platforms,
	}
}

// shared is the folder of a release that tests copy.
var shared string

var buildShared = sync.OnceValue(func() error { return hello(shared).write() })

func TestMain(m *testing.M) {
	var err error
	if shared, err = os.MkdirTemp("", "release-test"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(shared)
	os.Exit(code)
}

// released returns a release with a copy of the shared files, and these.
func released(t *testing.T) (release, map[string][]byte) {
	t.Helper()
	if err := buildShared(); err != nil {
		t.Fatal(err)
	}
	r := hello(t.TempDir())
	if err := os.CopyFS(r.folder, os.DirFS(shared)); err != nil {
		t.Fatal(err)
	}
	return r, filesIn(t, r.folder)
}

func filesIn(t *testing.T, folder string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if files[entry.Name()], err = os.ReadFile(filepath.Join(folder, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// The second time, the sources are in another folder and have other times, and the caller has
// other settings.
func TestTheSameSourcesGiveTheSameFiles(t *testing.T) {
	_, first := released(t)
	r := hello(t.TempDir())
	r.root, r.module = t.TempDir(), t.TempDir()
	for _, path := range []string{"LICENSE", "cmd/kubectl-vscaler/kubectl_complete-vscaler"} {
		text, err := os.ReadFile(filepath.Join(tree, path))
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(r.root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"go.mod", "go.sum", "testdata/hello/main.go"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(r.module, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOAMD64", "v3")
	t.Setenv("GOFLAGS", "-tags=other")
	t.Setenv("TZ", "Asia/Tokyo")
	if err := r.write(); err != nil {
		t.Fatal(err)
	}
	second := filesIn(t, r.folder)
	if got, want := slices.Sorted(maps.Keys(second)), slices.Sorted(maps.Keys(first)); !slices.Equal(got, want) {
		t.Fatalf("the files are %q, not %q", got, want)
	}
	for name, content := range first {
		if !bytes.Equal(content, second[name]) {
			t.Errorf("%s differs", name)
		}
	}
	if want := 2*len(platforms) + 2; len(first) != want {
		t.Errorf("%d files, want %d: an archive and a list for each platform, a manifest, checksums", len(first), want)
	}
}

func TestArchivesHaveTheProgramAndItsLicense(t *testing.T) {
	_, files := released(t)
	for _, p := range platforms {
		read := untar
		want := map[string]string{"LICENSE": "-rw-r--r--", "kubectl-vscaler": "-rwxr-xr-x", "kubectl_complete-vscaler": "-rwxr-xr-x"}
		if p.os == "windows" {
			read, want = unzip, map[string]string{"LICENSE": "-rw-r--r--", "kubectl-vscaler.exe": "-rwxr-xr-x"}
		}
		got := map[string]string{}
		for _, info := range read(t, files[p.archive()]) {
			got[info.Name()] = info.Mode().String()
			if at := info.ModTime().UTC().Format(time.DateTime); at != "2026-01-02 03:04:05" {
				t.Errorf("%s: %s is of %s", p.archive(), info.Name(), at)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", p.archive(), diff)
		}
	}
}

func untar(t *testing.T, archive []byte) (infos []fs.FileInfo) {
	t.Helper()
	packed, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(packed); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return infos
		} else if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, header.FileInfo())
	}
}

func unzip(t *testing.T, archive []byte) (infos []fs.FileInfo) {
	t.Helper()
	r, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range r.File {
		infos = append(infos, entry.FileInfo())
	}
	return infos
}

// Other files of the release have a checksum, too. Archives of images have none: they are pushed.
func TestTheChecksumsAreThoseOfTheFiles(t *testing.T) {
	r, _ := released(t)
	for _, name := range []string{"install.yaml", "operator.tar"} {
		if err := os.WriteFile(filepath.Join(r.folder, name), []byte("a file\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.writeChecksums(); err != nil {
		t.Fatal(err)
	}
	files := filesIn(t, r.folder)
	summed := map[string]string{}
	for line := range strings.Lines(string(files[checksums])) {
		sum, name, found := strings.Cut(strings.TrimSpace(line), "  ")
		if !found || checksum(files[name]) != sum {
			t.Errorf("not a checksum: %s", line)
		}
		summed[name] = sum
	}
	for name := range files {
		if _, found := summed[name]; found == slices.Contains([]string{checksums, "operator.tar"}, name) {
			t.Errorf("%s has a checksum: %t", name, found)
		}
	}
}

// krew accepts the manifest, installs the plugin of each platform from its archive, and finds
// one that has been changed.
func TestKrewInstallsThePlugin(t *testing.T) {
	r, _ := released(t)
	manifest := filepath.Join(r.folder, "vscaler.yaml")
	if out, err := tool(t, "validate-krew-manifest", "-manifest", manifest, "-skip-install"); err != nil {
		t.Fatalf("krew refuses the manifest: %v\n%s", err, out)
	}
	for _, p := range platforms {
		home := t.TempDir()
		environment := []string{"KREW_ROOT=" + home, "KREW_NO_UPGRADE_CHECK=1", "KREW_OS=" + p.os, "KREW_ARCH=" + p.arch}
		archive := filepath.Join(r.folder, p.archive())
		if out, err := tool(t, "krew", "install", "--manifest="+manifest, "--archive="+archive, environment); err != nil {
			t.Errorf("krew does not install %s: %v\n%s", p.archive(), err, out)
			continue
		}
		installed := filepath.Join(home, "store", "vscaler", r.version, p.program())
		if _, err := os.Stat(installed); err != nil {
			t.Error(err)
		}
		if p.os != runtime.GOOS || p.arch != runtime.GOARCH {
			continue
		}
		if out, err := exec.CommandContext(t.Context(), filepath.Join(home, "bin", "kubectl-vscaler")).CombinedOutput(); err != nil || string(out) != "hello from v1.2.3\n" {
			t.Errorf("the installed program: %v\n%s", err, out)
		}
	}
	changed := platforms[0]
	archive := filepath.Join(r.folder, changed.archive())
	if err := os.WriteFile(archive, []byte("not an archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	environment := []string{"KREW_ROOT=" + t.TempDir(), "KREW_NO_UPGRADE_CHECK=1", "KREW_OS=" + changed.os, "KREW_ARCH=" + changed.arch}
	if out, err := tool(t, "krew", "install", "--manifest="+manifest, "--archive="+archive, environment); err == nil || !strings.Contains(out, "checksum") {
		t.Errorf("krew installs an archive with another checksum: %v\n%s", err, out)
	}
}

// tool runs a tool of go.mod. The last argument may be its environment.
func tool(t *testing.T, name string, args ...any) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "tool", name)
	cmd.Env = os.Environ()
	for _, argument := range args {
		switch a := argument.(type) {
		case string:
			cmd.Args = append(cmd.Args, a)
		case []string:
			cmd.Env = append(cmd.Env, a...)
		}
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestTheManifestNamesTheFilesOfThisRelease(t *testing.T) {
	_, files := released(t)
	var p index.Plugin
	if err := yaml.UnmarshalStrict(files["vscaler.yaml"], &p); err != nil {
		t.Fatal(err)
	}
	for _, platform := range p.Spec.Platforms {
		name, found := strings.CutPrefix(platform.URI, repository+"/releases/download/v1.2.3/")
		if !found || files[name] == nil || checksum(files[name]) != platform.Sha256 {
			t.Errorf("%s is not a file of the release with the checksum %s", platform.URI, platform.Sha256)
		}
	}
	if len(p.Spec.Platforms) != 6 {
		t.Errorf("%d platforms", len(p.Spec.Platforms))
	}
}

// The documentation's commands get the plugin, as from GitHub.
func TestTheDocumentedCommandsGetThePlugin(t *testing.T) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the commands of the documentation are for linux/amd64")
	}
	r, _ := released(t)
	server := httptest.NewServer(http.FileServer(http.Dir(r.folder)))
	defer server.Close()
	text, err := os.ReadFile(filepath.Join(tree, "docs", "plugin.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, commands, found := strings.Cut(string(text), "\n```\nbase=")
	if !found {
		t.Fatal("docs/plugin.md has no commands to get the plugin")
	}
	commands, _, _ = strings.Cut("base="+commands, "\n```")
	for _, name := range []string{"as released", "changed"} {
		t.Run(name, func(t *testing.T) {
			if name == "changed" {
				if err := os.WriteFile(filepath.Join(r.folder, platforms[2].archive()), []byte("other"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			home := t.TempDir()
			cmd := exec.CommandContext(t.Context(), "bash", "-euc", strings.ReplaceAll(commands, repository+"/releases/latest/download", server.URL))
			cmd.Dir = t.TempDir()
			cmd.Env = append(os.Environ(), "HOME="+home)
			out, err := cmd.CombinedOutput()
			if name == "changed" {
				if err == nil {
					t.Errorf("a changed archive is installed:\n%s", out)
				}
				return
			}
			if err != nil {
				t.Fatalf("%v\n%s\n%s", err, commands, out)
			}
			for _, program := range []string{"kubectl-vscaler", "kubectl_complete-vscaler"} {
				if info, err := os.Stat(filepath.Join(home, ".local", "bin", program)); err != nil || info.Mode()&0o111 == 0 {
					t.Errorf("%s is not a program: %v", program, err)
				}
			}
		})
	}
}

func TestAVersionIsRequired(t *testing.T) {
	for _, version := range []string{"", "0.1.0", "latest", "v1"} {
		r := hello(t.TempDir())
		r.version = version
		if err := r.write(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", version)) {
			t.Errorf("version %q: %v", version, err)
		}
	}
}

func TestAReleaseForSomePlatforms(t *testing.T) {
	folder := t.TempDir()
	r := hello(folder)
	var err error
	if r.platforms, err = choose("linux/arm64"); err != nil {
		t.Fatal(err)
	}
	if err := r.write(); err != nil {
		t.Fatal(err)
	}
	archives, err := filepath.Glob(filepath.Join(folder, "*.tar.gz"))
	if err != nil || len(archives) != 1 || filepath.Base(archives[0]) != "kubectl-vscaler_linux_arm64.tar.gz" {
		t.Errorf("the archives are %v, %v", archives, err)
	}
	if _, err := choose("linux/amd64,plan9/386"); err == nil || !strings.Contains(err.Error(), `no plugin for the platform "plan9/386"`) {
		t.Errorf("the error is %v", err)
	}
	if all, err := choose(""); err != nil || len(all) != len(platforms) {
		t.Errorf("%d platforms, %v", len(all), err)
	}
}

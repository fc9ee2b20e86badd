// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command release builds what users download to get the plugin: for each platform an archive
// and the list of what the program in it is made of, and for all of them a manifest for krew.
// The checksums are those of all files in the folder.
//
// The same sources and the same Go give the same files, byte by byte.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	// repository is where users find the files of a release.
	repository = "https://github.com/verticalscaler/verticalscaler-operator"
	plugin     = "kubectl-vscaler"
	checksums  = "SHA256SUMS"
)

// A platform is a system and an architecture by their names in Go.
type platform struct{ os, arch string }

var platforms = []platform{
	{"darwin", "amd64"},
	{"darwin", "arm64"},
	{"linux", "amd64"},
	{"linux", "arm64"},
	{"windows", "amd64"},
	{"windows", "arm64"},
}

// base is the name of the platform's files, without an extension. It has no version, so that
// the address of the latest release's file never changes.
func (p platform) base() string { return plugin + "_" + p.os + "_" + p.arch }

func (p platform) archive() string {
	if p.os == "windows" {
		return p.base() + ".zip"
	}
	return p.base() + ".tar.gz"
}

// program is the name of the plugin in the archive.
func (p platform) program() string {
	if p.os == "windows" {
		return plugin + ".exe"
	}
	return plugin
}

// A release is what is built, from what, and where to.
type release struct {
	version string    // such as v0.1.0
	created time.Time // of the files in archives, and of lists
	root    string    // of the source tree
	module  string    // the folder of the plugin's module
	pkg     string    // the plugin's package in it
	folder  string    // for the files
	// platforms are those to build for.
	platforms []platform
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("release", flag.ExitOnError)
	root := flags.String("root", "../..", "the `folder` of the source tree")
	folder := flags.String("folder", "../../bin/release", "the `folder` to write")
	version := flags.String("version", "", "the `version`, such as v0.1.0")
	only := flags.String("platforms", "", "build only for these `platforms`, such as linux/amd64,linux/arm64; all if empty")
	if err := flags.Parse(args); err != nil {
		return err
	}
	created, err := releaseTime(*root)
	if err != nil {
		return err
	}
	r := release{version: *version, created: created, root: *root, module: *root, pkg: "./cmd/" + plugin, folder: *folder}
	if r.platforms, err = choose(*only); err != nil {
		return err
	}
	return r.write()
}

// choose returns the platforms of a list with commas, or all for an empty one.
func choose(list string) (chosen []platform, err error) {
	if list == "" {
		return platforms, nil
	}
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(platforms, func(p platform) bool { return p.os+"/"+p.arch == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no plugin for the platform %q", name)
		}
		chosen = append(chosen, platforms[i])
	}
	return chosen, nil
}

// releaseTime returns SOURCE_DATE_EPOCH, or else the time of the release in the base of the
// ClusterServiceVersion, as images have it.
func releaseTime(root string) (time.Time, error) {
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		var seconds int64
		if _, err := fmt.Sscan(epoch, &seconds); err != nil {
			return time.Time{}, fmt.Errorf("reading SOURCE_DATE_EPOCH %q: %w", epoch, err)
		}
		return time.Unix(seconds, 0).UTC(), nil
	}
	path := filepath.Join(root, "config", "manifests", "bases", "verticalscaler-operator.clusterserviceversion.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		return time.Time{}, err
	}
	match := regexp.MustCompile(`(?m)^ *createdAt: *"?([^"\n]+)"?$`).FindSubmatch(text)
	if match == nil {
		return time.Time{}, fmt.Errorf("%s has no createdAt: set SOURCE_DATE_EPOCH", path)
	}
	return time.Parse(time.RFC3339, string(match[1]))
}

var versions = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// write builds everything.
func (r release) write() error {
	if !versions.MatchString(r.version) {
		return fmt.Errorf("the version is %q, want one like v0.1.0", r.version)
	}
	if err := os.MkdirAll(r.folder, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work) //nolint:errcheck // it is in the folder for temporary files
	sums := map[platform]string{}
	for _, p := range r.platforms {
		if sums[p], err = r.writePlatform(p, filepath.Join(work, p.base())); err != nil {
			return fmt.Errorf("%s/%s: %w", p.os, p.arch, err)
		}
	}
	if err := r.writeManifest(sums); err != nil {
		return err
	}
	return r.writeChecksums()
}

// writePlatform writes the archive and the list of one platform, and returns the archive's
// checksum.
func (r release) writePlatform(p platform, program string) (sum string, err error) {
	if err := r.compile(p, program); err != nil {
		return "", err
	}
	files, err := r.contents(p, program)
	if err != nil {
		return "", err
	}
	packed, err := pack(p.archive(), files, r.created)
	if err != nil {
		return "", err
	}
	sum = checksum(packed)
	list, err := r.list(p, program, sum)
	if err != nil {
		return "", err
	}
	if err := r.save(p.archive(), packed); err != nil {
		return "", err
	}
	return sum, r.save(p.base()+".spdx.json", list)
}

// compile builds the plugin. The environment chooses no instructions of a newer processor.
func (r release) compile(p platform, program string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version="+r.version, "-o", program, r.pkg)
	cmd.Dir = r.module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1", "GOARM64=v8.0",
		"GOWORK=off", "GOFLAGS=-mod=readonly", "GOEXPERIMENT=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling: %w\n%s", err, out)
	}
	return nil
}

// contents are the files in an archive. kubectl asks the script for completions; Windows has
// nothing to run it.
func (r release) contents(p platform, program string) (files []file, err error) {
	for _, f := range []struct {
		name, path string
		mode       int64
	}{
		{"LICENSE", filepath.Join(r.root, "LICENSE"), 0o644},
		{p.program(), program, 0o755},
		{"kubectl_complete-vscaler", filepath.Join(r.root, "cmd", plugin, "kubectl_complete-vscaler"), 0o755},
	} {
		if p.os == "windows" && strings.HasPrefix(f.name, "kubectl_complete") {
			continue
		}
		content, err := os.ReadFile(f.path)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: f.name, mode: f.mode, content: content})
	}
	return files, nil
}

// writeChecksums lists all files of the folder that users download, in the format of sha256sum.
// Archives of images are pushed instead.
func (r release) writeChecksums() error {
	entries, err := os.ReadDir(r.folder) // sorted
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, entry := range entries {
		if !entry.Type().IsRegular() || entry.Name() == checksums || !slices.Contains([]string{".yaml", ".gz", ".zip", ".json"}, filepath.Ext(entry.Name())) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(r.folder, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%s  %s\n", checksum(content), entry.Name())
	}
	return r.save(checksums, []byte(lines.String()))
}

func (r release) save(name string, content []byte) error {
	return os.WriteFile(filepath.Join(r.folder, name), content, 0o644)
}

func checksum(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// release has the versions of the programs, and their addresses.
type release struct {
	kubernetes, etcd, arch string
	kubernetesURL, etcdURL string
}

// program is one program of a release.
type program struct {
	name string
	// url is the program, or a compressed archive with it.
	url string
	// sums is the file with its checksum: alone, or in a list of names.
	sums string
}

// programs are the programs of a control plane, the largest first.
func (r release) programs() (all []program) {
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"} {
		url := fmt.Sprintf("%s/%s/bin/linux/%s/%s", r.kubernetesURL, r.kubernetes, r.arch, name)
		all = append(all, program{name, url, url + ".sha256"})
	}
	folder := r.etcdURL + "/" + r.etcd
	return append(all, program{"etcd", fmt.Sprintf("%s/etcd-%s-linux-%s.tar.gz", folder, r.etcd, r.arch), folder + "/SHA256SUMS"})
}

// fetcher downloads programs.
type fetcher struct {
	// answerWithin is the longest time until the server answers, and stallsAfter until it sends more.
	answerWithin, stallsAfter time.Duration
	progress                  io.Writer
}

// fetch puts a program into the folder, unless it is there: each is checked before it gets its name.
func (f fetcher) fetch(ctx context.Context, p program, folder string) error {
	target := filepath.Join(folder, p.name)
	if _, err := os.Stat(target); err == nil {
		return nil
	}
	want, err := f.checksum(ctx, p)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(folder, "."+p.name+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // which is gone after the rename
	defer file.Close()
	hash := sha256.New()
	if err := f.get(ctx, p.url, p.name, io.MultiWriter(file, hash)); err != nil {
		return err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != want {
		return fmt.Errorf("%s has the checksum %s, and %s in its release", p.url, got, want)
	}
	if strings.HasSuffix(p.url, ".tar.gz") {
		if file, err = extracted(file, p.name, folder); err != nil {
			return fmt.Errorf("%s: %w", p.url, err)
		}
		defer os.Remove(file.Name())
		defer file.Close()
	}
	if err := errors.Join(file.Chmod(0o755), file.Close()); err != nil { // before the rename: a program that is open for writing cannot start
		return err
	}
	return os.Rename(file.Name(), target)
}

// checksum is the SHA-256 checksum that the release publishes.
func (f fetcher) checksum(ctx context.Context, p program) (string, error) {
	var text strings.Builder
	if err := f.get(ctx, p.sums, "", &text); err != nil {
		return "", err
	}
	name := path.Base(p.url)
	for line := range strings.Lines(text.String()) {
		if words := strings.Fields(line); len(words) == 1 || len(words) == 2 && words[1] == name {
			return words[0], nil
		}
	}
	return "", fmt.Errorf("%s has no checksum of %s", p.sums, name)
}

// get copies a file of the server, and reports the progress of a file with a name.
func (f fetcher) get(ctx context.Context, url, name string, to io.Writer) error {
	asked := ctx
	ctx, cancel := context.WithCancel(asked)
	defer cancel()
	silence := time.AfterFunc(f.answerWithin, cancel)
	defer silence.Stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	switch {
	case asked.Err() != nil:
		return asked.Err()
	case ctx.Err() != nil:
		return fmt.Errorf("no answer in %s from %s", f.answerWithin, url)
	case err != nil:
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, answer.Status)
	}
	body := &transfer{Reader: answer.Body, name: name, total: answer.ContentLength, to: f.progress, last: time.Now(), received: func() { silence.Reset(f.stallsAfter) }}
	switch _, err := io.Copy(to, body); {
	case asked.Err() != nil:
		return asked.Err()
	case ctx.Err() != nil:
		return fmt.Errorf("%s has sent nothing for %s", url, f.stallsAfter)
	case err != nil:
		return fmt.Errorf("%s: %w", url, err)
	}
	return nil
}

// transfer is a file that arrives.
type transfer struct {
	io.Reader

	name        string
	done, total int64
	to          io.Writer
	last        time.Time // of the last line
	received    func()
}

// Read implements io.Reader.
func (t *transfer) Read(b []byte) (int, error) {
	n, err := t.Reader.Read(b)
	t.received()
	t.done += int64(n)
	if now := time.Now(); t.name != "" && (now.Sub(t.last) >= 2*time.Second || err == io.EOF) {
		t.last = now
		fmt.Fprintf(t.to, "localcluster: %s, %d of %d MB\n", t.name, t.done>>20, max(t.done, t.total)>>20)
	}
	return n, err
}

// extracted is the program of that name in a compressed archive, as a new file.
func extracted(archive *os.File, name, folder string) (*os.File, error) {
	if _, err := archive.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	unzipped, err := gzip.NewReader(archive)
	if err != nil {
		return nil, err
	}
	members := tar.NewReader(unzipped)
	for {
		member, err := members.Next()
		if err != nil {
			return nil, fmt.Errorf("looking for %s: %w", name, err)
		}
		if member.Typeflag != tar.TypeReg || path.Base(member.Name) != name {
			continue
		}
		out, err := os.CreateTemp(folder, "."+name+"-*")
		if err != nil {
			return nil, err
		}
		if _, err := io.Copy(out, members); err != nil { //nolint:gosec // its checksum is right
			return nil, errors.Join(err, out.Close(), os.Remove(out.Name()))
		}
		return out, nil
	}
}

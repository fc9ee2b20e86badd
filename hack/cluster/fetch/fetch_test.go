// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// archive is a compressed archive with the program etcd.
func archive(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	members := tar.NewWriter(zipped)
	for _, name := range []string{"etcd-v3/README.md", "etcd-v3/etcd"} {
		text := "program " + filepath.Base(name)
		if err := members.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(members, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := members.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// published serves a release as its hosts do, but for what change does: it returns true once it has answered.
func published(t *testing.T, change func(w http.ResponseWriter, r *http.Request) bool) (release, *int) {
	t.Helper()
	files := map[string][]byte{"/etcd/v3/etcd-v3-linux-amd64.tar.gz": archive(t)}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"} {
		at := "/kubernetes/v1/bin/linux/amd64/" + name
		files[at] = []byte("program " + name)
		files[at+".sha256"] = fmt.Appendf(nil, "%x", sha256.Sum256(files[at]))
	}
	files["/etcd/v3/SHA256SUMS"] = fmt.Appendf(nil, "%x  another.zip\n%x  etcd-v3-linux-amd64.tar.gz\n", 1, sha256.Sum256(archive(t)))
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		content, ok := files[r.URL.Path]
		switch {
		case change != nil && change(w, r):
		case !ok:
			http.NotFound(w, r)
		default:
			_, _ = w.Write(content)
		}
	}))
	t.Cleanup(server.Close)
	return release{"v1", "v3", "amd64", server.URL + "/kubernetes", server.URL + "/etcd"}, &requests
}

// patient waits longer than any test runs.
var patient = fetcher{answerWithin: time.Hour, stallsAfter: time.Hour, progress: io.Discard}

func TestProgramsAreFetchedOnce(t *testing.T) {
	r, requests := published(t, nil)
	cache := t.TempDir()
	folder, err := run(t.Context(), patient, r, cache)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.programs() {
		text, err := os.ReadFile(filepath.Join(folder, p.name))
		about, statErr := os.Stat(filepath.Join(folder, p.name))
		if err != nil || statErr != nil || string(text) != "program "+p.name || about.Mode() != 0o755 {
			t.Errorf("%s is %q, %v: %v, %v", p.name, text, about.Mode(), err, statErr)
		}
	}
	first := *requests
	if _, err := run(t.Context(), patient, r, cache); err != nil || *requests != first {
		t.Errorf("%d requests, and then %d: %v", first, *requests, err)
	}
	if files, err := os.ReadDir(folder); err != nil || len(files) != 5 {
		t.Errorf("the folder has %d files: %v", len(files), err)
	}
}

// A program that cannot be had, or has another checksum, is an error, and leaves no file.
func TestWhatIsNotFetched(t *testing.T) {
	only := func(suffix string, does http.HandlerFunc) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, suffix) {
				return false
			}
			does(w, r)
			return true
		}
	}
	untilTheClientLeaves := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	impatient := patient
	impatient.answerWithin, impatient.stallsAfter = time.Millisecond, time.Millisecond
	stalling := patient
	stalling.stallsAfter = time.Millisecond
	for name, tc := range map[string]struct {
		by     fetcher
		change func(http.ResponseWriter, *http.Request) bool
		want   string
	}{
		"another program":   {patient, only("/kubectl", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "else") }), "kubectl: "},
		"another checksum":  {patient, only("/kubectl.sha256", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "0") }), "and 0 in its release"},
		"no checksum of it": {patient, only("/SHA256SUMS", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "1  else.tar.gz") }), "has no checksum of etcd-v3-linux-amd64.tar.gz"},
		"part of a program": {patient, only("/kubectl", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "99")
			fmt.Fprint(w, "prog")
		}), "unexpected EOF"},
		"no such release":     {patient, only("", http.NotFound), "404 Not Found"},
		"a server with a bug": {patient, only("/kubectl", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }), "500"},
		"no answer":           {impatient, only("", untilTheClientLeaves), "no answer in 1ms"},
		"a transfer that stalls": {stalling, only("/kube-apiserver", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "99")
			fmt.Fprint(w, "prog")
			w.(http.Flusher).Flush()
			untilTheClientLeaves(w, r)
		}), "has sent nothing for 1ms"},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := published(t, tc.change)
			cache := t.TempDir()
			_, err := run(t.Context(), tc.by, r, cache)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("run() = %v, want %q", err, tc.want)
			}
			left, err := filepath.Glob(filepath.Join(cache, "*", ".*"))
			if err != nil || len(left) > 0 {
				t.Errorf("left are %q, %v", left, err)
			}
		})
	}
	t.Run("no server", func(t *testing.T) {
		r, _ := published(t, nil)
		r.kubernetesURL = "http://127.0.0.1:1"
		if _, err := run(t.Context(), patient, r, t.TempDir()); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("run() = %v", err)
		}
	})
}

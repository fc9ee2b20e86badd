// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	testclock "k8s.io/utils/clock/testing"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// words are the lines' words: the width of columns does not matter here.
func words(text string) (lines []string) {
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

// Only what has changed is shown again.
func TestStatusFollows(t *testing.T) {
	server := newAPIServer(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	clock := testclock.NewFakeClock(time.Unix(1767225600, 0))
	lines := make(chan string, 100)
	root, cluster := newRoot(genericiooptions.IOStreams{Out: writer(func(p []byte) {
		for _, line := range words(string(p)) {
			lines <- line
		}
	}), ErrOut: &bytes.Buffer{}})
	cluster.Clock = clock
	root.SetArgs([]string{"status", "-o=wide", "--no-headers", "--watch"})
	done := make(chan error)
	go func() { done <- root.ExecuteContext(ctx) }()
	for _, want := range []string{"late late InPlace", "web web InPlace", "", "late late 0/1"} {
		if line := <-lines; !strings.HasPrefix(line, want) {
			t.Fatalf("%q, want %q", line, want)
		}
	}
	for !clock.HasWaiters() {
		runtime.Gosched()
	}
	scans := ours + "/namespaces/shop/scaleddeployments"
	for server.count(scans) < 3 { // it looks twice more, and shows nothing
		clock.Step(2 * time.Second)
		select {
		case line := <-lines:
			t.Fatalf("shown again: %s", line)
		case err := <-done:
			t.Fatalf("it has ended: %v", err)
		default:
			runtime.Gosched()
		}
	}
	server.edit("web", func(s *v1beta1.VerticalScaler) { s.ResourceVersion, s.Status.Summary.CPU = "2", "230m->300m" })
	for len(lines) == 0 {
		clock.Step(2 * time.Second)
		runtime.Gosched()
	}
	if line := <-lines; !strings.HasPrefix(line, "web web InPlace 230m->300m") {
		t.Errorf("%q", line)
	}
	stop()
	must.Succeed(t, <-done)
}

// writer is a writer that hands on what it is given.
type writer func(p []byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

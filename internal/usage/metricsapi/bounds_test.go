// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
)

// responder answers with bodies that are made as they are read, and so take no memory.
type responder func() io.Reader

func (r responder) RoundTrip(request *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Request: request,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: bodyOf(r()),
	}, nil
}

func bodyOf(r io.Reader) io.ReadCloser {
	if body, ok := r.(io.ReadCloser); ok {
		return body
	}
	return io.NopCloser(r)
}

// repeated is the text again and again, between a head and a tail, about as long as the size.
func repeated(head, text, tail string, size int) io.Reader {
	n := (size - len(head) - len(tail)) / len(text)
	chunk := strings.Repeat(text, 1+(64<<10)/len(text))
	whole := len(text) * n
	readers := []io.Reader{strings.NewReader(head)}
	for ; whole > len(chunk); whole -= len(chunk) {
		readers = append(readers, strings.NewReader(chunk))
	}
	return io.MultiReader(append(readers, strings.NewReader(chunk[:whole]), strings.NewReader(strings.TrimPrefix(tail, ",")))...)
}

func sourceOf(t *testing.T, r responder) *Source {
	t.Helper()
	s, err := New(&rest.Config{Host: "http://metrics.test", Transport: r})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// counted notes how many bodies have been read beyond the small part, and are not closed, at one
// time.
type counted struct {
	io.Reader
	read     int
	now, top *atomic.Int64
	large    bool
}

func (c *counted) Read(p []byte) (int, error) {
	if c.read > maxSmall+1 && !c.large {
		c.large = true
		now := c.now.Add(1)
		for top := c.top.Load(); now > top && !c.top.CompareAndSwap(top, now); top = c.top.Load() {
		}
	}
	n, err := c.Reader.Read(p)
	c.read += n
	return n, err
}

func (c *counted) Close() error {
	if c.large {
		c.now.Add(-1)
	}
	return nil
}

func TestOneLargeResponseIsReadAtATime(t *testing.T) {
	var now, top atomic.Int64
	s := sourceOf(t, func() io.Reader {
		return &counted{Reader: repeated(`{"kind":"PodMetricsList","items":[`, `{"metadata":{"namespace":"shop"}},`, `,{}]}`, 4<<20), now: &now, top: &top}
	})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, _, err := s.List(t.Context(), "shop", noon); !errors.Is(err, errTooMany) {
				t.Errorf("List() = %v", err)
			}
		})
	}
	all.Wait()
	if got := top.Load(); got != 1 {
		t.Errorf("%d large responses were read at once", got)
	}
}

// A response that waits for its turn gives up at its deadline.
func TestALargeResponseWaitsNoLongerThanItsDeadline(t *testing.T) {
	s := sourceOf(t, func() io.Reader { return repeated(`{"items":[`, "1,", "1]}", 2<<20) })
	if err := s.large.Acquire(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	s.timeout = 1
	if _, _, err := s.List(t.Context(), "shop", noon); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("List() = %v", err)
	}
}

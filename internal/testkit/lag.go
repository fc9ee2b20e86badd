// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// delayWatches makes all watch events arrive late at a client: by a third of the lag, two thirds, or all of
// it, depending on the kind. Answers to other requests are not delayed, so the client's cache is older than
// what it has written.
func delayWatches(config *rest.Config, lag time.Duration) {
	if lag > 0 {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return lagging{next, lag} })
	}
}

type lagging struct {
	next http.RoundTripper
	lag  time.Duration
}

// RoundTrip implements http.RoundTripper.
func (l lagging) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusOK || request.URL.Query().Get("watch") == "" {
		return response, err
	}
	share := time.Duration(1 + hashOf(request.URL.Path)%3)
	response.Body = newDelayedBody(response.Body, l.lag*share/3)
	return response, nil
}

// delayedBody is a body of which each part is readable only some time after it has arrived.
type delayedBody struct {
	parts  chan part
	closed chan struct{}
	part   part // the one that is being read
	close  func() error
}

// part is a part of a body; or, with an error, its end.
type part struct {
	content []byte
	err     error
	due     time.Time
}

func newDelayedBody(body io.ReadCloser, lag time.Duration) *delayedBody {
	// Events that arrive while the buffer is full wait in the connection.
	b := &delayedBody{parts: make(chan part, 1024), closed: make(chan struct{})}
	b.close = sync.OnceValue(func() error {
		close(b.closed)
		return body.Close()
	})
	go func() {
		for {
			buffer := make([]byte, 16<<10)
			n, err := body.Read(buffer)
			select {
			case b.parts <- part{buffer[:n], err, time.Now().Add(lag)}:
			case <-b.closed:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return b
}

// Read implements io.Reader.
func (b *delayedBody) Read(to []byte) (int, error) {
	for len(b.part.content) == 0 {
		if b.part.err != nil {
			return 0, b.part.err
		}
		select {
		case b.part = <-b.parts:
		case <-b.closed:
			return 0, http.ErrBodyReadAfterClose
		}
		select {
		case <-time.After(time.Until(b.part.due)):
		case <-b.closed:
			return 0, http.ErrBodyReadAfterClose
		}
	}
	n := copy(to, b.part.content)
	b.part.content = b.part.content[n:]
	return n, nil
}

// Close implements io.Closer.
func (b *delayedBody) Close() error { return b.close() }

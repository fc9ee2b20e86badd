// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
)

const (
	// DefaultMaxBytes is the largest response. metrics-server takes about 350 bytes for a pod with
	// one container, plus its labels: this is a namespace of tens of thousands of pods. Kubernetes is
	// tested with 3,000 (https://github.com/kubernetes/community/blob/main/sig-scalability/configs-and-limits/thresholds.md).
	DefaultMaxBytes = 32 << 20

	// maxSmall is the largest response that is read beside others. It has room for a thousand pods
	// with labels. Of larger responses, one is in memory at a time: with several, a metrics-server
	// that misbehaves would make the operator exceed the memory of its container.
	maxSmall = 1 << 20

	// maxItems is the largest number of containers in a response, valid or not. It bounds what is
	// left of a response after it was decoded, which many namespaces have in memory together.
	maxItems = 100_000

	// maxItem is the largest item of a response. Each of its parts is decoded on its own, and takes
	// up to 20 times its bytes meanwhile.
	maxItem = 256 << 10
)

// errTooMany is the error for a response with more items than any namespace has.
var errTooMany = fmt.Errorf("it has more than %d containers", maxItems)

// turn admits one large response at a time.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// take waits for the turn and returns the function that ends it.
func (t turn) take(ctx context.Context) (end func(), err error) {
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting until another large response is read: %w", ctx.Err())
	}
}

// readBounded reads a response of at most the given size, and waits for the turn before it
// reads more than a small part. The response may be decoded until the caller calls end.
func readBounded(ctx context.Context, stream io.Reader, most int64, large turn) (body []byte, end func(), err error) {
	end = func() {}
	body, err = io.ReadAll(io.LimitReader(stream, min(most, maxSmall)+1))
	if err != nil {
		return nil, nil, err
	}
	if int64(len(body)) <= min(most, maxSmall) {
		return body, end, nil
	}
	if int64(len(body)) <= most {
		if end, err = large.take(ctx); err != nil {
			return nil, nil, err
		}
		rest := io.LimitReader(stream, most+1-int64(len(body)))
		if body, err = io.ReadAll(io.MultiReader(bytes.NewReader(body), rest)); err != nil {
			end()
			return nil, nil, err
		}
	}
	if int64(len(body)) > most {
		end()
		return nil, nil, fmt.Errorf("the response is longer than %d bytes", most)
	}
	return body, end, nil
}

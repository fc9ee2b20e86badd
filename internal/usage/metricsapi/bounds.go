// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsapi

import (
	"bytes"
	"fmt"
	"io"

	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

const (
	// defaultMaxBytes is the largest response. metrics-server takes about 350 bytes for a pod with
	// one container, plus its labels: this is a namespace of tens of thousands of pods. Kubernetes is
	// tested with 3,000 (https://github.com/kubernetes/community/blob/main/sig-scalability/configs-and-limits/thresholds.md).
	defaultMaxBytes = 32 << 20

	// maxSmall is the largest response that is read beside others. It has room for a thousand pods
	// with labels. Of larger responses, one is in memory at a time: with several, a metrics-server
	// that misbehaves would make the operator exceed the memory of its container.
	maxSmall = 1 << 20

	// maxBlank is the most white space in a row. The decoder of the standard library looks at it again with each read.
	maxBlank = 1 << 20

	// maxItems is the largest number of pods and containers in the response of a namespace, valid or not. It
	// bounds what is left of a response after it was decoded, which many namespaces have in memory together.
	maxItems = 100_000

	// maxItemsOfAll is the same for the response of all namespaces, of which there is one at a time.
	maxItemsOfAll = 3 * maxItems
)

// errTooMany is the error for a response with more items than any namespace, or any cluster, has.
var errTooMany = fmt.Errorf("%w: it has too many items", usage.ErrTooLarge)

// bounded reads a response of at most a number of bytes, and waits for the turn before it reads more than a
// small part. A token of the response may be as large as the whole.
type bounded struct {
	stream io.Reader
	most   int64
	// acquire waits until no other large response is read; isLarge is true after it.
	acquire func() error
	isLarge bool

	read  int64
	blank int // the blanks in a row, as far as whole reads have no others
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (n int, err error) {
	if b.read > maxSmall && !b.isLarge {
		if err := b.acquire(); err != nil {
			return 0, fmt.Errorf("waiting until another large response is read: %w", err)
		}
		b.isLarge = true
	}
	if !b.isLarge {
		p = p[:min(int64(len(p)), maxSmall+1-b.read)]
	}
	n, err = b.stream.Read(p)
	if b.read += int64(n); b.read > b.most {
		return 0, fmt.Errorf("%w: it is longer than %d bytes", usage.ErrTooLarge, b.most)
	}
	if len(bytes.TrimLeft(p[:n], " \t\r\n")) == 0 {
		b.blank += n
	} else {
		b.blank = 0
	}
	if b.blank > maxBlank {
		return 0, fmt.Errorf("%w: it has %d blanks in a row", usage.ErrTooLarge, b.blank)
	}
	return n, err
}

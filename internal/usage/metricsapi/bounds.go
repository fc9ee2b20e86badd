// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsapi

import (
	"fmt"
	"io"

	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

const (
	// defaultMaxBytes is the largest response. metrics-server takes about 350 bytes for a pod with
	// one container, plus its labels: this is a namespace of tens of thousands of pods. Kubernetes is
	// tested with 3,000 (https://github.com/kubernetes/community/blob/main/sig-scalability/configs-and-limits/thresholds.md).
	defaultMaxBytes = 32 << 20

	// maxPart is the most bytes that are read for one pod, or for anything beside the pods: several responses are
	// read at once, and each has one part in memory. A pod with a hundred containers takes 15 KiB.
	maxPart = 1 << 20

	// maxItems is the largest number of pods and containers in the response of a namespace, valid or not. It
	// bounds the decoded responses of many namespaces that are in memory together.
	maxItems = 100_000

	// maxItemsOfAll is the same for the response of all namespaces. Only one is read at a time.
	maxItemsOfAll = 3 * maxItems
)

// errTooMany is the error for a response with more items than any namespace, or any cluster, has.
var errTooMany = fmt.Errorf("%w: it has too many items", usage.ErrTooLarge)

// bounded reads a response of at most a number of bytes, in parts.
type bounded struct {
	stream io.Reader
	most   int64
	read   int64
	part   int // the bytes read since the last part ended
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (n int, err error) {
	n, err = b.stream.Read(p[:min(len(p), maxPart)])
	b.read += int64(n)
	switch b.part += n; {
	case b.read > b.most:
		return 0, fmt.Errorf("%w: it is longer than %d bytes", usage.ErrTooLarge, b.most)
	case b.part > maxPart:
		return 0, fmt.Errorf("%w: a part of it is longer than %d bytes", usage.ErrTooLarge, maxPart)
	}
	return n, err
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"crypto/sha256"
	"encoding/json"
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// maxDoubts bounds the writes that are remembered because their reply was lost.
const maxDoubts = 8

// digest identifies a save by all that it says.
type digest [sha256.Size]byte

// saves are what this process has read or written of one checkpoint. Anything else was saved by
// another process. Times do not tell: clocks differ.
type saves struct {
	// known is what was read or written last.
	known digest
	// doubts are writes since then that may have succeeded, although their reply was lost.
	doubts []doubt
}

// doubt is a write that may be stored, and what it leads to.
type doubt struct {
	digest digest
	save   save
}

// know notes what is stored.
func (s *saves) know(spec v1beta1.VerticalScalerCheckpointSpec) {
	s.known, s.doubts = digestOf(spec), nil
}

// doubt notes a write that may be stored.
func (s *saves) doubt(sent digest, of save) {
	of.object = nil
	s.doubts = append(s.doubts, doubt{sent, of})
	if len(s.doubts) > maxDoubts {
		s.doubts = slices.Delete(s.doubts, 0, 1)
	}
}

// has reports whether this process has read or written it.
func (s *saves) has(spec v1beta1.VerticalScalerCheckpointSpec) bool {
	_, isDoubted := s.doubted(spec)
	return isDoubted || digestOf(spec) == s.known
}

// doubted returns the write without a reply that is stored.
func (s *saves) doubted(stored v1beta1.VerticalScalerCheckpointSpec) (save, bool) {
	d := digestOf(stored)
	for _, each := range s.doubts {
		if each.digest == d {
			return each.save, true
		}
	}
	return save{}, false
}

// digestOf is the digest of a save. Labels and annotations are not part of it: a user may set them.
func digestOf(spec v1beta1.VerticalScalerCheckpointSpec) digest {
	data, err := json.Marshal(spec)
	if err != nil {
		panic(err) // a struct of strings, times and bytes
	}
	return sha256.Sum256(data)
}

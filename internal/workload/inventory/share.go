// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// shareInScaler lets the cached scaler share what is equal in many scalers, or several times in one: a sixth of
// its memory. Nobody modifies a cached object, and a read returns a deep copy.
func shareInScaler(vs *v1beta1.VerticalScaler) {
	status := &vs.Status
	for i := range status.Conditions {
		c := &status.Conditions[i]
		common.share(&c.Type)
		common.share(&c.Reason)
		common.share(&c.Message)
		shareWord(&c.Status)
	}
	var amounts quantities
	if status.Recommendation != nil {
		for i := range status.Recommendation.ContainerRecommendations {
			c := &status.Recommendation.ContainerRecommendations[i]
			common.share(&c.ContainerName)
			amounts.share(&c.Target, &c.LowerBound, &c.UpperBound, &c.UncappedTarget)
			for j := range c.Reasons {
				shareWord(&c.Reasons[j].Resource)
				common.share(&c.Reasons[j].Code)
				common.share(&c.Reasons[j].Margin)
			}
		}
	}
	if status.Decision != nil {
		common.share(&status.Decision.Reason)
		for i := range status.Decision.Containers {
			common.share(&status.Decision.Containers[i].ContainerName)
			amounts.share(&status.Decision.Containers[i].Requests)
		}
	}
}

// quantities are those that were seen in one object.
type quantities []*resource.Quantity

// share replaces pointers to equal quantities by the same pointer.
func (q *quantities) share(amounts ...*v1beta1.Amounts) {
	for _, a := range amounts {
		q.shareOne(&a.CPU)
		q.shareOne(&a.Memory)
	}
}

func (q *quantities) shareOne(amount **resource.Quantity) {
	if *amount == nil {
		return
	}
	for _, known := range *q {
		if *known == **amount { // the same digits and format, not only the same value
			*amount = known
			return
		}
	}
	*q = append(*q, *amount)
}

const (
	// mostWords and longestWord bound the memory of what is shared, 1 MiB. What does not fit is not shared.
	mostWords   = 8192
	longestWord = 128
)

// vocabulary has strings that many objects have.
type vocabulary struct {
	mu    sync.Mutex
	known map[string]string
}

// common are the words of all scalers: reasons, messages, names of containers.
var common = vocabulary{known: map[string]string{}}

// share replaces a string by an equal one that is in memory already.
func (w *vocabulary) share(s *string) {
	if *s == "" || len(*s) > longestWord {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if known, ok := w.known[*s]; ok {
		*s = known
	} else if len(w.known) < mostWords {
		w.known[*s] = *s
	}
}

// shareWord does the same for a string type.
func shareWord[S ~string](s *S) {
	text := string(*s)
	common.share(&text)
	*s = S(text)
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package ensemble

import (
	"hash/fnv"
	"iter"
	"math"
	"slices"
	"time"
)

// open is the current interval.
type open struct {
	pods []pod
	// next is the pod that is expected next: pods usually come in the same order.
	next int
	// age is the observed time since the interval began, recent the same on the time scale of
	// the averaging length.
	age, recent time.Duration
}

// pod is the usage of one pod in the current interval.
type pod struct {
	name   uint64 // hash
	sum    float32
	last   float32
	peak   float32 // the highest sample divided by the limit factor
	count  uint16
	capped capped
}

// capped is the state of a pod whose usage reaches its CPU limit. It outlasts an interval, and is zero while the need is known.
type capped struct {
	// row is the number of samples in a row close to the limit, since the first raise.
	row uint16
	// at is the limit that enough samples have reached, and need the resulting request, in millicores.
	at, need float32
}

const (
	// CappedShare is the share of a limit above which usage may be capped.
	CappedShare = .9
	// cappedSamples is the number of samples in a row that show capped usage, and firstRaise the multiple of that usage that is
	// then requested: noise does not follow it.
	cappedSamples = 2
	firstRaise    = 1.25
	// NextRaise is the requested multiple of usage that has followed the first raise.
	NextRaise = 3
)

func (p *pod) usage() float32 { return max(p.sum/float32(p.count), p.peak) }

// add takes the used share of a pod's limit into account.
func (c *capped) add(usage, factor, limit float32) {
	switch {
	case usage <= limit*CappedShare:
		*c = capped{}
	case limit <= c.at: // the raise is not applied yet
	case c.row+1 < cappedSamples:
		c.row++
	case c.at == 0:
		*c = capped{at: limit, need: firstRaise * usage / factor}
	default: // usage has followed a raise: from now on, each sample counts
		c.at, c.need = limit, NextRaise*usage/factor
	}
}

// add adds a sample of a pod. A sample that covers a whole interval replaces those before it, so
// that a source with the same interval is not averaged twice.
func (o *open) add(s Sample, isWhole bool) {
	p, usage := o.pod(s.Pod), float32(s.Millis)
	if isWhole {
		p.sum, p.count = 0, 0
	}
	if p.count < math.MaxUint16 {
		p.sum += usage
		p.count++
	}
	p.last = usage
	switch factor := max(float32(s.LimitFactor), 1); {
	case s.LimitFactor > 0 && s.LimitMillis > 0:
		p.peak = max(p.peak, usage/(factor*CappedShare))
		p.capped.add(usage, factor, float32(s.LimitMillis))
	case s.LimitFactor > 0:
		p.peak = max(p.peak, usage/factor)
	}
}

// pod finds the pod of a name, or adds it.
func (o *open) pod(name string) *pod {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	key, n := h.Sum64(), len(o.pods)
	for range n {
		p := &o.pods[o.next%n]
		o.next = o.next%n + 1
		if p.name == key {
			return p
		}
	}
	o.pods = append(o.pods, pod{name: key})
	return &o.pods[n]
}

// sampled are the pods with a sample in the interval.
func (o *open) sampled() iter.Seq[*pod] {
	return func(yield func(*pod) bool) {
		for i := range o.pods {
			if o.pods[i].count > 0 && !yield(&o.pods[i]) {
				return
			}
		}
	}
}

// usages are the usage of each pod in the interval, in ascending order.
func (o *open) usages() []float32 {
	list := make([]float32, 0, len(o.pods))
	for p := range o.sampled() {
		list = append(list, p.usage())
	}
	slices.Sort(list)
	return list
}

// isUrgent reports whether the mean of the pods is certain to exceed a level at the end of the
// interval, and exceeds it now.
func (o *open) isUrgent(mean, level float32) bool {
	if o.recent < urgentAge {
		return false
	}
	last, n := float32(0), float32(0)
	for p := range o.sampled() {
		last, n = last+p.last, n+1
	}
	return min(mean, last/n)*float32(o.recent)/float32(interval) > level
}

// cappedNeed is the mean request of the pods that shows their need; 0 unless the limit caps half of them now.
func (o *open) cappedNeed() float32 {
	sum, reached, n := float32(0), 0, 0
	for p := range o.sampled() {
		if p.capped.need > 0 {
			reached++
		}
		sum, n = sum+max(p.usage(), p.capped.need), n+1
	}
	if reached == 0 || 2*reached < n {
		return 0
	}
	return sum / float32(n)
}

// reset begins a new interval. It keeps pods that are close to their limits, and no more memory than twice the pods need.
func (o *open) reset() {
	pods := o.pods[:0]
	if cap(pods) > 2*len(o.pods) {
		pods = nil
	}
	for p := range o.sampled() {
		if p.capped != (capped{}) {
			pods = append(pods, pod{name: p.name, capped: p.capped})
		}
	}
	*o = open{pods: pods}
}

func meanOf(all []float32) float32 {
	if len(all) == 0 {
		return 0
	}
	sum := float32(0)
	for _, u := range all {
		sum += u
	}
	return sum / float32(len(all))
}

const (
	// groups is the largest number of amounts that a candidate is charged for.
	groups = 8
	// hotFactor is the multiple of the others' mean usage that makes a pod hot.
	hotFactor = 2
	// hotIntervals is the number of such intervals in a row.
	hotIntervals = 3

	spreads    = 4
	spreadSpan = 8 * time.Hour
)

// charged is a part of the pods.
type charged struct {
	usage float32
	// weight is its share of the pods.
	weight float32
	// worth is the share of the prices that lacking CPU costs it.
	worth float32
}

// charged are the pods' usages in at most groups parts of about the same size. The charge of a
// level for the mean of a part is that for the part itself, unless the level lies within it.
func (c *CPU) charged(all []float32) []charged {
	n := min(len(all), groups)
	out := make([]charged, n)
	usual := c.mean * burstFactor
	for i := range out {
		from, to := i*len(all)/n, (i+1)*len(all)/n
		out[i] = charged{usage: meanOf(all[from:to]), weight: float32(to-from) / float32(len(all)), worth: 1}
		if out[i].usage > usual {
			out[i].worth = usual / out[i].usage
		}
	}
	return out
}

// spread is the usage of some pods relative to the mean of all pods, averaged over about eight
// hours. It has the mean itself, the quantiles 0.7 and 0.85, and the highest pod. A candidate with
// a larger margin covers more of the pods.
type spread [spreads]float32

var (
	even      = spread{1, 1, 1, 1}
	quantiles = [spreads]float64{0, .7, .85, 1} // the first is the mean
)

// learn adds an interval. observed is the length of the history with it.
func (s *spread) learn(all []float32, mean float32, age, observed time.Duration) {
	if mean <= 0 {
		return
	}
	share := 1 - math.Exp(-float64(age)/float64(spreadSpan))
	if observed > 0 {
		share = min(max(share, float64(age)/float64(observed)), 1) // a plain mean at first
	}
	for i := 1; i < spreads; i++ {
		s[i] += (quantile(all, quantiles[i])/mean - s[i]) * float32(share)
	}
}

// quantile interpolates between the two nearest of the amounts, which are in ascending order.
func quantile(all []float32, q float64) float32 {
	at := q * float64(len(all)-1)
	low := int(at)
	high := min(low+1, len(all)-1)
	part := float32(at - float64(low))
	return all[low]*(1-part) + all[high]*part
}

// hotUsage is the usage of the highest pod if that is a hot one, otherwise 0.
func hotUsage(all []float32) float32 {
	last := len(all) - 1
	if last < 1 || all[last] <= hotFactor*meanOf(all[:last]) {
		return 0
	}
	return all[last]
}

// hotLevel is the level that a hot pod needs: 0 unless there was one in each of the last intervals.
// A pod with permanently more load than the others, such as a busy shard, must not starve because
// it is one among many.
func (c *CPU) hotLevel() float32 {
	if slices.Min(c.hot[:]) == 0 {
		return 0
	}
	return slices.Max(c.hot[:])
}

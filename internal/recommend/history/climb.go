// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"hash/fnv"
	"time"
)

// A raise of memory is an experiment. It did not help if the container is killed again at the size after the raise, or
// if usage grows to the same share of the new limit. A climb is a row of such raises, within one memory window. It ends:
//
//   - After two raises that did not stop the kills, the next one goes to the most that is allowed. If that does
//     not help either, the container gets the request from before the climb, or the template's if that is more. It
//     is broken, and no size repairs it.
//   - After two raises by half or more that usage has followed, the request stays: a heap, a cache or a pool is sized
//     from the limit. A kill refutes that.
//
// A raise up to the size in the template is none: the user has asked for it. A climb that has ended is tried again after
// a memory window of observed time, or when a user edits the scaler.
type climb struct {
	// request is the request before the first raise, or at the end of the climb.
	request int64
	// at is the observed time when the climb has ended, or when a pod last had limit.
	at time.Duration

	// limit is the largest limit since the last raise by half, from the limit at that raise, and used the highest usage since.
	limit, from, used int64
	// perMille is the share of the limit that was used before that raise; 0 if that is not compared.
	perMille uint32
	state    uint32
}

// The states of a climb.
const (
	goesOn       uint32 = iota
	followedOnce        // it continues, and usage has followed the raise before
	didNotHelp          // it has ended, because kills did not stop
	isFollowed          // it has ended, because usage has followed twice
)

const (
	// leastShare is the least share of a limit, in thousandths, whose use is evidence: below it, the limit is not the cause.
	leastShare = 500
	// oldLimit is the time without a pod of the largest limit until a lower one counts.
	oldLimit = time.Hour
)

func (c climb) hasEnded() bool { return c.state >= didNotHelp }

// ClimbEnd is the request, in bytes, at which a climb has ended, and whether usage has followed the limit; else
// kills did not stop. It is 0 while no climb has ended.
func (c *Container) ClimbEnd(p Params) (request int64, byUsage bool) {
	if !c.climb.hasEnded() || c.observed-c.climb.at >= p.MemoryWindow {
		return 0, false
	}
	return c.climb.request, c.climb.state == isFollowed
}

// ForgetClimb lets memory be raised again after a climb has ended.
func (c *Container) ForgetClimb() { c.climb, c.oom.row = climb{}, 0 }

// endClimb ends the climb at a request.
func (c *Container) endClimb(request int64, why uint32) {
	c.climb = climb{request: request, at: c.observed, state: why}
}

// useLimit takes the used share of a container's memory limit into account.
func (c *Container) useLimit(used, limit, request int64, p Params) {
	if end, _ := c.ClimbEnd(p); limit <= 0 || request <= 0 || end > 0 {
		return
	}
	if c.climb.hasEnded() { // long ago
		c.ForgetClimb()
	}
	if limit < c.climb.limit-c.climb.limit/3 {
		if c.observed-c.climb.at < oldLimit {
			return // a pod that is not raised yet
		}
		c.climb.forgetUsage()
	}
	c.climb.at = c.observed
	if c.climb.use(used, limit); c.climb.state == isFollowed {
		c.endClimb(request, isFollowed)
	}
}

// forgetUsage forgets how usage has followed the limit.
func (c *climb) forgetUsage() { *c = climb{request: c.request} }

func (c *climb) use(used, limit int64) {
	switch {
	case c.limit == 0:
		c.from = limit
	case limit >= c.from+c.from/2:
		if c.perMille > 0 {
			c.state = goesOn // usage has not followed the raise before
		}
		if c.perMille = perMille(c.used, c.limit); c.perMille < leastShare {
			c.perMille = 0
		}
		c.limit, c.from, c.used = limit, limit, 0
	}
	c.limit, c.used = max(c.limit, limit), max(c.used, used)
	if c.perMille == 0 || perMille(c.used, c.limit) < c.perMille*9/10 {
		return
	}
	c.perMille = 0
	if c.state == followedOnce {
		c.state = isFollowed
	} else {
		c.state = followedOnce
	}
}

func perMille(part, of int64) uint32 { return uint32(min(part, of) * 1000 / of) }

// hashOf is a hash of a name that is the same in each process, and not 0.
func hashOf(name string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(name))
	return max(h.Sum32(), 1)
}

// sharedNeed is the need of all pods that usage of one pod shows. One pod of many that was killed has raised the
// others to the floor, and raises them no further.
func (c *Container) sharedNeed(pod string, bytes int64) int64 {
	if c.oom.by != 0 && c.oom.need > 0 && c.oom.by == hashOf(pod) {
		return min(bytes, c.oom.need)
	}
	return bytes
}

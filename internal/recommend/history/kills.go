// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// Kill is one OOM kill of the container in one pod.
type Kill struct {
	// At is the time of the kill, by the clock of its node.
	At time.Time
	// HitBytes is the memory limit that was hit in bytes, or the request without a limit; 0 if
	// unknown.
	HitBytes int64
	// Pod is the UID of the pod, and Termination the number of the container's termination in
	// it: its restart count once it has been restarted. Together they identify the kill.
	// Without a Pod, At does.
	Pod         string
	Termination int32
	// Name is the name of the pod, and Pods the number of running pods, to find an outlier; 0 if unknown.
	Name string
	Pods int
	// Request is the container's request, in bytes. TemplateRequest is the user's request, and TemplateSize the
	// size that a kill hits then: the limit, or else the request. MostBytes is the largest request allowed. All are
	// 0 if unknown.
	Request, TemplateRequest, TemplateSize, MostBytes int64
}

const (
	// recently is the largest age of a kill that counts as current. The kubelet waits for at most five minutes
	// before it restarts a container.
	recently = time.Hour

	// lastRaise is the row in which the largest allowed size is tried, after two raises that did not help.
	lastRaise = 2

	// fewPods is the number of pods that is too small for an outlier: half of them is not chance.
	fewPods = 2

	// shortHistory is the observed time below which usage may as well be far above the observed
	// one.
	shortHistory = 24 * time.Hour

	// lasting is the percentage by which the remembered floor exceeds the proven need: the next
	// time is not quite like the last one.
	lasting = 5

	// rememberedFor is the number of memory windows for which the need of a killed container is
	// remembered. The default is 36 days, so that a monthly batch is killed in its first month only.
	rememberedFor = 4.5

	// usedAgain is the percentage of the remembered need from which on usage shows it again.
	usedAgain = 90
)

var (
	// steps are the percentages by which the floor rises with the first, second and each later kill
	// in a row. Three of them lead from a size to four times that size.
	steps = [...]int64{20, 70, 100}

	// shortSteps are the same for a short history.
	shortSteps = [...]int64{100, 140, 200}
)

// oomFloor is the memory below which the container is known to be OOM-killed.
type oomFloor struct {
	bytes int64         // the floor after the newest kill, if any
	set   time.Duration // observed time when it was raised
	kill  int64         // time of the newest kill in ns since 1970, at most when it was counted; 0 without one

	// need is the most memory that the container was shown to need since its first kill: sizes
	// that were hit, and usage. It was last shown that much observed time after set.
	need  int64
	shown time.Duration
	from  int64 // the insufficient size at the newest step in the row

	row     uint32 // the step of the newest kill in steps: the number of raises that did not help
	counted countedKills
	// by is the pod of many that has led to the newest step: a hash of its name, or 0.
	by uint32
}

// use takes usage of a container that was killed into account.
func (f *oomFloor) use(bytes int64, observed time.Duration) {
	if f.need == 0 || bytes < f.need/100*usedAgain {
		return
	}
	f.need, f.shown = max(f.need, bytes), observed-f.set
}

// RecordOOM is RecordKill for kills of one pod, by the clock of its samples.
func (c *Container) RecordOOM(at time.Time, hit int64, p Params) bool {
	return c.RecordKill(Kill{At: at, HitBytes: hit}, at, p)
}

// RecordKill takes an OOM kill of a pod's container into account, and reports whether it counts. A
// kill counts once, even if a pod's status reports it often: see countedKills.
//
// The floor then is a step above the insufficient size. This is the size that was hit, or the peak if that
// was higher (a limit may have been lowered, or the node short of memory). Another kill never lowers it. The
// step is 20 %. It is 70 % and then 100 % for kills at the floor of the kill before, within a memory window:
//
//	hit    1000   1200   2040 MiB
//	floor  1200   2040   4080 MiB, or MostBytes
//
// The first step leads at least to the template's request, and a kill at the template's size begins a row. A kill at
// MostBytes ends the climb: see climb. Of three pods or more, only another pod than the one before moves on in the row.
//
// Other replicas that hit the old size raise nothing. With less than a day of observed usage, the steps
// for kills of the last hour are 100, 140 and 200 %. An unknown size is never invented: the floor is
// then 20 % above the peak.
//
// A kill dated in the future counts as current.
func (c *Container) RecordKill(k Kill, now time.Time, p Params) bool {
	at, reference := nanos(k.At), nanos(now)
	if at == 0 || reference == 0 || !c.oom.counted.add(k, at, reference) {
		return false
	}
	at = min(at, reference)
	before := c.oom.kill
	c.oom.kill = max(at, before)
	c.coverage.beginAgain(KilledForMemory, at)
	switch end, byUsage := c.ClimbEnd(p); {
	case end > 0 && !byUsage:
		return true // no size helps
	case c.climb.hasEnded():
		c.ForgetClimb()
	}
	c.climb.forgetUsage() // a kill shows a need, and no wish
	short := max(min(k.HitBytes, quantity.MaxMemoryBytes), c.Peak())
	follows := before != 0 && max(at-before, before-at) <= int64(p.MemoryWindow)
	isLate := at < before-int64(recently) // It was reported late, and hit a size of before the newest raise.
	isNext := follows && !isLate && short >= c.enough(k, p)
	if isNext && k.Pods > fewPods && c.oom.by == hashOf(k.Name) {
		return true // a size that is enough for the others
	}
	c.moveOn(k, follows, isNext)
	if isNext || !follows {
		c.oom.from = short
	}
	if c.oom.row > lastRaise {
		c.oom.bytes, c.oom.need, c.oom.row = 0, 0, 0
		c.endClimb(c.climb.request, didNotHelp)
		return true
	}
	step := c.stepOf(k, at, reference)
	if isLate {
		step = steps[0]
	}
	floor := min(short+(short*step+99)/100, quantity.MaxMemoryBytes)
	if c.oom.row == lastRaise && k.HitBytes > 0 && !isLate {
		floor = max(floor, k.MostBytes)
	}
	c.oom.bytes = max(floor, k.TemplateRequest, c.OOMFloor(p))
	c.oom.set, c.oom.shown = c.observed, 0
	c.oom.need = max(short, c.oom.need)
	return true
}

// AdoptKills takes over the OOM kills and the pod template of another history of the same container.
func (c *Container) AdoptKills(from *Container) {
	c.oom, c.climb, c.templates = from.oom, from.climb, from.templates
	c.climb.at = max(c.observed-(from.observed-from.climb.at), 0)
	c.oom.set = max(c.observed-(from.observed-from.oom.set), 0)
	c.oom.shown = min(from.oom.shown, c.observed-c.oom.set)
	c.oom.use(c.Peak(), c.observed)
}

// enough is the size that the kill before has led to, as far as it has not faded; a kill there shows that it did not help.
// Usage since then does not count: it may belong to this kill.
func (c *Container) enough(k Kill, p Params) int64 {
	led := min(c.oom.bytes, max(c.faded(p), withLasting(c.oom.from)))
	if k.MostBytes > 0 {
		led = min(led, k.MostBytes)
	}
	return led - led/100 // which may be rounded
}

// moveOn moves on in the row of kills. A kill of an unknown size does not move it.
func (c *Container) moveOn(k Kill, follows, isNext bool) {
	switch {
	case !follows, k.HitBytes > 0 && k.HitBytes <= k.TemplateSize, c.oom.bytes == 0:
		c.oom.row, c.climb.request = 0, max(k.Request, k.TemplateRequest)
	case k.HitBytes <= 0 || !isNext:
		return
	case c.oom.row < lastRaise || k.MostBytes > 0 && c.climb.request > 0:
		c.oom.row++
	}
	c.oom.by = 0
	if k.Pods > fewPods {
		c.oom.by = hashOf(k.Name)
	}
}

// stepOf is the percentage by which the floor rises.
func (c *Container) stepOf(k Kill, at, now int64) int64 {
	switch {
	case k.HitBytes <= 0:
		return steps[0]
	case c.observed < shortHistory && now-at <= int64(recently):
		return shortSteps[c.oom.row]
	}
	return steps[c.oom.row]
}

// OOMFloor is the memory in bytes below which the container is known to be OOM-killed; 0 without a kill. It
// halves with each OOMHalfLife, down to the peak, or to 5 % above the proven need while that is remembered.
// The need is remembered for 4.5 memory windows, 36 days by default, after usage has last come near it.
//
//	1200 MiB, hit 800, peak 900 MiB, half-life 4 d:  1 d → 1009 MiB   2 d → 945 MiB   37 d → 900 MiB
func (c *Container) OOMFloor(p Params) int64 {
	if c.oom.bytes == 0 {
		return 0
	}
	floor := max(c.faded(p), c.Peak())
	if c.observed-c.oom.set-c.oom.shown < time.Duration(rememberedFor*float64(p.MemoryWindow)) {
		floor = max(floor, withLasting(c.oom.need))
	}
	return min(floor, quantity.MaxMemoryBytes)
}

// faded is the rest of the newest floor.
func (c *Container) faded(p Params) int64 {
	return int64(math.Ceil(float64(c.oom.bytes) * math.Exp2(-float64(c.observed-c.oom.set)/float64(p.OOMHalfLife))))
}

func withLasting(bytes int64) int64 { return bytes + bytes*lasting/100 }

// NewestKill is the time of the newest OOM kill that was counted, at most when it was counted; zero
// without one.
func (c *Container) NewestKill() time.Time { return fromNanos(c.oom.kill) }

// countedKills records the counted kills: the newest one by one, and the others up to a time. So a
// kill on a node whose clock is behind counts even after a later one, and a kill on a node whose
// clock is ahead hides no other.
type countedKills struct {
	newest [3]countedKill
	// until is the time in seconds since 1970 until which all kills count as counted, except for
	// pods in newest.
	until uint32
}

// countedKill is a kill that was counted: a hash of its identity, and its date in seconds since 1970,
// rounded up. The zero value is none.
type countedKill struct{ id, at uint32 }

// add notes a kill, dated at, and reports whether it counts. It does not if it was counted before, if
// all kills of its time were, or if it is dated in the future like all that are known.
func (k *countedKills) add(kill Kill, at, now int64) bool {
	one := countedKill{id: identity(kill, at), at: secondsOf(at)}
	oldest := 0
	for i, other := range k.newest {
		if other.id == one.id { // which may be dated otherwise
			return false
		}
		if other.at < k.newest[oldest].at {
			oldest = i
		}
	}
	current := secondsOf(now)
	isAhead := one.at > current
	if !isAhead && one.at <= k.until || isAhead && k.newest[oldest].at > current {
		return false
	}
	if one.at < k.newest[oldest].at {
		k.until = max(k.until, one.at)
		return true
	}
	k.until = max(k.until, k.newest[oldest].at)
	k.newest[oldest] = one
	return true
}

// identity is a hash that is the same in each process.
func identity(kill Kill, at int64) uint32 {
	h := fnv.New32a()
	number := uint64(kill.Termination)
	if kill.Pod == "" {
		number = uint64(at)
	}
	h.Write([]byte(kill.Pod))
	h.Write(binary.LittleEndian.AppendUint64(nil, number))
	return h.Sum32()
}

// secondsOf converts ns since 1970 to seconds, rounded up, at most to the year 2106.
func secondsOf(ns int64) uint32 {
	return uint32(min((ns+int64(time.Second)-1)/int64(time.Second), math.MaxUint32))
}

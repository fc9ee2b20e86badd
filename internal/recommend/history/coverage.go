// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// Goal is the usage that recommendations must cover before they are trusted.
type Goal struct {
	// Time is the observed time for which they must have sufficed.
	Time time.Duration
	// MaxStarvedPercent is the largest share of that time in which pods may have used more CPU than
	// recommended.
	MaxStarvedPercent int
}

// mostStarved is the longest starved time within an observed time.
func (g Goal) mostStarved(observed time.Duration) time.Duration {
	return observed / 100 * time.Duration(min(max(g.MaxStarvedPercent, 0), 100))
}

// Shortfall is the reason why a recommendation did not suffice.
type Shortfall uint8

const (
	// NoShortfall means that it was enough so far.
	NoShortfall Shortfall = iota
	// ShortOfMemory means that a pod used more memory than was recommended.
	ShortOfMemory
	// ShortOfCPU means that the share of starved time was too large.
	ShortOfCPU
	// KilledForMemory means that a pod was OOM-killed.
	KilledForMemory
	shortfalls
)

// Coverage is the time for which the recommendation would have sufficed.
type Coverage struct {
	// Time is the observed time since it began. Starved is the part of it in which pods used more CPU than
	// recommended, as the mean of the pods: a minute of one in ten pods is six seconds.
	Time, Starved time.Duration
	// Shortfall is the reason of the last restart at 0, and At its time. A shortfall that cost less than a
	// tenth of the goal is not recorded, except for the first one: it may recur often.
	Shortfall Shortfall
	At        time.Time
}

// Reaches reports whether it is enough for a goal.
func (c Coverage) Reaches(g Goal) bool {
	return c.Time >= g.Time && c.Starved <= g.mostStarved(c.Time)
}

// coverage is the state of Coverage. CPU is compared for each interval of the ensemble, by the mean of each pod, and
// memory for each sample.
type coverage struct {
	time, starved time.Duration
	at            int64 // ns since 1970; 0 without a shortfall
	shortfall     Shortfall

	// isRecording is true if there is a goal. The rest is not encoded.
	isRecording bool
	// lacksCPU is true if a sample of Raise showed that CPU is short in the current interval.
	lacksCPU bool
	// recommended is the current recommendation, and least its least CPU in the current interval; 0 means none.
	recommended quantity.Amounts
	least       int64
	goal        Goal
}

// raiseTolerance is the percentage by which a single sample may exceed the recommendation. The ensemble has the same
// for samples of Raise.
const raiseTolerance = 12

// Expect sets the current recommendation and the goal. Amounts of 0 are not compared.
func (c *Container) Expect(recommended quantity.Amounts, goal Goal) {
	v := &c.coverage
	v.least = min(v.least, recommended.CPUMillis)
	if !v.isRecording {
		v.least, v.lacksCPU = recommended.CPUMillis, false
	}
	v.isRecording, v.recommended, v.goal = true, recommended, goal
	v.limitStarved(c.newest)
}

// Pause stops the recording that Expect began. Records stay. The current interval does not count.
func (c *Container) Pause() { c.coverage.isRecording = false }

// DropCoverage forgets the record.
func (c *Container) DropCoverage() { c.coverage = coverage{} }

// Coverage is the time for which the recommendation would have sufficed.
func (c *Container) Coverage() Coverage {
	v := &c.coverage
	return Coverage{Time: v.time, Starved: v.starved, Shortfall: v.shortfall, At: fromNanos(v.at)}
}

// CoverageGoal is the goal of the current recording, if any.
func (c *Container) CoverageGoal() Goal {
	if !c.coverage.isRecording {
		return Goal{}
	}
	return c.coverage.goal
}

// AdoptCoverage takes over the coverage of another history of the same container, unless this one has a later
// shortfall, or the same one and covered time since.
func (c *Container) AdoptCoverage(from *Container) {
	if c.coverage.at > from.coverage.at || c.coverage.at == from.coverage.at && c.coverage.time > 0 {
		return
	}
	c.coverage = from.coverage
	c.coverage.time = min(c.coverage.time, c.observed)
	c.coverage.starved = min(c.coverage.starved, c.coverage.time)
}

// endInterval counts the current interval, if the next sample ends it.
func (c *Container) endInterval() {
	v := &c.coverage
	if !v.isRecording {
		return
	}
	age, above, ok := c.cpu.Complete(v.least)
	if !ok {
		return
	}
	switch {
	case v.lacksCPU:
		above = 1
	case v.least == 0:
		above = 0
	}
	v.time = min(v.time+age, c.observed)
	v.starved = min(v.starved+time.Duration(float64(age)*above), v.time)
	v.lacksCPU, v.least = false, v.recommended.CPUMillis
	v.limitStarved(c.newest)
}

// limitStarved begins again if the starved time is too long for the goal, whatever CPU the rest of that time
// needs.
func (v *coverage) limitStarved(at int64) {
	if v.starved > v.goal.mostStarved(max(v.time, v.goal.Time)) {
		v.beginAgain(ShortOfCPU, at)
	}
}

// useMemory takes a sample of memory into account.
func (v *coverage) useMemory(bytes, at int64) {
	if v.isRecording && v.recommended.MemoryBytes > 0 && bytes > v.recommended.MemoryBytes {
		v.beginAgain(ShortOfMemory, at)
	}
}

// raiseCPU takes a sample of CPU into account that was read while another pod was silent.
func (v *coverage) raiseCPU(millis int64) {
	if v.isRecording && v.recommended.CPUMillis > 0 && millis > v.recommended.CPUMillis+v.recommended.CPUMillis*raiseTolerance/100 {
		v.lacksCPU = true
	}
}

// beginAgain forgets the covered time. It is called for OOM kills even without a recording: they may have happened while
// no process ran.
func (v *coverage) beginAgain(why Shortfall, at int64) {
	if at != 0 && (v.at == 0 || v.time > v.goal.Time/10) {
		v.shortfall, v.at = why, at
	}
	v.time, v.starved = 0, 0
}

// coverageVersion is the version of the encoding of coverage, and its first byte.
const coverageVersion = 1

// MaxEncodedCoverage is the largest encoding of coverage, in bytes.
const MaxEncodedCoverage = 2 + 3*binary.MaxVarintLen64

// EncodeCoverage encodes the coverage; nil if there is none. It is not a part of Encode, so that an older operator can
// still read that. The encoding is the version, the shortfall, and three numbers as varints.
func (c *Container) EncodeCoverage() []byte {
	v := &c.coverage
	if v.time == 0 && v.shortfall == NoShortfall {
		return nil
	}
	b := []byte{coverageVersion, byte(v.shortfall)}
	for _, number := range v.numbers() {
		b = binary.AppendUvarint(b, uint64(*number))
	}
	return b
}

// numbers lists the encoded numbers, in order.
func (v *coverage) numbers() []*int64 {
	return []*int64{(*int64)(&v.time), (*int64)(&v.starved), &v.at}
}

// DecodeCoverage reads an encoded coverage. For any bytes, the result is a valid coverage or an error, after which
// there is no record.
func (c *Container) DecodeCoverage(b []byte) error {
	c.coverage = coverage{}
	if len(b) == 0 {
		return nil
	}
	if len(b) < 2 || b[0] != coverageVersion {
		return fmt.Errorf("%w: no coverage of version %d", ErrEncoding, coverageVersion)
	}
	v := coverage{shortfall: Shortfall(b[1])}
	rest, err := readNumbers(b[2:], v.numbers())
	switch {
	case err != nil:
		return err
	case len(rest) > 0:
		return fmt.Errorf("%w: %d bytes too many", ErrEncoding, len(rest))
	case !v.isPossible(c.observed):
		return fmt.Errorf("%w: values out of range", ErrEncoding)
	}
	c.coverage = v
	return nil
}

// isPossible reports whether samples and kills can lead to this state. The caller has checked that all numbers are at
// least 0.
func (v *coverage) isPossible(observed time.Duration) bool {
	return v.time <= observed && v.starved <= v.time && v.shortfall < shortfalls &&
		v.at == nanos(fromNanos(v.at)) && (v.at == 0) == (v.shortfall == NoShortfall)
}

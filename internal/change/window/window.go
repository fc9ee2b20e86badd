// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package window tells when changes may be made: maintenance windows that open by a
// cron expression in a time zone, and stay open for a while.
//
// It is pure. Its promise: a window that cannot be understood never opens, and what
// does not name a direction does not hold it up.
package window

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"
	_ "time/tzdata" // an image without a zone database must not make every name a wrong one

	"github.com/robfig/cron/v3"
)

// Direction is which way a request moves.
type Direction string

// The directions.
const (
	ScaleUp   Direction = "ScaleUp"
	ScaleDown Direction = "ScaleDown"
)

// Spec is a window as people write it.
type Spec struct {
	// Schedule is a cron expression of five fields: when the window opens.
	Schedule string
	// TimeZone is the IANA name of the zone that the schedule is in; UTC if empty.
	TimeZone string
	// Duration is how long the window stays open, as the clock runs: where a day has 23
	// hours, it closes an hour later by the wall.
	Duration time.Duration
	// Directions are those that the window is for.
	Directions []Direction
}

// Window is when changes in some directions may be made.
type Window struct {
	spec     Spec
	schedule cron.Schedule // nil never opens
}

// Windows are open while one of them is.
type Windows []Window

// fields are five, of numbers, names and signs. The parser would read a time zone and
// words such as @daily too, and end the process over some of them.
var fiveFields = regexp.MustCompile(`^[0-9A-Za-z*?,/-]+( +[0-9A-Za-z*?,/-]+){4}$`)

var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// Parse reads a window. With an error comes one that never opens.
func Parse(spec Spec) (Window, error) {
	w := Window{spec: spec}
	if !fiveFields.MatchString(spec.Schedule) {
		return w, fmt.Errorf("schedule %q is no cron expression of five fields", spec.Schedule)
	}
	parsed, err := parser.Parse(spec.Schedule)
	if err != nil {
		return w, fmt.Errorf("schedule %q: %w", spec.Schedule, err)
	}
	schedule, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return w, fmt.Errorf("schedule %q is no cron expression of five fields", spec.Schedule)
	}
	if spec.TimeZone == "Local" {
		return w, errors.New(`timeZone "Local" is where the operator happens to run: name one`)
	}
	if schedule.Location, err = time.LoadLocation(spec.TimeZone); err != nil {
		return w, fmt.Errorf("timeZone %q is not known", spec.TimeZone)
	}
	if schedule.Next(time.Unix(0, 0)).IsZero() {
		return w, fmt.Errorf("schedule %q names a day that no year has", spec.Schedule)
	}
	w.schedule = schedule
	return w, nil
}

// Equal says whether two windows were written alike.
func (w Window) Equal(other Window) bool {
	return w.spec.Schedule == other.spec.Schedule && w.spec.TimeZone == other.spec.TimeZone &&
		w.spec.Duration == other.spec.Duration && slices.Equal(w.spec.Directions, other.spec.Directions)
}

// isOpen says whether the last opening is less than the duration ago.
func (w Window) isOpen(now time.Time) bool {
	if w.schedule == nil {
		return false
	}
	first := w.schedule.Next(now.Add(-w.spec.Duration))
	return !first.IsZero() && !first.After(now)
}

// Opens says whether changes in a direction may be made now, and else how long it is
// until they may; 0 for never. A direction that no window names is always open.
func (ws Windows) Opens(d Direction, now time.Time) (open bool, in time.Duration) {
	open = true
	for _, w := range ws {
		if !slices.Contains(w.spec.Directions, d) {
			continue
		}
		if w.isOpen(now) {
			return true, 0
		}
		open = false
		if w.schedule == nil {
			continue
		}
		if next := w.schedule.Next(now); !next.IsZero() && (in == 0 || next.Sub(now) < in) {
			in = next.Sub(now)
		}
	}
	return open, in
}

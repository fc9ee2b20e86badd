// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package window implements maintenance windows, which open by a cron expression in a time zone and
// stay open for some time.
//
// It is pure. A window that cannot be parsed never opens. A window applies only to the
// directions that it names.
package window

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"
	_ "time/tzdata" // without it, no zone name is valid in an image without a zone database

	"github.com/robfig/cron/v3"
)

// Direction is the direction of a request's change.
type Direction string

// The directions.
const (
	ScaleUp   Direction = "ScaleUp"
	ScaleDown Direction = "ScaleDown"
)

// Spec is a window as users write it.
type Spec struct {
	// Schedule is a cron expression with five fields: when the window opens. A time that a day does not have, because
	// clocks go forward, is the end of the gap. A time that a day has twice is the first one.
	Schedule string
	// TimeZone is the IANA name of the zone of the schedule; UTC if empty.
	TimeZone string
	// Duration is the elapsed time for which the window stays open. On a day of 23 hours, it closes
	// an hour later in local time.
	Duration time.Duration
	// Directions are the directions that the window allows.
	Directions []Direction
}

// Window is a time in which changes in some directions may be made.
type Window struct {
	spec     Spec
	schedule cron.Schedule // of wall clocks, which are given as times in UTC; nil never opens
	zone     *time.Location
}

// Windows are open while at least one of them is.
type Windows []Window

// fiveFields matches five fields of numbers, names and signs. The parser also accepts a time zone
// and words such as @daily, and panics on some of them.
var fiveFields = regexp.MustCompile(`^[0-9A-Za-z*?,/-]+( +[0-9A-Za-z*?,/-]+){4}$`)

var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// Parse parses a window. With an error it returns a window that never opens.
func Parse(spec Spec) (Window, error) {
	w := Window{spec: spec}
	if !fiveFields.MatchString(spec.Schedule) {
		return w, fmt.Errorf("schedule %q is not a cron expression with five fields", spec.Schedule)
	}
	parsed, err := parser.Parse(spec.Schedule)
	if err != nil {
		return w, fmt.Errorf("schedule %q: %w", spec.Schedule, err)
	}
	schedule, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return w, fmt.Errorf("schedule %q is not a cron expression with five fields", spec.Schedule)
	}
	if spec.TimeZone == "Local" {
		return w, errors.New(`timeZone "Local" depends on where the operator runs: use an IANA name`)
	}
	schedule.Location = time.UTC
	if w.zone, err = time.LoadLocation(spec.TimeZone); err != nil {
		return w, fmt.Errorf("timeZone %q is not known", spec.TimeZone)
	}
	if schedule.Next(time.Unix(0, 0)).IsZero() {
		return w, fmt.Errorf("schedule %q names a day that no year has", spec.Schedule)
	}
	w.schedule = schedule
	return w, nil
}

// next is the first opening after a time; zero means never.
func (w Window) next(after time.Time) (at time.Time) {
	local := after.In(w.zone)
	wall := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), local.Nanosecond(), time.UTC)
	for !at.After(after) {
		if wall = w.schedule.Next(wall); wall.IsZero() {
			return time.Time{}
		}
		at = w.at(wall)
	}
	return at
}

// at is the moment in which clocks show a time, or skip it.
func (w Window) at(wall time.Time) time.Time {
	at := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), 0, 0, w.zone)
	begin, end := at.ZoneBounds()
	if shown := at.Hour()*60 + at.Minute(); shown != wall.Hour()*60+wall.Minute() || at.Day() != wall.Day() { // skipped
		if _, offset := at.Zone(); at.Add(time.Duration(offset) * time.Second).UTC().Before(wall) {
			return end
		}
		return begin
	}
	if first := begin.Add(-1); !begin.IsZero() {
		_, before := first.Zone()
		_, now := at.Zone()
		if earlier := at.Add(time.Duration(now-before) * time.Second); earlier.Before(begin) && now < before {
			return earlier
		}
	}
	return at
}

// isOpen reports whether the last opening is less than the duration ago.
func (w Window) isOpen(now time.Time) bool {
	if w.schedule == nil {
		return false
	}
	first := w.next(now.Add(-w.spec.Duration))
	return !first.IsZero() && !first.After(now)
}

// Opens reports whether changes in a direction may be made now, and otherwise the time until they
// may; 0 means never. A direction that no window names is always open.
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
		if next := w.next(now); !next.IsZero() && (in == 0 || next.Sub(now) < in) {
			in = next.Sub(now)
		}
	}
	return open, in
}

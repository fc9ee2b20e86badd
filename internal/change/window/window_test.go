// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

var both = []Direction{ScaleUp, ScaleDown}

func at(t *testing.T, s string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, s)
	must.Succeed(t, err)
	return v
}

func parsed(t *testing.T, specs ...Spec) (ws Windows) {
	t.Helper()
	for _, spec := range specs {
		w, err := Parse(spec)
		must.Succeed(t, err)
		ws = append(ws, w)
	}
	return ws
}

func TestOpens(t *testing.T) {
	const open = "open"
	nightly := Spec{Schedule: "0 2 * * *", TimeZone: "Europe/Berlin", Duration: 2 * time.Hour, Directions: both}
	cases := map[string]struct {
		windows []Spec
		raise   map[string]string // by time: open, or the time until it is
	}{
		"it opens at the minute and closes after its duration": {
			[]Spec{nightly},
			map[string]string{
				"2026-06-10T00:00:00+02:00": "2h0m0s", "2026-06-10T01:59:59+02:00": "1s",
				"2026-06-10T02:00:00+02:00": open, "2026-06-10T03:59:59+02:00": open,
				"2026-06-10T04:00:00+02:00": "22h0m0s",
			},
		},
		"the zone of the given time does not matter": {
			[]Spec{nightly},
			map[string]string{"2026-06-10T00:00:00Z": open, "2026-06-09T19:00:00-04:00": "1h0m0s"},
		},
		"without a zone it is UTC": {
			[]Spec{{Schedule: "0 2 * * *", Duration: time.Hour, Directions: both}},
			map[string]string{"2026-06-10T02:00:00Z": open, "2026-06-10T00:00:00Z": "2h0m0s"},
		},
		"it may last past midnight, for days and past its next opening": {
			[]Spec{{Schedule: "0 22 * * SAT", Duration: 30 * time.Hour, Directions: both}, {Schedule: "0 * * * WED", Duration: 90 * time.Minute, Directions: both}},
			map[string]string{
				"2026-06-14T12:00:00Z": open, "2026-06-15T04:00:00Z": "44h0m0s",
				"2026-06-10T00:30:00Z": open, "2026-06-10T23:59:00Z": open, "2026-06-11T00:29:59Z": open,
			},
		},
		"a skipped time is the end of the gap: in Berlin 2:30 did not exist on 29 March 2026": {
			[]Spec{{Schedule: "30 2 * * *", TimeZone: "Europe/Berlin", Duration: time.Hour, Directions: both}},
			map[string]string{
				"2026-03-29T01:59:59+01:00": "1s", "2026-03-29T03:59:59+02:00": open, "2026-03-29T04:00:00+02:00": "22h30m0s", "2026-03-30T02:30:00+02:00": open,
			},
		},
		"a midnight that is skipped": {
			[]Spec{{Schedule: "0 0 * * *", TimeZone: "America/Sao_Paulo", Duration: time.Hour, Directions: both}},
			map[string]string{"2018-11-03T23:59:00-03:00": "1m0s", "2018-11-04T01:30:00-02:00": open},
		},
		"half an hour is skipped": {
			[]Spec{{Schedule: "15 2 * * *", TimeZone: "Australia/Lord_Howe", Duration: time.Hour, Directions: both}},
			map[string]string{"2027-10-03T01:59:00+10:30": "1m0s", "2027-10-03T02:30:00+11:00": open},
		},
		"a day that is skipped": {
			[]Spec{{Schedule: "30 9 * * *", TimeZone: "Pacific/Apia", Duration: time.Hour, Directions: both}},
			map[string]string{"2011-12-29T23:59:00-10:00": "1m0s", "2011-12-31T00:59:00+14:00": open, "2011-12-31T01:00:00+14:00": "8h30m0s"},
		},
		"a window over a skipped hour is as long as ever, and so ends later by the wall": {
			[]Spec{{Schedule: "0 1 * * *", TimeZone: "Europe/Berlin", Duration: 2 * time.Hour, Directions: both}},
			map[string]string{"2026-03-29T03:59:59+02:00": open, "2026-03-29T04:00:00+02:00": "21h0m0s"},
		},
		"an hour that comes twice opens once: in New York 1:30 on 1 November 2026": {
			[]Spec{{Schedule: "30 1 * * *", TimeZone: "America/New_York", Duration: 20 * time.Minute, Directions: both}},
			map[string]string{
				"2026-11-01T01:30:00-04:00": open, "2026-11-01T01:50:00-04:00": "24h40m0s",
				"2026-11-01T01:30:00-05:00": "24h0m0s", "2026-11-01T01:50:00-05:00": "23h40m0s",
			},
		},
		"and that is the first time, also east of Greenwich: in Berlin 2:30 on 25 October 2026": {
			[]Spec{{Schedule: "30 2 * * *", TimeZone: "Europe/Berlin", Duration: 20 * time.Minute, Directions: both}},
			map[string]string{"2026-10-25T02:30:00+02:00": open, "2026-10-25T02:30:00+01:00": "24h0m0s"},
		},
		"the hour before a change of the clocks is the hour that it is called": {
			[]Spec{{Schedule: "0 9 * * *", TimeZone: "Europe/Berlin", Duration: time.Hour, Directions: both}},
			map[string]string{"2026-03-28T08:00:00Z": open, "2026-03-29T08:00:00Z": "23h0m0s", "2026-03-29T07:00:00Z": open},
		},
		"a day that is there every four years": {
			[]Spec{{Schedule: "0 0 29 2 *", Duration: time.Hour, Directions: both}},
			map[string]string{"2028-02-29T00:30:00Z": open, "2028-02-28T00:00:00Z": "24h0m0s"},
		},
		"a direction that no window names is always open": {
			[]Spec{{Schedule: "0 2 * * *", Duration: time.Hour, Directions: []Direction{ScaleDown}}},
			map[string]string{"2026-06-10T12:00:00Z": open},
		},
		"without windows it is always open": {nil, map[string]string{"2026-06-10T12:00:00Z": open}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ws := parsed(t, tc.windows...)
			for when, want := range tc.raise {
				isOpen, in := ws.Opens(ScaleUp, at(t, when))
				got := in.String()
				if isOpen {
					got = open
				}
				if got != want {
					t.Errorf("at %s: %s, want %s", when, got, want)
				}
			}
		})
	}
}

// A daily window opens once on each day of its zone, also when clocks change.
func TestADailyWindowOpensOnEachDay(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "America/Sao_Paulo", "America/Havana", "Asia/Beirut", "Africa/Cairo", "Australia/Lord_Howe"} {
		for _, schedule := range []string{"0 0 * * *", "30 1 * * *", "15 2 * * *", "0 3 * * *"} {
			w := parsed(t, Spec{Schedule: schedule, TimeZone: zone, Duration: time.Minute})[0]
			day := time.Date(2017, 12, 31, 0, 0, 0, 0, time.UTC)
			for opens := day.AddDate(0, 0, 1).Add(-14 * time.Hour); day.Year() < 2030; {
				opens = w.next(opens)
				day = day.AddDate(0, 0, 1)
				if got := opens.In(w.zone).Format(time.DateOnly); got != day.Format(time.DateOnly) {
					t.Fatalf("%s in %s opens on %s, and not on %s", schedule, zone, got, day.Format(time.DateOnly))
				}
			}
		}
	}
}

func TestInvalidWindowsNeverOpen(t *testing.T) {
	for name, tc := range map[string]struct {
		schedule, zone, want string
	}{
		"four fields":                  {"0 2 * *", "UTC", "not a cron expression with five fields"},
		"seconds":                      {"0 0 2 * * *", "UTC", "not a cron expression with five fields"},
		"a word as a schedule":         {"@daily", "UTC", "not a cron expression with five fields"},
		"a zone in the schedule":       {"TZ=UTC 0 2 * *", "UTC", "not a cron expression with five fields"},
		"input that panics the parser": {"TZ=", "UTC", "not a cron expression with five fields"},
		"minute 60":                    {"60 * * * *", "UTC", "above maximum"},
		"a name of no day":             {"* * * * FOO", "UTC", "failed to parse"},
		"a reversed range":             {"0 5-2 * * *", "UTC", "beyond end of range"},
		"a day that no year has":       {"0 0 30 2 *", "UTC", "no year has"},
		"an unknown zone":              {"0 2 * * *", "Mars/Olympus", "not known"},
		"a path as a zone":             {"0 2 * * *", "../../etc/passwd", "not known"},
		"the local zone":               {"0 2 * * *", "Local", "depends on where the operator runs"},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := Parse(Spec{Schedule: tc.schedule, TimeZone: tc.zone, Duration: time.Hour, Directions: both})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("Parse() = %v, want %s", err, tc.want)
			}
			for h := range 48 {
				if open, in := (Windows{w}).Opens(ScaleUp, at(t, "2026-06-10T00:00:00Z").Add(time.Duration(h)*time.Hour)); open || in != 0 {
					t.Fatalf("it opens: %t, in %s", open, in)
				}
			}
			// A valid window beside it still opens.
			good := parsed(t, Spec{Schedule: "0 2 * * *", Duration: time.Hour, Directions: both})
			if open, _ := append(good, w).Opens(ScaleUp, at(t, "2026-06-10T02:10:00Z")); !open {
				t.Error("an invalid window closes another")
			}
		})
	}
}

// FuzzParse reads schedules and zones as users may write them. An accepted window answers for every
// time, and predicts its next opening correctly.
func FuzzParse(f *testing.F) {
	f.Add("0 2 * * SAT", "Europe/Berlin", int64(60), int64(1_790_000_000))
	f.Add("*/5 1-5 29 2 *", "UTC", int64(10080), int64(0))
	f.Add("0 0 30 2 *", "", int64(1), int64(1))
	f.Add("TZ=UTC 0 0 * *", "Local", int64(1), int64(1))
	f.Add("0 0 * * ?-/", "../etc/passwd", int64(1), int64(-1))
	f.Add("99999999999999999999 0 * * *", "A\n", int64(1), int64(1))
	r := rand.New(rand.NewPCG(1, 1))
	for _, schedule := range []string{"0 2 * * *", "30 2 * * SUN", "*/17 1,3 * * *", "0 0 1 * *", "59 23 * * 1-5", "15 2 28-31 3,10 *"} {
		for _, zone := range []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Havana", "Pacific/Apia"} {
			for range 50 {
				f.Add(schedule, zone, r.Int64N(1440), 1_735_689_600+r.Int64N(3*365*24*3600))
			}
		}
	}
	f.Fuzz(func(t *testing.T, schedule, zone string, minutes, seconds int64) {
		spec := Spec{Schedule: schedule, TimeZone: zone, Duration: time.Duration(1+uint64(minutes)%10080) * time.Minute, Directions: []Direction{ScaleUp}}
		w, err := Parse(spec)
		now := time.Unix(int64(uint64(seconds)%(1<<32)), 0)
		open, in := Windows{w}.Opens(ScaleUp, now)
		switch {
		case err != nil && (open || in != 0):
			t.Errorf("%+v cannot be parsed, and opens: %t, in %s", spec, open, in)
		case open && in != 0 || in < 0:
			t.Errorf("%+v at %s: open is %t, and it opens in %s", spec, now, open, in)
		case in > 0:
			if open, _ := (Windows{w}).Opens(ScaleUp, now.Add(in)); !open {
				t.Errorf("%+v at %s is not open after %s", spec, now, in)
			}
			if open, _ := (Windows{w}).Opens(ScaleUp, now.Add(in-time.Second)); open {
				t.Errorf("%+v at %s is open before %s have passed", spec, now, in)
			}
		}
		if open, _ := (Windows{w}).Opens(ScaleDown, now); !open {
			t.Errorf("%+v closes a direction that it does not name", spec)
		}
	})
}

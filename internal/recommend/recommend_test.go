// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package recommend

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

const (
	mebi = 1 << 20
	day  = 24 * time.Hour
)

var (
	noon   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	params = DefaultParams()
	policy = Policy{MarginPercent: 15, CPU: true, Memory: true}
)

// load is usage at a minute: CPU in millicores and memory in MiB.
type load func(minute int) (cpuMillis, memoryMiB float64)

func constant(cpuMillis, memoryMiB float64) load {
	return func(int) (float64, float64) { return cpuMillis, memoryMiB }
}

func spikes(minute int) (float64, float64) {
	if minute%60 < 5 {
		return 600, 400
	}
	return 200, 400
}

func noisy(share float64) load {
	r := rand.New(rand.NewPCG(1, 2))
	return func(int) (float64, float64) {
		return 250 * (1 + share*r.NormFloat64()), 400 * (1 + share/4*r.NormFloat64())
	}
}

func sample(minute int, l load) usage.Sample {
	cpu, memory := l(minute)
	return usage.Sample{
		Container: "app", Time: noon.Add(time.Duration(minute) * time.Minute),
		CPUMillis: int64(cpu), MemoryBytes: int64(memory * mebi),
	}
}

// seen makes a history of a load: a sample a minute, for a while.
func seen(length time.Duration, l load) *history.Container {
	h := &history.Container{}
	extend(h, length, l)
	return h
}

// extend goes on where a history ends.
func extend(h *history.Container, length time.Duration, l load) {
	first := 0
	if !h.IsEmpty() {
		first = int(h.NewestSample().Sub(noon)/time.Minute) + 1
		length -= time.Minute
	}
	for m := first; m <= first+int(length/time.Minute); m++ {
		h.Add(sample(m, l), params.History)
	}
}

// killed adds an OOM kill at a limit to a history.
func killed(h *history.Container, after time.Duration, limitMiB int64) *history.Container {
	h.RecordOOM(noon.Add(after), limitMiB*mebi, params.History)
	return h
}

func amounts(cpuMillis, memoryMiB int64) quantity.Amounts {
	return quantity.Amounts{CPUMillis: cpuMillis, MemoryBytes: memoryMiB * mebi}
}

// steady is the answer after 8 days of 200m and 400 MiB.
func steady() *Container {
	return &Container{
		Name:       "app",
		Target:     amounts(234, 460),
		LowerBound: amounts(218, 428),
		UpperBound: amounts(276, 541),
		Uncapped:   amounts(234, 460),
		Observed:   8 * day,
		Reasons: []Reason{
			{"cpu", "Percentile", 203},
			{"cpu", "SafetyMargin", 234},
			{"memory", "Peak", 400 * mebi},
			{"memory", "SafetyMargin", 460 * mebi},
		},
	}
}

func TestFor(t *testing.T) {
	with := func(change func(*Policy)) Policy {
		p := policy
		change(&p)
		return p
	}
	cases := map[string]struct {
		history *history.Container
		policy  Policy
		want    *Container // nil for no answer
	}{
		"nothing is said without a history":       {policy: policy},
		"nothing is said without a sample":        {history: &history.Container{}, policy: policy},
		"nothing is said after a minute":          {history: seen(time.Minute, constant(200, 400)), policy: policy},
		"nothing is said of what nobody asked":    {history: seen(day, constant(200, 400)), policy: Policy{MarginPercent: 15}},
		"8 days of constant usage leave no doubt": {history: seen(8*day, constant(200, 400)), policy: policy, want: steady()},
		"after 2 minutes, the bounds are wide": {
			history: seen(2*time.Minute, constant(200, 400)), policy: policy,
			want: &Container{
				Target: amounts(234, 460), LowerBound: amounts(79, 428), UpperBound: amounts(234*721, 460*721),
				Uncapped: amounts(234, 460), Observed: 2 * time.Minute, Reasons: steady().Reasons,
			},
		},
		"spikes of 5 minutes an hour count, and the lower bound does not see them": {
			history: seen(8*day, spikes), policy: with(func(p *Policy) { p.Memory = false }),
			want: &Container{
				Target: amounts(680, 0), LowerBound: amounts(233, 0), UpperBound: amounts(800, 0),
				Uncapped: amounts(680, 0), Observed: 8 * day,
				Reasons: []Reason{{"cpu", "Percentile", 591}, {"cpu", "SafetyMargin", 680}},
			},
		},
		"a rise counts after 4 minutes": {
			history: func() *history.Container {
				h := seen(8*day, constant(200, 400))
				extend(h, 4*time.Minute, constant(2000, 400))
				return h
			}(),
			policy: with(func(p *Policy) { p.Memory = false }),
			want: &Container{
				Target: amounts(2318, 0), LowerBound: amounts(233, 0), UpperBound: amounts(2726, 0),
				Uncapped: amounts(2318, 0), Observed: 8 * day,
				Reasons: []Reason{{"cpu", "RecentUsage", 2015}, {"cpu", "SafetyMargin", 2318}},
			},
		},
		"without a margin, memory is the peak": {
			history: seen(8*day, constant(200, 400)), policy: Policy{Memory: true},
			want: &Container{
				Target: amounts(0, 400), LowerBound: amounts(0, 400), UpperBound: amounts(0, 471),
				Uncapped: amounts(0, 400), Observed: 8 * day, Reasons: []Reason{{"memory", "Peak", 400 * mebi}},
			},
		},
		"an OOM kill is enough for memory": {
			history: killed(&history.Container{}, 0, 1000), policy: policy,
			want: &Container{
				Target: amounts(0, 1200), LowerBound: amounts(0, 1200), UpperBound: amounts(0, 1200*1441),
				Uncapped: amounts(0, 1200), OOMFloor: 1200 * mebi, Reasons: []Reason{{"memory", "OOMFloor", 1200 * mebi}},
			},
		},
		"an OOM floor gets no margin": {
			history: killed(seen(8*day, constant(200, 400)), 8*day, 1000), policy: with(func(p *Policy) { p.CPU = false }),
			want: &Container{
				Target: amounts(0, 1200), LowerBound: amounts(0, 1200), UpperBound: amounts(0, 1411),
				Uncapped: amounts(0, 1200), OOMFloor: 1200 * mebi, Observed: 8 * day,
				Reasons: []Reason{{"memory", "Peak", 400 * mebi}, {"memory", "SafetyMargin", 460 * mebi}, {"memory", "OOMFloor", 1200 * mebi}},
			},
		},
		"next to nothing is rounded up to the minimum": {
			history: seen(8*day, constant(1, 1)), policy: policy,
			want: &Container{
				Target: amounts(10, 16), LowerBound: amounts(10, 16), UpperBound: quantity.Amounts{CPUMillis: 12, MemoryBytes: 301 << 16},
				Uncapped: amounts(10, 16), Observed: 8 * day,
				Reasons: []Reason{
					{"cpu", "Percentile", 1},
					{"cpu", "SafetyMargin", 2},
					{"cpu", "Minimum", 10},
					{"memory", "Peak", 1 * mebi},
					{"memory", "SafetyMargin", 19 << 16},
					{"memory", "Minimum", 16 * mebi},
				},
			},
		},
		"the policy has the last word": {
			history: seen(8*day, constant(200, 400)),
			policy: with(func(p *Policy) {
				p.MinAllowed = amounts(500, 0)
				p.MaxAllowed = quantity.Amounts{CPUMillis: 600, MemoryBytes: 450*mebi + 1}
			}),
			want: &Container{
				Target:     quantity.Amounts{CPUMillis: 500, MemoryBytes: 450*mebi + 1},
				LowerBound: amounts(500, 428),
				UpperBound: quantity.Amounts{CPUMillis: 500, MemoryBytes: 450*mebi + 1},
				Uncapped:   amounts(234, 460), Observed: 8 * day,
				Reasons: []Reason{
					{"cpu", "Percentile", 203},
					{"cpu", "SafetyMargin", 234},
					{"cpu", "MinAllowed", 500},
					{"memory", "Peak", 400 * mebi},
					{"memory", "SafetyMargin", 460 * mebi},
					{"memory", "MaxAllowed", 450*mebi + 1},
				},
			},
		},
		"of bounds that contradict each other, the upper one wins": {
			history: seen(8*day, constant(200, 400)),
			policy:  Policy{CPU: true, MinAllowed: amounts(500, 0), MaxAllowed: amounts(100, 0)},
			want: &Container{
				Target: amounts(100, 0), LowerBound: amounts(100, 0), UpperBound: amounts(100, 0),
				Uncapped: amounts(203, 0), Observed: 8 * day,
				Reasons: []Reason{{"cpu", "Percentile", 203}, {"cpu", "MaxAllowed", 100}},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, ok := For("app", tc.history, tc.policy, nil, params)
			if ok != (tc.want != nil) {
				t.Fatalf("For() = %+v, %v", got, ok)
			}
			if !ok {
				return
			}
			tc.want.Name = "app"
			if diff := cmp.Diff(*tc.want, got); diff != "" {
				t.Errorf("For() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestForWithAPreviousAnswer(t *testing.T) {
	// kept is the previous answer with Kept among the reasons.
	kept := steady()
	kept.Reasons = []Reason{
		{"cpu", "Percentile", 203},
		{"cpu", "SafetyMargin", 234},
		{"cpu", "Kept", 234},
		{"memory", "Peak", 400 * mebi},
		{"memory", "SafetyMargin", 460 * mebi},
		{"memory", "Kept", 460 * mebi},
	}
	capped := steady()
	capped.Target, capped.UpperBound, capped.LowerBound = amounts(100, 300), amounts(100, 300), amounts(100, 300)
	capped.Reasons = []Reason{
		{"cpu", "Percentile", 203},
		{"cpu", "SafetyMargin", 234},
		{"cpu", "MaxAllowed", 100},
		{"memory", "Peak", 400 * mebi},
		{"memory", "SafetyMargin", 460 * mebi},
		{"memory", "MaxAllowed", 300 * mebi},
	}
	capPolicy := policy
	capPolicy.MaxAllowed = amounts(100, 300)

	cases := map[string]struct {
		history  *history.Container
		policy   Policy
		previous *Container
		want     *Container
	}{
		"the same usage leads to the same answer": {
			history: seen(8*day, constant(200, 400)), previous: steady(), want: steady(),
		},
		"about the same usage does, too": {
			history: seen(8*day, constant(210, 410)), previous: steady(), want: steady(),
		},
		"a lost history leaves the answer as it is": {
			previous: steady(), want: steady(),
		},
		"too little evidence leaves the answer as it is": {
			history: seen(time.Minute, constant(9, 9)), previous: steady(), want: steady(),
		},
		"less evidence does not lower": {
			history: seen(7*day, constant(100, 200)), previous: steady(), want: kept,
		},
		"nor does it the next time": {
			history: seen(7*day, constant(100, 200)), previous: kept, want: kept,
		},
		"nor does usage close to what was published take the reason away": {
			history: seen(7*day, constant(200, 400)), previous: kept, want: kept,
		},
		"nor does losing the history once more": {
			previous: kept, want: kept,
		},
		"a long history in the status is taken for 8 days": {
			history:  seen(7*day, constant(100, 200)),
			previous: func() *Container { c := steady(); c.Observed = 1000 * day; return c }(), want: kept,
		},
		"as much evidence lowers": {
			history: seen(8*day, constant(100, 200)), previous: kept,
			want: func() *Container {
				got, _ := For("app", seen(8*day, constant(100, 200)), policy, nil, params)
				return &got
			}(),
		},
		"as much evidence takes the reason away": {
			history: seen(8*day, constant(200, 400)), previous: kept, want: steady(),
		},
		"a lower maxAllowed takes effect without a history": {
			policy: capPolicy, previous: steady(), want: capped,
		},
		"a lower maxAllowed takes effect with one": {
			history: seen(8*day, constant(200, 400)), policy: capPolicy, previous: steady(), want: capped,
		},
		"lifting it leads back": {
			history: seen(8*day, constant(200, 400)), previous: capped, want: steady(),
		},
		"lifting it without a history leads back to the target": {
			previous: capped,
			want: func() *Container {
				c := steady()
				c.LowerBound = amounts(100, 300)
				c.UpperBound = amounts(234, 460)
				return c
			}(),
		},
		"a status without uncapped amounts is read as uncapped": {
			history: seen(8*day, constant(200, 400)), want: steady(),
			previous: func() *Container { c := steady(); c.Uncapped = quantity.Amounts{}; return c }(),
		},
		"a target that 1 minute in 30 still needs is not lowered": {
			history: seen(8*day, func(m int) (float64, float64) {
				if m%30 == 0 {
					return 250, 400
				}
				return 100, 400
			}),
			previous: func() *Container { c := steady(); c.Target.CPUMillis, c.Uncapped.CPUMillis = 280, 280; return c }(),
			want: func() *Container {
				c := steady()
				c.Target.CPUMillis, c.Uncapped.CPUMillis = 280, 280
				c.LowerBound.CPUMillis, c.UpperBound.CPUMillis = 109, 340
				return c
			}(),
		},
		"an OOM kill raises without a history, and only memory": {
			history: killed(&history.Container{}, 0, 600), previous: steady(),
			want: func() *Container {
				c := steady()
				c.Target.MemoryBytes, c.Uncapped.MemoryBytes, c.LowerBound.MemoryBytes = 720*mebi, 720*mebi, 720*mebi
				c.UpperBound.MemoryBytes = 720 * 1441 * mebi
				c.OOMFloor = 720 * mebi
				c.Reasons = append(c.Reasons[:2:2], Reason{"memory", "OOMFloor", 720 * mebi})
				return c
			}(),
		},
		"an OOM floor above the target is never within the tolerance": {
			history: killed(seen(8*day, constant(200, 400)), 8*day, 400), previous: steady(),
			want: func() *Container {
				c := steady()
				c.Target.MemoryBytes, c.Uncapped.MemoryBytes, c.LowerBound.MemoryBytes = 480*mebi, 480*mebi, 480*mebi
				c.UpperBound.MemoryBytes = 565 * mebi
				c.OOMFloor = 480 * mebi
				c.Reasons = append(c.Reasons, Reason{"memory", "OOMFloor", 480 * mebi})
				return c
			}(),
		},
		"absurd amounts in the status are cut": {
			previous: &Container{
				Target: quantity.Amounts{CPUMillis: math.MaxInt64, MemoryBytes: -1}, LowerBound: amounts(-1, -1),
				Observed: -1, Reasons: []Reason{{"cpu", "", 1}, {"tpu", "Peak", 1}},
			},
			want: &Container{
				Target: amounts(10_000_000, 0), Uncapped: amounts(10_000_000, 0), UpperBound: amounts(10_000_000, 0),
				Reasons: []Reason{{"cpu", "", 1}},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if !tc.policy.CPU {
				tc.policy = policy
			}
			got, ok := For("app", tc.history, tc.policy, tc.previous, params)
			tc.want.Name = "app"
			if diff := cmp.Diff(*tc.want, got); diff != "" || !ok {
				t.Errorf("For() = %v (-want +got):\n%s", ok, diff)
			}
		})
	}
}

// TestSteadyUsageIsNotTouched is what "nothing is written while nothing changes"
// rests on. What still changes with constant usage is the bounds, with each doubling
// of the evidence.
func TestSteadyUsageIsNotTouched(t *testing.T) {
	cases := map[string]struct {
		load load
		// The most changes in the first hour, from then to the end of the first day,
		// and in the 7 days after it.
		firstHour, firstDay, firstWeek int
	}{
		"constant usage":                {load: constant(250, 400), firstHour: 5, firstDay: 5, firstWeek: 3},
		"next to nothing":               {load: constant(3, 30), firstHour: 5, firstDay: 5, firstWeek: 3},
		"usage at the edge of buckets":  {load: func(m int) (float64, float64) { return 255 + float64(m*7%3), 64 - float64(m%2)/100 }, firstHour: 5, firstDay: 5, firstWeek: 3},
		"noise of 5 %":                  {load: noisy(0.05), firstHour: 6, firstDay: 5, firstWeek: 3},
		"noise of 20 %":                 {load: noisy(0.2), firstHour: 8, firstDay: 8, firstWeek: 3},
		"noise of 40 %":                 {load: noisy(0.4), firstHour: 8, firstDay: 9, firstWeek: 6},
		"spikes for a 12th of the time": {load: spikes, firstHour: 6, firstDay: 5, firstWeek: 3},
		"spikes for a 20th of the time": {load: func(m int) (float64, float64) {
			if m%20 == 0 {
				return 600, 400
			}
			return 200, 400
		}, firstHour: 8, firstDay: 6, firstWeek: 3},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var h history.Container
			var previous *Container
			var changed []int // the minutes
			for m := range 8*1440 + 1 {
				h.Add(sample(m, tc.load), params.History)
				got, ok := For("app", &h, policy, previous, params)
				if ok && (previous == nil || !reflect.DeepEqual(got, *previous)) {
					changed = append(changed, m)
				}
				if ok {
					previous = &got
				}
			}
			hour, aDay, week := 0, 0, 0
			for _, m := range changed {
				switch {
				case m < 60:
					hour++
				case m < 1440:
					aDay++
				default:
					week++
				}
			}
			t.Logf("changed in the minutes %v", changed)
			if hour > tc.firstHour || aDay > tc.firstDay || week > tc.firstWeek {
				t.Errorf("%d changes in the first hour, %d in the first day, %d in the week after; want at most %d, %d, %d",
					hour, aDay, week, tc.firstHour, tc.firstDay, tc.firstWeek)
			}
		})
	}
}

func TestTheOOMFloorFadesInSteps(t *testing.T) {
	h := killed(seen(8*day, constant(200, 400)), 8*day, 1000)
	var previous *Container
	changes := 0
	for range 10 * 1440 {
		extend(h, time.Minute, constant(200, 400))
		got, _ := For("app", h, policy, previous, params)
		if previous == nil || !reflect.DeepEqual(got, *previous) {
			changes++
		}
		if got.LowerBound.MemoryBytes < h.OOMFloor(params.History) {
			t.Fatalf("the lower bound is %d, the floor %d", got.LowerBound.MemoryBytes, h.OOMFloor(params.History))
		}
		previous = &got
	}
	t.Logf("%d changes in 10 days, down to %d MiB", changes, previous.Target.MemoryBytes/mebi)
	if changes > 20 || previous.Target.MemoryBytes > 495*mebi {
		t.Errorf("%d changes in 10 days, down to %d MiB; want at most 20, to 460 MiB or a little more", changes, previous.Target.MemoryBytes/mebi)
	}
}

func TestSamplesOfTheSameMomentMayComeInAnyOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var inOrder, shuffled history.Container
	for m := range 600 {
		at := make([]usage.Sample, 5)
		for i := range at {
			at[i] = sample(m, func(int) (float64, float64) { return r.Float64() * 1000, r.Float64() * 1000 })
		}
		for _, s := range at {
			inOrder.Add(s, params.History)
		}
		r.Shuffle(len(at), func(i, j int) { at[i], at[j] = at[j], at[i] })
		for _, s := range at {
			shuffled.Add(s, params.History)
		}
	}
	a, _ := For("app", &inOrder, policy, nil, params)
	b, _ := For("app", &shuffled, policy, nil, params)
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("the order matters (-in order +shuffled):\n%s", diff)
	}
}

// check tells which promise an answer breaks, if any.
func check(c Container, h *history.Container, pol Policy, previous *Container, p Params) error {
	for _, resource := range []string{CPU, Memory} {
		l, s := pol.limits(resource), c.of(resource)
		_, most := valueOf(resource)
		switch {
		case s.target == 0 && s.lower == 0 && s.upper == 0 && s.uncapped == 0:
		case s.target <= 0 || s.uncapped <= 0 || s.uncapped > most || s.upper > most:
			return fmt.Errorf("%s is out of range: %+v", resource, s)
		case s.lower > s.target || s.target > s.upper:
			return fmt.Errorf("the bounds of %s are out of order: %+v", resource, s)
		case l.clamp(s.lower) != s.lower || l.clamp(s.target) != s.target || l.clamp(s.upper) != s.upper:
			return fmt.Errorf("%s is beyond what is allowed, %+v: %+v", resource, l, s)
		case len(s.reasons) > 8:
			return fmt.Errorf("%s has %d reasons", resource, len(s.reasons))
		}
		if resource == Memory && s.target > 0 {
			if needed := l.clamp(max(h.Peak(), h.OOMFloor(p.History))); h.Observed() >= p.MinEvidence && !h.IsEmpty() && s.lower < needed {
				return fmt.Errorf("the lower bound of memory is %d, needed is %d", s.lower, needed)
			}
		}
		if previous == nil {
			continue
		}
		before := previous.of(resource)
		controlled := map[string]bool{CPU: pol.CPU, Memory: pol.Memory}[resource]
		if controlled && h.Observed() < min(previous.Observed, p.FullEvidence)-time.Second && s.uncapped < before.uncapped {
			return fmt.Errorf("%s was lowered from %d to %d with %v after %v", resource, before.uncapped, s.uncapped, h.Observed(), previous.Observed)
		}
	}
	return nil
}

// FuzzFor replays absurd usage, kills, losses of the history and of the status, and
// changes of the policy.
func FuzzFor(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 3))
		amount := func(most float64) int64 { return int64(math.Exp(r.Float64()*math.Log(most))) - 1 }
		some := func() quantity.Amounts {
			if r.IntN(2) == 0 {
				return quantity.Amounts{}
			}
			return quantity.Amounts{CPUMillis: amount(1e7), MemoryBytes: amount(1 << 50)}
		}
		p := params
		if r.IntN(4) == 0 {
			p.MinEvidence, p.FullEvidence, p.ConfidenceUnit = time.Duration(amount(1e15)), time.Duration(amount(1e15)), time.Duration(amount(1e18))
			p.PublishTolerancePercent, p.BoundsTolerancePercent = r.IntN(30), r.IntN(50)
			p.MinCPUMillis, p.MinMemoryBytes = amount(1e4), amount(1e9)
		}
		h, pol := &history.Container{}, policy
		var previous *Container
		at := noon
		for range 300 {
			at = at.Add(time.Duration(r.Int64N(int64(3 * time.Minute))))
			h.Add(usage.Sample{Time: at, CPUMillis: amount(1e18), MemoryBytes: amount(1e18)}, p.History)
			switch r.IntN(40) {
			case 0:
				h.RecordOOM(at, amount(1e18), p.History)
			case 1:
				h = &history.Container{}
			case 2:
				pol = Policy{MarginPercent: int(amount(1e18)), CPU: r.IntN(4) > 0, Memory: r.IntN(4) > 0, MinAllowed: some(), MaxAllowed: some()}
			case 3:
				previous = nil
			case 4:
				previous = &Container{
					Target: some(), LowerBound: some(), UpperBound: some(), Uncapped: some(),
					Observed: time.Duration(r.Uint64()), OOMFloor: int64(r.Uint64()), Reasons: make([]Reason, r.IntN(20)),
				}
			}
			got, ok := For("app", h, pol, previous, p)
			if err := check(got, h, pol, previous, p); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if again, _ := For("app", h, pol, &got, p); ok && !reflect.DeepEqual(again, got) {
				t.Fatalf("seed %d: the same once more is different (-first +second):\n%s", seed, cmp.Diff(got, again))
			}
			if ok {
				previous = &got
			}
		}
	})
}

func BenchmarkFor(b *testing.B) {
	h := seen(8*day, spikes)
	previous, _ := For("app", h, policy, nil, params)
	b.ReportAllocs()
	for b.Loop() {
		For("app", h, policy, &previous, params)
	}
}

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

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/profile"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
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
	if minute%60 < 10 {
		return 600, 400
	}
	return 200, 400
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

// extend continues a history.
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
		Target:     amounts(230, 460),
		LowerBound: quantity.Amounts{CPUMillis: 204, MemoryBytes: 451 * mebi},
		UpperBound: amounts(234, 481),
		Uncapped:   amounts(230, 460),
		Observed:   8 * day,
		Reasons: []Reason{
			{Resource: "cpu", Code: "RecentPeak", Value: 200},
			{Resource: "cpu", Code: "SafetyMargin", Value: 230, PerMille: 150},
			{Resource: "memory", Code: "Peak", Value: 400 * mebi},
			{Resource: "memory", Code: "SafetyMargin", Value: 460 * mebi, PerMille: 150},
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
		"no answer without a history":             {policy: policy},
		"no answer without a sample":              {history: &history.Container{}, policy: policy},
		"no answer after a minute":                {history: seen(time.Minute, constant(200, 400)), policy: policy},
		"no answer for resources not asked for":   {history: seen(day, constant(200, 400)), policy: Policy{MarginPercent: 15}},
		"8 days of constant usage leave no doubt": {history: seen(8*day, constant(200, 400)), policy: policy, want: steady()},
		"after 2 minutes, the bounds are wide": {
			history: seen(2*time.Minute, constant(200, 400)), policy: policy,
			want: &Container{
				Target: amounts(230, 512), LowerBound: amounts(147, 502), UpperBound: amounts(230*61, 512*181),
				Uncapped: amounts(230, 512), Observed: 2 * time.Minute,
				Reasons: append(steady().Reasons[:3:3], Reason{Resource: "memory", Code: "Volatility", Value: 512 * mebi, PerMille: 280}),
			},
		},
		"after 2 minutes, there is a margin that nobody asked for": {
			history: seen(2*time.Minute, constant(200, 400)), policy: Policy{CPU: true},
			want: &Container{
				Target: amounts(230, 0), LowerBound: amounts(147, 0), UpperBound: amounts(230*61, 0),
				Uncapped: amounts(230, 0), Observed: 2 * time.Minute,
				Reasons: []Reason{{Resource: "cpu", Code: "RecentPeak", Value: 200}, {Resource: "cpu", Code: "LimitedHistory", Value: 230, PerMille: 150}},
			},
		},
		"after a day, the margin is smaller": {
			history: seen(day, constant(200, 400)), policy: Policy{CPU: true},
			want: &Container{
				Target: amounts(212, 0), LowerBound: amounts(188, 0), UpperBound: amounts(237, 0),
				Uncapped: amounts(212, 0), Observed: day,
				Reasons: []Reason{{Resource: "cpu", Code: "RecentPeak", Value: 200}, {Resource: "cpu", Code: "LimitedHistory", Value: 212, PerMille: 56}},
			},
		},
		"after a day, the bound is wider where the limit is the request": {
			history: seen(day, constant(200, 400)), policy: Policy{CPU: true, LimitsCPU: true},
			want: &Container{
				Target: amounts(212, 0), LowerBound: amounts(188, 0), UpperBound: amounts(312, 0),
				Uncapped: amounts(212, 0), Observed: day,
				Reasons: []Reason{{Resource: "cpu", Code: "RecentPeak", Value: 200}, {Resource: "cpu", Code: "LimitedHistory", Value: 212, PerMille: 56}},
			},
		},
		"spikes of 10 minutes an hour count": {
			history: seen(8*day, spikes), policy: with(func(p *Policy) { p.Memory = false }),
			want: &Container{
				Target: amounts(690, 0), LowerBound: amounts(615, 0), UpperBound: amounts(701, 0),
				Uncapped: amounts(690, 0), Observed: 8 * day,
				Reasons: []Reason{{Resource: "cpu", Code: "RecentPeak", Value: 600}, {Resource: "cpu", Code: "SafetyMargin", Value: 690, PerMille: 150}},
			},
		},
		"a rise counts at once": {
			history: func() *history.Container {
				h := seen(8*day, constant(200, 400))
				extend(h, time.Minute, constant(2000, 400))
				return h
			}(),
			policy: with(func(p *Policy) { p.Memory = false }),
			want: &Container{
				Target: amounts(2369, 0), LowerBound: amounts(2114, 0), UpperBound: amounts(2404, 0),
				Uncapped: amounts(2369, 0), Observed: 8 * day,
				Reasons: []Reason{{Resource: "cpu", Code: "RecentPeak", Value: 2060}, {Resource: "cpu", Code: "SafetyMargin", Value: 2369, PerMille: 150}},
			},
		},
		"without a margin of the policy, memory has the profile's": {
			history: seen(8*day, constant(200, 400)), policy: Policy{Memory: true},
			want: &Container{
				Target: amounts(0, 432), LowerBound: amounts(0, 424), UpperBound: amounts(0, 451),
				Uncapped: amounts(0, 432), Observed: 8 * day,
				Reasons: []Reason{{Resource: "memory", Code: "Peak", Value: 400 * mebi}, {Resource: "memory", Code: "Volatility", Value: 432 * mebi, PerMille: 80}},
			},
		},
		"an OOM kill is enough for memory": {
			history: killed(&history.Container{}, 0, 1000), policy: policy,
			want: &Container{
				Target: amounts(0, 2000), LowerBound: amounts(0, 2000), UpperBound: amounts(0, 2000*361),
				Uncapped: amounts(0, 2000), OOMFloor: 2000 * mebi, Reasons: []Reason{{Resource: "memory", Code: "OOMFloor", Value: 2000 * mebi}},
			},
		},
		"an OOM floor gets no margin": {
			history: killed(seen(8*day, constant(200, 400)), 8*day, 1000), policy: with(func(p *Policy) { p.CPU = false }),
			want: &Container{
				Target: amounts(0, 1200), LowerBound: amounts(0, 1200), UpperBound: amounts(0, 1253),
				Uncapped: amounts(0, 1200), OOMFloor: 1200 * mebi, Observed: 8 * day,
				Reasons: []Reason{{Resource: "memory", Code: "Peak", Value: 400 * mebi}, {Resource: "memory", Code: "SafetyMargin", Value: 460 * mebi, PerMille: 150}, {Resource: "memory", Code: "OOMFloor", Value: 1200 * mebi}},
			},
		},
		"next to nothing is rounded up to the minimum": {
			history: seen(8*day, constant(1, 1)), policy: policy,
			want: &Container{
				Target: amounts(10, 16), LowerBound: amounts(10, 16), UpperBound: quantity.Amounts{CPUMillis: 11, MemoryBytes: 268 << 16},
				Uncapped: amounts(10, 16), Observed: 8 * day,
				Reasons: []Reason{
					{Resource: "cpu", Code: "RecentPeak", Value: 1},
					{Resource: "cpu", Code: "SafetyMargin", Value: 2, PerMille: 150},
					{Resource: "cpu", Code: "Minimum", Value: 10},
					{Resource: "memory", Code: "Peak", Value: 1 * mebi},
					{Resource: "memory", Code: "SafetyMargin", Value: 19 << 16, PerMille: 150},
					{Resource: "memory", Code: "Minimum", Value: 16 * mebi},
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
				LowerBound: quantity.Amounts{CPUMillis: 500, MemoryBytes: 450*mebi + 1},
				UpperBound: quantity.Amounts{CPUMillis: 500, MemoryBytes: 450*mebi + 1},
				Uncapped:   amounts(230, 460), Observed: 8 * day,
				Reasons: []Reason{
					{Resource: "cpu", Code: "RecentPeak", Value: 200},
					{Resource: "cpu", Code: "SafetyMargin", Value: 230, PerMille: 150},
					{Resource: "cpu", Code: "MinAllowed", Value: 500},
					{Resource: "memory", Code: "Peak", Value: 400 * mebi},
					{Resource: "memory", Code: "SafetyMargin", Value: 460 * mebi, PerMille: 150},
					{Resource: "memory", Code: "MaxAllowed", Value: 450*mebi + 1},
				},
			},
		},
		"of bounds that contradict each other, the upper one wins": {
			history: seen(8*day, constant(200, 400)),
			policy:  Policy{CPU: true, MinAllowed: amounts(500, 0), MaxAllowed: amounts(100, 0)},
			want: &Container{
				Target: amounts(100, 0), LowerBound: amounts(100, 0), UpperBound: amounts(100, 0),
				Uncapped: amounts(200, 0), Observed: 8 * day,
				Reasons: []Reason{{Resource: "cpu", Code: "RecentPeak", Value: 200}, {Resource: "cpu", Code: "MaxAllowed", Value: 100}},
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
			assert.Equal(t, "For()", *tc.want, got)
		})
	}
}

// CPU of an interval that has not ended is not encoded. Memory alone would be applied first, and both
// a minute later.
func TestARestartInTheFirstIntervalRecommendsNothingHalf(t *testing.T) {
	h := seen(3*time.Minute, constant(200, 400))
	restarted, err := history.Decode(h.Encode())
	must.Succeed(t, err)
	if got, ok := For("app", &restarted, policy, nil, params); ok {
		t.Errorf("before a sample: %+v", got)
	}
	published, _ := For("app", h, policy, nil, params)
	if got, _ := For("app", &restarted, policy, &published, params); got.Target != published.Target {
		t.Errorf("published %+v, kept %+v", published.Target, got.Target)
	}
	onlyMemory := Policy{MarginPercent: 15, Memory: true}
	if _, ok := For("app", &restarted, onlyMemory, nil, params); !ok {
		t.Error("memory alone waits for CPU that nobody wants")
	}
	restarted.Add(sample(4, constant(200, 400)), params.History)
	if got, _ := For("app", &restarted, policy, nil, params); got.Target != published.Target {
		t.Errorf("after a sample: %+v, before the restart %+v", got.Target, published.Target)
	}
	killed := seen(3*time.Minute, constant(200, 400))
	killed.RecordOOM(noon, 600*mebi, params.History)
	if restarted, err = history.Decode(killed.Encode()); err != nil {
		t.Fatal(err)
	}
	if got, ok := For("app", &restarted, policy, nil, params); !ok || got.Target.MemoryBytes <= 600*mebi {
		t.Errorf("after an OOM kill: %+v", got)
	}
}

// A request is lowered on the evidence of a complete interval that has just been saved. A restart at that
// moment has only effects that the next minute would also have. Time runs ten times as fast, so that there
// are many falls.
func TestARestartRightAfterAFallKeepsIt(t *testing.T) {
	fast := params
	fast.History.CPUHalfLife, fast.History.RecentHalfLife = 4*time.Minute, 2*time.Minute
	usageAt := func(minute int) load {
		if minute/60%2 == 1 {
			return constant(50, 100)
		}
		return constant(400, 240)
	}
	target := func(h *history.Container, previous Container) int64 {
		got, _ := For("app", h, policy, &previous, fast)
		return got.Target.CPUMillis
	}
	h, falls := &history.Container{}, 0
	var previous *Container
	for m := range 600 {
		h.Add(sample(m, usageAt(m)), fast.History)
		now, ok := For("app", h, policy, previous, fast)
		if !ok {
			continue
		}
		if previous != nil && now.Target.CPUMillis < previous.Target.CPUMillis {
			falls++
			restarted, err := history.Decode(h.Closed(fast.History).Encode())
			must.Succeed(t, err)
			live := h.Clone()
			live.Add(sample(m+1, usageAt(m+1)), fast.History)
			if got, without := target(&restarted, now), max(now.Target.CPUMillis, target(live, now)); got > without {
				t.Errorf("minute %d: %dm after a restart, at most %dm without", m, got, without)
			}
			restarted.Add(sample(m+1, usageAt(m+1)), fast.History)
			if got, without := target(&restarted, now), target(live, now); got != without {
				t.Errorf("a minute after minute %d: %dm after a restart, %dm without", m, got, without)
			}
		}
		previous = &now
	}
	if falls < 5 {
		t.Errorf("only %d falls", falls)
	}
}

func TestForWithAPreviousAnswer(t *testing.T) {
	// kept is the previous answer with Kept among the reasons.
	kept := steady()
	kept.Reasons = []Reason{
		{Resource: "cpu", Code: "RecentPeak", Value: 200},
		{Resource: "cpu", Code: "SafetyMargin", Value: 230, PerMille: 150},
		{Resource: "cpu", Code: "NotLowered", Value: 230},
		{Resource: "memory", Code: "Peak", Value: 400 * mebi},
		{Resource: "memory", Code: "SafetyMargin", Value: 460 * mebi, PerMille: 150},
		{Resource: "memory", Code: "NotLowered", Value: 460 * mebi},
	}
	capped := steady()
	capped.Target, capped.UpperBound, capped.LowerBound = amounts(100, 300), amounts(100, 300), amounts(100, 300)
	capped.Reasons = []Reason{
		{Resource: "cpu", Code: "RecentPeak", Value: 200},
		{Resource: "cpu", Code: "SafetyMargin", Value: 230, PerMille: 150},
		{Resource: "cpu", Code: "MaxAllowed", Value: 100},
		{Resource: "memory", Code: "Peak", Value: 400 * mebi},
		{Resource: "memory", Code: "SafetyMargin", Value: 460 * mebi, PerMille: 150},
		{Resource: "memory", Code: "MaxAllowed", Value: 300 * mebi},
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
			history: seen(8*day, constant(210, 405)), previous: steady(), want: steady(),
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
				c.UpperBound = amounts(230, 460)
				return c
			}(),
		},
		"a status without uncapped amounts is read as uncapped": {
			history: seen(8*day, constant(200, 400)), want: steady(),
			previous: func() *Container { c := steady(); c.Uncapped = quantity.Amounts{}; return c }(),
		},
		"a target that 6 minutes in 30 still need is not lowered": {
			history: seen(8*day, func(m int) (float64, float64) {
				if m%30 < 6 {
					return 250, 400
				}
				return 100, 400
			}),
			previous: func() *Container { c := steady(); c.Target.CPUMillis, c.Uncapped.CPUMillis = 280, 280; return c }(),
			want: func() *Container {
				c := steady()
				c.Target.CPUMillis, c.Uncapped.CPUMillis = 280, 280
				c.LowerBound.CPUMillis, c.UpperBound.CPUMillis = 256, 293
				return c
			}(),
		},
		"an OOM kill raises without a history, and only memory": {
			history: killed(&history.Container{}, 0, 600), previous: steady(),
			want: func() *Container {
				c := steady()
				c.Target.MemoryBytes, c.Uncapped.MemoryBytes, c.LowerBound.MemoryBytes = 1200*mebi, 1200*mebi, 1200*mebi
				c.UpperBound.MemoryBytes = 1200 * 361 * mebi
				c.OOMFloor = 1200 * mebi
				c.Reasons = append(c.Reasons[:2:2], Reason{Resource: "memory", Code: "OOMFloor", Value: 1200 * mebi})
				return c
			}(),
		},
		"an OOM floor above the target is never within the tolerance": {
			history: killed(seen(8*day, constant(200, 400)), 8*day, 400), previous: steady(),
			want: func() *Container {
				c := steady()
				c.Target.MemoryBytes, c.Uncapped.MemoryBytes, c.LowerBound.MemoryBytes = 480*mebi, 480*mebi, 480*mebi
				c.UpperBound.MemoryBytes = 502 * mebi
				c.OOMFloor = 480 * mebi
				c.Reasons = append(c.Reasons, Reason{Resource: "memory", Code: "OOMFloor", Value: 480 * mebi})
				return c
			}(),
		},
		"a raised template is a floor": {
			history: raisedTemplate(seen(8*day, constant(200, 400)), amounts(300, 1000)), previous: steady(),
			want: func() *Container {
				c := steady()
				c.Target, c.Uncapped, c.LowerBound, c.UpperBound = amounts(300, 1000), amounts(300, 1000), amounts(300, 1000), amounts(305, 1044)
				c.Reasons = []Reason{
					c.Reasons[0], c.Reasons[1],
					{Resource: "cpu", Code: "TemplateRaised", Value: 300},
					c.Reasons[2], c.Reasons[3],
					{Resource: "memory", Code: "TemplateRaised", Value: 1000 * mebi},
				}
				return c
			}(),
		},
		"absurd amounts in the status are cut": {
			previous: &Container{
				Target: quantity.Amounts{CPUMillis: math.MaxInt64, MemoryBytes: -1}, LowerBound: amounts(-1, -1),
				Observed: -1, Reasons: []Reason{{Resource: "cpu", Code: "", Value: 1}, {Resource: "tpu", Code: "Peak", Value: 1}},
			},
			want: &Container{
				Target: amounts(10_000_000, 0), Uncapped: amounts(10_000_000, 0), UpperBound: amounts(10_000_000, 0),
				Reasons: []Reason{{Resource: "cpu", Code: "", Value: 1}},
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
	assert.Equal(t, "another order", a, b)
}

// check returns the promise that an answer breaks, if any.
func check(c Container, h *history.Container, pol Policy, previous *Container, p Params) error {
	for _, resource := range []string{CPU, Memory} {
		l, s := pol.limits(resource), c.of(resource)
		most := mostOf(resource)
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

// explained returns an error if the steps of an answer do not lead to its target.
func explained(c Container) error {
	for _, resource := range []string{CPU, Memory} {
		s := c.of(resource)
		if len(s.reasons) == 0 && s.target == 0 {
			continue
		}
		for n := range s.reasons {
			if got := Recompute(s.reasons[:n+1]); got != s.reasons[n].Value {
				return fmt.Errorf("the first %d steps of %s lead to %d: %+v", n+1, resource, got, s.reasons)
			}
		}
		if got := Recompute(s.reasons); got != s.target {
			return fmt.Errorf("the steps of %s lead to %d, the target is %d: %+v", resource, got, s.target, s.reasons)
		}
	}
	return nil
}

// FuzzFor replays absurd usage, kills, losses of the history and of the status, and changes of the policy. Every
// number follows from its reported steps, unless the status was forged.
func FuzzFor(f *testing.F) {
	for seed := range uint64(40) {
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
				pol = Policy{Profile: profile.All()[r.IntN(len(profile.All()))], MarginPercent: int(amount(1e18)), CPU: r.IntN(4) > 0, Memory: r.IntN(4) > 0, MinAllowed: some(), MaxAllowed: some()}
			case 3:
				previous = nil
			case 4:
				if seed%2 == 0 {
					break
				}
				previous = &Container{
					Target: some(), LowerBound: some(), UpperBound: some(), Uncapped: some(),
					Observed: time.Duration(r.Uint64()), OOMFloor: int64(r.Uint64()), Reasons: make([]Reason, r.IntN(20)),
				}
			}
			got, ok := For("app", h, pol, previous, p)
			if err := check(got, h, pol, previous, p); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if err := explained(got); err != nil && seed%2 == 0 {
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

// The estimate is the evidence at which the bound recommended then first lowers the request. Doublings
// equal those counted one by one, also right at a doubling and next to it.
func TestDoublingsAreCounted(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for i := range 20_000 {
		phase := []float64{0, r.Float64(), math.Nextafter(1, 0)}[i%3]
		evidence := time.Duration(math.Exp2(float64(r.IntN(53))+phase) + float64(r.IntN(3)-1))
		if i%2 == 0 {
			evidence = time.Duration(counted(r.IntN(15), phase)) + time.Duration(r.IntN(3)-1)
		}
		want := 0
		for float64(evidence) >= counted(want+1, phase) {
			want++
		}
		if n := doublings(evidence, phase); n != want {
			t.Fatalf("doublings(%s, %g) = %d, want %d", evidence, phase, n, want)
		}
	}
}

func TestEvidenceToLower(t *testing.T) {
	p := DefaultParams()
	lowers := func(request, target, upper int64, observed time.Duration, phase float64) time.Duration {
		return Container{Target: quantity.Amounts{CPUMillis: target}, UpperBound: quantity.Amounts{CPUMillis: upper}, Observed: observed, Phase: phase}.EvidenceToLower(CPU, request, 0)
	}
	waiting := func(reasons []Reason) Container {
		return Container{Target: amounts(50, 0), UpperBound: amounts(200, 0), Observed: time.Hour, Reasons: reasons}
	}
	check := func(request, target int64, observed time.Duration, phase float64) {
		upper := func(evidence time.Duration) int64 { return widened(target, confidence(evidence, phase, p)/4, 1<<40) }
		got := lowers(request, target, upper(observed), observed, phase)
		switch {
		case request > upper(observed):
			if got != 0 {
				t.Errorf("%d above the bound of %d: %s", request, upper(observed), got)
			}
		case got <= observed:
			t.Errorf("%d to %d after %s: %s", request, target, observed, got)
		case upper(got/4) < request || upper(2*got) >= request: // the bound is rounded up
			t.Errorf("%d to %d after %s: %s, when the bound is %d; %d before", request, target, observed, got, upper(got), upper(got/2))
		}
	}
	for _, target := range []int64{40, 50, 144, 5000} {
		for _, request := range []int64{target + target/10 + 1, 2 * target, 10 * target} {
			for _, observed := range []time.Duration{2 * time.Minute, 36 * time.Minute, time.Hour, 5 * time.Hour, 36 * time.Hour} {
				for _, phase := range []float64{0, 0.3, 0.99} {
					check(request, target, observed, phase)
				}
			}
		}
	}
	for _, unknown := range []time.Duration{
		lowers(100, 0, 200, time.Hour, 0), lowers(100, 100, 200, time.Hour, 0), lowers(100, 50, 200, 0, 0),
		lowers(5001, 5000, 1<<40, time.Hour, 0), lowers(50, 100, 200, time.Hour, 0),
		lowers(5150, 5000, 80_000, 36*time.Minute, 0), // the bound of 8 days of evidence is 5219
		waiting(nil).EvidenceToLower(CPU, 100, 200),
		waiting([]Reason{{Resource: CPU, Code: NotLowered}}).EvidenceToLower(CPU, 100, 0),
		waiting([]Reason{{Resource: CPU, Code: UsageFollowsLimit}}).EvidenceToLower(CPU, 100, 0),
	} {
		if unknown != 0 {
			t.Errorf("%s, and it is unknown", unknown)
		}
	}
}

// raisedTemplate is the history once a user has raised the requests in the template.
func raisedTemplate(h *history.Container, to quantity.Amounts) *history.Container {
	h.NoteTemplate(amounts(200, 400), quantity.Amounts{}, false)
	h.NoteTemplate(to, quantity.Amounts{}, false)
	return h
}

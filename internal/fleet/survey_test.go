// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
)

func amounts(cpuMillis, memoryMiB int64) quantity.Amounts {
	return quantity.Amounts{CPUMillis: cpuMillis, MemoryBytes: memoryMiB << 20}
}

func wanted(a quantity.Amounts) v1beta1.Amounts {
	cpu, memory := quantity.CPU(a.CPUMillis), quantity.Memory(a.MemoryBytes)
	return v1beta1.Amounts{CPU: &cpu, Memory: &memory}
}

// recommends is a status that recommends that for container app.
func recommends(a quantity.Amounts) func(*v1beta1.VerticalScaler) {
	return func(s *v1beta1.VerticalScaler) {
		s.Status.Recommendation = &v1beta1.Recommendation{ContainerRecommendations: []v1beta1.ContainerRecommendation{{ContainerName: "app", Target: wanted(a)}}}
	}
}

// decides is a status that has decided that for container app.
func decides(a quantity.Amounts) func(*v1beta1.VerticalScaler) {
	return func(s *v1beta1.VerticalScaler) {
		s.Status.Decision = &v1beta1.Decision{Containers: []v1beta1.ContainerDecision{{ContainerName: "app", Requests: wanted(a)}}}
	}
}

// unsized is a status whose new pods start as in the pod template.
func unsized(reason, message string) func(*v1beta1.VerticalScaler) {
	return func(s *v1beta1.VerticalScaler) {
		s.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionNewPodsSized, Status: metav1.ConditionFalse, Reason: reason, Message: message}}
	}
}

func promotes(s *v1beta1.VerticalScaler) {
	s.Annotations = map[string]string{v1beta1.PromotedAnnotation: "2026-02-03T10:00:00Z"}
	s.Spec.UpdatePolicy.UpdateMode = v1beta1.UpdateModeInPlace
}

func is(reason string) func(*v1beta1.VerticalScaler) {
	return func(s *v1beta1.VerticalScaler) { s.Status.Summary = &v1beta1.Summary{Reason: reason} }
}

// aMember is a Deployment shop/name with a container app that requests 500m and 512Mi, and its scaler.
func aMember(policy *Policy, name string, replicas int32, changes ...func(*v1beta1.VerticalScaler)) Member {
	d := &Deployment{Namespace: "shop", Name: name, Replicas: replicas, Requests: map[string]quantity.Amounts{"app": amounts(500, 512)}}
	s := policy.Scaler(d)
	for _, change := range changes {
		change(s)
	}
	return Member{Deployment: d, Scaler: s}
}

func skippedMember(name, reason, message string) Member {
	return Member{Deployment: &Deployment{Namespace: "shop", Name: name}, Skipped: reason, Message: message}
}

func TestASurveyCountsWhatAPolicyDoes(t *testing.T) {
	policy := aPolicy(t, "p")
	pending := aMember(policy, "late", 1)
	pending.Scaler, pending.IsPending = nil, true
	leaving := aMember(policy, "leaving", 1, is("Applied"))
	leaving.Skipped, leaving.IsPending = v1beta1.ReasonExcluded, true
	rejected := aMember(policy, "rejected", 1, is("Applied"))
	rejected.Skipped, rejected.Message = v1beta1.ReasonScalersRejected, "quota"
	survey := Count([]Member{
		aMember(policy, "d", 1, is("Applied")), aMember(policy, "b", 1, is("Applied")), aMember(policy, "a", 1, is("Applied")), aMember(policy, "c", 1, is("Applied")),
		aMember(policy, "new", 1), pending, leaving, rejected,
		skippedMember("x", v1beta1.ReasonOtherScaler, ""), skippedMember("y", v1beta1.ReasonOtherScaler, ""),
		skippedMember("z", v1beta1.ReasonOtherPolicy, "Such as ScalingPolicy shop/z, which comes first"),
		skippedMember("w", v1beta1.ReasonOtherPolicy, "Such as ScalingPolicy shop/a, which comes first"),
		skippedMember("dns", v1beta1.ReasonSystemNamespace, ""),
	})
	if survey.Selected != 11 || survey.Scaled != 6 || survey.Pending != 2 || survey.Rejected != "quota" || survey.Savings != nil {
		t.Errorf("survey: %+v", survey)
	}
	skipped := []v1beta1.PolicyCount{
		{Reason: "OtherPolicy", Count: 2, Examples: []string{"shop/w", "shop/z"}, Message: "Such as ScalingPolicy shop/a, which comes first"},
		{Reason: "OtherScaler", Count: 2, Examples: []string{"shop/x", "shop/y"}},
		{Reason: "Excluded", Count: 1, Examples: []string{"shop/leaving"}},
		{Reason: "ScalersRejected", Count: 1, Examples: []string{"shop/rejected"}, Message: "quota"},
		{Reason: "SystemNamespace", Count: 1, Examples: []string{"shop/dns"}},
	}
	assert.Equal(t, "skipped", skipped, survey.Skipped)
	states := []v1beta1.PolicyCount{
		{Reason: "Applied", Count: 5, Examples: []string{"shop/a", "shop/b", "shop/c"}},
		{Reason: "Unknown", Count: 1, Examples: []string{"shop/new"}},
	}
	assert.Equal(t, "states", states, survey.States)
	if got := *survey.Summary(3); got.Deployments != "6/11" || got.Promoted != "3/6" {
		t.Errorf("summary %+v", got)
	}
	if len(survey.Candidates) != 7 {
		t.Errorf("%d candidates", len(survey.Candidates))
	}
	if none := Count(nil); none.Selected != 0 || none.Skipped != nil || none.States != nil || none.Summary(0).Deployments != "0/0" {
		t.Errorf("nothing is counted as %+v", none)
	}
}

// A policy counts the scalers whose new pods do not get the decided size, and reports why.
func TestASurveyCountsScalersWhoseNewPodsAreNotSized(t *testing.T) {
	policy := aPolicy(t, "p")
	sized := func(s *v1beta1.VerticalScaler) {
		s.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionNewPodsSized, Status: metav1.ConditionTrue, Reason: "Applied"}}
	}
	leaving := aMember(policy, "leaving", 1, unsized("QuotaExceeded", "no room"))
	leaving.Skipped = v1beta1.ReasonExcluded
	got := Count([]Member{
		aMember(policy, "b", 1, unsized("AdmissionUnavailable", "not installed")), aMember(policy, "a", 1, unsized("AdmissionUnavailable", "not installed")),
		aMember(policy, "big", 1, unsized("NodeCapacity", "no node has 9 cores")), aMember(policy, "sized", 1, sized), aMember(policy, "new", 1), leaving,
	}).UnsizedNewPods
	want := []v1beta1.PolicyCount{
		{Reason: "AdmissionUnavailable", Count: 2, Examples: []string{"shop/a", "shop/b"}, Message: "not installed"},
		{Reason: "NodeCapacity", Count: 1, Examples: []string{"shop/big"}, Message: "no node has 9 cores"},
	}
	assert.Equal(t, "unsized new pods", want, got)
}

// The promotion sees each scaler of the policy. It does not promote one that is paused, suspended, or about to be deleted.
func TestWhatThePromotionSeesOfAScaler(t *testing.T) {
	policy := aPolicy(t, "p")
	ready := func(status metav1.ConditionStatus) func(*v1beta1.VerticalScaler) {
		return func(s *v1beta1.VerticalScaler) {
			s.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True"}, {Type: v1beta1.ConditionReadyForPromotion, Status: status}}
		}
	}
	annotated := func(value string) func(*v1beta1.VerticalScaler) {
		return func(s *v1beta1.VerticalScaler) { s.Annotations = map[string]string{v1beta1.PausedAnnotation: value} }
	}
	skipped := func(reason string) func(*Member) { return func(m *Member) { m.Skipped = reason } }
	none := func(*Member) {}
	for name, tc := range map[string]struct {
		change                     func(*v1beta1.VerticalScaler)
		member                     func(*Member)
		ready, promoted, isBlocked bool
	}{
		"without a status":      {func(*v1beta1.VerticalScaler) {}, none, false, false, false},
		"with evidence":         {ready("True"), none, true, false, false},
		"with too little":       {ready("False"), none, false, false, false},
		"with unknown evidence": {ready("Unknown"), none, false, false, false},
		"promoted":              {promotes, none, false, true, false},
		"paused":                {annotated("incident 7"), none, false, false, true},
		"not paused":            {annotated("false"), none, false, false, false},
		"suspended":             {func(s *v1beta1.VerticalScaler) { s.Spec.Suspend = true }, none, false, false, true},
		"being deleted":         {func(s *v1beta1.VerticalScaler) { s.DeletionTimestamp = &created }, none, false, false, true},
		"of an excluded":        {ready("True"), skipped(v1beta1.ReasonExcluded), true, false, true},
		"of another policy now": {ready("True"), skipped(v1beta1.ReasonOtherPolicy), true, false, true},
		"rejected when changed": {ready("True"), skipped(v1beta1.ReasonScalersRejected), true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := aMember(policy, "web", 1, tc.change)
			tc.member(&m)
			got := Count([]Member{m}).Candidates
			if len(got) != 1 || got[0].Ready != tc.ready || got[0].Promoted.IsZero() == tc.promoted || got[0].Blocked != tc.isBlocked || got[0].Key.String() != "shop/web" {
				t.Errorf("candidates %+v", got)
			}
		})
	}
}

// With any number and order of Deployments, reasons and messages, the status is the same and small.
func TestASurveyIsBoundedAndDoesNotDependOnTheOrder(t *testing.T) {
	policy := aPolicy(t, "p")
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 7))
		var members []Member
		for i := range 400 {
			m := aMember(policy, fmt.Sprintf("web-%03d", i), int32(r.IntN(5)), is(fmt.Sprintf("Reason%d", r.IntN(12))))
			switch r.IntN(6) {
			case 0:
				m = skippedMember(m.Deployment.Name, v1beta1.ReasonOtherPolicy, fmt.Sprintf("Such as ScalingPolicy shop/p-%d, which comes first", r.IntN(9)))
			case 1:
				m.Skipped, m.Message = v1beta1.ReasonScalersRejected, fmt.Sprintf("webhook %d says no", 1+r.IntN(3))
			case 2:
				recommends(amounts(int64(r.IntN(900)), int64(r.IntN(900))))(m.Scaler)
			case 3:
				promotes(m.Scaler)
				decides(amounts(int64(r.IntN(900)), int64(r.IntN(900))))(m.Scaler)
			case 4:
				m.Scaler, m.IsPending = nil, true
			}
			members = append(members, m)
		}
		first := Count(members)
		if len(first.States) > 8 || len(first.Skipped) > 16 {
			t.Fatalf("%d states, %d reasons", len(first.States), len(first.Skipped))
		}
		for _, count := range slices.Concat(first.States, first.Skipped) {
			if len(count.Examples) > 3 || !slices.IsSorted(count.Examples) || len(count.Message) > 1024 {
				t.Fatalf("%+v", count)
			}
		}
		if !slices.IsSortedFunc(first.States, func(a, b v1beta1.PolicyCount) int { return int(b.Count - a.Count) }) {
			t.Fatalf("states are not in order: %+v", first.States)
		}
		for range 5 {
			r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
			again := Count(members)
			again.Candidates = first.Candidates // Their order does not matter to the promotion.
			if diff := cmp.Diff(first, again); diff != "" {
				t.Fatalf("seed %d: another order counts otherwise:\n%s", seed, diff)
			}
		}
	}
}

func TestWhatAPolicySaves(t *testing.T) {
	policy := aPolicy(t, "p")
	withRequests := func(m Member, requests map[string]quantity.Amounts) Member {
		m.Deployment.Requests = requests
		return m
	}
	never := aMember(policy, "never", 3)
	leaving := aMember(policy, "leaving", 3, recommends(amounts(100, 100)))
	leaving.Skipped = v1beta1.ReasonOtherScaler
	for name, tc := range map[string]struct {
		members []Member
		want    string // applied and recommended, "" for no savings
	}{
		"nothing is recommended": {[]Member{never}, ""},
		"a recommendation":       {[]Member{aMember(policy, "a", 3, recommends(amounts(200, 256)))}, "0 0, 900m 760Mi"},
		"a decision":             {[]Member{aMember(policy, "a", 3, promotes, decides(amounts(200, 256)))}, "900m 760Mi, 0 0"},
		"a decision counts before what is recommended": {
			[]Member{aMember(policy, "a", 1, promotes, decides(amounts(200, 256)), recommends(amounts(100, 100)))}, "300m 250Mi, 0 0",
		},
		"promoted, but nothing is decided": {[]Member{aMember(policy, "a", 1, promotes, recommends(amounts(200, 256)))}, "300m 250Mi, 0 0"},
		"in Recommend with an old decision": {
			[]Member{aMember(policy, "a", 1, decides(amounts(100, 100)), recommends(amounts(200, 256)))}, "0 0, 300m 250Mi",
		},
		"both":                                 {[]Member{never, aMember(policy, "a", 1, promotes, decides(amounts(400, 500))), aMember(policy, "b", 2, recommends(amounts(450, 512)))}, "100m 12Mi, 100m 0"},
		"more than is requested":               {[]Member{aMember(policy, "a", 2, recommends(amounts(1500, 1024)))}, "0 0, -2 -1000Mi"},
		"no replicas":                          {[]Member{aMember(policy, "a", 0, recommends(amounts(100, 100)))}, "0 0, 0 0"},
		"a scaler that is about to be deleted": {[]Member{leaving}, ""},
		"a scaler without usage":               {[]Member{aMember(policy, "a", 3, recommends(amounts(200, 256)), is("MetricsIncomplete"))}, ""},
		"a container without requests": {
			[]Member{withRequests(aMember(policy, "a", 2, recommends(amounts(100, 100))), map[string]quantity.Amounts{"app": {}})}, "0 0, 0 0",
		},
		"a container that requests only CPU": {
			[]Member{withRequests(aMember(policy, "a", 2, recommends(amounts(100, 100))), map[string]quantity.Amounts{"app": amounts(300, 0)})}, "0 0, 400m 0",
		},
		"a recommendation of memory only": {[]Member{aMember(policy, "a", 2, recommends(amounts(0, 412)))}, "0 0, 0 200Mi"},
		"a container that is not in the template anymore": {
			[]Member{withRequests(aMember(policy, "a", 2, recommends(amounts(100, 100))), map[string]quantity.Amounts{"other": amounts(300, 300)})}, "",
		},
		"a large fleet": {[]Member{aMember(policy, "a", 12345, recommends(amounts(400, 500)))}, "0 0, 1200 140000Mi"},
		"amounts without bounds": {
			slices.Repeat([]Member{withRequests(aMember(policy, "a", math.MaxInt32, recommends(amounts(100, 100))), map[string]quantity.Amounts{"app": amounts(300, 1<<40)})}, 2), "0 0, 850M 4199218750Gi",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := Count(tc.members).Savings
			got := ""
			if s != nil {
				got = fmt.Sprintf("%s %s, %s %s", s.Applied.CPU, s.Applied.Memory, s.Recommended.CPU, s.Recommended.Memory)
			}
			if got != tc.want {
				t.Errorf("savings %q, want %q", got, tc.want)
			}
		})
	}
}

func TestTwoDigits(t *testing.T) {
	for n, want := range map[int64]int64{
		0: 0, 9: 9, 99: 99, 100: 100, 109: 100, 119: 110, 999: 990, 1000: 1000, 12345: 12000, 99999: 99000,
		-9: -9, -99: -99, -109: -100, -12345: -12000, math.MaxInt64: 9200000000000000000, math.MinInt64 + 1: -9200000000000000000,
	} {
		if got := twoDigits(n); got != want {
			t.Errorf("twoDigits(%d) = %d, want %d", n, got, want)
		}
	}
	for n := int64(-5000); n < 5000; n++ {
		if got := twoDigits(n); twoDigits(got) != got || max(got, -got) > max(n, -n) || len(strings.Trim(fmt.Sprint(got), "-0")) > 2 {
			t.Fatalf("twoDigits(%d) = %d", n, got)
		}
	}
}

func TestWhatAPolicyDoesAboutADeployment(t *testing.T) {
	policy, other := aPolicy(t, "b"), aPolicy(t, "a")
	cluster := aClusterPolicy(t, "fleet")
	paused := aPolicy(t, "a", func(p *v1beta1.ScalingPolicy) { p.Annotations = map[string]string{v1beta1.PausedAnnotation: "later"} })
	web, shop := &Deployment{Namespace: "shop", Name: "web"}, Namespace{Name: "shop", Labels: map[string]string{"env": "live"}}
	ours, theirs := policy.Scaler(web), other.Scaler(web)
	edited := policy.Scaler(web)
	edited.Spec.Suspend = true
	byHand := &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "mine"}, Spec: v1beta1.VerticalScalerSpec{DeploymentName: "web"}}
	namesake := &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: v1beta1.VerticalScalerSpec{DeploymentName: "api"}}
	const comesFirst = "Such as ScalingPolicy shop/a, which comes first"
	for name, tc := range map[string]struct {
		policies  []*Policy
		scalers   Scalers
		namespace func(*Namespace)
		rejected  string
		want      string // skipped reason, existing scaler, pending change
	}{
		"no scaler yet":                      {want: " - pending"},
		"a scaler":                           {scalers: Scalers{Named: ours}, want: " scaler -"},
		"an edited scaler":                   {scalers: Scalers{Named: edited}, want: " scaler pending"},
		"a scaler of another policy":         {scalers: Scalers{Named: theirs}, want: " - pending"},
		"a scaler of a user":                 {scalers: Scalers{OfUser: byHand}, want: "OtherScaler - -"},
		"a user's beside ours":               {scalers: Scalers{Named: ours, OfUser: byHand}, want: "OtherScaler scaler pending"},
		"a user's with the name":             {scalers: Scalers{Named: byHand, OfUser: byHand}, want: "OtherScaler - -"},
		"the name is taken":                  {scalers: Scalers{Named: namesake}, want: "NameTaken - -"},
		"another policy comes first":         {policies: []*Policy{other, cluster}, want: "OtherPolicy: " + comesFirst + " - -"},
		"and our scaler is there":            {policies: []*Policy{other}, scalers: Scalers{Named: ours}, want: "OtherPolicy: " + comesFirst + " scaler pending"},
		"a paused policy comes first":        {policies: []*Policy{paused}, scalers: Scalers{Named: ours}, want: "OtherPolicy: " + comesFirst + " scaler -"},
		"another policy comes later":         {policies: []*Policy{cluster}, scalers: Scalers{Named: ours}, want: " scaler -"},
		"a user's before another policy":     {policies: []*Policy{other}, scalers: Scalers{OfUser: byHand}, want: "OtherScaler - -"},
		"the policy itself, read again":      {policies: []*Policy{aPolicy(t, "b")}, scalers: Scalers{Named: ours}, want: " scaler -"},
		"a rejected scaler":                  {rejected: "quota", want: "ScalersRejected: quota - -"},
		"a rejected change":                  {rejected: "quota", scalers: Scalers{Named: edited}, want: "ScalersRejected: quota scaler -"},
		"an old rejection of an excluded":    {rejected: "quota", namespace: func(n *Namespace) { n.Excluded = true }, want: "Excluded - -"},
		"excluded while our scaler is there": {scalers: Scalers{Named: ours}, namespace: func(n *Namespace) { n.Excluded = true }, want: "Excluded scaler pending"},
		"a namespace that is being deleted":  {scalers: Scalers{Named: ours}, namespace: func(n *Namespace) { n.Terminating = true }, want: "does not match"},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := shop
			if tc.namespace != nil {
				tc.namespace(&namespace)
			}
			m, ok := MemberOf(policy, append(tc.policies, policy), web, &namespace, tc.scalers, tc.rejected)
			got := m.Skipped
			if m.Message != "" {
				got += ": " + m.Message
			}
			for _, part := range []struct {
				is   bool
				word string
			}{{m.Scaler != nil, "scaler"}, {m.IsPending, "pending"}} {
				if part.is {
					got += " " + part.word
				} else {
					got += " -"
				}
			}
			if !ok {
				got = "does not match"
			}
			if got != tc.want {
				t.Errorf("MemberOf() = %q, want %q", got, tc.want)
			}
		})
	}
}

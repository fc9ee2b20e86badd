// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

func TestTheOlderOfTwoScalersActs(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	d := w.deploy("web")
	target := func(s *v1beta1.VerticalScaler) { s.Spec.DeploymentName = "web" }
	w.scale("z-elder", target)
	w.laterThan("z-elder")
	w.scale("a-younger", target, func(s *v1beta1.VerticalScaler) {
		s.Spec.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{{
			ContainerName: "*", MinAllowed: &v1beta1.ResourceBounds{CPU: ptr.To(resource.MustParse("700m"))},
		}}}
	})
	w.says("a-younger", "Stalled", "True", "Conflict", "z-elder")
	w.says("a-younger", "TargetFound", "False", "Conflict")
	w.says("a-younger", "Ready", "False", "Conflict")
	w.uses("web", "app", 300, 240)
	requests := w.sized("z-elder")
	w.between("cpu", *requests.Cpu(), "330m", "380m")
	w.rounds(10)
	if s := w.scaler("a-younger"); s.Status.Decision != nil || s.Status.Recommendation != nil {
		t.Errorf("the younger has decided %+v", s.Status.Decision)
	}
	w.noted(w.scaler("a-younger").UID, "Conflict", "z-elder")

	w.remove(testkit.Scaler(w.namespace, "z-elder", ""))
	requests = w.sized("a-younger")
	if got := requests.Cpu().String(); got != "700m" {
		t.Errorf("after the takeover cpu is %s", got)
	}
	w.says("a-younger", "Ready", "True", "OperatingNormally")
	w.noted(d.UID, "Decided", "->700m")
	w.noted(w.scaler("a-younger").UID, "Ready") // as soon as it takes over, whatever it does then
}

func TestAScalerThatMayNotActOnlyRecommends(t *testing.T) {
	t.Parallel()
	const paused = "autoscaling.verticalscaler.io/paused"
	cases := map[string]struct {
		change func(*v1beta1.VerticalScaler)
		reason string // of Applied and of Ready
		undo   string
	}{
		"in mode Recommend": {
			change: inMode("Recommend"), reason: "RecommendOnly",
			undo: `{"spec":{"updatePolicy":{"updateMode":"InPlace"}}}`,
		},
		"when suspended": {
			change: func(s *v1beta1.VerticalScaler) { s.Spec.Suspend = true }, reason: "Suspended",
			undo: `{"spec":{"suspend":false}}`,
		},
		"when paused": {
			change: func(s *v1beta1.VerticalScaler) { s.Annotations = map[string]string{paused: "true"} }, reason: "Paused",
			undo: `{"metadata":{"annotations":{"` + paused + `":null}}}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			w.deploy("web")
			w.uses("web", "app", 300, 240)
			w.scale("web", tc.change)
			w.says("web", "Applied", "False", tc.reason)
			w.says("web", "Ready", "True", tc.reason)
			w.says("web", "RecommendationProvided", "True", "EnoughHistory")
			w.rounds(10)
			s := w.scaler("web")
			if s.Status.Recommendation == nil || len(s.Status.Recommendation.ContainerRecommendations) != 1 {
				t.Fatalf("recommendation: %+v", s.Status.Recommendation)
			}
			target := s.Status.Recommendation.ContainerRecommendations[0].Target
			w.between("cpu", *target.CPU, "330m", "380m")
			w.between("memory", *target.Memory, "307Mi", "309Mi")
			for _, write := range w.writes(w.began) {
				if write.Resource != "verticalscalers/status" && write.Resource != "verticalscalercheckpoints" {
					t.Errorf("written: %s", write)
				}
			}
			w.patch(testkit.Scaler(w.namespace, "web", "web"), "%s", tc.undo)
			w.sized("web")
		})
	}
}

func TestABlockedScalerKeepsItsDecision(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web")
	w.uses("web", "app", 300, 240)
	w.scale("web")
	before := w.sized("web")
	w.patch(testkit.Scaler(w.namespace, "web", "web"), `{"spec":{"suspend":true}}`)
	w.says("web", "Ready", "True", "Suspended")
	mark := env.Mark()
	w.uses("web", "app", 900, 560)
	w.rounds(10)
	victim := w.pods("web")[0]
	w.remove(&victim)
	w.gone(&victim)
	w.runs("web")
	w.rounds(5)
	if n := count(w.writes(mark), "pods/resize"); total(n) > 0 {
		t.Errorf("resizes while suspended: %v", n)
	}
	if s := w.scaler("web"); s.Status.Decision == nil || s.Status.Decision.Containers[0].Requests.CPU.Cmp(*before.Cpu()) != 0 {
		t.Errorf("the decision has become %+v", s.Status.Decision)
	}
	w.patch(testkit.Scaler(w.namespace, "web", "web"), `{"spec":{"suspend":false}}`)
	w.eventually(func() string {
		if s := w.scaler("web"); s.Status.Decision == nil || s.Status.Decision.Containers[0].Requests.CPU.Cmp(resource.MustParse("900m")) < 0 {
			return "not raised yet"
		}
		return ""
	})
	w.sized("web")
}

func TestBoundsTakeEffectAtOnce(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web")
	w.uses("web", "app", 300, 240)
	w.scale("web", func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.CooldownSeconds = ptr.To(int32(3600)) })
	w.sized("web")
	bounds := func(format string) {
		w.patch(testkit.Scaler(w.namespace, "web", "web"), `{"spec":{"resourcePolicy":{"containerPolicies":[{"containerName":"app",%s}]}}}`, format)
	}
	reasons := func() string {
		var words []string
		for _, r := range w.scaler("web").Status.Recommendation.ContainerRecommendations[0].Reasons {
			words = append(words, string(r.Resource)+" "+r.Code+" "+r.Value.String())
		}
		return strings.Join(words, ", ")
	}
	becomes := func(cpu, memory, reason string) {
		t.Helper()
		w.eventually(func() string {
			for _, pod := range w.pods("web") {
				now := actual(pod, "app").Requests
				if (cpu != "" && now.Cpu().String() != cpu) || (memory != "" && now.Memory().String() != memory) {
					return "pod " + pod.Name + " has " + now.Cpu().String() + " and " + now.Memory().String()
				}
			}
			if !strings.Contains(reasons(), reason) {
				return "the reasons are " + reasons()
			}
			return ""
		})
		w.sized("web")
	}
	bounds(`"minAllowed":{"cpu":"600m"}`)
	becomes("600m", "", "cpu MinAllowed 600m")
	bounds(`"maxAllowed":{"memory":"200Mi"}`)
	becomes("", "200Mi", "memory MaxAllowed 200Mi")
	bounds(`"maxAllowed":{"cpu":"150m","memory":"200Mi"}`)
	becomes("150m", "200Mi", "cpu MaxAllowed 150m")
	if n := restarts(w.pods("web")); len(n) > 0 {
		t.Errorf("restarts: %v", n)
	}
}

func TestTheCheckpointPreservesTheHistory(t *testing.T) {
	t.Parallel()
	testkit.Tidy(t, "how uneven the pods are is still being learned when the checkpoint is written", testkit.UnevenUsage)
	w := newFixture(t)
	w.deploy("web")
	w.uses("web", "app", 300, 240)
	w.scale("web")
	w.sized("web")
	var checkpoint v1beta1.VerticalScalerCheckpoint
	if err := env.Client.Get(t.Context(), w.key("web"), &checkpoint); err != nil {
		t.Fatal(err)
	}
	s := w.scaler("web")
	if len(checkpoint.OwnerReferences) != 1 || checkpoint.OwnerReferences[0].UID != s.UID || checkpoint.OwnerReferences[0].Kind != "VerticalScaler" || checkpoint.Spec.DeploymentName != "web" {
		t.Errorf("owners %+v, Deployment %q", checkpoint.OwnerReferences, checkpoint.Spec.DeploymentName)
	}

	// No more usage arrives, and the status holds no values to start from.
	w.usage.Fail(errors.New("no more usage"))
	w.says("web", "RecommendationProvided", "False", "MetricsUnavailable")
	before := w.scaler("web").Status.Recommendation
	w.operator.Stop(t)
	w.wipe("web")
	w.start()
	w.eventually(func() string {
		if w.scaler("web").Status.Recommendation == nil {
			return "there is no recommendation"
		}
		return ""
	})
	after := w.scaler("web").Status.Recommendation
	// The operator writes a checkpoint when the observed time has doubled. A restart may
	// lose up to half of that time, and the confidence that the bounds rest on. It does not
	// lose any of the values.
	x, y := before.ContainerRecommendations[0], after.ContainerRecommendations[0]
	if 2*y.ObservedSeconds < x.ObservedSeconds {
		t.Errorf("%d s of evidence before the restart, %d s after", x.ObservedSeconds, y.ObservedSeconds)
	}
	for _, c := range []*v1beta1.ContainerRecommendation{&x, &y} {
		c.ObservedSeconds, c.LowerBound, c.UpperBound = 0, v1beta1.Amounts{}, v1beta1.Amounts{}
	}
	if !equality.Semantic.DeepEqual(x, y) {
		t.Errorf("recommended before the restart\n%+v\nand after\n%+v", x, y)
	}

	w.remove(s)
	w.gone(s)
	w.gone(&checkpoint)
}

func TestARecreatedDeploymentInheritsTheHistory(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	old := w.deploy("web")
	w.uses("web", "app", 300, 240)
	w.scale("web")
	before := w.sized("web")
	w.remove(old)
	w.gone(old)
	w.says("web", "TargetFound", "False", "DeploymentNotFound", w.namespace+"/web")
	w.says("web", "Ready", "True", "WaitingForDeployment")
	if s := w.scaler("web"); s.Status.Decision != nil || s.Status.Target != nil {
		t.Errorf("the decision %+v and the target %+v outlive the Deployment", s.Status.Decision, s.Status.Target)
	}
	w.usage.Fail(errors.New("no more usage"))
	recreated := w.deploy("web")
	after := w.sized("web")
	if after.Cpu().Cmp(*before.Cpu()) != 0 || after.Memory().Cmp(*before.Memory()) != 0 {
		t.Errorf("requests were %v and are %v", before, after)
	}
	if s := w.scaler("web"); s.Status.Target == nil || s.Status.Target.UID != recreated.UID {
		t.Errorf("target: %+v", s.Status.Target)
	}
}

func TestAScalerDeletedHalfWayLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	testkit.Tidy(t, "a reconcile on a cache that lags may save once more, and garbage collection removes that a moment later", testkit.LaggingCaches)
	w := newFixture(t)
	w.deploy("web")
	w.uses("web", "app", 300, 240)
	w.scale("web")
	w.eventually(func() string {
		if len(count(w.writes(w.began), "pods/resize")) == 0 {
			return "no pod has been resized"
		}
		return ""
	})
	s := w.scaler("web")
	w.remove(s)
	w.gone(s)
	w.gone(&v1beta1.VerticalScalerCheckpoint{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web"}})
	mark := env.Mark()
	victim := w.pods("web")[0]
	w.remove(&victim)
	w.gone(&victim)
	w.runs("web")
	if writes := w.writes(mark); len(writes) > 0 {
		t.Errorf("written after the end: %v", writes)
	}
	// A new scaler with the same name does not inherit its state.
	w.scale("web", inMode("Recommend"))
	w.says("web", "Applied", "False", "RecommendOnly")
	if got := w.scaler("web").Status; got.Decision != nil || len(got.History) > 0 {
		t.Errorf("decision %+v, history %+v", got.Decision, got.History)
	}
}

func TestAnOutageOfTheMetricsLowersNothing(t *testing.T) {
	t.Parallel()
	w := newFixture(t, quick)
	w.deploy("web")
	w.uses("web", "app", 400, 240)
	w.scale("web")
	high := w.sized("web")
	w.observed(32 * time.Minute)
	w.usage.Fail(errors.New("dial tcp: connection refused"))
	w.uses("web", "app", 50, 100)
	w.says("web", "RecommendationProvided", "False", "MetricsUnavailable", "nothing is lowered")
	w.says("web", "Ready", "False", "MetricsUnavailable")
	w.says("web", "Applied", "True", "Applied")
	mark := env.Mark()
	w.rounds(60)
	if n := count(w.writes(mark), "pods/resize"); total(n) > 0 {
		t.Errorf("resizes during the outage: %v", n)
	}
	if s := w.scaler("web"); s.Status.Recommendation == nil || s.Status.Recommendation.ContainerRecommendations[0].Target.CPU.Cmp(*high.Cpu()) < 0 {
		t.Errorf("recommended during the outage: %+v", s.Status.Recommendation)
	}
	w.usage.Fail(nil)
	w.says("web", "Ready", "True", "OperatingNormally")
	w.says("web", "RecommendationProvided", "True", "EnoughHistory")
	w.eventually(func() string {
		if n := count(w.writes(mark), "pods/resize"); len(n) < 3 {
			return "not lowered yet"
		}
		return ""
	})
}

func TestMissingUsageNamesThePod(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web")
	w.uses("web", "app", 300, 240)
	w.scale("web")
	w.sized("web")
	pod := w.pods("web")[0]
	w.usage.refuse(usage.Refused{Pod: pod.Name, Container: "app", Why: usage.Stale})
	w.says("web", "RecommendationProvided", "True", "MetricsIncomplete", "pod "+pod.Name, "app", "Stale")
	w.says("web", "Ready", "True", "OperatingNormally")
	w.usage.refuse()
	w.says("web", "RecommendationProvided", "True", "EnoughHistory")

	// A pod that has run for longer than metrics-server needs, and has no metrics.
	w.deploy("mute")
	w.scale("mute")
	mute := w.pods("mute")[1]
	hourAgo := metav1.NewTime(mute.Status.StartTime.Add(-time.Hour))
	mute.Status.StartTime, mute.Status.ContainerStatuses[0].State.Running.StartedAt = &hourAgo, hourAgo
	if err := env.Client.Status().Update(t.Context(), &mute); err != nil {
		t.Fatal(err)
	}
	w.says("mute", "RecommendationProvided", "False", "MetricsIncomplete", "pod "+mute.Name, "no usage")
	w.says("mute", "Ready", "True", "Learning")
}

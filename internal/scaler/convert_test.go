// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaler

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Values written into a status read back the same, also through JSON.
func TestAStatusReadsBack(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	some := func() quantity.Amounts {
		return quantity.Amounts{CPUMillis: r.Int64N(quantity.MaxCPUMillis) >> r.IntN(20), MemoryBytes: r.Int64N(quantity.MaxMemoryBytes) >> r.IntN(40)}
	}
	for range 2000 {
		decision := &model.Decision{
			Time: time.Unix(r.Int64N(4e9), 0).UTC(), Reason: "ScaleUp", AppliedToTemplate: r.IntN(2) == 0, Reverts: r.IntN(3),
			Requests: map[string]quantity.Amounts{"app": some(), "log": {CPUMillis: 1 + r.Int64N(9)}},
		}
		if r.IntN(2) == 0 {
			decision.LastRevert, decision.ContestedBy = time.Unix(r.Int64N(4e9), 0).UTC(), []string{"helm (Update)", "kubectl (Apply)"}
		}
		failed := []model.RevertedChange{
			{Container: "app", Resource: "cpu", Value: 1 + r.Int64N(1000), Good: 2000, At: time.Unix(r.Int64N(4e9), 0).UTC(), Observed: time.Duration(r.Int64N(1e6)) * time.Second, Evidence: "pod web-1: container app ended"},
			{Container: "log", Resource: "memory", Value: 1 + r.Int64N(1e12), Good: 1 + r.Int64N(1e12), At: time.Unix(r.Int64N(4e9), 0).UTC()},
		}
		if r.IntN(2) == 0 {
			decision.Verification = &model.Verification{
				Began: time.Unix(r.Int64N(4e9), 0).UTC(), Good: map[string]quantity.Amounts{"log": {CPUMillis: 1 + r.Int64N(9)}}, UnhealthyPods: []types.UID{"a", "b"},
			}
			if r.IntN(2) == 0 {
				decision.Verification.ObservedSince, decision.Verification.FirstPodsVerified = time.Unix(r.Int64N(4e9), 0).UTC(), time.Unix(r.Int64N(4e9), 0).UTC()
			}
		}
		if decision.Requests["app"] == (quantity.Amounts{}) {
			delete(decision.Requests, "app")
		}
		if r.IntN(2) == 0 {
			decision.MemoryRaised = map[string]time.Time{"log": time.Unix(r.Int64N(4e9), 0).UTC()}
		}
		rec := recommend.Container{
			Name: "app", Target: some(), LowerBound: some(), UpperBound: some(), Uncapped: some(), Observed: time.Duration(r.Int64N(1e6)) * time.Second,
			Reasons: []recommend.Reason{{Resource: "cpu", Code: "RecentPeak", Value: r.Int64N(1e6)}, {Resource: "memory", Code: "Peak", Value: r.Int64N(1e12)}, {Resource: "memory", Code: "Volatility", Value: r.Int64N(1e12), PerMille: r.Int64N(1001)}},
		}
		held := []model.Original{
			{Container: "app", CPU: true, Memory: true, Resources: workload.Resources{Requests: some(), Limits: some()}},
			{Container: "log", Memory: true, Resources: workload.Resources{Requests: quantity.Amounts{MemoryBytes: r.Int64N(1e9)}}},
		}
		status := v1beta1.VerticalScalerStatus{
			Decision: APIDecision(decision), RevertedChanges: APIRevertedChanges(failed), Recommendation: APIRecommendation([]recommend.Container{rec}),
			OriginalResources: APIOriginals(held[1:], held[:1], workload.Deployment{Name: "web", UID: "uid"}),
		}
		for range 2 {
			if diff := cmp.Diff(decision, Decision(status.Decision)); diff != "" {
				t.Fatalf("seed %d: decision (-want +got):\n%s", seed, diff)
			}
			if diff := cmp.Diff(&rec, PublishedRecommendation(status.Recommendation, "app")); diff != "" {
				t.Fatalf("seed %d: recommendation (-want +got):\n%s", seed, diff)
			}
			if diff := cmp.Diff(failed, RevertedChanges(status.RevertedChanges)); diff != "" {
				t.Fatalf("seed %d: failed (-want +got):\n%s", seed, diff)
			}
			if diff := cmp.Diff(held, Originals(status.OriginalResources, "uid")); diff != "" {
				t.Fatalf("seed %d: held (-want +got):\n%s", seed, diff)
			}
			status = throughJSON(t, status)
		}
	}
}

func throughJSON(t *testing.T, status v1beta1.VerticalScalerStatus) (out v1beta1.VerticalScalerStatus) {
	t.Helper()
	data, err := json.Marshal(status)
	must.Succeed(t, err)
	must.Succeed(t, json.Unmarshal(data, &out))
	return out
}

// hostile are quantities that a status can hold, but no container.
func hostile() []*resource.Quantity {
	var out []*resource.Quantity
	for _, s := range []string{"-1", "-1Gi", "1e18", "1e19", "1e999", "9223372036854775807", "9223372036854775808", "10Ei", "-9223372036854775808"} {
		out = append(out, ptr.To(resource.MustParse(s)))
	}
	return out
}

func TestWhatAStatusCannotHoldCountsAsAbsent(t *testing.T) {
	for _, q := range hostile() {
		t.Run(q.String(), func(t *testing.T) {
			a := v1beta1.Amounts{CPU: q, Memory: q}
			if q.Cmp(resource.MustParse("1Pi")) <= 0 && q.Sign() >= 0 {
				t.Fatal("this one can be")
			}
			if got := Amounts(a); got != (quantity.Amounts{}) {
				t.Errorf("Amounts() = %+v", got)
			}
			decision := Decision(&v1beta1.Decision{Containers: []v1beta1.ContainerDecision{{ContainerName: "app", Requests: a}}, Reverts: -5})
			if len(decision.Requests) != 0 {
				t.Errorf("Decision() = %+v", decision)
			}
			rec := PublishedRecommendation(&v1beta1.Recommendation{ContainerRecommendations: []v1beta1.ContainerRecommendation{{
				ContainerName: "app", Target: a, LowerBound: a, UpperBound: a, UncappedTarget: a, ObservedSeconds: -1,
				Reasons: []v1beta1.RecommendationReason{{Resource: "cpu", Value: *q}, {Resource: "memory", Value: *q}, {Resource: "other", Value: *q}},
			}}}, "app")
			if rec.Target != (quantity.Amounts{}) || rec.Observed != 0 || rec.Reasons[0].Value != 0 || rec.Reasons[1].Value != 0 {
				t.Errorf("PublishedRecommendation() = %+v", rec)
			}
			held := Originals(&v1beta1.OriginalResources{UID: "uid", Containers: []v1beta1.OriginalContainerResources{{ContainerName: "app", Requests: a, Limits: a}}}, "uid")
			if held[0].Resources != (workload.Resources{}) {
				t.Errorf("Originals() = %+v", held)
			}
			if policy := Bounds(&v1beta1.ResourceBounds{CPU: q, Memory: q}); policy != (quantity.Amounts{}) {
				t.Errorf("Bounds() = %+v", policy)
			}
		})
	}
}

func TestAnAbsurdTimeOfObservationIsCut(t *testing.T) {
	rec := PublishedRecommendation(&v1beta1.Recommendation{ContainerRecommendations: []v1beta1.ContainerRecommendation{{ContainerName: "app", ObservedSeconds: 1 << 62}}}, "app")
	if rec.Observed <= 0 || rec.Observed > 11*365*24*time.Hour {
		t.Errorf("observed = %s", rec.Observed)
	}
}

func TestWhatIsNotThereReadsAsNothing(t *testing.T) {
	if Decision(nil) != nil || Decision(&v1beta1.Decision{}) != nil || APIDecision(nil) != nil {
		t.Error("a decision out of nothing")
	}
	if PublishedRecommendation(nil, "app") != nil || PublishedRecommendation(&v1beta1.Recommendation{}, "app") != nil || APIRecommendation(nil) != nil {
		t.Error("a recommendation out of nothing")
	}
	if Originals(nil, "uid") != nil {
		t.Error("something held out of nothing")
	}
	if Originals(&v1beta1.OriginalResources{UID: "another", Containers: []v1beta1.OriginalContainerResources{{ContainerName: "app"}}}, "uid") != nil {
		t.Error("what is held of another Deployment by that name")
	}
}

// A value that was not set is held as 0, and not left out: it is then ours to remove.
func TestHeldDistinguishesNothingFoundFromNothingTaken(t *testing.T) {
	got := APIOriginals(nil, []model.Original{{Container: "app", Memory: true}}, workload.Deployment{Name: "web", UID: "uid"})
	want := &v1beta1.OriginalResources{DeploymentName: "web", UID: "uid", Containers: []v1beta1.OriginalContainerResources{{
		ContainerName: "app",
		Requests:      v1beta1.Amounts{Memory: ptr.To(resource.MustParse("0"))},
		Limits:        v1beta1.Amounts{Memory: ptr.To(resource.MustParse("0"))},
	}}}
	if !EqualStatus(v1beta1.VerticalScalerStatus{OriginalResources: want}, v1beta1.VerticalScalerStatus{OriginalResources: got}) {
		t.Errorf("APIOriginals() = %+v", got)
	}
}

func TestADecisionIsDatedInWholeSeconds(t *testing.T) {
	got := APIDecision(&model.Decision{Time: noon.Add(999 * time.Millisecond), Requests: map[string]quantity.Amounts{"b": amounts(1, 0), "a": amounts(1, 0)}})
	if !got.Time.Equal(&metav1.Time{Time: noon}) {
		t.Errorf("time = %s", got.Time)
	}
	if got.Containers[0].ContainerName != "a" {
		t.Error("containers are not sorted")
	}
}

func TestSizesOfNewPodsAreReportedInOrder(t *testing.T) {
	newest := noon.UTC()
	got := APINewPods(model.NewPods{Sizes: []model.Size{
		{Container: "log", Resources: workload.Resources{Requests: amounts(0, 64)}},
		{Container: "app", Resources: workload.Resources{Requests: amounts(200, 256), Limits: amounts(400, 512)}},
	}, Starts: []model.Size{{Container: "app", Resources: workload.Resources{Requests: amounts(300, 0), Limits: amounts(600, 0)}}}, EffectiveSince: newest, IneffectiveOnPod: "web-1"})
	want := &v1beta1.NewPods{EffectiveSince: &metav1.Time{Time: newest}, IneffectiveOnPod: "web-1", Containers: []v1beta1.NewPodContainer{
		{ContainerName: "app", Requests: APIAmounts(amounts(200, 256)), Limits: APIAmounts(amounts(400, 512)), StartupRequests: APIAmounts(amounts(300, 0)), StartupLimits: APIAmounts(amounts(600, 0))},
		{ContainerName: "log", Requests: APIAmounts(amounts(0, 64))},
	}}
	assert.Equal(t, "APINewPods()", want, got)
	back := NewPods(got)
	if len(back.Sizes) != 2 || back.Sizes[0].Limits != amounts(400, 512) || !back.EffectiveSince.Equal(newest) || back.IneffectiveOnPod != "web-1" ||
		len(back.Starts) != 1 || back.Starts[0].Limits != amounts(600, 0) {
		t.Errorf("read back: %+v", back)
	}
	if none := APINewPods(model.NewPods{}); none != nil {
		t.Errorf("nothing is %+v", none)
	}
}

// A container that was renamed may come back, as long as there is room for its values.
func TestOriginalsOfContainersThatAreGoneGiveWay(t *testing.T) {
	name := func(i int) string { return fmt.Sprintf("app-%02d", i) }
	var before []model.Original
	for i := range 64 {
		before = append(before, model.Original{Container: name(i), CPU: true})
	}
	deployment := workload.Deployment{Containers: []workload.Container{{Name: name(63)}, {Name: name(64)}}}
	if got := APIOriginals(before, nil, deployment); len(got.Containers) != 64 {
		t.Errorf("%d containers are recorded, want all 64", len(got.Containers))
	}
	got := APIOriginals(before, []model.Original{{Container: name(64), CPU: true}}, deployment)
	if len(got.Containers) != 2 || got.Containers[0].ContainerName != name(63) || got.Containers[1].ContainerName != name(64) {
		t.Errorf("recorded %+v, want the two of the template", got.Containers)
	}
}

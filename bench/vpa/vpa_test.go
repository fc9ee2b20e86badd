// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package vpa

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	vpatypes "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/config"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/logic"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"
	updater "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/updater/config"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/updater/priority"

	ours "github.com/verticalscaler/verticalscaler-operator/internal/backtest/vpa"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

const (
	mebi = 1 << 20
	day  = 24 * 60 * 60
)

// library is the recommender of the library, with one container in some pods.
type library struct {
	recommender logic.PodResourceRecommender
	total       *model.AggregateContainerState
	pods        []*model.ContainerState
}

func newLibrary(pods int) *library {
	// The defaults of the recommender's flags.
	c := config.DefaultRecommenderConfig()
	l := &library{
		recommender: logic.CreatePodResourceRecommender(logic.RecommendationConfig{
			SafetyMarginFraction:       c.SafetyMarginFraction,
			PodMinCPUMillicores:        c.PodMinCPUMillicores,
			PodMinMemoryMb:             c.PodMinMemoryMb,
			TargetCPUPercentile:        c.TargetCPUPercentile,
			LowerBoundCPUPercentile:    c.LowerBoundCPUPercentile,
			UpperBoundCPUPercentile:    c.UpperBoundCPUPercentile,
			ConfidenceIntervalCPU:      c.ConfidenceIntervalCPU,
			TargetMemoryPercentile:     c.TargetMemoryPercentile,
			LowerBoundMemoryPercentile: c.LowerBoundMemoryPercentile,
			UpperBoundMemoryPercentile: c.UpperBoundMemoryPercentile,
			ConfidenceIntervalMemory:   c.ConfidenceIntervalMemory,
		}),
		total: model.NewAggregateContainerState(),
	}
	for range pods {
		l.pods = append(l.pods, model.NewContainerState(nil, l.total))
	}
	return l
}

func (l *library) add(pod int, name model.ResourceName, at, amount int64) {
	l.pods[pod].AddSample(&model.ContainerUsageSample{
		MeasureStart: time.Unix(at, 0), Usage: model.ResourceAmount(amount), Resource: name,
	})
}

func (l *library) recommend() ours.Recommendation {
	r := l.recommender.GetRecommendedPodResources(model.ContainerNameToAggregateStateMap{"app": l.total})["app"]
	amounts := func(from model.Resources) quantity.Amounts {
		return quantity.Amounts{CPUMillis: int64(from[model.ResourceCPU]), MemoryBytes: int64(from[model.ResourceMemory])}
	}
	return ours.Recommendation{Target: amounts(r.Target), Lower: amounts(r.LowerBound), Upper: amounts(r.UpperBound)}
}

// wave is the usage of a container at a time: millicores and bytes.
type wave func(r *rand.Rand, at int64) (cpu, memory int64)

var waves = map[string]wave{
	"constant": func(*rand.Rand, int64) (int64, int64) { return 250, 400 * mebi },
	"idle":     func(*rand.Rand, int64) (int64, int64) { return 0, 1 },
	"diurnal": func(r *rand.Rand, at int64) (int64, int64) {
		w := math.Sin(float64(at%day) / day * 2 * math.Pi)
		return int64(max(500+400*w+40*r.NormFloat64(), 0)), int64((600 + 100*w + 5*r.NormFloat64()) * mebi)
	},
	"leak": func(r *rand.Rand, at int64) (int64, int64) { return r.Int64N(200), at % (3 * day) * 4096 },
	"spiky": func(r *rand.Rand, _ int64) (int64, int64) {
		if r.IntN(50) == 0 {
			return 4000, 3000 * mebi
		}
		return 100, 300 * mebi
	},
	"of all sizes": func(r *rand.Rand, _ int64) (int64, int64) {
		return int64(math.Exp(r.Float64() * 16)), int64(math.Exp(r.Float64() * 31))
	},
}

// TestRecommendations feeds the same series to both sides, and compares target and bounds
// after every interval. They must be equal to the millicore and the byte. Several pods share their
// distributions; memory is told of the first, as backtests do.
func TestRecommendations(t *testing.T) {
	for name, usage := range waves {
		for seed := range uint64(6) {
			t.Run(fmt.Sprintf("%s %d", name, seed), func(t *testing.T) {
				var (
					random  = rand.New(rand.NewPCG(seed, 7))
					pods    = []int{1, 1, 3, 1, 10, 2}[seed]
					theirs  = newLibrary(pods)
					mine    = ours.NewModel()
					step    = []int64{60, 300, 15, 3600, 60, 300}[seed]
					at      = []int64{0, 1767571200, 1767571200 + 45296, 86399, 43200, 129600}[seed]
					request = []int64{500, 200, 50, 500, 200, 1000}[seed] * mebi
				)
				for i := range 6000 {
					cpu, memory := usage(random, at)
					isKilled := memory > request && random.IntN(4) > 0
					if isKilled {
						memory = request
					}
					for pod := range pods {
						if pod > 0 {
							cpu, _ = usage(random, at)
						}
						theirs.add(pod, model.ResourceCPU, at, cpu)
						mine.AddCPU(at, cpu)
					}
					if want, got := theirs.recommend(), mine.Recommend(); got != want {
						t.Fatalf("interval %d, before memory is told: got %+v, and the library says %+v", i, got, want)
					}
					theirs.add(0, model.ResourceMemory, at, memory)
					mine.AddMemory(at, memory)
					if isKilled {
						must.Succeed(t, theirs.pods[0].RecordOOM(time.Unix(at, 0), model.ResourceAmount(request)))
						mine.AddOOMKill(at, request)
					}
					want, got := theirs.recommend(), mine.Recommend()
					if got != want {
						t.Fatalf("interval %d, at %d: got %+v, and the library says %+v", i, at, got, want)
					}
					if random.IntN(20) == 0 {
						request = got.Target.MemoryBytes
					}
					at += step
					if random.IntN(500) == 0 {
						at += random.Int64N(40*day) / step * step // a gap; some are longer than 100 days in all
					}
				}
			})
		}
	}
}

// asIs returns a recommendation without applying policies.
type asIs struct {
	recommended *vpatypes.RecommendedPodResources
}

func (a asIs) Apply(*vpatypes.VerticalPodAutoscaler, *corev1.Pod) (*vpatypes.RecommendedPodResources, map[string][]string, error) {
	return a.recommended, nil, nil
}

type everyPod struct{}

func (everyPod) LoopInit([]*corev1.Pod, map[*vpatypes.VerticalPodAutoscaler][]*corev1.Pod) {}
func (everyPod) Admit(*corev1.Pod, *vpatypes.RecommendedPodResources) bool                 { return true }
func (everyPod) CleanUp()                                                                  {}

// TestUpdates shows pods of all ages and sizes to both sides, and compares whether they are
// accepted for an update.
func TestUpdates(t *testing.T) {
	var (
		c       = updater.DefaultUpdaterConfig()
		now     = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
		random  = rand.New(rand.NewPCG(3, 5))
		updated = 0
	)
	list := func(a quantity.Amounts) corev1.ResourceList {
		return corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewMilliQuantity(a.CPUMillis, resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(a.MemoryBytes, resource.BinarySI),
		}
	}
	const rounds = 20_000
	for i := range rounds {
		around := func(a quantity.Amounts, percent int64) quantity.Amounts {
			return quantity.Amounts{
				CPUMillis:   a.CPUMillis * (100 - percent + random.Int64N(2*percent+1)) / 100,
				MemoryBytes: a.MemoryBytes * (100 - percent + random.Int64N(2*percent+1)) / 100,
			}
		}
		// Whole percentages, so that sums hit the exact threshold.
		thousand := quantity.Amounts{CPUMillis: 1000, MemoryBytes: 1000 * mebi}
		r := ours.Recommendation{
			Target: around(thousand, []int64{0, 1, 5, 8, 15, 60}[random.IntN(6)]),
			Lower:  around(quantity.Amounts{CPUMillis: 920, MemoryBytes: 920 * mebi}, 10),
			Upper:  around(quantity.Amounts{CPUMillis: 1080, MemoryBytes: 1080 * mebi}, 10),
		}
		pod := ours.Pod{
			Requests: thousand,
			Started:  now.Add(-time.Duration(random.IntN(24*60)) * time.Minute),
		}
		pod.ContainerStarted = pod.Started
		if random.IntN(3) == 0 {
			pod.KilledAt = now.Add(-time.Duration(random.IntN(14*60)) * time.Second)
			pod.KilledFrom = pod.KilledAt.Add(-time.Duration(random.IntN(14*60)) * time.Second)
		}

		recommended := &vpatypes.RecommendedPodResources{ContainerRecommendations: []vpatypes.RecommendedContainerResources{{
			ContainerName: "app", Target: list(r.Target), LowerBound: list(r.Lower), UpperBound: list(r.Upper),
		}}}
		status := corev1.ContainerStatus{Name: "app"}
		if !pod.KilledAt.IsZero() {
			status.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
				Reason: "OOMKilled", StartedAt: metav1.NewTime(pod.KilledFrom), FinishedAt: metav1.NewTime(pod.KilledAt),
			}
		}
		calculator := priority.NewUpdatePriorityCalculator(&vpatypes.VerticalPodAutoscaler{}, priority.UpdateConfig{
			MinChangePriority:          c.DefaultUpdateThreshold,
			PodLifetimeUpdateThreshold: c.PodLifetimeUpdateThreshold,
			EvictAfterOOMThreshold:     c.EvictAfterOOMThreshold,
		}, asIs{recommended}, priority.NewProcessor())
		calculator.AddPod(&corev1.Pod{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "app", Resources: corev1.ResourceRequirements{Requests: list(pod.Requests)},
			}}},
			Status: corev1.PodStatus{
				StartTime:         &metav1.Time{Time: pod.Started},
				ContainerStatuses: []corev1.ContainerStatus{status},
			},
		}, now, nil)

		want := len(calculator.GetSortedPods(everyPod{})) > 0
		if got := pod.IsUpdated(r, now); got != want {
			t.Fatalf("round %d: got %t, and the updater says %t of %+v", i, got, want, pod)
		}
		if want {
			updated++
		}
	}
	if updated < rounds/10 || updated > rounds*9/10 {
		t.Errorf("%d of %d pods were updated: the test shows little", updated, rounds)
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package collect asks the source of usage once per interval for all scalers of a namespace, or of
// all namespaces. It feeds their histories, and triggers a reconcile only of scalers with changes.
package collect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/checkpoint"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler/precedence"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Source delivers the usage of the pods of a namespace.
type Source interface {
	List(ctx context.Context, namespace string, now time.Time) ([]usage.Sample, []usage.Refused, error)
}

// outageAfter is the number of failed intervals that count as an outage: one lost answer is not
// reported.
const outageAfter = 3

// remembered is the time for which the time of a pod's newest sample is kept. It exceeds the
// largest age that a source accepts.
const remembered = time.Hour

// atOnce is the number of namespaces that are read at once.
const atOnce = 8

// Problems are the reasons why a scaler's usage is incomplete.
type Problems struct {
	// Outage is the source's error; empty while it answers.
	Outage string
	// Silent is true if running pods have no usage, or had none a few rounds ago, or before the
	// first round: requests may not be lowered.
	Silent bool
	// Unread is true if no round was made yet.
	Unread bool
	// Incomplete lists the reported silent containers, if any.
	Incomplete string
	// Recovering says until when usage that is back does not count; empty while a container is silent, or none was.
	Recovering string
	// Past is the reason why past usage cannot be read from Prometheus, if any.
	Past string
}

// known is the collector's state of a scaler's usage.
type known struct {
	Problems

	// wasReadSilent is true if the problems were read while usage was silent: the scaler must be
	// reconciled once it is not.
	wasReadSilent bool
	silences      silences
	// isSized is true if pods run for long enough to have usage, and isBlind if none of them has.
	isSized, isBlind bool
}

// Pods reads the pods of a Deployment. They must not be modified.
type Pods interface {
	Of(ctx context.Context, deployment *appsv1.Deployment) ([]workload.Pod, error)
}

// Collector is the loop. It runs on the leader only.
type Collector struct {
	// Cached lists scalers and Deployments.
	Cached client.Reader
	// Pods reads the pods of Deployments.
	Pods      Pods
	Source    Source
	Histories *checkpoint.Store
	Interval  time.Duration
	Clock     clock.WithTicker
	// Params are the parameters of the recommendation.
	Params recommend.Params
	// Scalers to reconcile are sent to this channel.
	Wake chan<- event.GenericEvent
	// CountPods counts the pods of all namespaces; nil if usage must be read for each namespace.
	CountPods func(ctx context.Context) (int, error)

	// OOMEvents reads the OOM kills of single processes; nil without Prometheus.
	OOMEvents OOMEvents

	// Missing is set while usage of nearly all pods is missing, for users to see it in one place. The problems of scalers
	// do not change then. Nil without a reader.
	Missing *atomic.Bool

	reach    reach // of the rounds, which are one after the other
	oomAsked time.Time

	mu         sync.Mutex
	missingFor int // rounds in a row without usage of nearly all pods
	known      map[types.NamespacedName]known
	namespaces map[string]*namespaceState

	oom         map[usage.Container]oomEvents
	oomAnswered time.Time // zero for never
}

// namespaceState is the state of the answers about a namespace.
type namespaceState struct {
	// failures counts the source's failures in a row.
	failures int
	// uncertain is the number of rounds for which a source that has failed may fail again.
	uncertain int
	// clocks is the first clocksError in a row; nil after another answer. A message with the current age would
	// change in each round.
	clocks *clocksError
	// delivered is the time of each pod's newest sample.
	delivered map[string]time.Time
}

// stateOf is the state of a namespace. The collector is locked.
func (c *Collector) stateOf(namespace string) *namespaceState {
	if c.namespaces == nil {
		c.namespaces = map[string]*namespaceState{}
	}
	if c.namespaces[namespace] == nil {
		c.namespaces[namespace] = &namespaceState{}
	}
	return c.namespaces[namespace]
}

// NeedLeaderElection reports whether only the leader collects.
func (c *Collector) NeedLeaderElection() bool { return true }

// Start collects once per interval until the context ends.
func (c *Collector) Start(ctx context.Context) error {
	ticker := c.Clock.NewTicker(c.Interval)
	defer ticker.Stop()
	for {
		c.Collect(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// ProblemsOf returns the reasons why the scaler's usage is incomplete. Before the first round,
// nothing is known of any pod. If the usage is silent, the scaler is triggered once it is not.
func (c *Collector) ProblemsOf(scaler types.NamespacedName) Problems {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.known[scaler]
	if !ok {
		k.Silent, k.Unread = true, true
	}
	if k.Silent && !k.wasReadSilent {
		k.wasReadSilent = true
		c.remember(scaler, k)
	}
	return k.Problems
}

func (c *Collector) remember(scaler types.NamespacedName, k known) {
	if c.known == nil {
		c.known = map[types.NamespacedName]known{}
	}
	c.known[scaler] = k
}

// Collect makes one round over all namespaces that have scalers which do not stand back.
func (c *Collector) Collect(ctx context.Context) {
	var scalers v1beta1.VerticalScalerList
	if err := c.Cached.List(ctx, &scalers, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Cannot list scalers to collect usage for")
		return
	}
	namespaces := map[string][]*v1beta1.VerticalScaler{}
	seen := map[types.NamespacedName]bool{}
	order := precedence.Of(scalers.Items)
	for i := range scalers.Items {
		s := &scalers.Items[i]
		if !order.StandingOf(s).IsFirst() {
			continue
		}
		namespaces[s.Namespace] = append(namespaces[s.Namespace], s)
		seen[client.ObjectKeyFromObject(s)] = true
	}
	c.forgetAllBut(seen)
	list := c.lister(ctx, slices.Collect(maps.Keys(namespaces)))
	// Several at once, so that a source that does not answer costs the round one
	// time-out and not one for each namespace.
	var round errgroup.Group
	round.SetLimit(atOnce)
	for namespace, scalers := range namespaces {
		round.Go(func() error {
			if ctx.Err() == nil {
				c.collect(ctx, namespace, scalers, list)
			}
			return nil
		})
	}
	_ = round.Wait() // none fails
	c.weigh(ctx)
	c.review(ctx, namespaces)
	c.readOOMEvents(ctx)
}

// weigh finds out whether usage of nearly all pods is missing: that is one fact, and not one of each scaler.
func (c *Collector) weigh(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sized, blind := 0, 0
	for _, k := range c.known {
		if k.isSized {
			sized++
		}
		if k.isSized && k.isBlind {
			blind++
		}
	}
	if scaler.IsUsageDown(blind, sized) {
		c.missingFor++
	} else {
		c.missingFor = 0
	}
	isMissing, value := c.missingFor >= outageAfter, 0.0
	if isMissing {
		value = 1
	}
	usageMissing.WithLabelValues().Set(value)
	if c.Missing != nil && c.Missing.Swap(isMissing) != isMissing {
		log.FromContext(ctx).Info("Changed whether usage of nearly all pods is missing", "missing", isMissing, "scalers", sized, "withoutUsage", blind)
	}
}

// isDown reports whether usage of nearly all pods is missing, and users can see that. The collector is locked.
func (c *Collector) isDown() bool { return c.Missing != nil && c.missingFor > 0 }

// collect makes the round of one namespace.
func (c *Collector) collect(ctx context.Context, namespace string, scalers []*v1beta1.VerticalScaler, list lister) {
	now := c.Clock.Now()
	samples, refused, err := list(ctx, namespace, now)
	count(samples, refused)
	if err == nil {
		err = clocksOf(samples, refused, now)
	}
	outage := c.outage(namespace, err)
	if err != nil {
		log.FromContext(ctx).V(1).Info("Cannot read usage", "Namespace", namespace, "error", err.Error())
		for _, vs := range scalers {
			if c.recordFailure(client.ObjectKeyFromObject(vs), outage, !errors.As(err, new(*clocksError))) {
				c.wake(ctx, vs)
			}
		}
		return
	}
	byPod := groupByPod(samples)
	repeated := c.repeated(namespace, byPod, now)
	refusals := map[string][]usage.Refused{}
	for _, r := range refused {
		refusals[r.Pod] = append(refusals[r.Pod], r)
	}
	for _, vs := range scalers {
		c.feed(ctx, vs, byPod, repeated, refusals, now)
	}
}

// groupByPod groups samples by their pods. Sources list the containers of a pod one after the other: these samples are not
// copied.
func groupByPod(samples []usage.Sample) map[string][]usage.Sample {
	byPod := map[string][]usage.Sample{}
	for first := 0; first < len(samples); {
		pod, end := samples[first].Pod, first+1
		for end < len(samples) && samples[end].Pod == pod {
			end++
		}
		if before, ok := byPod[pod]; ok {
			byPod[pod] = append(before, samples[first:end]...)
		} else {
			byPod[pod] = samples[first:end:end] // so that append copies
		}
		first = end
	}
	return byPod
}

// feed gives one scaler's history the samples of its pods, and triggers a reconcile if that changes anything.
func (c *Collector) feed(ctx context.Context, vs *v1beta1.VerticalScaler, samples map[string][]usage.Sample, repeated map[string]bool, refused map[string][]usage.Refused, now time.Time) {
	key := client.ObjectKeyFromObject(vs)
	var deployment appsv1.Deployment
	if err := c.Cached.Get(ctx, types.NamespacedName{Namespace: vs.Namespace, Name: vs.Spec.DeploymentName}, &deployment, client.UnsafeDisableDeepCopy); err != nil {
		c.recordAnswer(key, known{})
		return // its creation will wake the scaler
	}
	pods, err := c.Pods.Of(ctx, &deployment)
	if err != nil {
		log.FromContext(ctx).Error(err, "Cannot find the pods to feed usage for", "VerticalScaler", key)
		return
	}
	c.AddOOMEvents(vs.Namespace, pods)
	target, allPods := workload.ReadDeployment(&deployment), pods
	pods = withoutInjectedSidecars(pods, workload.NamesOf(&deployment.Spec.Template.Spec))
	used := usageOf(&vs.Spec, pods, samples, refused)
	before, isDown := c.silencesOf(key)
	after, silent := before.next(used, now, isDown)
	isSized, isBlind := blindnessOf(used, now)
	isNews := c.recordAnswer(key, known{silences: after, isSized: isSized, isBlind: isBlind})
	outdated := false
	// Nothing is fed before the scaler's first reconcile has loaded its history.
	news := newSamples(used, repeated, silent)
	c.Histories.Feed(vs, news, func(histories history.Histories) {
		outdated = slices.ContainsFunc(news, history.IsCappedStart) || lacksKill(histories, allPods) || scaler.IsRecommendationOutdated(vs, target, allPods, histories, c.Params)
	})
	if outdated || isNews {
		c.wake(ctx, vs)
	}
}

// withoutInjectedSidecars are the pods without the native sidecars that their template does not have. The
// operator does not size these, and not every source has usage of them. The containers of pods are shared.
func withoutInjectedSidecars(pods []workload.Pod, declared []string) []workload.Pod {
	isInjected := func(c workload.Container) bool { return c.IsSidecar && !slices.Contains(declared, c.Name) }
	for i, pod := range pods {
		if slices.ContainsFunc(pod.Containers, isInjected) {
			pods[i].Containers = slices.DeleteFunc(slices.Clone(pod.Containers), isInjected)
		}
	}
	return pods
}

// podUsage is the usage of a pod in an answer.
type podUsage struct {
	workload.Pod

	samples []usage.Sample // of its containers
	refused []usage.Refused
}

// usageOf is the usage of pods in an answer. It rejects samples that a container cannot have.
func usageOf(spec *v1beta1.VerticalScalerSpec, pods []workload.Pod, samples map[string][]usage.Sample, refused map[string][]usage.Refused) []podUsage {
	out := make([]podUsage, len(pods))
	for i, pod := range pods {
		given := samples[pod.Name]
		u := podUsage{Pod: pod, samples: make([]usage.Sample, 0, len(given)), refused: slices.Clip(refused[pod.Name])}
		for _, sample := range given {
			if _, isOfPod := pod.Container(sample.Container); !isOfPod {
				continue
			}
			var isPossible bool
			if sample.MemoryBytes, isPossible = memoryOf(pod, sample); !isPossible {
				u.refused = append(u.refused, usage.Refused{Pod: pod.Name, Container: sample.Container, Why: usage.AboveLimit})
				continue
			}
			has := pod.Applied(sample.Container)
			if has.Requests.CPUMillis > 0 {
				sample.LimitFactor = float64(has.Limits.CPUMillis) / float64(has.Requests.CPUMillis)
			}
			began := sample.Time.Add(-sample.Window)
			if !pod.Resized.After(began) { // else, the usage may belong to another limit
				sample.CPULimitMillis = has.Limits.CPUMillis
			}
			sample.MemoryRequest, sample.MemoryLimit = has.Requests.MemoryBytes, has.Limits.MemoryBytes
			// CPU usage during a startup boost does not predict later usage. A sample belongs to
			// the start if its window begins there.
			sample.NoCPU = scaler.StartsWithBoost(spec, pod, sample.Container, began)
			sample.Starting = scaler.StartsWithoutBoost(spec, pod, sample.Container, began)
			u.samples = append(u.samples, sample)
		}
		out[i] = u
	}
	return out
}

// newSamples are the samples of pods that were not delivered before. Of the silent containers, a running pod has no
// sample.
func newSamples(pods []podUsage, repeated, silent map[string]bool) (news []usage.Sample) {
	for _, pod := range pods {
		if repeated[pod.Name] {
			continue
		}
		for _, sample := range pod.samples {
			sample.RaisesOnly = silent[sample.Container]
			news = append(news, sample)
		}
	}
	return news
}

// repeated names the pods whose samples were delivered before: a source that measures less often
// than we ask repeats its answer, and one moment must not count twice. A pod may have been missing
// in between.
func (c *Collector) repeated(namespace string, samples map[string][]usage.Sample, now time.Time) map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.stateOf(namespace)
	before := state.delivered
	after := make(map[string]time.Time, len(samples))
	for pod, at := range before {
		if now.Sub(at) < remembered {
			after[pod] = at
		}
	}
	repeated := map[string]bool{}
	for pod, list := range samples {
		newest := slices.MaxFunc(list, func(a, b usage.Sample) int { return a.Time.Compare(b.Time) }).Time
		repeated[pod] = !newest.After(before[pod])
		if !repeated[pod] {
			after[pod] = newest
		}
	}
	state.delivered = after
	return repeated
}

// outage counts failures in a row, and is the error once there are too many.
func (c *Collector) outage(namespace string, err error) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.stateOf(namespace)
	if err == nil {
		state.failures, state.uncertain, state.clocks = 0, max(state.uncertain-1, 0), nil
		return ""
	}
	var clocks *clocksError
	if errors.As(err, &clocks) && state.clocks != nil && (clocks.age < 0) == (state.clocks.age < 0) {
		err = state.clocks
	} else {
		state.clocks = clocks
	}
	state.uncertain = recoveredAfter
	if state.failures++; state.failures < outageAfter {
		return ""
	}
	return describeOutage(err)
}

// describeOutage keeps the constant part of the error: the API server's messages hold addresses and
// request IDs.
func describeOutage(err error) string {
	var clocks *clocksError
	switch {
	case errors.As(err, &clocks):
		return clocks.Error()
	case apierrors.IsForbidden(err):
		return "the operator may not list pods.metrics.k8s.io"
	case apierrors.IsNotFound(err):
		return "metrics.k8s.io is not served: is metrics-server installed?"
	case apierrors.IsServiceUnavailable(err):
		return "metrics.k8s.io is unavailable: is metrics-server running?"
	}
	return "metrics.k8s.io does not answer as it should; the operator's log has the error"
}

// sameClock is the largest distance between samples of one clock: metrics-server may scrape once a minute.
const sameClock = 2 * time.Minute

// clocksError is the error of an answer in which all samples are rejected for their time, by about the same
// amount. The pods are not silent then. Timestamps come from the kubelets, metrics-server or an adapter.
type clocksError struct {
	age time.Duration // of the newest sample; negative if it is from the future
}

// Error implements error.
func (e *clocksError) Error() string {
	if e.age < 0 {
		return fmt.Sprintf("all usage is %s ahead: the clocks of the operator and of the metrics server or its nodes differ", (-e.age).Round(time.Minute))
	}
	return fmt.Sprintf("all usage is at least %s old: the clocks of the operator and of the metrics server or its nodes differ, or the metrics server has stopped",
		e.age.Truncate(time.Minute))
}

// clocksOf is a clocksError for such an answer, or nil.
func clocksOf(samples []usage.Sample, refused []usage.Refused, now time.Time) error {
	hasOtherCause := func(r usage.Refused) bool { return r.Why != usage.Stale && r.Why != usage.FromTheFuture }
	if len(samples) > 0 || len(refused) == 0 || slices.ContainsFunc(refused, hasOtherCause) {
		return nil
	}
	byTime := func(a, b usage.Refused) int { return a.Time.Compare(b.Time) }
	oldest, newest := slices.MinFunc(refused, byTime).Time, slices.MaxFunc(refused, byTime).Time
	if newest.Sub(oldest) > sameClock {
		return nil
	}
	return &clocksError{age: now.Sub(newest)}
}

// silencesOf are the containers of the scaler's Deployment that were silent so far, and whether nearly all pods are.
func (c *Collector) silencesOf(key types.NamespacedName) (silences, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[key].silences, c.isDown()
}

// recordAnswer records the silent containers after an answer, and reports whether the scaler must be reconciled.
func (c *Collector) recordAnswer(key types.NamespacedName, k known) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k.Problems = Problems{Silent: len(k.silences) > 0 || c.stateOf(key.Namespace).uncertain > 0, Incomplete: k.silences.String()}
	if k.silences.areEnding() {
		k.Incomplete, k.Recovering = "", fmt.Sprintf("usage is back, and counts after %d rounds in a row, in %s", recoveredAfter, recoveredAfter*c.Interval)
	}
	return c.note(key, k)
}

// recordFailure records that the source has failed, and reports whether the scaler must be reconciled. Metrics whose times are
// wrong are not down: each scaler reports that clocks differ.
func (c *Collector) recordFailure(key types.NamespacedName, outage string, isBlind bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, isKnown := c.known[key]
	k.Silent, k.Unread = true, false
	k.isSized, k.isBlind = k.isSized || !isKnown, isBlind
	if outage != "" {
		k.Outage, k.Incomplete, k.Recovering = outage, "", ""
	}
	return c.note(key, k)
}

// note replaces the state of a scaler. The scaler must be reconciled if its status changes, or if
// it has waited for usage.
func (c *Collector) note(key types.NamespacedName, k known) bool {
	before := c.known[key]
	if c.isDown() {
		k.Outage, k.Incomplete, k.Recovering = before.Outage, before.Incomplete, before.Recovering
	}
	k.wasReadSilent = before.wasReadSilent && k.Silent
	c.remember(key, k)
	hasWaited := before.wasReadSilent && !k.Silent
	return hasWaited || before.Outage != k.Outage || before.Incomplete != k.Incomplete || before.Recovering != k.Recovering
}

func (c *Collector) forgetAllBut(seen map[types.NamespacedName]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	namespaces := map[string]bool{}
	for key := range seen {
		namespaces[key.Namespace] = true
	}
	maps.DeleteFunc(c.known, func(key types.NamespacedName, _ known) bool { return !seen[key] })
	maps.DeleteFunc(c.namespaces, func(namespace string, _ *namespaceState) bool { return !namespaces[namespace] })
}

func (c *Collector) wake(ctx context.Context, vs *v1beta1.VerticalScaler) {
	select {
	case c.Wake <- event.GenericEvent{Object: vs}:
	case <-ctx.Done():
	}
}

var usageMissing = metrics.NewGauge(metrics.Metric{
	Name:      "verticalscaler_usage_missing",
	Help:      "1 if usage of nearly all pods is missing: metrics are down. Only of the leader.",
	Stability: metrics.Alpha,
})

// used is the outcome of a sample that was not refused.
const used = "Used"

var received = metrics.NewCounter(metrics.Metric{
	Name:      "verticalscaler_samples_total",
	Help:      "Usage samples received, by what became of them: Used, or the reason of the refusal.",
	Labels:    []string{"outcome"},
	Stability: metrics.Beta,
}, []string{used})

// count counts the samples of a source.
func count(samples []usage.Sample, refused []usage.Refused) {
	received.WithLabelValues(used).Add(float64(len(samples)))
	for _, r := range refused {
		received.WithLabelValues(string(r.Why)).Inc()
	}
}

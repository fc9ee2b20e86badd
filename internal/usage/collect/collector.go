// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package collect asks the source of usage once per interval for all scalers of a
// namespace, feeds their histories, and triggers a reconcile only of those scalers for
// which something has changed.
package collect

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/checkpoint"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// Source delivers the usage of the pods of a namespace.
type Source interface {
	List(ctx context.Context, namespace string, now time.Time) ([]usage.Sample, []usage.Refused, error)
}

// outageAfter is how many intervals a source may fail before that is called an
// outage: one lost answer is not worth a word.
const outageAfter = 3

// atOnce is how many namespaces are asked about at once.
const atOnce = 8

// settling is how long a pod may run without usage before that is worth a word:
// metrics-server needs two scrapes of a new container.
const settling = 2 * time.Minute

// Problems is what keeps a scaler's usage from being complete.
type Problems struct {
	// Outage is the source's error; empty while it answers.
	Outage string
	// Incomplete names what is missing or was refused, sorted; empty if nothing.
	Incomplete string
	// Past is why usage of the past cannot be had from Prometheus; empty if it can, or
	// is not wanted.
	Past string
}

// Collector is the loop. It runs on the leader only.
type Collector struct {
	// Cached lists scalers, Deployments and pods.
	Cached    client.Reader
	Source    Source
	Histories *checkpoint.Store
	Interval  time.Duration
	Clock     clock.WithTicker
	// Params are those of the recommendation.
	Params recommend.Params
	// Wake receives the scalers to reconcile.
	Wake chan<- event.GenericEvent

	mu       sync.Mutex
	problems map[types.NamespacedName]Problems
	failures map[string]int
	// delivered is the time of each pod's newest sample, by namespace.
	delivered map[string]map[string]time.Time
}

// NeedLeaderElection says that only the leader collects.
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

// ProblemsOf tells what keeps the scaler's usage from being complete.
func (c *Collector) ProblemsOf(scaler types.NamespacedName) Problems {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.problems[scaler]
}

// Collect makes one round over all namespaces that have scalers.
func (c *Collector) Collect(ctx context.Context) {
	var scalers v1beta1.VerticalScalerList
	if err := c.Cached.List(ctx, &scalers, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Cannot list scalers to collect usage for")
		return
	}
	namespaces := map[string][]*v1beta1.VerticalScaler{}
	seen := map[types.NamespacedName]bool{}
	for i := range scalers.Items {
		s := &scalers.Items[i]
		namespaces[s.Namespace] = append(namespaces[s.Namespace], s)
		seen[client.ObjectKeyFromObject(s)] = true
	}
	c.forgetAllBut(seen)
	// Several at once, so that a source that does not answer costs the round one
	// time-out and not one for each namespace.
	var round sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for namespace, list := range namespaces {
		free <- struct{}{}
		round.Go(func() {
			defer func() { <-free }()
			if ctx.Err() == nil {
				c.collect(ctx, namespace, list)
			}
		})
	}
	round.Wait()
}

// collect makes the round of one namespace.
func (c *Collector) collect(ctx context.Context, namespace string, scalers []*v1beta1.VerticalScaler) {
	now := c.Clock.Now()
	samples, refused, err := c.Source.List(ctx, namespace, now)
	outage := c.outage(namespace, err)
	if err != nil {
		log.FromContext(ctx).V(1).Info("Cannot read usage", "Namespace", namespace, "error", err.Error())
		if outage == "" {
			return
		}
		for _, vs := range scalers {
			if c.tell(client.ObjectKeyFromObject(vs), Problems{Outage: outage}) {
				c.wake(ctx, vs)
			}
		}
		return
	}
	count(samples, refused)
	byPod := map[string][]usage.Sample{}
	for _, sample := range samples {
		byPod[sample.Pod] = append(byPod[sample.Pod], sample)
	}
	repeated := c.repeated(namespace, byPod)
	refusals := map[string][]usage.Refused{}
	for _, r := range refused {
		refusals[r.Pod] = append(refusals[r.Pod], r)
	}
	for _, vs := range scalers {
		c.feed(ctx, vs, byPod, repeated, refusals, now)
	}
}

// feed gives one scaler's history the samples of its pods, and wakes it if that
// changes anything.
func (c *Collector) feed(ctx context.Context, vs *v1beta1.VerticalScaler, samples map[string][]usage.Sample, repeated map[string]bool, refused map[string][]usage.Refused, now time.Time) {
	key := client.ObjectKeyFromObject(vs)
	var deployment appsv1.Deployment
	if err := c.Cached.Get(ctx, types.NamespacedName{Namespace: vs.Namespace, Name: vs.Spec.DeploymentName}, &deployment); err != nil {
		c.tell(key, Problems{})
		return // its creation will wake the scaler
	}
	pods, err := inventory.PodsOf(ctx, c.Cached, &deployment)
	if err != nil {
		log.FromContext(ctx).Error(err, "Cannot find the pods to feed usage for", "VerticalScaler", key)
		return
	}
	var news []usage.Sample
	for _, pod := range pods {
		if repeated[pod.Name] {
			continue
		}
		for _, sample := range samples[pod.Name] {
			if _, ok := pod.Container(sample.Container); ok {
				var isPossible bool
				if sample.MemoryBytes, isPossible = memoryOf(pod, sample); !isPossible {
					refused[pod.Name] = append(refused[pod.Name], usage.Refused{Pod: pod.Name, Container: sample.Container, Why: usage.AboveLimit})
					continue
				}
				// CPU used during a boosted start says nothing about later. A sample counts
				// as one of the start if its window begins there.
				sample.NoCPU = scaler.StartsWithBoost(&vs.Spec, pod, sample.Container, sample.Time.Add(-sample.Window))
				news = append(news, sample)
			}
		}
	}
	outdated := false
	loaded := c.Histories.Feed(vs, news, func(histories history.Histories) {
		outdated = scaler.IsRecommendationOutdated(vs, containersOf(&deployment), histories, c.Params)
	})
	if !loaded {
		return // the scaler's first pass has not loaded its history yet
	}
	told := c.tell(key, Problems{Incomplete: incomplete(pods, samples, refused, now)})
	if outdated || told {
		c.wake(ctx, vs)
	}
}

// incomplete names the pods whose usage is missing or was refused.
func incomplete(pods []workload.Pod, samples map[string][]usage.Sample, refused map[string][]usage.Refused, now time.Time) string {
	var parts []string
	for _, pod := range pods {
		if !pod.Running || pod.Terminating {
			continue
		}
		if why := refused[pod.Name]; len(why) > 0 {
			parts = append(parts, fmt.Sprintf("pod %s: %s", pod.Name, kinds(why)))
		} else if len(samples[pod.Name]) == 0 && now.Sub(pod.Started) > settling {
			parts = append(parts, fmt.Sprintf("pod %s: no usage reported", pod.Name))
		}
	}
	sort.Strings(parts)
	const most = 3
	if n := len(parts); n > most {
		parts = append(parts[:most], "and more")
	}
	return strings.Join(parts, "; ")
}

func kinds(refused []usage.Refused) string {
	seen := map[string]bool{}
	var out []string
	for _, r := range refused {
		word := string(r.Why)
		if r.Container != "" {
			word = "container " + r.Container + " " + word
		}
		if !seen[word] {
			seen[word] = true
			out = append(out, word)
		}
	}
	sort.Strings(out)
	return strings.Join(out, ", ")
}

// repeated names the pods whose samples were delivered before: a source that looks
// less often than we ask answers the same again, and one moment must not count
// twice.
func (c *Collector) repeated(namespace string, samples map[string][]usage.Sample) map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.delivered[namespace]
	after := make(map[string]time.Time, len(samples))
	repeated := map[string]bool{}
	for pod, list := range samples {
		newest := slices.MaxFunc(list, func(a, b usage.Sample) int { return a.Time.Compare(b.Time) }).Time
		after[pod] = newest
		repeated[pod] = !newest.After(before[pod])
	}
	if c.delivered == nil {
		c.delivered = map[string]map[string]time.Time{}
	}
	c.delivered[namespace] = after
	return repeated
}

// outage counts failures in a row, and is the error once there are too many.
func (c *Collector) outage(namespace string, err error) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		delete(c.failures, namespace)
		return ""
	}
	if c.failures == nil {
		c.failures = map[string]int{}
	}
	c.failures[namespace]++
	if c.failures[namespace] < outageAfter {
		return ""
	}
	return sayOutage(err)
}

// sayOutage keeps what is the same in every round: the API server's messages hold
// addresses and request IDs.
func sayOutage(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return "the operator may not list pods.metrics.k8s.io"
	case apierrors.IsNotFound(err):
		return "metrics.k8s.io is not served: is metrics-server installed?"
	case apierrors.IsServiceUnavailable(err):
		return "metrics.k8s.io is unavailable: is metrics-server running?"
	}
	return "metrics.k8s.io does not answer as it should; the operator's log has the error"
}

// tell records the problems and says whether they are news.
func (c *Collector) tell(key types.NamespacedName, p Problems) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.problems == nil {
		c.problems = map[types.NamespacedName]Problems{}
	}
	news := c.problems[key] != p
	c.problems[key] = p
	return news
}

func (c *Collector) forgetAllBut(seen map[types.NamespacedName]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	namespaces := map[string]bool{}
	for key := range seen {
		namespaces[key.Namespace] = true
	}
	for key := range c.problems {
		if !seen[key] {
			delete(c.problems, key)
		}
	}
	for namespace := range c.delivered {
		if !namespaces[namespace] {
			delete(c.delivered, namespace)
		}
	}
	for namespace := range c.failures { // it may never have delivered anything
		if !namespaces[namespace] {
			delete(c.failures, namespace)
		}
	}
}

func (c *Collector) wake(ctx context.Context, vs *v1beta1.VerticalScaler) {
	select {
	case c.Wake <- event.GenericEvent{Object: vs}:
	case <-ctx.Done():
	}
}

func containersOf(deployment *appsv1.Deployment) (names []string) {
	for _, c := range deployment.Spec.Template.Spec.Containers {
		names = append(names, c.Name)
	}
	return names
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain/live"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/metricsapi"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/prometheus"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

const (
	// usageLasts is how long usage is not read again. metrics-server has new usage every 15
	// seconds or more.
	usageLasts = 5 * time.Second
	// readersAtOnce is how many namespaces are read at once.
	readersAtOnce = 8
	// podsAtOnce is how many pods one response has.
	podsAtOnce = 500
	// pointsOfPast is about how many points are read from Prometheus.
	pointsOfPast = 300
)

// liveReader reads how scalers are doing, with the rights of the user. Only the scalers are
// required; what else cannot be read is reported as missing. It may be used from several
// goroutines.
type liveReader struct {
	client            client.Reader
	metrics           *metricsapi.Source
	clock             clock.PassiveClock
	time              *serverClock // of the API server
	operatorNamespace string       // empty if the user does not say

	mu    sync.Mutex
	known map[string]namespaceUsage
}

// namespaceUsage is the usage of a namespace, or why there is none.
type namespaceUsage struct {
	at      time.Time
	samples []usage.Sample
	byPod   map[string][]usage.Sample
	missing string
}

// ofPods are the samples of some pods. A fleet does not go through all samples for each scaler.
func (u namespaceUsage) ofPods(pods []workload.Pod) (samples []usage.Sample) {
	for i := range pods {
		samples = append(samples, u.byPod[pods[i].Name]...)
	}
	return samples
}

// openLive opens the cluster that kubectl would use.
func (c *cluster) openLive() (*liveReader, error) {
	reader, err := c.open()
	if err != nil {
		return nil, err
	}
	config, err := c.config.ClientConfig()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS = -1 // readersAtOnce and usageLasts limit the requests
	metrics, err := metricsapi.New(config)
	if err != nil {
		return nil, err
	}
	return &liveReader{client: reader, metrics: metrics, clock: clock.RealClock{}, time: &c.time, operatorNamespace: c.operatorNamespace, known: map[string]namespaceUsage{}}, nil
}

// Scaler reads one scaler. It is an error if it does not exist or may not be read.
func (r *liveReader) Scaler(ctx context.Context, name types.NamespacedName) (live.Scaler, error) {
	s, _, err := r.explained(ctx, name)
	return s, err
}

// explained reads one scaler, and explains it.
func (r *liveReader) explained(ctx context.Context, name types.NamespacedName) (live.Scaler, explain.Explanation, error) {
	evidence, err := evidenceOf(ctx, r.client, name)
	if err != nil {
		return live.Scaler{}, explain.Explanation{}, err
	}
	used := r.usage(ctx, name.Namespace)
	if evidence.Operators, err = operatorsOf(ctx, r.client, r.operatorNamespace, name.Namespace); err != nil {
		evidence.Missing = append(evidence.Missing, fmt.Sprintf("Whether the operator runs: %v", err))
	}
	evidence.Now = r.now()
	return live.Of(evidence, used.samples, used.missing, evidence.Now), explain.Of(evidence), nil
}

// now is the time of the API server.
func (r *liveReader) now() time.Time { return r.time.Now(r.clock.Now()) }

// Fleet reads all scalers of a namespace, or of all namespaces if it is "". It is an error
// if they may not be listed.
func (r *liveReader) Fleet(ctx context.Context, namespace string) (live.Fleet, error) {
	var scalers v1beta1.VerticalScalerList
	if err := r.client.List(ctx, &scalers, client.InNamespace(namespace)); err != nil {
		if apierrors.IsNotFound(err) {
			return live.Fleet{}, errNotInstalled
		}
		return live.Fleet{}, fmt.Errorf("listing VerticalScalers: %w", err)
	}
	var out live.Fleet
	targets := map[types.NamespacedName]*explain.Evidence{}
	evidence, namespaces := make([]explain.Evidence, len(scalers.Items)), map[string]bool{}
	for i := range scalers.Items {
		s := &scalers.Items[i]
		evidence[i].Scaler, namespaces[s.Namespace] = s, true
		if !inConflict(s) {
			targets[types.NamespacedName{Namespace: s.Namespace, Name: s.Spec.DeploymentName}] = &evidence[i]
		}
	}
	if len(targets) > 0 {
		out.Missing = append(r.readDeployments(ctx, namespace, targets), r.readPods(ctx, namespace, targets)...)
	}
	used := r.usageOfAll(ctx, slices.Sorted(maps.Keys(namespaces)))
	if missing := missingUsage(used); missing != "" {
		out.Missing = append(out.Missing, missing)
	}
	operators, err := operatorsOf(ctx, r.client, r.operatorNamespace, namespace)
	if err != nil {
		out.Missing = append(out.Missing, fmt.Sprintf("Whether the operator runs: %v", err))
	}
	operators = operators.Serving(scalers.Items...)
	out.At = r.now()
	for _, e := range evidence {
		e.Operators, e.Now = operators, out.At
		of := used[e.Scaler.Namespace]
		out.Rows = append(out.Rows, live.RowOf(live.Of(e, of.ofPods(e.Pods), of.missing, out.At)))
	}
	return out, ctx.Err()
}

// inConflict reports whether another scaler sizes the Deployment, as the scaler says itself.
func inConflict(s *v1beta1.VerticalScaler) bool {
	c := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionTargetFound)
	return c != nil && c.Reason == v1beta1.ReasonConflict
}

func (r *liveReader) readDeployments(ctx context.Context, namespace string, of map[types.NamespacedName]*explain.Evidence) (missing []string) {
	var list appsv1.DeploymentList
	if err := r.client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return []string{fmt.Sprintf("The Deployments: %v", err)}
	}
	for i := range list.Items {
		if e := of[client.ObjectKeyFromObject(&list.Items[i])]; e != nil {
			e.Deployment = &list.Items[i]
		}
	}
	return nil
}

// readPods reads the running pods of the Deployments, as pages.
func (r *liveReader) readPods(ctx context.Context, namespace string, of map[types.NamespacedName]*explain.Evidence) (missing []string) {
	for next := ""; ; {
		var page corev1.PodList
		if err := r.client.List(ctx, &page, client.InNamespace(namespace), client.Limit(podsAtOnce), client.Continue(next)); err != nil {
			return []string{fmt.Sprintf("The pods: %v", err)}
		}
		for i := range page.Items {
			e := of[types.NamespacedName{Namespace: page.Items[i].Namespace, Name: deploymentOfPod(&page.Items[i])}]
			if e == nil {
				continue
			}
			if pod := workload.ReadPod(&page.Items[i], true); pod.Running && !pod.Terminating {
				e.Pods = append(e.Pods, pod)
			}
		}
		if next = page.Continue; next == "" {
			return nil
		}
	}
}

// deploymentOfPod is the name of the Deployment that has created the pod's ReplicaSet. The
// Deployment controller names a ReplicaSet after the Deployment and the hash of the template.
func deploymentOfPod(pod *corev1.Pod) string {
	owner := metav1.GetControllerOf(pod)
	hash := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	if owner == nil || owner.Kind != "ReplicaSet" || hash == "" {
		return ""
	}
	name, ok := strings.CutSuffix(owner.Name, "-"+hash)
	if !ok {
		return ""
	}
	return name
}

func (r *liveReader) usageOfAll(ctx context.Context, namespaces []string) map[string]namespaceUsage {
	var (
		mu    sync.Mutex
		group sync.WaitGroup
	)
	out, turns := map[string]namespaceUsage{}, make(chan struct{}, readersAtOnce)
	for _, namespace := range namespaces {
		group.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			used := r.usage(ctx, namespace)
			mu.Lock()
			defer mu.Unlock()
			out[namespace] = used
		})
	}
	group.Wait()
	return out
}

// missingUsage says in how many namespaces usage could not be read, with one example.
func missingUsage(of map[string]namespaceUsage) string {
	var without []string
	for namespace, used := range of {
		if used.missing != "" {
			without = append(without, namespace)
		}
	}
	if len(without) == 0 {
		return ""
	}
	return fmt.Sprintf("The usage of %d of %d namespaces: %s", len(without), len(of), of[slices.Min(without)].missing)
}

// usage reads the usage of a namespace, unless it was read just now.
func (r *liveReader) usage(ctx context.Context, namespace string) namespaceUsage {
	now := r.clock.Now()
	r.mu.Lock()
	known, ok := r.known[namespace]
	r.mu.Unlock()
	if ok && now.Sub(known.at) < usageLasts {
		return known
	}
	read := namespaceUsage{at: now, byPod: map[string][]usage.Sample{}}
	samples, _, err := r.metrics.List(ctx, namespace, now)
	switch {
	case errors.Is(err, metricsapi.ErrUnavailable):
		read.missing = "metrics.k8s.io is not served: is metrics-server installed?"
	case err != nil:
		read.missing = err.Error()
	}
	read.samples = samples
	for _, s := range samples {
		read.byPod[s.Pod] = append(read.byPod[s.Pod], s)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[namespace] = read
	return read
}

// pastSeries is what a container has used before.
type pastSeries struct {
	container, resource string
	points              []live.Point
}

// pastUsage is what Prometheus knows about the containers of a scaler.
type pastUsage struct {
	series                 []pastSeries
	hasRequests, hasLimits bool
	// missing is why requests and limits could not be read; empty if they could be.
	missing string
}

// of reads from Prometheus what the containers of a scaler have used and requested before.
func (o pastOptions) of(ctx context.Context, s live.Scaler) (past pastUsage, err error) {
	o.step = max(time.Minute, (o.since / pointsOfPast).Round(time.Minute))
	source, err := o.source()
	if err != nil {
		return past, fmt.Errorf("--prometheus: %w", err)
	}
	target := prometheus.Target{Namespace: s.State.Namespace, Deployment: s.State.Deployment, Scaler: s.State.Name}
	for _, c := range s.Containers {
		target.Containers = append(target.Containers, c.Name)
	}
	used := peaks{}
	if err := source.Range(ctx, target, s.At.Add(-o.since), s.At, func(c prometheus.Chunk) { used.add(c.Samples, o.step) }); err != nil {
		return past, fmt.Errorf("asking Prometheus at %s: %w", o.address, err)
	}
	sizes, err := source.Sizes(ctx, target, s.At.Add(-o.since), s.At)
	if err != nil {
		sizes, past.missing = prometheus.Sizes{}, fmt.Sprintf("asking Prometheus at %s: %v", o.address, err)
	}
	past.hasRequests, past.hasLimits = sizes.HasRequests, sizes.HasLimits
	for _, c := range s.Containers {
		for _, r := range c.Resources {
			points := pointsOf(r, used[c.Name], sizes.At[prometheus.Of{Container: c.Name, Resource: r.Resource}], o.step, s.At)
			past.series = append(past.series, pastSeries{container: c.Name, resource: r.Resource, points: points})
		}
	}
	return past, nil
}

// pointsOf are the points of a resource of a container, in chronological order. At a time at which
// nothing is known although requests are known before, there was no pod: its request ends there.
// Limits likewise.
func pointsOf(r live.Resource, used map[int64]quantity.Amounts, sizes map[time.Time]prometheus.Size, step time.Duration, to time.Time) (points []live.Point) {
	known := map[int64]live.Point{}
	for start, amounts := range used {
		end := time.Unix(start, 0).Add(step)
		known[end.Unix()] = live.Point{At: end, Used: live.AmountOf(r.Resource, amounts), Request: live.Unknown, Limit: live.Unknown}
	}
	for at, size := range sizes {
		p, ok := known[at.Unix()]
		if !ok {
			p = live.Point{At: at, Used: live.Unknown}
		}
		p.Request, p.Limit = furthest(size.Request, r.Target), furthest(size.Limit, r.Target)
		known[at.Unix()] = p
	}
	gap := live.Point{Used: live.Unknown, Request: live.Unknown, Limit: live.Unknown}
	add := func(p live.Point) {
		if n := len(points); n > 0 && p.At.After(points[n-1].At.Add(step)) {
			gap.At = points[n-1].At.Add(step)
			points = append(points, gap)
		}
		if p.Request != live.Unknown {
			gap.Request = live.None
		}
		if p.Limit != live.Unknown {
			gap.Limit = live.None
		}
		points = append(points, p)
	}
	for _, at := range slices.Sorted(maps.Keys(known)) {
		add(known[at])
	}
	add(live.Point{At: to, Used: live.Unknown, Request: live.Unknown, Limit: live.Unknown})
	return points
}

// furthest is the amount of the pod that is furthest from the target.
func furthest(a prometheus.Amount, target int64) int64 {
	switch a.Most {
	case prometheus.Unknown:
		return live.Unknown
	case prometheus.None:
		return live.None
	}
	return live.Spread{Pods: 1, Least: a.Least, Most: a.Most}.FurthestFrom(target)
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backfill fills the histories of scalers with past usage, once for each scaler, so that
// the first recommendation does not need days of learning.
//
// It runs in the background and blocks nothing. While Prometheus is down, slow or returns invalid
// data, scalers learn from metrics.k8s.io as without it.
package backfill

import (
	"context"
	"errors"
	"sync"
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
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/checkpoint"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/prometheus"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Source reads past usage, in chronological order.
type Source interface {
	Range(ctx context.Context, t prometheus.Target, from, to time.Time, each func(prometheus.Chunk)) error
}

const (
	// atOnce is the number of scalers that are filled at the same time. Each costs Prometheus about
	// sixty queries, and the operator a few responses in memory.
	atOnce = 2
	// every is the interval at which new scalers are found.
	every = 2 * time.Second
	// longest is the longest time of an attempt. It also bounds the samples kept meanwhile.
	longest = 30 * time.Minute
	// firstPause and lastPause are the shortest and longest pause after a failed attempt.
	firstPause = 15 * time.Second
	lastPause  = 30 * time.Minute
)

// The outcomes of attempts, for the metric.
const (
	filled = "filled"
	empty  = "empty"
	failed = "failed"
)

var fills = metrics.NewCounter(metrics.Metric{
	Name:      "verticalscaler_history_fills_total",
	Help:      "Attempts to fill a scaler's history from Prometheus, by outcome: filled, empty (nothing known there, or no more than here), failed.",
	Labels:    []string{"outcome"},
	Stability: metrics.Beta,
}, []string{filled}, []string{empty}, []string{failed})

// Filler is the loop that fills histories. It runs on the leader only.
type Filler struct {
	// Cached lists scalers and reads Deployments.
	Cached    client.Reader
	Source    Source
	Histories *checkpoint.Store
	// Lookback is the range of past usage that is read. A history that already covers half of it
	// stays.
	Lookback time.Duration
	Clock    clock.WithTicker
	// Scalers to reconcile are sent to this channel.
	Wake chan<- event.GenericEvent

	mu     sync.Mutex
	states map[types.NamespacedName]*state
	// pause follows failures that concern all scalers.
	pause pause
}

// state is the progress of one scaler.
type state struct {
	uid        types.UID
	deployment string

	busy, done bool
	pause      pause
	problem    string // in the words of prometheus.Error
}

// pause doubles with each consecutive failure.
type pause struct {
	length time.Duration
	until  time.Time
}

func (p *pause) extend(now time.Time) {
	p.length = min(max(2*p.length, firstPause), lastPause)
	p.until = now.Add(p.length)
}

// NeedLeaderElection reports whether only the leader fills.
func (f *Filler) NeedLeaderElection() bool { return true }

// Start fills histories until the context ends.
func (f *Filler) Start(ctx context.Context) error {
	ticker := f.Clock.NewTicker(every)
	defer ticker.Stop()
	var running errgroup.Group
	running.SetLimit(atOnce)
	defer running.Wait() //nolint:errcheck // none fails
	for {
		f.look(ctx, func(scaler *v1beta1.VerticalScaler, s *state) bool {
			return running.TryGo(func() error {
				f.fill(ctx, scaler, s)
				return nil
			})
		})
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// ProblemOf is the reason why the scaler's history could not be filled yet. It is empty if it was
// filled, or if no problem is known.
func (f *Filler) ProblemOf(scaler types.NamespacedName) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.states[scaler]; s != nil {
		return s.problem
	}
	return ""
}

// look starts an attempt for each scaler that is due, until begin returns false.
func (f *Filler) look(ctx context.Context, begin func(*v1beta1.VerticalScaler, *state) bool) {
	var scalers v1beta1.VerticalScalerList
	if err := f.Cached.List(ctx, &scalers, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Cannot list scalers to fill histories of")
		return
	}
	now := f.Clock.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	states := make(map[types.NamespacedName]*state, len(scalers.Items))
	full := now.Before(f.pause.until)
	for i := range scalers.Items {
		scaler := &scalers.Items[i]
		key := client.ObjectKeyFromObject(scaler)
		s := f.states[key]
		if s == nil || s.uid != scaler.UID || s.deployment != scaler.Spec.DeploymentName {
			s = &state{uid: scaler.UID, deployment: scaler.Spec.DeploymentName}
		}
		states[key] = s
		if full || s.done || s.busy || now.Before(s.pause.until) {
			continue
		}
		s.busy = true
		if !begin(scaler, s) {
			s.busy, full = false, true
		}
	}
	f.states = states
}

// fill runs one attempt.
func (f *Filler) fill(ctx context.Context, scaler *v1beta1.VerticalScaler, s *state) {
	result := f.attempt(ctx, scaler)
	if ctx.Err() != nil {
		return
	}
	problem, isGeneral := problemOf(result.err)
	now := f.Clock.Now()
	f.mu.Lock()
	before := s.problem
	s.busy, s.done, s.problem = false, result.done, problem
	switch {
	case result.err == nil:
		s.pause = pause{}
		if result.asked {
			f.pause = pause{}
		}
	case isGeneral:
		// The problem probably concerns all scalers, so all pause. In case this scaler causes it,
		// the others are tried first afterwards.
		if !now.Before(f.pause.until) {
			f.pause.extend(now)
		}
		s.pause = pause{until: f.pause.until.Add(every)}
	default:
		s.pause.extend(now)
	}
	f.mu.Unlock()

	logger := log.FromContext(ctx).WithValues("VerticalScaler", client.ObjectKeyFromObject(scaler))
	switch {
	case result.err != nil:
		if before == problem {
			logger = logger.V(1)
		}
		fills.WithLabelValues(failed).Inc()
		logger.Info("Cannot read past usage from Prometheus, retrying", "error", result.err.Error())
	case result.asked:
		outcome := empty
		if result.filled {
			outcome = filled
		}
		fills.WithLabelValues(outcome).Inc()
		logger.Info("Read past usage from Prometheus", "filled", result.filled, "samples", result.samples,
			"refused", result.refused, "warnings", result.warnings)
	}
	if result.filled || before != problem {
		select {
		case f.Wake <- event.GenericEvent{Object: scaler}:
		case <-ctx.Done():
		}
	}
}

// result is the result of an attempt.
type result struct {
	err      error
	done     bool // no further attempt is needed for this scaler
	asked    bool
	filled   bool
	samples  int
	refused  map[usage.Refusal]int
	warnings []string
}

// problemOf is the stable text of a source's error, and whether it concerns all scalers. It is empty without an error.
func problemOf(err error) (words string, isGeneral bool) {
	var failure *prometheus.Error
	switch {
	case err == nil:
		return "", false
	case errors.As(err, &failure):
		return "Prometheus: " + failure.Words, failure.Unavailable
	}
	return "Prometheus could not be queried", false
}

func (f *Filler) attempt(ctx context.Context, scaler *v1beta1.VerticalScaler) (r result) {
	var deployment appsv1.Deployment
	err := f.Cached.Get(ctx, types.NamespacedName{Namespace: scaler.Namespace, Name: scaler.Spec.DeploymentName}, &deployment)
	if err != nil {
		if !apierrors.IsNotFound(err) {
			r.err = err
		}
		return r // the Deployment may still be created
	}
	target := prometheus.Target{Namespace: scaler.Namespace, Deployment: deployment.Name, Containers: workload.NamesOf(&deployment.Spec.Template.Spec)}
	switch f.Histories.StartFilling(scaler, f.Lookback/2) {
	case checkpoint.NotLoaded:
		return r // its first reconcile is still to come
	case checkpoint.Filled:
		r.done = true
		return r
	case checkpoint.Ready:
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	r.asked, r.refused = true, map[usage.Refusal]int{}
	end := f.Clock.Now()
	past, params := history.Histories{}, f.Histories.ParamsOf(scaler)
	r.err = f.Source.Range(ctx, target, end.Add(-f.Lookback), end, func(c prometheus.Chunk) {
		for _, sample := range c.Samples {
			past.Add(sample, params)
		}
		r.samples += len(c.Samples)
		for why, n := range c.Refused {
			r.refused[why] += n
		}
		r.warnings = append(r.warnings, c.Warnings...)
		r.warnings = r.warnings[:min(len(r.warnings), 3)]
	})
	if r.err != nil {
		f.Histories.StopFilling(scaler)
		return r
	}
	r.done = true
	r.filled = f.Histories.Fill(scaler, past, end) > 0
	return r
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/controllers/verticalscaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/backfill"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/collect"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/prometheus"
)

// usageProblems combines the problems of current usage and of past usage.
type usageProblems struct {
	*collect.Collector
	past *backfill.Filler
}

// ProblemsOf implements verticalscaler.UsageProblems.
func (u usageProblems) ProblemsOf(scaler types.NamespacedName) collect.Problems {
	problems := u.Collector.ProblemsOf(scaler)
	problems.Past = u.past.ProblemOf(scaler)
	return problems
}

// addBackfill adds the backfill of histories if Prometheus is configured. It returns the
// source of a scaler's usage problems.
func (a *assembly) addBackfill() (verticalscaler.UsageProblems, error) {
	if a.config.Prometheus.Address == "" {
		return a.collector, nil
	}
	source, err := prometheus.New(prometheusOptions(a.config.Prometheus))
	if err != nil {
		return nil, fmt.Errorf("creating the source of past usage: %w", err)
	}
	filler := &backfill.Filler{
		Cached:    a.mgr.GetCache(),
		Source:    source,
		Histories: a.histories,
		Lookback:  a.config.Prometheus.Lookback.Duration,
		Clock:     a.clock,
		Wake:      a.triggers,
	}
	if err := a.mgr.Add(filler); err != nil {
		return nil, fmt.Errorf("adding the backfill of histories: %w", err)
	}
	a.collector.OOMEvents = func(ctx context.Context, at time.Time, each func(usage.Container, int)) error {
		return source.OOMEvents(ctx, a.scope.Namespaces, at, each)
	}
	return usageProblems{a.collector, filler}, nil
}

// prometheusOptions converts the configuration to options of the Prometheus source.
func prometheusOptions(c config.Prometheus) prometheus.Options {
	return prometheus.Options{
		Address:         c.Address,
		Labels:          c.Labels,
		Step:            c.Step.Duration,
		RateWindow:      c.RateWindow.Duration,
		Timeout:         30 * time.Second,
		MaxBytes:        8 << 20,
		CAFile:          c.CAFile,
		CertFile:        c.CertFile,
		KeyFile:         c.KeyFile,
		BearerTokenFile: c.BearerTokenFile,
		Username:        c.Username,
		PasswordFile:    c.PasswordFile,
	}
}

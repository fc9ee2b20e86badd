// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/verticalscaler/verticalscaler-operator/controllers/verticalscaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/checkpoint"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/backfill"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/collect"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/prometheus"
)

// addBackfill adds what fills histories from Prometheus, if one is configured, and
// returns what tells of the problems with a scaler's usage.
func addBackfill(mgr ctrl.Manager, c config.Operator, histories *checkpoint.Store, collector *collect.Collector, wake chan<- event.GenericEvent) (func(types.NamespacedName) collect.Problems, error) {
	if c.Prometheus.Address == "" {
		return collector.ProblemsOf, nil
	}
	source, err := prometheus.New(prometheusOptions(c.Prometheus))
	if err != nil {
		return nil, fmt.Errorf("making the source of past usage: %w", err)
	}
	filler := &backfill.Filler{
		Cached:    mgr.GetCache(),
		Source:    source,
		Histories: histories,
		Lookback:  c.Prometheus.Lookback.Duration,
		Clock:     clock.RealClock{},
		Wake:      wake,
		Count:     verticalscaler.CountFill,
	}
	if err := mgr.Add(filler); err != nil {
		return nil, fmt.Errorf("adding what fills histories: %w", err)
	}
	return func(scaler types.NamespacedName) collect.Problems {
		problems := collector.ProblemsOf(scaler)
		problems.Past = filler.ProblemOf(scaler)
		return problems
	}, nil
}

// prometheusOptions turns the configuration into what the source needs.
func prometheusOptions(c config.Prometheus) prometheus.Options {
	return prometheus.Options{
		Address:         c.Address,
		Labels:          c.Labels,
		Step:            c.Step.Duration,
		RateWindow:      c.RateWindow.Duration,
		Timeout:         c.Timeout.Duration,
		MaxBytes:        c.MaxBytes,
		CAFile:          c.CAFile,
		CertFile:        c.CertFile,
		KeyFile:         c.KeyFile,
		BearerTokenFile: c.BearerTokenFile,
		Username:        c.Username,
		PasswordFile:    c.PasswordFile,
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// apiServerInterval is the time between two requests that ask whether the API server answers.
const apiServerInterval = 5 * time.Second

// isUnanswered reports whether a request has failed because the API server is overloaded, broken or out of reach.
func isUnanswered(err error) bool {
	var answer apierrors.APIStatus
	if errors.As(err, &answer) {
		code := answer.Status().Code
		return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
	}
	var failed *url.Error
	return errors.As(err, &failed)
}

// waitForAPIServer returns when the API server answers. Until then, the process is alive and not ready: if it ended instead,
// its kubelet would wait up to five minutes before each restart.
func (p *process) waitForAPIServer(ctx context.Context, restConfig *rest.Config, cause error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	mgr, err := ctrl.NewManager(restConfig, manager.Options{
		HealthProbeBindAddress: p.config.Health.BindAddress,
		Metrics:                metricsserver.Options{BindAddress: "0"}, // Requests cannot be authorized.
	})
	if err != nil {
		return fmt.Errorf("creating the manager that waits for the API server: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding the health check: %w", err)
	}
	notReady := func(*http.Request) error { return fmt.Errorf("waiting for the API server: %w", cause) }
	if err := mgr.AddReadyzCheck("apiserver", notReady); err != nil {
		return fmt.Errorf("adding the readiness check: %w", err)
	}
	log.FromContext(ctx).Info("Waiting for the API server", "cause", cause.Error())
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		defer stop()
		every(ctx, p.clock, apiServerInterval, func() bool {
			_, err := p.check(ctx, metav1.NamespaceAll, rightsFor[Watching][0])
			return !isUnanswered(err)
		})
		return nil
	}))
	if err != nil {
		return fmt.Errorf("adding the request to the API server: %w", err)
	}
	return mgr.Start(ctx)
}

// every calls a function at each interval until it returns true or the context ends.
func every(ctx context.Context, c clock.WithTicker, interval time.Duration, done func() bool) {
	ticker := c.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if done() {
			return
		}
	}
}

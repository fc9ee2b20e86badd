// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// addChecks adds the health and readiness checks.
func (a *assembly) addChecks(context.Context) error {
	if err := a.mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding the health check: %w", err)
	}
	if err := a.mgr.AddReadyzCheck("caches", cachesSynced(a.mgr.GetCache())); err != nil {
		return fmt.Errorf("adding the readiness check: %w", err)
	}
	if err := a.mgr.AddReadyzCheck("namespaces", anyNamespaceReadable(a.scope)); err != nil {
		return fmt.Errorf("adding the readiness check of namespaces: %w", err)
	}
	return nil
}

// cachesSynced reports ready once the caches are synced. A slow API server can delay the
// sync without any error.
func cachesSynced(c cache.Cache) healthz.Checker {
	return func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if !c.WaitForCacheSync(ctx) {
			return errors.New("the caches are not synced yet")
		}
		return nil
	}
}

// anyNamespaceReadable reports ready if the operator can read at least one namespace. A
// single namespace is enough, so that a rollout of the operator does not wait for a
// namespace that does not exist yet.
func anyNamespaceReadable(s Scope) healthz.Checker {
	return func(*http.Request) error {
		if _, ok := s.readable(); ok {
			return nil
		}
		var parts []string
		for _, l := range s.Lacks {
			switch {
			case l.Feature != Watching:
			case l.Namespace == metav1.NamespaceAll:
				parts = append(parts, "all namespaces: may not "+l.Missing)
			default:
				parts = append(parts, "namespace "+l.Namespace+": may not "+l.Missing)
			}
		}
		return fmt.Errorf("no namespace can be watched: %s", strings.Join(parts, "; "))
	}
}

// rejectAll is the filter of /metrics when the operator lacks the rights to authorize
// requests.
func rejectAll(missing string) func(*rest.Config, *http.Client) (metricsserver.Filter, error) {
	return func(*rest.Config, *http.Client) (metricsserver.Filter, error) {
		return func(logr.Logger, http.Handler) (http.Handler, error) {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "the operator cannot authorize this request: it lacks the right to "+missing, http.StatusForbidden)
			}), nil
		}, nil
	}
}

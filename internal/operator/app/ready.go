// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// cachesSynced is ready once the caches are: until then the operator knows nothing,
// and an API server that lags behind can keep it so without any error.
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

// somethingReadable is ready unless there is no namespace at all that the operator may
// read. Of several, one is enough: whoever rolls the operator out shall not wait for a
// namespace that nobody has made yet.
func somethingReadable(s Scope) healthz.Checker {
	return func(*http.Request) error {
		if _, ok := s.readable(); !ok {
			return fmt.Errorf("nothing can be watched: %s", s.unreadable())
		}
		return nil
	}
}

// refuseEverybody is the filter of /metrics where the operator cannot find out who may
// read them.
func refuseEverybody(missing string) func(*rest.Config, *http.Client) (metricsserver.Filter, error) {
	return func(*rest.Config, *http.Client) (metricsserver.Filter, error) {
		return func(logr.Logger, http.Handler) (http.Handler, error) {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "the operator may not "+missing+", and so cannot tell who may read this", http.StatusForbidden)
			}), nil
		}, nil
	}
}

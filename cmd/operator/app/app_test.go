// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

func TestNamespaces(t *testing.T) {
	for name, tc := range map[string]struct {
		watch string
		want  []string
		wrong string
	}{
		"unset means all":                {watch: ""},
		"one":                            {watch: "shop", want: []string{"shop"}},
		"several, sorted":                {watch: "shop,bank", want: []string{"bank", "shop"}},
		"space around names is ignored":  {watch: " shop , bank\n", want: []string{"bank", "shop"}},
		"empty names are ignored":        {watch: "shop,,bank,", want: []string{"bank", "shop"}},
		"nothing but commas means all":   {watch: " , ,"},
		"a name twice is one":            {watch: "shop,bank, shop", want: []string{"bank", "shop"}},
		"a list with spaces is an error": {watch: "shop bank", wrong: `WATCH_NAMESPACE: "shop bank" is not a valid namespace name`},
		"capitals are an error":          {watch: "bank,Shop", wrong: `WATCH_NAMESPACE: "Shop" is not a valid namespace name`},
		"a star is an error":             {watch: "*", wrong: `WATCH_NAMESPACE: "*" is not a valid namespace name`},
		"a path is an error":             {watch: "shop/web", wrong: `WATCH_NAMESPACE: "shop/web" is not a valid namespace name`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Namespaces(tc.watch)
			if tc.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wrong) {
					t.Errorf("Namespaces(%q) = %q, %v; want an error with %q", tc.watch, got, err, tc.wrong)
				}
				return
			}
			must.Succeed(t, err)
			assert.Equal(t, "Namespaces()", tc.want, got)
		})
	}
}

func TestManagerOptions(t *testing.T) {
	t.Run("only the named namespaces are watched, as far as they can be read", func(t *testing.T) {
		for name, tc := range map[string]struct {
			scope Scope
			want  []string
			leads bool
		}{
			"two": {Scope{Namespaces: []string{"bank", "shop"}}, []string{"bank", "shop"}, true},
			"one of two": {
				Scope{Namespaces: []string{"bank", "shop"}, Lacks: []Lack{{Watching, "bank", "list pods"}}}, []string{"shop"}, true,
			},
			// An empty list would mean all namespaces.
			"none of two": {
				Scope{Namespaces: []string{"bank", "shop"}, Lacks: []Lack{{Watching, "bank", "list pods"}, {Watching, "shop", "list pods"}}},
				[]string{"bank", "shop"},
				false,
			},
			"all":                       {Scope{}, nil, true},
			"all, and none is readable": {Scope{Lacks: []Lack{{Watching, "", "list pods"}}}, nil, false},
		} {
			o := ManagerOptions(config.Default(), tc.scope)
			got := slices.Sorted(maps.Keys(o.Cache.DefaultNamespaces))
			assert.Equal(t, name+": watched namespaces", tc.want, got)
			if o.LeaderElection != tc.leads {
				t.Errorf("%s: leader election is %t", name, o.LeaderElection)
			}
		}
	})
}

// Kinds that are read rarely must not be watched in the whole cluster. Nodes are watched only with the right to do so.
func TestCachedKinds(t *testing.T) {
	for name, tc := range map[string]struct {
		scope Scope
		nodes bool
	}{
		"in all namespaces":          {Scope{}, true},
		"in some namespaces only":    {Scope{Namespaces: []string{"shop"}}, false},
		"without the right to do so": {Scope{Lacks: []Lack{{Nodes, "", "list nodes"}}}, false},
	} {
		o := ManagerOptions(config.Default(), tc.scope).Cache
		if !o.ReaderFailOnMissingInformer {
			t.Error("reading an unconfigured kind would start a watch of it")
		}
		nodes := false
		for kind := range o.ByObject {
			_, isNode := kind.(*corev1.Node)
			nodes = nodes || isNode
		}
		if nodes != tc.nodes {
			t.Errorf("nodes are read %s: %t", name, nodes)
		}
	}
}

func TestReadyOnceTheCachesAreSynced(t *testing.T) {
	for name, synced := range map[string]bool{"not before": false, "then": true} {
		t.Run(name, func(t *testing.T) {
			// The probe has a short timeout, so the answer must be immediate.
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/readyz", nil)
			err := cachesSynced(syncing{synced: synced})(request)
			if (err == nil) != synced {
				t.Errorf("ready: %v", err)
			}
		})
	}
}

// syncing is a cache that only knows whether it is synced.
type syncing struct {
	cache.Cache
	synced bool
}

func (s syncing) WaitForCacheSync(ctx context.Context) bool {
	if !s.synced {
		<-ctx.Done()
	}
	return s.synced
}

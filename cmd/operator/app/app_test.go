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
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
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
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Namespaces(%q) (-want +got):\n%s", tc.watch, diff)
			}
		})
	}
}

func TestManagerOptions(t *testing.T) {
	t.Run("by default", func(t *testing.T) {
		o := ManagerOptions(config.Default(), Scope{})
		if o.Metrics.BindAddress != ":8443" || !o.Metrics.SecureServing || o.Metrics.FilterProvider == nil {
			t.Errorf("metrics are served at %s, secure %t, with a filter %t; want :8443, over TLS, to those who may",
				o.Metrics.BindAddress, o.Metrics.SecureServing, o.Metrics.FilterProvider != nil)
		}
		if o.HealthProbeBindAddress != ":8081" {
			t.Errorf("health is served at %s", o.HealthProbeBindAddress)
		}
		if !o.LeaderElection || o.LeaderElectionID != "verticalscaler.autoscaling.verticalscaler.io" || o.LeaderElectionNamespace != "" || !o.LeaderElectionReleaseOnCancel {
			t.Errorf("leader election: %t, %q in %q, given up at the end: %t",
				o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace, o.LeaderElectionReleaseOnCancel)
		}
		if o.Cache.DefaultNamespaces != nil {
			t.Errorf("the cache is limited to %v", o.Cache.DefaultNamespaces)
		}
		// The pod has 30 s to stop.
		if got := *o.GracefulShutdownTimeout; got <= 0 || got >= 30*time.Second {
			t.Errorf("the manager takes %v to stop", got)
		}
	})
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
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: watched namespaces (-want +got):\n%s", name, diff)
			}
			if o.LeaderElection != tc.leads {
				t.Errorf("%s: leader election is %t", name, o.LeaderElection)
			}
		}
	})
}

// Kinds that are read rarely must not be watched in the whole cluster. Cached objects must
// be trimmed.
func TestCachedKinds(t *testing.T) {
	o := ManagerOptions(config.Default(), Scope{})
	if !o.Cache.ReaderFailOnMissingInformer {
		t.Error("reading an unconfigured kind would start a watch of it")
	}
	if o.Cache.DefaultTransform == nil {
		t.Error("objects are cached untrimmed")
	}
	kinds := func(objects []client.Object) (out []string) {
		for _, obj := range objects {
			gvks, _, err := o.Scheme.ObjectKinds(obj)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, gvks[0].Kind)
		}
		slices.Sort(out)
		return out
	}
	var cached []client.Object
	for obj, options := range o.Cache.ByObject {
		cached = append(cached, obj)
		if options.Transform != nil || options.Namespaces != nil {
			t.Errorf("%T has a cache configuration beyond namespaces and trimming", obj)
		}
	}
	if diff := cmp.Diff([]string{"HorizontalPodAutoscaler", "LimitRange", "Node", "ResourceQuota", "ScaledDeployment", "VerticalScaler"}, kinds(cached)); diff != "" {
		t.Errorf("cached kinds (-want +got):\n%s", diff)
	}
	for name, scope := range map[string]Scope{
		"in some namespaces only":    {Namespaces: []string{"shop"}},
		"without the right to do so": {Lacks: []Lack{{Nodes, "", "list nodes"}}},
	} {
		var cached []client.Object
		for obj := range ManagerOptions(config.Default(), scope).Cache.ByObject {
			cached = append(cached, obj)
		}
		if slices.Contains(kinds(cached), "Node") {
			t.Errorf("nodes are read %s", name)
		}
	}
	if diff := cmp.Diff([]string{"VerticalScalerCheckpoint"}, kinds(o.Client.Cache.DisableFor)); diff != "" {
		t.Errorf("kinds read live (-want +got):\n%s", diff)
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

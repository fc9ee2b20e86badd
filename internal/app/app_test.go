// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/config"
)

func TestNamespaces(t *testing.T) {
	for name, tc := range map[string]struct {
		watch string
		want  []string
	}{
		"unset means all":               {watch: ""},
		"one":                           {watch: "shop", want: []string{"shop"}},
		"several":                       {watch: "shop,bank", want: []string{"shop", "bank"}},
		"space around names is ignored": {watch: " shop , bank\n", want: []string{"shop", "bank"}},
		"empty names are ignored":       {watch: "shop,,bank,", want: []string{"shop", "bank"}},
		"nothing but commas means all":  {watch: " , ,"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Namespaces(tc.watch)); diff != "" {
				t.Errorf("Namespaces(%q) (-want +got):\n%s", tc.watch, diff)
			}
		})
	}
}

func TestManagerOptions(t *testing.T) {
	t.Run("by default", func(t *testing.T) {
		o := ManagerOptions(config.Default(), nil)
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
		// The pod gets 30 s to end.
		if got := *o.GracefulShutdownTimeout; got <= 0 || got >= 30*time.Second {
			t.Errorf("the manager takes %v to end", got)
		}
	})
	t.Run("metrics for everybody, and nobody else to lead", func(t *testing.T) {
		c := config.Default()
		c.Metrics.BindAddress, c.Metrics.Secure = "127.0.0.1:8080", false
		c.Health.BindAddress = "0"
		c.LeaderElection.Enabled = false
		o := ManagerOptions(c, nil)
		if o.Metrics.BindAddress != "127.0.0.1:8080" || o.Metrics.SecureServing || o.Metrics.FilterProvider != nil {
			t.Errorf("metrics are served at %s, secure %t, with a filter %t", o.Metrics.BindAddress, o.Metrics.SecureServing, o.Metrics.FilterProvider != nil)
		}
		if o.LeaderElection || o.HealthProbeBindAddress != "0" {
			t.Errorf("leader election is %t, health is served at %s", o.LeaderElection, o.HealthProbeBindAddress)
		}
	})
	t.Run("a lease in another namespace", func(t *testing.T) {
		c := config.Default()
		c.LeaderElection.Namespace = "ops"
		if got := ManagerOptions(c, nil).LeaderElectionNamespace; got != "ops" {
			t.Errorf("the lease is in %q", got)
		}
	})
	t.Run("only the named namespaces are watched", func(t *testing.T) {
		o := ManagerOptions(config.Default(), []string{"shop", "bank"})
		var got []string
		for name := range o.Cache.DefaultNamespaces {
			got = append(got, name)
		}
		slices.Sort(got)
		if diff := cmp.Diff([]string{"bank", "shop"}, got); diff != "" {
			t.Errorf("watched namespaces (-want +got):\n%s", diff)
		}
	})
}

// What is read only now and then must not be watched in the whole cluster, and what
// is cached must be trimmed.
func TestWhatIsCached(t *testing.T) {
	o := ManagerOptions(config.Default(), nil)
	if !o.Cache.ReaderFailOnMissingInformer {
		t.Error("reading a kind by mistake would start a watch of it")
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
			t.Errorf("%T is cached in a way of its own", obj)
		}
	}
	if diff := cmp.Diff([]string{"Deployment", "HorizontalPodAutoscaler", "LimitRange", "Pod", "VerticalScaler"}, kinds(cached)); diff != "" {
		t.Errorf("cached kinds (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"VerticalScalerCheckpoint"}, kinds(o.Client.Cache.DisableFor)); diff != "" {
		t.Errorf("kinds read live (-want +got):\n%s", diff)
	}
}

func TestSchemeKnowsWhatWeReadAndWrite(t *testing.T) {
	scheme := Scheme()
	for _, gvk := range []schema.GroupVersionKind{
		{Group: "autoscaling.verticalscaler.io", Version: "v1beta1", Kind: "VerticalScaler"},
		{Group: "autoscaling.verticalscaler.io", Version: "v1beta1", Kind: "VerticalScalerList"},
		{Group: "autoscaling.verticalscaler.io", Version: "v1beta1", Kind: "VerticalScalerCheckpoint"},
		{Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
		{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
		{Group: "events.k8s.io", Version: "v1", Kind: "Event"},
		{Version: "v1", Kind: "Pod"},
	} {
		if !scheme.Recognizes(gvk) {
			t.Errorf("%v is unknown", gvk)
		}
	}
}

func TestReadyOnceTheCachesAre(t *testing.T) {
	for name, synced := range map[string]bool{"not before": false, "then": true} {
		t.Run(name, func(t *testing.T) {
			// Who asks has little patience of its own: the answer must come at once.
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

// syncing is a cache of which nothing is known but whether it is synced.
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

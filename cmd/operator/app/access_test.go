// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"
)

// lacking is an access check that grants all rights except those listed by namespace.
func lacking(rights map[string][]string) accessCheck {
	return func(_ context.Context, namespace string, r right) (bool, error) {
		return !slices.Contains(rights[namespace], r.String()), nil
	}
}

func TestFindScope(t *testing.T) {
	for name, tc := range map[string]struct {
		lacking    map[string][]string
		namespaces []string
		tokens     bool
		want       Scope
	}{
		"everything": {tokens: true},
		"all namespaces, and no nodes": {
			lacking: map[string][]string{"": {"watch nodes"}},
			want:    Scope{NodesForbidden: true},
		},
		"two namespaces, without checking nodes": {
			lacking:    map[string][]string{"": {"list nodes", "list pods"}},
			namespaces: []string{"bank", "shop"},
			want:       Scope{Namespaces: []string{"bank", "shop"}},
		},
		"one of two namespaces": {
			lacking:    map[string][]string{"bank": {"watch deployments.apps", "list pods"}},
			namespaces: []string{"bank", "shop"},
			want: Scope{
				Namespaces: []string{"bank", "shop"},
				Unreadable: map[string]string{"bank": "watch deployments.apps, list pods"},
			},
		},
		"no namespace, when configured to watch all": {
			lacking: map[string][]string{"": {"list verticalscalers.autoscaling.verticalscaler.io"}},
			want:    Scope{Unreadable: map[string]string{"": "list verticalscalers.autoscaling.verticalscaler.io"}},
		},
		"all namespaces, without the right to authorize metrics": {
			lacking: map[string][]string{"": {"create tokenreviews.authentication.k8s.io"}},
			tokens:  true,
			want:    Scope{MetricsForbidden: "create tokenreviews.authentication.k8s.io"},
		},
		"all, with metrics open to everyone": {
			lacking: map[string][]string{"": {"create tokenreviews.authentication.k8s.io"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := lacking(tc.lacking).findScope(t.Context(), tc.namespaces, tc.tokens)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("findScope() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnAPIServerThatDoesNotAnswerIsAnError(t *testing.T) {
	down := errors.New("connection refused")
	ask := accessCheck(func(context.Context, string, right) (bool, error) { return false, down })
	if _, err := ask.findScope(t.Context(), []string{"shop"}, true); !errors.Is(err, down) {
		t.Errorf("findScope() = %v; want an error, not a forbidden namespace", err)
	}
}

// The rights that the operator checks must be exactly those that the role grants. A missing
// right that the operator does not check blocks the caches.
func TestTheRoleGrantsWhatTheCachesNeed(t *testing.T) {
	for file, want := range map[string][]right{
		"rbac/manager.yaml":                         cachedRights,
		"rbac/manager_cluster.yaml":                 append(slices.Clone(nodeRights), clusterPolicyRights...),
		"rbac/metrics_auth.yaml":                    metricsRights,
		"components/policies/manager_policies.yaml": append(slices.Clone(namespaceRights), policyRights...),
	} {
		content, err := os.ReadFile(filepath.Join("..", "..", "..", "config", filepath.FromSlash(file)))
		if err != nil {
			t.Fatal(err)
		}
		document, _, _ := strings.Cut(string(content), "\n---\n")
		var role rbacv1.ClusterRole
		if err := yaml.UnmarshalStrict([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		got, wanted := map[string]bool{}, map[string]bool{}
		for _, rule := range role.Rules {
			if strings.HasPrefix(file, "rbac/manager") && !slices.Contains(rule.Verbs, "watch") {
				continue // not read through a cache
			}
			if slices.Equal(rule.APIGroups, []string{"autoscaling.k8s.io"}) {
				continue // read without a cache, and optional
			}
			for _, verb := range rule.Verbs {
				if strings.HasPrefix(file, "rbac/manager") && verb != "list" && verb != "watch" {
					continue // not for the cache
				}
				for _, resource := range rule.Resources {
					got[right{verb, rule.APIGroups[0], resource}.String()] = true
				}
			}
		}
		for _, r := range want {
			wanted[r.String()] = true
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(wanted)), slices.Sorted(maps.Keys(got))); diff != "" {
			t.Errorf("%s (-asked for +given):\n%s", file, diff)
		}
	}
}

func TestMoreRightsRestartTheManager(t *testing.T) {
	rights := map[string][]string{"bank": {"list pods"}}
	asked, given := make(chan struct{}), make(chan struct{})
	ask := lacking(rights)
	fakeClock := testingclock.NewFakeClock(time.Now())
	w := &accessChecker{
		check: func(ctx context.Context, namespace string, r right) (bool, error) {
			allowed, err := ask(ctx, namespace, r)
			if !allowed {
				asked <- struct{}{}
			}
			return allowed, err
		},
		scope:    Scope{Namespaces: []string{"bank"}, Unreadable: map[string]string{"bank": "list pods"}},
		clock:    fakeClock,
		improved: func() { close(given) },
	}
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { done <- w.Start(ctx) }()
	for !fakeClock.HasWaiters() && ctx.Err() == nil {
		runtime.Gosched() // the fake clock does not signal that a ticker waits for it
	}
	fakeClock.Step(accessCheckInterval)
	<-asked // and still without the right
	delete(rights, "bank")
	for !isClosed(given) && ctx.Err() == nil {
		fakeClock.Step(accessCheckInterval)
	}
	if err := <-done; err != nil || ctx.Err() != nil {
		t.Errorf("Start() = %v, %v; want it to end once the right is granted", err, ctx.Err())
	}
}

func TestImprovedRights(t *testing.T) {
	namespaces := Scope{Unreadable: map[string]string{"bank": "list pods"}}
	nodes := Scope{NodesForbidden: true}
	metrics := Scope{MetricsForbidden: "create tokenreviews.authentication.k8s.io"}
	for name, tc := range map[string]struct {
		scope    Scope
		granted  func(namespace string, r right) bool
		improved bool
	}{
		"no right is missing":                    {scope: Scope{}, granted: func(string, right) bool { return true }},
		"a namespace can be read":                {namespaces, func(namespace string, _ right) bool { return namespace == "bank" }, true},
		"only another namespace can":             {scope: namespaces, granted: func(namespace string, _ right) bool { return namespace == "shop" }},
		"nodes can be read":                      {nodes, func(_ string, r right) bool { return r.resource == "nodes" }, true},
		"nodes can only be listed":               {scope: nodes, granted: func(_ string, r right) bool { return r.verb == "list" }},
		"cluster policies can be read":           {Scope{ClusterPoliciesForbidden: true}, func(_ string, r right) bool { return r.resource == "clusterscalingpolicies" }, true},
		"cluster policies cannot be watched":     {scope: Scope{ClusterPoliciesForbidden: true}, granted: func(_ string, r right) bool { return r.verb == "list" }},
		"rights for policies alone":              {scope: Scope{PoliciesForbidden: "create verticalscalers"}, granted: func(string, right) bool { return true }},
		"tokens can be reviewed":                 {metrics, func(_ string, r right) bool { return r.verb == "create" }, true},
		"tokens can be reviewed, but not access": {scope: metrics, granted: func(_ string, r right) bool { return r.resource == "tokenreviews" }},
	} {
		t.Run(name, func(t *testing.T) {
			check := accessCheck(func(_ context.Context, namespace string, r right) (bool, error) { return tc.granted(namespace, r), nil })
			improved, err := check.improved(t.Context(), tc.scope)
			if improved != tc.improved || err != nil {
				t.Errorf("improved() = %t, %v; want %t", improved, err, tc.improved)
			}
		})
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Policies need rights of their own: in all namespaces together with namespaces, and else in each namespace.
func TestRightsForPolicies(t *testing.T) {
	all := Scope{}
	some := Scope{Namespaces: []string{"bank", "shop"}}
	for name, tc := range map[string]struct {
		scope  Scope
		rights map[string][]string
		want   string
	}{
		"all":                        {all, nil, ""},
		"no namespaces":              {all, map[string][]string{"": {"list namespaces"}}, "list namespaces"},
		"no scalers":                 {all, map[string][]string{"": {"create verticalscalers.autoscaling.verticalscaler.io"}}, "create verticalscalers.autoscaling.verticalscaler.io"},
		"some":                       {some, map[string][]string{"": {"list namespaces"}}, ""},
		"not in one of some":         {some, map[string][]string{"shop": {"delete verticalscalers.autoscaling.verticalscaler.io"}}, "delete verticalscalers.autoscaling.verticalscaler.io in namespace shop"},
		"a namespace without rights": {Scope{Namespaces: some.Namespaces, Unreadable: map[string]string{"bank": "list pods"}}, map[string][]string{"bank": {"create verticalscalers.autoscaling.verticalscaler.io"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			restarted := false
			access := policyAccess{lacking(tc.rights), tc.scope, func() { restarted = true }}
			got, err := access.check.missingForPolicies(t.Context(), tc.scope)
			if got != tc.want || err != nil {
				t.Errorf("missing %q, %v; want %q", got, err, tc.want)
			}
			if err := access.Recheck(t.Context()); err != nil || restarted != (tc.want == "") {
				t.Errorf("restarted: %t, %v", restarted, err)
			}
		})
	}
}

func TestNotReadyIfNoNamespaceIsReadable(t *testing.T) {
	two := []string{"bank", "shop"}
	for name, tc := range map[string]struct {
		scope Scope
		wrong string
	}{
		"all namespaces":                 {},
		"one of two namespaces":          {scope: Scope{Namespaces: two, Unreadable: map[string]string{"bank": "list pods"}}},
		"no namespace":                   {Scope{Namespaces: two, Unreadable: map[string]string{"shop": "watch pods", "bank": "list pods"}}, "no namespace can be watched: namespace bank: may not list pods; namespace shop: may not watch pods"},
		"all namespaces, without rights": {Scope{Unreadable: map[string]string{"": "list pods"}}, "no namespace can be watched: all namespaces: may not list pods"},
	} {
		t.Run(name, func(t *testing.T) {
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil)
			got := ""
			if err := anyNamespaceReadable(tc.scope)(request); err != nil {
				got = err.Error()
			}
			if got != tc.wrong {
				t.Errorf("ready: %q, want %q", got, tc.wrong)
			}
		})
	}
}

func TestMetricsAreRejectedWithoutTheRightToAuthorize(t *testing.T) {
	provider := rejectAll("create tokenreviews.authentication.k8s.io")
	filter, err := provider(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	handler, err := filter(logr.Discard(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the metrics are served") }))
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if answer.Code != http.StatusForbidden || !strings.Contains(answer.Body.String(), "create tokenreviews") {
		t.Errorf("answered %d: %s", answer.Code, answer.Body)
	}
}

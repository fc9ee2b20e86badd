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

	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// lacking is an access check that grants all rights except those listed by namespace.
func lacking(rights map[string][]string) accessCheck {
	return func(_ context.Context, namespace string, r right) (bool, error) {
		return !slices.Contains(rights[namespace], r.String()), nil
	}
}

func TestFindScope(t *testing.T) {
	open := config.Default()
	open.Metrics.Secure = false
	two := []string{"bank", "shop"}
	for name, tc := range map[string]struct {
		lacking    map[string][]string
		namespaces []string
		config     config.Operator
		want       []Lack
	}{
		"everything":                             {config: config.Default()},
		"no nodes":                               {lacking: map[string][]string{"": {"watch nodes"}}, want: []Lack{{Nodes, "", "watch nodes"}}},
		"two namespaces, without checking nodes": {lacking: map[string][]string{"": {"list nodes", "list pods", "list namespaces"}}, namespaces: two},
		"one of two namespaces": {
			lacking: map[string][]string{"bank": {"watch deployments.apps", "list pods"}}, namespaces: two,
			want: []Lack{{Watching, "bank", "watch deployments.apps, list pods"}},
		},
		"no namespace, when configured to watch all": {
			lacking: map[string][]string{"": {"list verticalscalers.autoscaling.verticalscaler.io"}},
			want:    []Lack{{Watching, "", "list verticalscalers.autoscaling.verticalscaler.io"}},
		},
		"no right to authorize metrics": {
			lacking: map[string][]string{"": {"create tokenreviews.authentication.k8s.io"}}, config: config.Default(),
			want: []Lack{{Metrics, "", "create tokenreviews.authentication.k8s.io"}},
		},
		"metrics that are open to everyone": {lacking: map[string][]string{"": {"create tokenreviews.authentication.k8s.io"}}, config: open},
		"no evictions":                      {lacking: map[string][]string{"": {"create pods/eviction"}}, want: []Lack{{Evictions, "", "create pods/eviction"}}},
		"no policies": {
			lacking: map[string][]string{"": {"list namespaces", "create verticalscalers.autoscaling.verticalscaler.io"}},
			want:    []Lack{{PolicyNamespaces, "", "list namespaces"}, {PolicyScalers, "", "create verticalscalers.autoscaling.verticalscaler.io"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := lacking(tc.lacking).findScope(t.Context(), tc.config, tc.namespaces)
			if diff := cmp.Diff(Scope{Namespaces: tc.namespaces, Lacks: tc.want}, got); diff != "" || err != nil {
				t.Errorf("findScope(): %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestAnAPIServerThatDoesNotAnswerIsAnError(t *testing.T) {
	down := errors.New("connection refused")
	ask := accessCheck(func(context.Context, string, right) (bool, error) { return false, down })
	if _, err := ask.findScope(t.Context(), config.Default(), []string{"shop"}); !errors.Is(err, down) {
		t.Errorf("findScope() = %v; want an error, not a forbidden namespace", err)
	}
}

// The rights that the operator checks must be exactly those that the role grants. A missing
// right that the operator does not check blocks the caches.
func TestTheRoleGrantsWhatTheCachesNeed(t *testing.T) {
	for file, features := range map[string][]Feature{
		"rbac/manager.yaml":                         {Watching},
		"rbac/manager_cluster.yaml":                 {Nodes, ClusterPolicies},
		"rbac/metrics_auth.yaml":                    {Metrics},
		"components/policies/manager_policies.yaml": {PolicyNamespaces, PolicyScalers},
	} {
		content, err := os.ReadFile(filepath.Join("..", "..", "..", "config", filepath.FromSlash(file)))
		must.Succeed(t, err)
		document, _, _ := strings.Cut(string(content), "\n---\n")
		var role rbacv1.ClusterRole
		must.Succeed(t, yaml.UnmarshalStrict([]byte(document), &role))
		got, wanted := map[string]bool{}, map[string]bool{}
		for _, rule := range role.Rules {
			if strings.HasPrefix(file, "rbac/manager") && !slices.Contains(rule.Verbs, "watch") {
				continue // not read through a cache
			}
			switch rule.APIGroups[0] {
			case "autoscaling.k8s.io":
				continue // read without a cache, and optional
			case rbacv1.GroupName:
				if !slices.Equal(rule.ResourceNames, optionalBindings) {
					t.Errorf("%s allows to watch the bindings %q", file, rule.ResourceNames)
				}
				continue
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
		for _, feature := range features {
			for _, r := range rightsFor[feature] {
				wanted[r.String()] = true
			}
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
		scope:   Scope{Namespaces: []string{"bank"}, Lacks: []Lack{{Watching, "bank", "list pods"}}},
		clock:   fakeClock,
		restart: func() { close(given) },
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
	bank, nodes, metrics := Lack{Feature: Watching, Namespace: "bank"}, Lack{Feature: Nodes}, Lack{Feature: Metrics}
	policies := []Lack{{Feature: PolicyNamespaces}, {Feature: PolicyScalers}}
	for name, tc := range map[string]struct {
		lacks                  []Lack
		granted                func(namespace string, r right) bool
		hasPolicies, isWatched bool
		improved               bool
	}{
		"no right is missing":                    {nil, func(string, right) bool { return true }, true, false, false},
		"a namespace can be read":                {[]Lack{bank}, func(namespace string, _ right) bool { return namespace == "bank" }, false, false, true},
		"only another namespace can":             {[]Lack{bank}, func(namespace string, _ right) bool { return namespace == "shop" }, false, false, false},
		"nodes can be read":                      {[]Lack{nodes}, func(_ string, r right) bool { return r.resource == "nodes" }, false, true, true},
		"nodes can only be listed":               {[]Lack{nodes}, func(_ string, r right) bool { return r.verb == "list" }, false, true, false},
		"rights for policies":                    {policies, func(_ string, r right) bool { return r.resource == "verticalscalers" }, true, false, true},
		"rights for policies, and there is none": {policies, func(string, right) bool { return true }, false, false, false},
		"the same, and a binding has changed":    {policies, func(string, right) bool { return true }, false, true, true},
		"tokens can be reviewed, but not access": {[]Lack{metrics}, func(_ string, r right) bool { return r.resource == "tokenreviews" }, true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := &accessChecker{
				check: func(_ context.Context, namespace string, r right) (bool, error) { return tc.granted(namespace, r), nil },
				scope: Scope{Lacks: tc.lacks}, hasPolicies: func(context.Context) bool { return tc.hasPolicies },
			}
			if tc.isWatched {
				w.bindings = &fakeChanges{}
			}
			if improved, err := w.improved(t.Context()); improved != tc.improved || err != nil {
				t.Errorf("improved() = %t, %v; want %t", improved, err, tc.improved)
			}
		})
	}
}

// fakeChanges is a watch without an API server.
type fakeChanges struct{ changed, isBlind bool }

func (*fakeChanges) Start(context.Context) error { return nil }
func (f *fakeChanges) Works() bool               { return !f.isBlind }
func (f *fakeChanges) TakeChange() (changed bool) {
	changed, f.changed = f.changed, false
	return changed
}

// An idle operator asks for no rights: only after a binding has changed, and seldom otherwise, or if it may not watch bindings.
func TestRightsAreAskedForWhenABindingHasChanged(t *testing.T) {
	fakeClock := testingclock.NewFakeClock(time.Now())
	bindings := &fakeChanges{}
	w := &accessChecker{clock: fakeClock, asked: fakeClock.Now(), bindings: bindings}
	for i, step := range []struct {
		does  func()
		after time.Duration
		isDue bool
	}{
		{nil, accessCheckInterval, false},
		{nil, 9 * time.Minute, false},
		{nil, time.Minute, true},
		{nil, accessCheckInterval, false},
		{func() { bindings.changed = true }, accessCheckInterval, true},
		{nil, accessCheckInterval, true}, // a new right may take a moment
		{nil, time.Minute, false},
		{func() { bindings.isBlind = true }, accessCheckInterval, true},
		{nil, accessCheckInterval, true},
	} {
		if step.does != nil {
			step.does()
		}
		fakeClock.Step(step.after)
		if got := w.isDue(); got != step.isDue {
			t.Errorf("step %d: due: %t", i, got)
		}
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
	for want, lacks := range map[string][]Lack{
		"":                                 {{Nodes, "", "list nodes"}, {Watching, "bank", "list pods"}, {PolicyScalers, "bank", "create scalers"}},
		"list namespaces; create scalers":  {{PolicyNamespaces, "", "list namespaces"}, {PolicyScalers, "", "create scalers"}},
		"create scalers in namespace shop": {{PolicyScalers, "shop", "create scalers"}},
	} {
		if got := (Scope{Lacks: lacks}).policiesForbidden(); got != want {
			t.Errorf("missing %q, want %q", got, want)
		}
	}
}

func TestNotReadyIfNoNamespaceIsReadable(t *testing.T) {
	two := []string{"bank", "shop"}
	for name, tc := range map[string]struct {
		scope Scope
		wrong string
	}{
		"all namespaces":                 {},
		"one of two namespaces":          {scope: Scope{Namespaces: two, Lacks: []Lack{{Watching, "bank", "list pods"}}}},
		"no namespace":                   {Scope{Namespaces: two, Lacks: []Lack{{Watching, "bank", "list pods"}, {Watching, "shop", "watch pods"}}}, "no namespace can be watched: namespace bank: may not list pods; namespace shop: may not watch pods"},
		"all namespaces, without rights": {Scope{Lacks: []Lack{{Watching, "", "list pods"}}}, "no namespace can be watched: all namespaces: may not list pods"},
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
	must.Succeed(t, err)
	handler, err := filter(logr.Discard(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the metrics are served") }))
	must.Succeed(t, err)
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if answer.Code != http.StatusForbidden || !strings.Contains(answer.Body.String(), "create tokenreviews") {
		t.Errorf("answered %d: %s", answer.Code, answer.Body)
	}
}

// The files that users apply later have the watched bindings.
func TestTheWatchedBindingsArePublished(t *testing.T) {
	for i, file := range []string{"policies.yaml", "recreate.yaml"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "dist", file))
		must.Succeed(t, err)
		_, binding, _ := strings.Cut(string(text), "\nkind: ClusterRoleBinding\n")
		if !strings.Contains(binding, "\n  name: "+optionalBindings[i]+"\n") {
			t.Errorf("dist/%s has no binding %s", file, optionalBindings[i])
		}
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/internal/release"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// fakeAPI answers dry runs.
type fakeAPI struct {
	lease, deployment error
	conditions        []string // that were set
	fails             error    // setting a condition
}

func (w *fakeAPI) Set(_ context.Context, c metav1.Condition) error {
	if w.fails == nil {
		w.conditions = append(w.conditions, string(c.Status)+" "+c.Reason+": "+c.Message)
	}
	return w.fails
}

func (w *fakeAPI) check(t *testing.T) *Check {
	t.Helper()
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if dry := (&client.CreateOptions{}).ApplyOptions(options).DryRun; len(dry) != 1 || o.GetNamespace() != "operators" {
				t.Errorf("%T %s/%s is created, dry run %q", o, o.GetNamespace(), o.GetName(), dry)
			}
			if _, ok := o.(*appsv1.Deployment); ok {
				return w.deployment
			}
			return w.lease
		},
	})
	return &Check{Client: c, Condition: w, Namespace: "operators", Release: release.Release{Version: "v0.2.0"}, Clock: testclock.NewFakeClock(time.Now())}
}

func TestMissingPoliciesAreReportedOnce(t *testing.T) {
	forbidden := func(why string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "any"}, Name, errors.New(why))
	}
	of := func(policy, message string) error {
		return forbidden("ValidatingAdmissionPolicy 'verticalscaler-" + policy + "' with binding 'verticalscaler-" + policy + "' denied request: " + message)
	}
	by := func(policy string) error { return of(policy, "no (policies v0.2.0)") }
	const installed = "True PoliciesInstalled: The admission policies that the operator can ask for have its version. To compare all of them: kubectl vscaler check"
	outdated := func(names string) string {
		return "False PoliciesOutdated: Admission policies are not those of the operator's version, v0.2.0: " + names + ". To upgrade them: " +
			"kubectl apply --server-side -f https://github.com/verticalscaler/verticalscaler-operator/releases/download/v0.2.0/admission-policies.yaml"
	}
	without := func(names string) string {
		return "False PoliciesMissing: Admission policies are missing: " + names + ". Without them, the operator's token is worth more than the " +
			"operator needs. To install them: kubectl apply --server-side -f https://github.com/verticalscaler/verticalscaler-operator/releases/download/v0.2.0/admission-policies.yaml"
	}
	for name, tc := range map[string]struct {
		lease, deployment error
		want              []string
		metric            map[string]float64
	}{
		"all are there":  {by("operator-objects"), by("operator-deployments"), []string{installed}, map[string]float64{"operator-objects": 0, "operator-deployments": 0}},
		"none is there":  {nil, nil, []string{without("operator-objects, operator-deployments")}, map[string]float64{"operator-objects": 1, "operator-deployments": 1}},
		"one is missing": {by("operator-objects"), nil, []string{without("operator-deployments")}, map[string]float64{"operator-objects": 0, "operator-deployments": 1}},
		"of an older version": {
			of("operator-objects", "no (policies v0.1.9)"), of("operator-deployments", "no"),
			[]string{outdated("operator-objects (v0.1.9), operator-deployments (unknown)")},
			map[string]float64{"operator-objects": 1, "operator-deployments": 1},
		},
		"one is missing, the other of an older version": {
			of("operator-objects", "no (policies v0.1.9)"), nil,
			[]string{without("operator-deployments")},
			map[string]float64{"operator-objects": 1, "operator-deployments": 1},
		},
		"a right is missing":               {by("operator-objects"), forbidden(`User "x" cannot create resource "deployments"`), []string{installed}, map[string]float64{"operator-objects": 0}},
		"another policy refuses":           {forbidden("ValidatingAdmissionPolicy 'ours' denied request: no"), forbidden("exceeded quota"), nil, nil},
		"the API server cannot be reached": {errors.New("connection refused"), apierrors.NewInternalError(errors.New("no dry run")), nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			missing.Reset()
			w := &fakeAPI{lease: tc.lease, deployment: tc.deployment}
			c := w.check(t)
			for range 3 {
				c.Round(t.Context())
			}
			assert.Equal(t, "conditions", tc.want, w.conditions)
			assert.Equal(t, "metrics", tc.metric, measured(t))
		})
	}
	t.Run("a build from a checkout has no version to compare", func(t *testing.T) {
		w := &fakeAPI{lease: by("operator-objects"), deployment: by("operator-deployments")}
		c := w.check(t)
		c.Release.Version = "v0.3.0-dev"
		c.Round(t.Context())
		assert.Equal(t, "conditions", []string{installed}, w.conditions)
	})
	t.Run("they are installed later", func(t *testing.T) {
		w := &fakeAPI{}
		c := w.check(t)
		c.Round(t.Context())
		w.lease, w.deployment = by("operator-objects"), by("operator-deployments")
		c.Round(t.Context())
		w.lease = errors.New("connection refused")
		c.Round(t.Context())
		assert.Equal(t, "conditions", []string{without("operator-objects, operator-deployments"), installed}, w.conditions)
		assert.Equal(t, "metrics without an answer", map[string]float64{"operator-deployments": 0}, measured(t))
	})
	t.Run("a condition that was not written is written later", func(t *testing.T) {
		w := &fakeAPI{fails: errors.New("no")}
		c := w.check(t)
		c.Round(t.Context())
		w.fails = nil
		c.Round(t.Context())
		if len(w.conditions) != 1 {
			t.Errorf("conditions: %q", w.conditions)
		}
	})
}

// measured returns the metric by policy.
func measured(t *testing.T) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(missing)
	families, err := registry.Gather()
	must.Succeed(t, err)
	var out map[string]float64
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if out == nil {
				out = map[string]float64{}
			}
			out[metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue()
		}
	}
	return out
}

func TestTheCheckIsRepeatedUntilTheOperatorStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &fakeAPI{}
		c := w.check(t)
		c.Clock = clock.RealClock{} // of the bubble
		rounds, answer := 0, error(nil)
		c.Client = interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
				rounds++
				return answer
			},
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Start(ctx) }()
		time.Sleep(3*interval + time.Second)
		if rounds != 2*4 || len(w.conditions) != 1 {
			t.Errorf("without policies, %d requests; conditions: %q", rounds, w.conditions)
		}
		answer = apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("ValidatingAdmissionPolicy operator-objects, operator-deployments (policies v0.2.0)"))
		time.Sleep(interval + 2*rarely) // of the bubble
		stop()
		must.Succeed(t, <-done)
		if rounds != 2*(4+3) || len(w.conditions) != 2 {
			t.Errorf("with policies, %d requests; conditions: %q", rounds, w.conditions)
		}
	})
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// having gives the template these containers and init containers, and one of the pods another one.
func having(containers, inits, injected []string) func(*scope) {
	return func(p *scope) {
		list := func(names []string) (out []corev1.Container) {
			for _, name := range names {
				out = append(out, corev1.Container{Name: name})
			}
			return out
		}
		template := &p.observation.deployment.Spec.Template.Spec
		template.Containers, template.InitContainers = list(containers), list(inits)
		pods := p.observation.situation.Pods
		for _, name := range injected {
			pods[1].Containers = append(pods[1].Containers, workload.Container{Name: name})
		}
	}
}

func TestContainersFound(t *testing.T) {
	cases := map[string]struct {
		policies []string
		scope    func(*scope)
		want     string
	}{
		"the policy for all containers": {[]string{"*"}, having([]string{"app"}, nil, nil), ""},
		"a container of the template":   {[]string{"*", "app"}, having([]string{"web", "app"}, nil, nil), ""},
		"an init container":             {[]string{"setup"}, having([]string{"app"}, []string{"setup"}, nil), ""},
		"an injected container":         {[]string{"proxy"}, having([]string{"app"}, nil, []string{"proxy"}), ""},
		"a misspelt container": {
			[]string{"app", "aap"},
			having([]string{"app"}, []string{"setup"}, []string{"proxy"}),
			"A policy without a container has no effect: containerPolicies[1] names aap. Deployment shop/checkout has: app, setup, proxy",
		},
		"many of them": {
			[]string{"1", "2", "3", "4", "5", "6", "7"},
			having([]string{"a", "b", "c", "d", "e", "f"}, nil, nil),
			"A policy without a container has no effect: containerPolicies[0] names 1, containerPolicies[1] names 2, containerPolicies[2] names 3, " +
				"containerPolicies[3] names 4, containerPolicies[4] names 5, and more. Deployment shop/checkout has: a, b, c, d, e, and more",
		},
		"no Deployment": {[]string{"aap"}, func(p *scope) { p.observation, p.plan = observation{}, plan.Plan{} }, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			vs, p := namingContainer("app"), aScope(tc.scope)
			vs.Spec.ResourcePolicy.ContainerPolicies = nil
			for _, policy := range tc.policies {
				vs.Spec.ResourcePolicy.ContainerPolicies = append(vs.Spec.ResourcePolicy.ContainerPolicies, v1beta1.ContainerPolicy{ContainerName: policy})
			}
			completeFor(vs, p)
			got := ""
			if c := meta.FindStatusCondition(p.status.Conditions, v1beta1.ConditionContainersFound); c != nil {
				if got = c.Message; c.Status != "False" || c.Reason != v1beta1.ReasonContainerNotFound {
					t.Errorf("%s=%s %s", c.Type, c.Status, c.Reason)
				}
			}
			if got != tc.want {
				t.Errorf("message %q, want %q", got, tc.want)
			}
		})
	}
}

// A name that matches nothing is reported at once, with one event, and needs a user after ten minutes,
// also if the operator restarts meanwhile. A match ends that.
func TestANameThatMatchesNothingStalls(t *testing.T) {
	missing := func(p *scope) { p.observation, p.plan = observation{}, plan.Plan{} }
	cases := map[string]struct {
		scaler      *v1beta1.VerticalScaler
		lost, found func(*scope)
		event       string
		stalled     string
	}{
		"Deployment": {
			checkout(), missing, having([]string{"app"}, nil, nil),
			"Warning NotFound DeploymentNotFound: Waiting for Deployment shop/checkout to be created",
			"DeploymentNotFound: There is no Deployment shop/checkout: create it, or correct spec.deploymentName",
		},
		"container": {
			namingContainer("aap"), having([]string{"app"}, nil, nil), having([]string{"app", "aap"}, nil, nil),
			"Warning NotFound ContainerNotFound: A policy without a container has no effect: containerPolicies[0] names aap. Deployment shop/checkout has: app",
			"ContainerNotFound: A policy without a container has no effect: containerPolicies[0] names aap. Deployment shop/checkout has: app",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(100)
			at := tc.scaler
			for _, step := range []struct {
				change         func(*scope)
				after          time.Duration
				stalled        string
				atLeast, again time.Duration // when it is looked at again
			}{
				{tc.lost, 300 * time.Millisecond, "", 0, unmatchedLimit},
				{tc.lost, 9 * time.Minute, "", time.Minute, time.Minute},
				{tc.lost, 10 * time.Minute, tc.stalled, 0, 2 * time.Hour},
				{tc.lost, time.Hour, tc.stalled, 0, 2 * time.Hour},
				{tc.found, 2 * time.Hour, "", unmatchedLimit, 2 * time.Hour},
				{tc.lost, 3 * time.Hour, "", 0, unmatchedLimit},
			} {
				p := aScope(step.change, func(p *scope) { p.now = noon.Add(step.after) })
				at = reconciled(at, p)
				(&Reconciler{Recorder: recorder}).recordEvents(p)
				result, err := (&Reconciler{ResyncPeriod: time.Hour}).result(p)
				got := ""
				if c := condition(at, v1beta1.ConditionStalled); c.Status == "True" {
					got = c.Reason + ": " + c.Message
				}
				if again := result.RequeueAfter; got != step.stalled || again < step.atLeast || again > step.again || err != nil {
					t.Errorf("after %s: stalled %q, want %q, looked at again after %s: %v", step.after, got, step.stalled, again, err)
				}
			}
			close(recorder.Events)
			var warnings []string
			for e := range recorder.Events {
				if strings.HasPrefix(e, "Warning") && !slices.Equal(warnings[max(0, len(warnings)-1):], []string{e}) { // on the scaler and on its Deployment
					warnings = append(warnings, e)
				}
			}
			assert.Equal(t, "events", []string{tc.event, "Warning Blocked " + tc.stalled, tc.event}, warnings)
		})
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
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
			look := func(change func(*scope), after time.Duration) (stalled string, again time.Duration) {
				t.Helper()
				p := aScope(func(p *scope) {
					change(p)
					p.now = noon.Add(after)
				})
				next := reconciled(at, p)
				(&Reconciler{Recorder: recorder}).recordEvents(p)
				result, err := (&Reconciler{ResyncPeriod: time.Hour}).result(p)
				if err != nil {
					t.Fatal(err)
				}
				at = next
				c := meta.FindStatusCondition(at.Status.Conditions, v1beta1.ConditionStalled)
				if c.Status != "True" {
					return "", result.RequeueAfter
				}
				if meta.IsStatusConditionTrue(at.Status.Conditions, v1beta1.ConditionReady) {
					t.Error("Stalled and Ready")
				}
				return c.Reason + ": " + c.Message, result.RequeueAfter
			}
			if stalled, again := look(tc.lost, 300*time.Millisecond); stalled != "" || again <= 0 || again > unmatchedLimit {
				t.Errorf("at once: stalled %q, looked at again after %s", stalled, again)
			}
			if stalled, again := look(tc.lost, 9*time.Minute); stalled != "" || again != time.Minute {
				t.Errorf("after 9 minutes: stalled %q, looked at again after %s", stalled, again)
			}
			if stalled, _ := look(tc.lost, 10*time.Minute); stalled != tc.stalled {
				t.Errorf("after 10 minutes: stalled %q, want %q", stalled, tc.stalled)
			}
			if stalled, _ := look(tc.lost, time.Hour); stalled != tc.stalled {
				t.Errorf("after an hour: stalled %q, want %q", stalled, tc.stalled)
			}
			if stalled, again := look(tc.found, 2*time.Hour); stalled != "" || again <= unmatchedLimit {
				t.Errorf("with a match: stalled %q, looked at again after %s", stalled, again)
			}
			if stalled, _ := look(tc.lost, 3*time.Hour); stalled != "" {
				t.Errorf("lost again: stalled at once: %q", stalled)
			}
			close(recorder.Events)
			var got []string
			for e := range recorder.Events {
				if len(got) == 0 || got[len(got)-1] != e { // on the scaler and on its Deployment
					got = append(got, e)
				}
			}
			var warnings []string
			for _, e := range got {
				if e[:7] == "Warning" {
					warnings = append(warnings, e)
				}
			}
			if diff := cmp.Diff([]string{tc.event, "Warning Blocked " + tc.stalled, tc.event}, warnings); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

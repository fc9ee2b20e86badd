// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler/precedence"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/collect"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

const mebi = 1 << 20

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// checkout is a scaler for Deployment shop/checkout.
func checkout(changes ...func(*v1beta1.VerticalScaler)) *v1beta1.VerticalScaler {
	s := &v1beta1.VerticalScaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "checkout", Generation: 3},
		Spec:       v1beta1.VerticalScalerSpec{DeploymentName: "checkout"},
		Status:     v1beta1.VerticalScalerStatus{ObservedGeneration: -1},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

func withMode(mode v1beta1.UpdateMode) func(*v1beta1.VerticalScaler) {
	return func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.UpdateMode = mode }
}

// Amounts in millicores and MiB.
func amounts(cpu, memory int64) quantity.Amounts {
	return quantity.Amounts{CPUMillis: cpu, MemoryBytes: memory * mebi}
}

func appContainer(requests quantity.Amounts) workload.Container {
	return workload.Container{Name: "app", Resources: workload.Resources{Requests: requests}}
}

func runningPod(name string, containers ...workload.Container) workload.Pod {
	return workload.Pod{Name: name, UID: "uid", Running: true, Current: true, Containers: containers}
}

// completeFor completes the status of a scaler.
func completeFor(vs *v1beta1.VerticalScaler, s *scope) {
	s.scaler = vs
	completeStatus(s)
}

// aScope is one that has found all in order.
func aScope(changes ...func(*scope)) *scope {
	p := &scope{
		now: noon,
		observation: observation{
			deployment: &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "checkout", UID: "uid", Generation: 2},
				Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](2)},
				Status:     appsv1.DeploymentStatus{UpdatedReplicas: 2},
			},
			situation: plan.Situation{
				Deployment: workload.Deployment{Containers: []workload.Container{appContainer(amounts(100, 128))}},
				Pods:       []workload.Pod{runningPod("a", appContainer(amounts(200, 256))), runningPod("b", appContainer(amounts(200, 256)))},
			},
		},
		plan: plan.Plan{
			Decision: &plan.Decision{Time: noon.Add(-time.Hour), Reason: "ScaleUp", Requests: map[string]quantity.Amounts{"app": amounts(200, 256)}},
			Verdict:  plan.Applied.Because("Applied", "All pods have the decided size"),
			Progress: plan.Progress{PodsAtSize: 2, Pods: 2},
		},
	}
	p.status.Recommendation = &v1beta1.Recommendation{}
	for _, change := range changes {
		change(p)
	}
	return p
}

func planned(reason, message string) func(*scope) {
	return func(p *scope) {
		p.plan.Verdict = plan.Waiting.Because(reason, message)
	}
}

func formatConditions(conditions []metav1.Condition) string {
	var lines []string
	for _, c := range conditions {
		lines = append(lines, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	return strings.Join(lines, "\n")
}

func TestConditions(t *testing.T) {
	const (
		found     = "TargetFound=True DeploymentFound: Deployment shop/checkout is found\n"
		enough    = "RecommendationProvided=True EnoughHistory: There is enough usage for a recommendation\n"
		unedited  = "Reconciling=False OperatingNormally: No change of the spec is being applied\n"
		unchanged = "Changing=False OperatingNormally: No change in progress\n"
		atRest    = unchanged + unedited
		retried   = unchanged + "Reconciling=True Unknown: The last reconcile failed and is retried; see the operator's log\n"
		noAction  = "Stalled=False OperatingNormally: No action required"
		undecided = "RecommendationProvided=Unknown WaitingForDeployment: Usage is collected once the Deployment exists\n"
	)
	serverDown := apierrors.NewInternalError(errors.New("etcd"))
	cases := map[string]struct {
		scaler *v1beta1.VerticalScaler
		scope  *scope
		want   string
	}{
		"all is well": {
			checkout(), aScope(),
			"Ready=True OperatingNormally: Operating normally\n" + found + enough +
				"Applied=True Applied: All pods have the decided size\n" + atRest + noAction,
		},
		"containers that are only in the pods are named": {
			checkout(), aScope(func(p *scope) {
				is := func(names ...string) workload.Pod {
					pod := workload.Pod{Current: true}
					for _, name := range names {
						pod.Containers = append(pod.Containers, workload.Container{Name: name, IsSidecar: name != "zeta"})
					}
					return pod
				}
				old := is("gone")
				old.Current = false
				p.observation.situation.Pods = []workload.Pod{is("proxy", "zeta"), is("agent", "log", "proxy"), old}
			}),
			"Ready=True OperatingNormally: Operating normally\n" +
				"TargetFound=True DeploymentFound: Deployment shop/checkout is found. Not sized, because they are in the pods and not in the pod template: agent, log, proxy, and more\n" + enough +
				"Applied=True Applied: All pods have the decided size\n" + atRest + noAction,
		},
		"learning is Ready": {
			checkout(), aScope(planned("NoRecommendation", "There is no recommendation yet"), func(p *scope) { p.status.Recommendation = nil }),
			"Ready=True Learning: Collecting usage; the first recommendation takes a few minutes\n" + found +
				"RecommendationProvided=False CollectingHistory: Collecting usage; the first recommendation takes a few minutes\n" +
				"Applied=False NoRecommendation: There is no recommendation yet\n" + atRest + noAction,
		},
		"a Deployment without pods learns nothing": {
			checkout(), aScope(planned("NoPods", "The Deployment has no running pods"), func(p *scope) {
				p.status.Recommendation, p.observation.situation.Pods = nil, nil
			}),
			"Ready=True NoPods: No usage is collected while the Deployment has no running pods\n" + found +
				"RecommendationProvided=False NoPods: No usage is collected while the Deployment has no running pods\n" +
				"Applied=False NoPods: The Deployment has no running pods\n" + atRest + noAction,
		},
		"waiting for the Deployment is Ready": {
			checkout(), &scope{now: noon},
			"Ready=True WaitingForDeployment: Waiting for Deployment shop/checkout to be created\n" +
				"TargetFound=False DeploymentNotFound: Waiting for Deployment shop/checkout to be created\n" + undecided +
				"Applied=Unknown WaitingForDeployment: There is no Deployment to size\n" + atRest + noAction,
		},
		"suspended is Ready": {
			checkout(func(s *v1beta1.VerticalScaler) { s.Spec.Suspend = true }), aScope(planned("Suspended", "Nothing is changed")),
			"Ready=True Suspended: Nothing is changed while the scaler is suspended\n" + found + enough +
				"Applied=False Suspended: Nothing is changed\n" + atRest + noAction,
		},
		"paused is Ready": {
			checkout(func(s *v1beta1.VerticalScaler) {
				s.Annotations = map[string]string{"autoscaling.verticalscaler.io/paused": "true"}
			}),
			aScope(planned("Paused", "The annotation is set")),
			"Ready=True Paused: The annotation is set\n" + found + enough +
				"Applied=False Paused: The annotation is set\n" + atRest + noAction,
		},
		"Recommend is Ready": {
			checkout(withMode("Recommend")), aScope(planned("RecommendOnly", "updateMode is Recommend")),
			"Ready=True RecommendOnly: Recommendations are not applied\n" + found + enough +
				"Applied=False RecommendOnly: updateMode is Recommend\n" + atRest + noAction,
		},
		"a freeze is shown where nothing waits for it": {
			checkout(), aScope(func(p *scope) { p.frozen = "ConfigMap a/b freezes changes: incident 42" }),
			"Ready=True Frozen: ConfigMap a/b freezes changes: incident 42\n" + found + enough +
				"Applied=True Applied: All pods have the decided size\n" + atRest + noAction,
		},
		"a freeze changes nothing for a suspended scaler": {
			checkout(func(s *v1beta1.VerticalScaler) { s.Spec.Suspend = true }),
			aScope(planned("Suspended", "Nothing is changed"), func(p *scope) { p.frozen = "ConfigMap a/b freezes changes" }),
			"Ready=True Suspended: Nothing is changed while the scaler is suspended\n" + found + enough +
				"Applied=False Suspended: Nothing is changed\n" + atRest + noAction,
		},
		"a change is under way": {
			checkout(), aScope(planned("Resizing", "Pods are being resized in place"), func(p *scope) { p.plan.Verdict.State = plan.Changing }),
			"Ready=True OperatingNormally: Operating normally\n" + found + enough +
				"Applied=False Resizing: Pods are being resized in place\n" +
				"Changing=True Resizing: Pods are being resized in place\nReconciling=True Resizing: Pods are being resized in place\n" + noAction,
		},
		"what needs a user is Stalled and not Ready": {
			checkout(), aScope(planned("QoSChange", "pod a: …"), func(p *scope) { p.plan.Verdict.State = plan.Stalled }),
			"Ready=False QoSChange: pod a: …\n" + found + enough +
				"Applied=False QoSChange: pod a: …\n" + atRest +
				"Stalled=True QoSChange: pod a: …",
		},
		"another scaler is first": {
			checkout(), &scope{now: noon, standing: precedence.Standing{Winner: "elder"}},
			"Ready=False Conflict: VerticalScaler elder, which is older, sizes Deployment shop/checkout: delete one of the two\n" +
				"TargetFound=False Conflict: VerticalScaler elder, which is older, sizes Deployment shop/checkout: delete one of the two\n" + undecided +
				"Applied=False Conflict: Another scaler sizes the Deployment\n" + atRest +
				"Stalled=True Conflict: VerticalScaler elder, which is older, sizes Deployment shop/checkout: delete one of the two",
		},
		"too many others are first": {
			checkout(), &scope{now: noon, standing: precedence.Standing{Refused: true}},
			"Ready=False Conflict: More than 8 VerticalScalers name Deployment shop/checkout, and the oldest one sizes it: delete the others\n" +
				"TargetFound=False Conflict: More than 8 VerticalScalers name Deployment shop/checkout, and the oldest one sizes it: delete the others\n" + undecided +
				"Applied=False Conflict: Another scaler sizes the Deployment\n" + atRest +
				"Stalled=True Conflict: More than 8 VerticalScalers name Deployment shop/checkout, and the oldest one sizes it: delete the others",
		},
		"without metrics": {
			checkout(), aScope(func(p *scope) { p.observation.problems = collect.Problems{Outage: "metrics.k8s.io is not served"} }),
			"Ready=False MetricsUnavailable: Usage cannot be read, so nothing is lowered: metrics.k8s.io is not served\n" + found +
				"RecommendationProvided=False MetricsUnavailable: Usage cannot be read, so nothing is lowered: metrics.k8s.io is not served\n" +
				"Applied=True Applied: All pods have the decided size\n" + atRest +
				"Stalled=True MetricsUnavailable: Usage cannot be read, so nothing is lowered: metrics.k8s.io is not served",
		},
		"what is stalled is not Reconciling beside": {
			checkout(), aScope(planned("Resizing", "Pods are being resized in place"), func(p *scope) {
				p.plan.Verdict.State = plan.Changing
				p.observation.problems = collect.Problems{Outage: "metrics.k8s.io is not served"}
			}),
			"Ready=False MetricsUnavailable: Usage cannot be read, so nothing is lowered: metrics.k8s.io is not served\n" + found +
				"RecommendationProvided=False MetricsUnavailable: Usage cannot be read, so nothing is lowered: metrics.k8s.io is not served\n" +
				"Applied=False Resizing: Pods are being resized in place\n" + atRest +
				"Stalled=True MetricsUnavailable: Usage cannot be read, so nothing is lowered: metrics.k8s.io is not served",
		},
		"with part of the metrics": {
			checkout(), aScope(func(p *scope) { p.observation.problems = collect.Problems{Incomplete: "container app of pod a"} }),
			"Ready=True OperatingNormally: Operating normally\n" + found +
				"RecommendationProvided=True MetricsIncomplete: Usage of running pods is missing, so nothing is lowered: container app of pod a. Check metrics-server and the kubelets of their nodes\n" +
				"Applied=True Applied: All pods have the decided size\n" + atRest + noAction,
		},
		"with too little of the metrics": {
			checkout(), aScope(planned("NoRecommendation", "There is no recommendation yet"), func(p *scope) {
				p.status.Recommendation = nil
				p.observation.problems = collect.Problems{Incomplete: "container app of pod a"}
			}),
			"Ready=True Learning: Usage of running pods is missing: container app of pod a. Check metrics-server and the kubelets of their nodes\n" + found +
				"RecommendationProvided=False MetricsIncomplete: Usage of running pods is missing: container app of pod a. Check metrics-server and the kubelets of their nodes\n" +
				"Applied=False NoRecommendation: There is no recommendation yet\n" + atRest + noAction,
		},
		"the Deployment could not be read": {
			checkout(), &scope{now: noon, err: serverDown},
			"Ready=Unknown Unknown: The last reconcile failed and is retried; see the operator's log\n" +
				"TargetFound=Unknown Unknown: The Deployment has not been read yet\n" + undecided +
				"Applied=Unknown Unknown: The last reconcile failed and is retried; see the operator's log\n" + retried + noAction,
		},
		"the reconcile failed before it had a plan": {
			checkout(), aScope(func(p *scope) { p.plan, p.err = plan.Plan{}, serverDown }),
			"Ready=Unknown Unknown: The last reconcile failed and is retried; see the operator's log\n" + found + enough +
				"Applied=Unknown Unknown: The last reconcile failed and is retried; see the operator's log\n" + retried + noAction,
		},
		"the step failed": {
			checkout(), aScope(planned("Resizing", "Pods are being resized in place"), func(p *scope) { p.plan.Verdict.State, p.err = plan.Changing, serverDown }),
			"Ready=True OperatingNormally: Operating normally\n" + found + enough +
				"Applied=False Resizing: Pods are being resized in place\n" +
				"Changing=True Resizing: Pods are being resized in place\nReconciling=True Resizing: Pods are being resized in place\n" + noAction,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			completeFor(tc.scaler, tc.scope)
			if diff := cmp.Diff(tc.want, formatConditions(tc.scope.status.Conditions)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if tc.scope.status.ObservedGeneration != 3 {
				t.Errorf("observedGeneration = %d, want 3", tc.scope.status.ObservedGeneration)
			}
			for _, c := range tc.scope.status.Conditions {
				if c.ObservedGeneration != 3 || !c.LastTransitionTime.Time.Equal(noon) {
					t.Errorf("%s is of generation %d, since %s", c.Type, c.ObservedGeneration, c.LastTransitionTime)
				}
			}
		})
	}
}

func TestTransitionTimes(t *testing.T) {
	before := aScope()
	completeFor(checkout(), before)
	vs := checkout(func(s *v1beta1.VerticalScaler) {
		s.Generation, s.Status = 4, before.status
		// What a hostile status may hold on top is dropped: it must not fill the list.
		for i := range 20 {
			s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{Type: fmt.Sprintf("Foreign%d", i)})
		}
	})
	p := aScope(planned("Resizing", "…"), func(p *scope) { p.now, p.plan.Verdict.State = noon.Add(time.Hour), plan.Changing })
	completeFor(vs, p)
	changed := map[string]bool{"Applied": true, "Changing": true, "Reconciling": true}
	if len(p.status.Conditions) != 7 {
		t.Errorf("%d conditions: %s", len(p.status.Conditions), formatConditions(p.status.Conditions))
	}
	for _, c := range p.status.Conditions {
		want := noon
		if changed[c.Type] {
			want = noon.Add(time.Hour)
		}
		if !c.LastTransitionTime.Time.Equal(want) || c.ObservedGeneration != 4 {
			t.Errorf("%s is since %s, of generation %d", c.Type, c.LastTransitionTime, c.ObservedGeneration)
		}
	}
}

// A reconcile that fails before it decides must keep the decision.
func TestAFailedReconcileKeepsWhatIsKnown(t *testing.T) {
	decided := scaler.APIDecision(aScope().plan.Decision)
	known := v1beta1.VerticalScalerStatus{
		ObservedGeneration: 3,
		Decision:           decided,
		Summary:            &v1beta1.Summary{CPU: "200m"},
		Target:             &v1beta1.Target{UID: "uid"},
		Recommendation:     &v1beta1.Recommendation{},
	}
	gone := apierrors.NewInternalError(errors.New("etcd"))
	for name, p := range map[string]*scope{
		"the Deployment could not be read": {err: gone},
		"the history could not be saved":   {err: gone, observation: aScope().observation},
	} {
		t.Run(name, func(t *testing.T) {
			p.now, p.status = noon, *known.DeepCopy()
			completeFor(checkout(func(s *v1beta1.VerticalScaler) { s.Status = *known.DeepCopy() }), p)
			if diff := cmp.Diff(decided, p.status.Decision); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			if p.status.Summary == nil || p.status.Target == nil || p.status.Recommendation == nil {
				t.Errorf("status = %+v", p.status)
			}
		})
	}
	t.Run("a reconcile on an old cache says nothing at all", func(t *testing.T) {
		for _, err := range []error{errStaleCache, apierrors.NewConflict(schema.GroupResource{}, "x", errors.New("old"))} {
			s := aScope()
			if s.classify(err); s.outcome != conflicted {
				t.Errorf("%v: outcome %d", err, s.outcome)
			}
		}
	})
}

func TestHistory(t *testing.T) {
	vs := checkout()
	for i := range 13 {
		p := aScope(func(p *scope) {
			p.status = vs.Status
			p.now = noon.Add(time.Duration(i) * time.Hour)
			p.plan.Decided = true
			p.plan.Decision = &plan.Decision{Time: p.now.Add(time.Millisecond), Reason: "LowerBound", Requests: map[string]quantity.Amounts{
				"log": amounts(10, 0), "app": amounts(300+int64(i), 256),
			}}
		})
		completeFor(vs, p)
		vs.Status = p.status
	}
	history := vs.Status.History
	if len(history) != 10 {
		t.Fatalf("%d entries, want 10", len(history))
	}
	if want := "LowerBound: app cpu 200m->312m; log cpu none->10m"; history[0].Message != want || !history[0].Time.Time.Equal(noon.Add(12*time.Hour)) {
		t.Errorf("newest = %s %q, want %q", history[0].Time, history[0].Message, want)
	}
	p := aScope(func(p *scope) { p.status = vs.Status })
	completeFor(vs, p)
	if diff := cmp.Diff(history, p.status.History); diff != "" {
		t.Errorf("a reconcile that decides nothing changes the history:\n%s", diff)
	}
}

// What a decision says must not depend on the order in which the cache lists pods.
func TestADecisionReadsTheSameInAnyOrder(t *testing.T) {
	s := aScope().observation.situation
	s.Pods = []workload.Pod{runningPod("a", appContainer(amounts(200, 256))), runningPod("b", appContainer(amounts(100, 256)))}
	d := &plan.Decision{Reason: "ScaleUp", Requests: map[string]quantity.Amounts{"app": amounts(300, 512)}}
	want := "ScaleUp: app cpu 100m->300m, memory 256Mi->512Mi"
	for range 2 {
		if got := formatDecision(s, d); got != want {
			t.Errorf("sayDecision() = %q, want %q", got, want)
		}
		s.Pods[0], s.Pods[1] = s.Pods[1], s.Pods[0]
	}
	s.Decision = &plan.Decision{
		Requests:     map[string]quantity.Amounts{"app": amounts(250, 69)},
		Verification: &plan.Verification{Good: map[string]quantity.Amounts{"app": amounts(0, 512)}},
	}
	if got, want := formatDecision(s, d), "ScaleUp: app cpu 250m->300m, memory 69Mi->512Mi (restored: not verified yet)"; got != want {
		t.Errorf("sayDecision() = %q, want %q", got, want)
	}
	s.Decision = &plan.Decision{Requests: map[string]quantity.Amounts{"app": amounts(250, 0)}}
	if got, want := formatDecision(s, d), "ScaleUp: app cpu 250m->300m, memory 256Mi->512Mi"; got != want {
		t.Errorf("sayDecision() = %q, want %q", got, want)
	}
}

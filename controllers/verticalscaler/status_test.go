// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/checkpoint"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler/precedence"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
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

// completeFor completes the status of a scaler. After any reconcile, each condition has a message, and a reason that is
// explained to users.
func completeFor(vs *v1beta1.VerticalScaler, s *scope) {
	s.scaler = vs
	completeStatus(s)
	for _, c := range s.status.Conditions {
		if _, ok := explain.ReasonFor(c.Reason); !ok || strings.TrimSpace(c.Message) == "" {
			panic(fmt.Sprintf("%s=%s has the reason %q, and the message %q", c.Type, c.Status, c.Reason, c.Message))
		}
	}
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
		retried   = "Reconciling=True Unknown: The last reconcile failed and is retried; see the operator's log"
		undecided = ": Usage is collected once this scaler sizes the Deployment"
	)
	usual := aScope()
	completeFor(checkout(), usual)
	atRest := strings.Split(formatConditions(usual.status.Conditions), "\n")
	assert.Equal(t, "all is well: conditions", []string{
		"Ready=True OperatingNormally: Operating normally",
		"TargetFound=True DeploymentFound: Deployment shop/checkout is found",
		"RecommendationProvided=True EnoughHistory: There is enough usage for a recommendation",
		"Applied=True Applied: All pods have the decided size",
		"Changing=False OperatingNormally: No change in progress",
		"Reconciling=False OperatingNormally: No change of the spec is being applied",
		"Stalled=False OperatingNormally: No action required",
	}, atRest)
	serverDown := apierrors.NewInternalError(errors.New("etcd"))
	cases := map[string]struct {
		scaler *v1beta1.VerticalScaler
		scope  *scope
		want   []string // the conditions that differ from a scaler at rest
	}{
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
			[]string{"TargetFound=True DeploymentFound: Deployment shop/checkout is found. Not sized, because they are in the pods and not in the pod template: agent, log, proxy, zeta"},
		},
		"learning is Ready": {
			checkout(), aScope(planned("Learning", "There is no recommendation yet"), func(p *scope) { p.status.Recommendation = nil }),
			[]string{
				"Ready=True Learning: Collecting usage; the first recommendation takes a few minutes",
				"RecommendationProvided=False Learning: Collecting usage; the first recommendation takes a few minutes",
				"Applied=False Learning: There is no recommendation yet",
			},
		},
		"more usage does not end a conflict": {
			checkout(), aScope(planned("HPAConflict", "cpu: not managed"), func(p *scope) { p.status.Recommendation = nil }),
			[]string{
				"RecommendationProvided=False Learning: Collecting usage; the first recommendation takes a few minutes",
				"Applied=False HPAConflict: cpu: not managed",
			},
		},
		"a Deployment without pods learns nothing": {
			checkout(), aScope(planned("NoPods", "The Deployment has no running pods"), func(p *scope) {
				p.status.Recommendation, p.observation.situation.Pods = nil, nil
			}),
			[]string{
				"Ready=True NoPods: The Deployment has no running pods",
				"RecommendationProvided=False NoPods: No usage is collected while the Deployment has no running pods",
				"Applied=False NoPods: The Deployment has no running pods",
			},
		},
		"pods of another owner are named": {
			checkout(), aScope(planned("NoPods", "The Deployment has no running pods"), func(p *scope) {
				p.status.Recommendation, p.observation.situation.Pods = nil, nil
				p.observation.foreign = []string{"rollout-1 (ReplicaSet rollout)", "alone (no controller)"}
			}),
			[]string{
				"Ready=True NoPods: The Deployment has no running pods. Pods that match its selector belong to another owner and are not sized: rollout-1 (ReplicaSet rollout), alone (no controller)",
				"RecommendationProvided=False NoPods: No usage is collected while the Deployment has no running pods",
				"Applied=False NoPods: The Deployment has no running pods. Pods that match its selector belong to another owner and are not sized: rollout-1 (ReplicaSet rollout), alone (no controller)",
			},
		},
		"waiting for the Deployment is Ready": {
			checkout(), &scope{now: noon},
			[]string{
				"Ready=True DeploymentNotFound: Waiting for Deployment shop/checkout to be created",
				"TargetFound=False DeploymentNotFound: Waiting for Deployment shop/checkout to be created",
				"RecommendationProvided=Unknown DeploymentNotFound" + undecided,
				"Applied=Unknown DeploymentNotFound: There is no Deployment to size",
			},
		},
		"suspended is Ready": {
			checkout(func(s *v1beta1.VerticalScaler) { s.Spec.Suspend = true }), aScope(planned("Suspended", "Nothing is changed")),
			[]string{
				"Ready=True Suspended: Nothing is changed while the scaler is suspended",
				"Applied=False Suspended: Nothing is changed",
			},
		},
		"paused is Ready": {
			checkout(func(s *v1beta1.VerticalScaler) {
				s.Annotations = map[string]string{"autoscaling.verticalscaler.io/paused": "true"}
			}),
			aScope(planned("Paused", "The annotation is set")),
			[]string{
				"Ready=True Paused: The annotation is set",
				"Applied=False Paused: The annotation is set",
			},
		},
		"Recommend is Ready": {
			checkout(withMode("Recommend")), aScope(planned("RecommendOnly", "updateMode is Recommend")),
			[]string{
				"Ready=True RecommendOnly: Recommendations are not applied",
				"Applied=False RecommendOnly: updateMode is Recommend",
			},
		},
		"a freeze is shown where nothing waits for it": {
			checkout(), aScope(func(p *scope) { p.frozen = "ConfigMap a/b freezes changes: incident 42" }),
			[]string{"Ready=True Frozen: ConfigMap a/b freezes changes: incident 42"},
		},

		"a change is under way": {
			checkout(), aScope(planned("Resizing", "Pods are being resized in place"), func(p *scope) { p.plan.Verdict.State = plan.Changing }),
			[]string{
				"Applied=False Resizing: Pods are being resized in place",
				"Changing=True Resizing: Pods are being resized in place",
				"Reconciling=True Resizing: Pods are being resized in place",
			},
		},
		"what needs a user is Stalled and not Ready": {
			checkout(), aScope(planned("QoSChange", "pod a: …"), func(p *scope) { p.plan.Verdict.State = plan.Stalled }),
			[]string{
				"Ready=False QoSChange: pod a: …",
				"Applied=False QoSChange: pod a: …",
				"Stalled=True QoSChange: pod a: …",
			},
		},
		"another scaler is first": {
			checkout(), &scope{now: noon, standing: precedence.Standing{Winner: "elder"}},
			[]string{
				"Ready=False Conflict: VerticalScaler elder, which is older, sizes Deployment shop/checkout: delete one of the two",
				"TargetFound=False Conflict: VerticalScaler elder, which is older, sizes Deployment shop/checkout: delete one of the two",
				"RecommendationProvided=Unknown Conflict" + undecided,
				"Applied=False Conflict: Another scaler sizes the Deployment",
				"Stalled=True Conflict: VerticalScaler elder, which is older, sizes Deployment shop/checkout: delete one of the two",
			},
		},
		"too many others are first": {
			checkout(), &scope{now: noon, standing: precedence.Standing{Refused: true}},
			[]string{
				"Ready=False Conflict: More than 8 VerticalScalers name Deployment shop/checkout, and the oldest one sizes it: delete the others",
				"TargetFound=False Conflict: More than 8 VerticalScalers name Deployment shop/checkout, and the oldest one sizes it: delete the others",
				"RecommendationProvided=Unknown Conflict" + undecided,
				"Applied=False Conflict: Another scaler sizes the Deployment",
				"Stalled=True Conflict: More than 8 VerticalScalers name Deployment shop/checkout, and the oldest one sizes it: delete the others",
			},
		},
		"without metrics": {
			checkout(), aScope(func(p *scope) { p.observation.problems = collect.Problems{Outage: "metrics.k8s.io is not served"} }),
			[]string{
				"Ready=False MetricsUnavailable: Usage cannot be read, so nothing is lowered: metrics.k8s.io is not served",
				"RecommendationProvided=False MetricsUnavailable: Usage cannot be read, so nothing is lowered: metrics.k8s.io is not served",
				"Stalled=True MetricsUnavailable: Usage cannot be read, so nothing is lowered: metrics.k8s.io is not served",
			},
		},

		"with part of the metrics": {
			checkout(), aScope(func(p *scope) { p.observation.problems = collect.Problems{Incomplete: "container app of pod a"} }),
			[]string{
				"Ready=False MetricsIncomplete: Usage of running pods is missing, so nothing is lowered: container app of pod a. Check metrics-server and the kubelets of their nodes",
				"RecommendationProvided=True MetricsIncomplete: Usage of running pods is missing, so nothing is lowered: container app of pod a. Check metrics-server and the kubelets of their nodes",
			},
		},

		"the Deployment could not be read": {
			checkout(), &scope{now: noon, err: serverDown},
			[]string{
				"Ready=Unknown Unknown: The last reconcile failed and is retried; see the operator's log",
				"TargetFound=Unknown Unknown: The Deployment has not been read yet",
				"RecommendationProvided=Unknown Unknown" + undecided,
				"Applied=Unknown Unknown: The last reconcile failed and is retried; see the operator's log",
				retried,
			},
		},
		"the reconcile failed before it had a plan": {
			checkout(), aScope(func(p *scope) { p.plan, p.err = plan.Plan{}, serverDown }),
			[]string{
				"Ready=Unknown Unknown: The last reconcile failed and is retried; see the operator's log",
				"Applied=Unknown Unknown: The last reconcile failed and is retried; see the operator's log",
				retried,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			completeFor(tc.scaler, tc.scope)
			got := slices.DeleteFunc(strings.Split(formatConditions(tc.scope.status.Conditions), "\n"), func(c string) bool { return slices.Contains(atRest, c) })
			assert.Equal(t, "conditions", tc.want, got)
			for _, c := range tc.scope.status.Conditions {
				if c.ObservedGeneration != 3 || !c.LastTransitionTime.Time.Equal(noon) {
					t.Errorf("%s is of generation %d, since %s", c.Type, c.ObservedGeneration, c.LastTransitionTime)
				}
			}
		})
	}
}

// Additional conditions of a hostile status are dropped: they must not fill the list.
func TestForeignConditionsAreDropped(t *testing.T) {
	vs, p := checkout(), aScope()
	for i := range 20 {
		vs.Status.Conditions = append(vs.Status.Conditions, metav1.Condition{Type: fmt.Sprintf("Foreign%d", i)})
	}
	if completeFor(vs, p); len(p.status.Conditions) != 7 {
		t.Errorf("%d conditions: %s", len(p.status.Conditions), formatConditions(p.status.Conditions))
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
			assert.Equal(t, "decision", decided, p.status.Decision)
			if p.status.Summary == nil || p.status.Target == nil || p.status.Recommendation == nil {
				t.Errorf("status = %+v", p.status)
			}
		})
	}
	t.Run("a reconcile on an old cache reports nothing", func(t *testing.T) {
		for _, err := range []error{errStaleCache, errRefused, checkpoint.ErrOvertaken, apierrors.NewConflict(schema.GroupResource{}, "x", errors.New("old"))} {
			s := aScope()
			if s.classify(err); s.outcome != conflicted {
				t.Errorf("%v: outcome %d", err, s.outcome)
			}
		}
	})
	t.Run("a refused step delays the next one by a second, however many were refused", func(t *testing.T) {
		r, s := &Reconciler{ResyncPeriod: 10 * time.Minute}, aScope()
		s.scaler = checkout()
		s.classify(errRefused)
		for range 30 {
			if result, err := r.result(s); result.RequeueAfter != refusedRetry || err != nil {
				t.Fatalf("result() = %+v, %v", result, err)
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
	assert.Equal(t, "the history after a reconcile that decides nothing", history, p.status.History)
}

// The text of a decision must not depend on the cache's order of pods.
func TestADecisionReadsTheSameInAnyOrder(t *testing.T) {
	s := aScope().observation.situation
	s.Pods = []workload.Pod{runningPod("a", appContainer(amounts(200, 256))), runningPod("b", appContainer(amounts(100, 256)))}
	d := &plan.Decision{Reason: "ScaleUp", Requests: map[string]quantity.Amounts{"app": amounts(300, 512)}}
	want := "ScaleUp: app cpu 100m->300m, memory 256Mi->512Mi"
	for range 2 {
		if got := formatDecision(s, d); got != want {
			t.Errorf("formatDecision() = %q, want %q", got, want)
		}
		s.Pods[0], s.Pods[1] = s.Pods[1], s.Pods[0]
	}
	s.Decision = &plan.Decision{
		Requests:     map[string]quantity.Amounts{"app": amounts(250, 69)},
		Verification: &plan.Verification{Good: map[string]quantity.Amounts{"app": amounts(0, 512)}},
	}
	if got, want := formatDecision(s, d), "ScaleUp: app cpu 250m->300m, memory 69Mi->512Mi (restored: not verified yet)"; got != want {
		t.Errorf("formatDecision() = %q, want %q", got, want)
	}
	s.Decision = &plan.Decision{Requests: map[string]quantity.Amounts{"app": amounts(250, 0)}}
	if got, want := formatDecision(s, d), "ScaleUp: app cpu 250m->300m, memory 256Mi->512Mi"; got != want {
		t.Errorf("formatDecision() = %q, want %q", got, want)
	}
}

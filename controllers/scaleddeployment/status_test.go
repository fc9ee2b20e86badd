// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaleddeployment

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/refusal"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)

// aDeployment is the owner's, rolled out with three pods.
func aDeployment(changes ...func(*appsv1.Deployment)) *appsv1.Deployment {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: 2},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To(int32(3))},
		Status:     appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 3, AvailableReplicas: 3},
	}
	for _, change := range changes {
		change(d)
	}
	return d
}

func withCondition(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		d.Status.Conditions = append(d.Status.Conditions, appsv1.DeploymentCondition{Type: kind, Status: status, Reason: reason, Message: message})
	}
}

func withReplicas(replicas, updated, available int32) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.AvailableReplicas = replicas, updated, available
	}
}

func TestRolloutState(t *testing.T) {
	cases := map[string]struct {
		deployment *appsv1.Deployment
		want       state
	}{
		"all pods are available": {aDeployment(), state{stateReady, "Available", "Deployment web: all 3 pods are available"}},
		"no pods are asked for": {
			aDeployment(withReplicas(0, 0, 0), func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(0)) }),
			state{stateReady, "Available", "Deployment web: all 0 pods are available"},
		},
		"one pod by default": {
			aDeployment(withReplicas(1, 1, 1), func(d *appsv1.Deployment) { d.Spec.Replicas = nil }),
			state{stateReady, "Available", "Deployment web: all 1 pods are available"},
		},
		"the newest template is not seen": {
			aDeployment(func(d *appsv1.Deployment) { d.Generation = 3 }),
			state{stateInProgress, "Progressing", "Deployment web: its controller has not seen the newest template yet"},
		},
		"what was said of an older template counts no more": {
			aDeployment(withCondition("Progressing", "False", "ProgressDeadlineExceeded", "late"), func(d *appsv1.Deployment) { d.Generation = 3 }),
			state{stateInProgress, "Progressing", "Deployment web: its controller has not seen the newest template yet"},
		},
		"the deadline is exceeded": {
			aDeployment(withReplicas(4, 1, 3), withCondition("Available", "True", "MinimumReplicasAvailable", ""), withCondition("Progressing", "False", "ProgressDeadlineExceeded", "late")),
			state{stateStalled, "ProgressDeadlineExceeded", "Deployment web: late"},
		},
		"progress that has ended for another reason is no stall": {
			aDeployment(withCondition("Progressing", "False", "Other", "x")),
			state{stateReady, "Available", "Deployment web: all 3 pods are available"},
		},
		"a deadline that is no longer exceeded": {
			aDeployment(withCondition("Progressing", "True", "ProgressDeadlineExceeded", "x")),
			state{stateReady, "Available", "Deployment web: all 3 pods are available"},
		},
		"pods cannot be made": {
			aDeployment(withReplicas(0, 0, 0), withCondition("Progressing", "True", "ReplicaSetUpdated", ""), withCondition("ReplicaFailure", "True", "FailedCreate", "exceeded quota")),
			state{stateInProgress, "Progressing", "Deployment web: exceeded quota"},
		},
		"pods could not be made": {
			aDeployment(withCondition("ReplicaFailure", "False", "FailedCreate", "exceeded quota")),
			state{stateReady, "Available", "Deployment web: all 3 pods are available"},
		},
		"some pods are not updated": {aDeployment(withReplicas(4, 2, 3)), state{stateInProgress, "Progressing", "Deployment web: 2 of 3 pods have the newest template"}},
		"old pods are still there":  {aDeployment(withReplicas(5, 3, 3)), state{stateInProgress, "Progressing", "Deployment web: 2 pods of an older template, or too many, are still there"}},
		"too many pods are still there": {
			aDeployment(withReplicas(5, 5, 5)),
			state{stateInProgress, "Progressing", "Deployment web: 2 pods of an older template, or too many, are still there"},
		},
		"some pods are not available": {aDeployment(withReplicas(3, 3, 1)), state{stateInProgress, "Progressing", "Deployment web: 1 of 3 pods are available"}},
		"a Deployment that was just made": {
			aDeployment(func(d *appsv1.Deployment) { d.Generation, d.Status = 1, appsv1.DeploymentStatus{} }),
			state{stateInProgress, "Progressing", "Deployment web: its controller has not seen the newest template yet"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := rolloutState(tc.deployment); got != tc.want {
				t.Errorf("rollout() = %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestConditions(t *testing.T) {
	const (
		yes, no, who = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	)
	scaler := &v1beta1.VerticalScaler{}
	scaler.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: no, Reason: "QuotaExceeded", Message: "no room"}}
	cases := map[string]struct {
		pass    scope
		scaling bool
		want    []string
	}{
		"all is well": {
			pass: scope{deployment: aDeployment()},
			want: []string{"Ready True Available: Deployment web: all 3 pods are available", "Reconciling False OperatingNormally: No change is under way", "Stalled False OperatingNormally: Nothing waits for a person"},
		},
		"a rollout": {
			pass: scope{deployment: aDeployment(withReplicas(3, 3, 1))},
			want: []string{"Ready False Progressing: Deployment web: 1 of 3 pods are available", "Reconciling True Progressing: Deployment web: 1 of 3 pods are available", "Stalled False OperatingNormally: Nothing waits for a person"},
		},
		"a replacement": {
			pass: scope{deployment: aDeployment(), waiting: "one must go"},
			want: []string{"Ready False Replacing: one must go", "Reconciling True Replacing: one must go", "Stalled False OperatingNormally: Nothing waits for a person"},
		},
		"a refusal outranks the rollout": {
			pass: scope{deployment: aDeployment(), rejection: refusal.Rejection{Reason: "Rejected", Message: "no"}},
			want: []string{"Ready False Rejected: no", "Reconciling False OperatingNormally: No change is under way", "Stalled True Rejected: no"},
		},
		"a refusal without a Deployment": {
			pass: scope{rejection: refusal.Rejection{Reason: "NotControlled", Message: "no"}},
			want: []string{"Ready False NotControlled: no", "Reconciling False OperatingNormally: No change is under way", "Stalled True NotControlled: no"},
		},
		"a failure": {
			pass: scope{err: errors.New("read tcp 10.0.0.1: timeout")},
			want: []string{"Ready Unknown Unknown: The pass could not be finished; it is tried again", "Reconciling True Unknown: The pass could not be finished; it is tried again", "Stalled False OperatingNormally: Nothing waits for a person"},
		},
		"a scaler": {
			pass: scope{deployment: aDeployment(), scaler: scaler}, scaling: true,
			want: []string{
				"Ready True Available: Deployment web: all 3 pods are available", "Reconciling False OperatingNormally: No change is under way", "Stalled False OperatingNormally: Nothing waits for a person",
				"Sized False QuotaExceeded: no room",
			},
		},
		"a scaler that has said nothing": {
			pass: scope{deployment: aDeployment(), scaler: &v1beta1.VerticalScaler{}}, scaling: true,
			want: []string{
				"Ready True Available: Deployment web: all 3 pods are available", "Reconciling False OperatingNormally: No change is under way", "Stalled False OperatingNormally: Nothing waits for a person",
				"Sized Unknown Unknown: The VerticalScaler has said nothing yet",
			},
		},
		"no scaler yet": {
			pass: scope{waiting: "one must go"}, scaling: true,
			want: []string{
				"Ready False Replacing: one must go", "Reconciling True Replacing: one must go", "Stalled False OperatingNormally: Nothing waits for a person",
				"Sized Unknown Unknown: The VerticalScaler has said nothing yet",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			owner := anOwner()
			if tc.scaling {
				owner.Spec.Scaling = &v1beta1.Scaling{}
			}
			tc.pass.now = noon
			conditions := conditionsOf(owner, &tc.pass)
			var got []string
			for _, c := range conditions {
				got = append(got, fmt.Sprintf("%s %s %s: %s", c.Type, c.Status, c.Reason, c.Message))
				if c.ObservedGeneration != 4 || !c.LastTransitionTime.Equal(ptr.To(metav1.NewTime(noon.Truncate(time.Second)))) {
					t.Errorf("%s is of generation %d, since %s", c.Type, c.ObservedGeneration, c.LastTransitionTime)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			// Never both, whatever happens: kstatus could not tell.
			if meta.IsStatusConditionTrue(conditions, "Stalled") && (meta.IsStatusConditionTrue(conditions, "Reconciling") || meta.IsStatusConditionTrue(conditions, "Ready")) {
				t.Errorf("stalled and more: %q", got)
			}

			// The same pass a minute later changes nothing, and one over a changed spec only the generation.
			owner.Status.Conditions = conditions
			tc.pass.now = noon.Add(time.Minute)
			if diff := cmp.Diff(conditions, conditionsOf(owner, &tc.pass)); diff != "" {
				t.Errorf("a second pass (-first +second):\n%s", diff)
			}
		})
	}
}

func TestTransitionTimes(t *testing.T) {
	owner := anOwner()
	owner.Status.Conditions = conditionsOf(owner, &scope{now: noon, deployment: aDeployment()})
	later := noon.Add(time.Hour)
	for _, c := range conditionsOf(owner, &scope{now: later, deployment: aDeployment(withReplicas(3, 3, 1))}) {
		want := map[string]time.Time{"Ready": later, "Reconciling": later, "Stalled": noon}[c.Type].Truncate(time.Second)
		if !c.LastTransitionTime.Time.Equal(want) {
			t.Errorf("%s is so since %s, not %s", c.Type, c.LastTransitionTime, want)
		}
	}
}

func TestStatusOf(t *testing.T) {
	known := v1beta1.ScaledDeploymentStatus{ObservedGeneration: 3, Replicas: 7, ReadyReplicas: 6, AvailableReplicas: 5, UpdatedReplicas: 4, Selector: "autoscaling.verticalscaler.io/scaled-deployment=web"}
	cases := map[string]struct {
		pass scope
		want [4]int32
	}{
		"the counts are the Deployment's": {scope{deployment: aDeployment(withReplicas(9, 3, 2))}, [4]int32{9, 3, 2, 3}},
		"without a Deployment there are no pods": {
			scope{rejection: refusal.Rejection{Reason: "NotControlled", Message: "no"}}, [4]int32{},
		},
		"what could not be read is as it was": {scope{err: errors.New("timeout")}, [4]int32{7, 6, 5, 4}},
		"a failure after reading counts what was read": {
			scope{err: errors.New("timeout"), deployment: aDeployment()}, [4]int32{3, 3, 3, 3},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			owner := anOwner()
			owner.Status = *known.DeepCopy()
			tc.pass.now = noon
			s := statusOf(owner, &tc.pass)
			if got := [4]int32{s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.UpdatedReplicas}; got != tc.want {
				t.Errorf("replicas, ready, available, updated: %d, want %d", got, tc.want)
			}
			if s.ObservedGeneration != 4 || s.Selector != known.Selector {
				t.Errorf("generation %d, selector %s", s.ObservedGeneration, s.Selector)
			}
		})
	}
	t.Run("the selector is the owner's own", func(t *testing.T) {
		owner := anOwner(func(o *v1beta1.ScaledDeployment) {
			o.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "c", Operator: "In", Values: []string{"e", "d"}}}}
		})
		if got := statusOf(owner, &scope{now: noon, deployment: aDeployment()}).Selector; got != "a=b,c in (d,e)" {
			t.Errorf("selector %q", got)
		}
	})
	t.Run("a selector that is none is the API server's to refuse", func(t *testing.T) {
		owner := anOwner(func(o *v1beta1.ScaledDeployment) {
			o.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "c", Operator: "Is"}}}
		})
		if got := statusOf(owner, &scope{now: noon, rejection: refusal.Rejection{Reason: "Rejected"}}).Selector; got != "" {
			t.Errorf("selector %q", got)
		}
	})
}

func TestDescribeForeignObject(t *testing.T) {
	owned := func(references ...metav1.OwnerReference) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: "web", OwnerReferences: references}
	}
	for name, tc := range map[string]struct {
		object client.Object
		want   string
	}{
		"nobody's":                    {&appsv1.Deployment{ObjectMeta: owned()}, "Deployment web exists and is controlled by nobody: delete or rename one of the two"},
		"an owner's, no controller's": {&appsv1.Deployment{ObjectMeta: owned(metav1.OwnerReference{Kind: "ConfigMap", Name: "a"})}, "Deployment web exists and is controlled by nobody: delete or rename one of the two"},
		"another kind's": {
			&appsv1.Deployment{ObjectMeta: owned(metav1.OwnerReference{Kind: "ConfigMap", Name: "a"}, metav1.OwnerReference{Kind: "Rollout", Name: "b", Controller: ptr.To(true)})},
			"Deployment web exists and is controlled by Rollout b: delete or rename one of the two",
		},
		"a scaler": {&v1beta1.VerticalScaler{ObjectMeta: owned()}, "VerticalScaler web exists and is controlled by nobody: delete or rename one of the two"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := describeForeignObject(tc.object); got != tc.want {
				t.Errorf("sayStranger() = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestARejectionIsRecordedOnce(t *testing.T) {
	no := refusal.Rejection{Reason: "Rejected", Message: "no"}
	for name, tc := range map[string]struct {
		before, now scope
		want        int
	}{
		"the first time":                    {scope{deployment: aDeployment()}, scope{rejection: no}, 1},
		"again":                             {scope{rejection: no}, scope{rejection: no}, 0},
		"again, where it is too long":       {scope{rejection: refusal.Rejection{Reason: "Rejected", Message: strings.Repeat("no", 2000)}}, scope{rejection: refusal.Rejection{Reason: "Rejected", Message: strings.Repeat("no", 2000)}}, 0},
		"for another reason":                {scope{rejection: no}, scope{rejection: refusal.Rejection{Reason: "Forbidden", Message: "no"}}, 1},
		"in other words":                    {scope{rejection: no}, scope{rejection: refusal.Rejection{Reason: "Rejected", Message: "never"}}, 1},
		"a rollout that is late":            {scope{deployment: aDeployment()}, scope{deployment: aDeployment(withCondition("Progressing", "False", "ProgressDeadlineExceeded", "late"))}, 1},
		"not, where nothing is refused":     {scope{rejection: no}, scope{deployment: aDeployment()}, 0},
		"not, where the pass was not ended": {scope{rejection: no}, scope{err: errors.New("timeout")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(10)
			r := &Reconciler{Recorder: recorder}
			owner := anOwner()
			tc.before.now, tc.now.now = noon, noon
			owner.Status.Conditions = conditionsOf(owner, &tc.before)
			r.recordRejection(owner, &tc.now)
			if got := len(recorder.Events); got != tc.want {
				t.Errorf("%d events, want %d", got, tc.want)
			}
		})
	}
}

// A pass that fails in between has found nothing out, and does not make news of it.
func TestARejectionSurvivesAFailedReconcile(t *testing.T) {
	owner, refused := anOwner(), scope{now: noon, rejection: refusal.Rejection{Reason: "Rejected", Message: "no"}}
	owner.Status.Conditions = conditionsOf(owner, &refused)
	owner.Status.Conditions = conditionsOf(owner, &scope{now: noon, err: errors.New("timeout")})
	if c := meta.FindStatusCondition(owner.Status.Conditions, "Stalled"); c.Status != metav1.ConditionTrue || c.Reason != "Rejected" {
		t.Errorf("Stalled says %+v", c)
	}
	if c := meta.FindStatusCondition(owner.Status.Conditions, "Ready"); c.Status != metav1.ConditionUnknown {
		t.Errorf("Ready says %+v", c)
	}
	recorder := events.NewFakeRecorder(10)
	(&Reconciler{Recorder: recorder}).recordRejection(owner, &refused)
	if n := len(recorder.Events); n > 0 {
		t.Errorf("told %d times more", n)
	}
}

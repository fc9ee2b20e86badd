// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaleddeployment

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/apierror"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)

// aDeployment is the owner's Deployment with three available pods.
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
		"zero replicas": {
			aDeployment(withReplicas(0, 0, 0), func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(0)) }),
			state{stateReady, "Available", "Deployment web: all 0 pods are available"},
		},
		"one replica by default": {
			aDeployment(withReplicas(1, 1, 1), func(d *appsv1.Deployment) { d.Spec.Replicas = nil }),
			state{stateReady, "Available", "Deployment web: all 1 pods are available"},
		},
		"the latest template is not observed": {
			aDeployment(func(d *appsv1.Deployment) { d.Generation = 3 }),
			state{stateInProgress, "RollingOut", "Deployment web: the Deployment controller has not observed the latest template yet"},
		},
		"a condition of an older template is ignored": {
			aDeployment(withCondition("Progressing", "False", "ProgressDeadlineExceeded", "late"), func(d *appsv1.Deployment) { d.Generation = 3 }),
			state{stateInProgress, "RollingOut", "Deployment web: the Deployment controller has not observed the latest template yet"},
		},
		"the deadline is exceeded": {
			aDeployment(withReplicas(4, 1, 3), withCondition("Available", "True", "MinimumReplicasAvailable", ""), withCondition("Progressing", "False", "ProgressDeadlineExceeded", "late")),
			state{stateStalled, "ProgressDeadlineExceeded", "Deployment web: late"},
		},
		"another reason for Progressing=False is not a stall": {
			aDeployment(withCondition("Progressing", "False", "Other", "x")),
			state{stateReady, "Available", "Deployment web: all 3 pods are available"},
		},
		"a deadline is no longer exceeded": {
			aDeployment(withCondition("Progressing", "True", "ProgressDeadlineExceeded", "x")),
			state{stateReady, "Available", "Deployment web: all 3 pods are available"},
		},
		"pods cannot be created": {
			aDeployment(withReplicas(0, 0, 0), withCondition("Progressing", "True", "ReplicaSetUpdated", ""), withCondition("ReplicaFailure", "True", "FailedCreate", "exceeded quota")),
			state{stateInProgress, "RollingOut", "Deployment web: exceeded quota"},
		},
		"pods could not be created before": {
			aDeployment(withCondition("ReplicaFailure", "False", "FailedCreate", "exceeded quota")),
			state{stateReady, "Available", "Deployment web: all 3 pods are available"},
		},
		"some pods are not updated":        {aDeployment(withReplicas(4, 2, 3)), state{stateInProgress, "RollingOut", "Deployment web: 2 of 3 pods are updated to the latest template"}},
		"old pods are pending termination": {aDeployment(withReplicas(5, 3, 3)), state{stateInProgress, "RollingOut", "Deployment web: 2 old or surplus pods are pending termination"}},
		"surplus pods are pending termination": {
			aDeployment(withReplicas(5, 5, 5)),
			state{stateInProgress, "RollingOut", "Deployment web: 2 old or surplus pods are pending termination"},
		},
		"some pods are not available": {aDeployment(withReplicas(3, 3, 1)), state{stateInProgress, "RollingOut", "Deployment web: 1 of 3 pods are available"}},
		"a Deployment was just created": {
			aDeployment(func(d *appsv1.Deployment) { d.Generation, d.Status = 1, appsv1.DeploymentStatus{} }),
			state{stateInProgress, "RollingOut", "Deployment web: the Deployment controller has not observed the latest template yet"},
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
		yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	)
	scaler := &v1beta1.VerticalScaler{}
	scaler.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: no, Reason: "QuotaExceeded", Message: "no room"}}
	cases := map[string]struct {
		scope   scope
		scaling bool
		want    []string
	}{
		"all pods are available": {
			scope: scope{deployment: aDeployment()},
			want:  []string{"Ready True Available: Deployment web: all 3 pods are available", "Reconciling False OperatingNormally: No change in progress", "Stalled False OperatingNormally: No action required"},
		},
		"a rollout": {
			scope: scope{deployment: aDeployment(withReplicas(3, 3, 1))},
			want:  []string{"Ready False RollingOut: Deployment web: 1 of 3 pods are available", "Reconciling True RollingOut: Deployment web: 1 of 3 pods are available", "Stalled False OperatingNormally: No action required"},
		},
		"the conditions of the Deployment are repeated": {
			scope: scope{deployment: aDeployment(
				withCondition("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability."),
				withCondition("Progressing", "False", "ProgressDeadlineExceeded", "late"),
				withCondition("Foreign", "True", "Any", "thing"),
			)},
			want: []string{
				"Ready False ProgressDeadlineExceeded: Deployment web: late", "Reconciling False OperatingNormally: No change in progress", "Stalled True ProgressDeadlineExceeded: Deployment web: late",
				"Available True MinimumReplicasAvailable: Deployment has minimum availability.", "Progressing False ProgressDeadlineExceeded: late",
			},
		},
		"a replacement": {
			scope: scope{deployment: aDeployment(withCondition("Available", "True", "MinimumReplicasAvailable", "")), waiting: "waiting for a deletion"},
			want:  []string{"Ready False Replacing: waiting for a deletion", "Reconciling True Replacing: waiting for a deletion", "Stalled False OperatingNormally: No action required"},
		},
		"a rejection outranks the rollout": {
			scope: scope{deployment: aDeployment(), rejection: apierror.Rejection{Reason: "Rejected", Message: "no"}},
			want:  []string{"Ready False Rejected: no", "Reconciling False OperatingNormally: No change in progress", "Stalled True Rejected: no"},
		},
		"a rejection without a Deployment": {
			scope: scope{rejection: apierror.Rejection{Reason: "NotControlled", Message: "no"}},
			want:  []string{"Ready False NotControlled: no", "Reconciling False OperatingNormally: No change in progress", "Stalled True NotControlled: no"},
		},
		"a failure": {
			scope: scope{err: errors.New("read tcp 10.0.0.1: timeout")},
			want:  []string{"Ready Unknown Unknown: The last reconcile failed and is retried; see the operator's log", "Reconciling True Unknown: The last reconcile failed and is retried; see the operator's log", "Stalled False OperatingNormally: No action required"},
		},
		"a scaler": {
			scope: scope{deployment: aDeployment(), scaler: scaler}, scaling: true,
			want: []string{
				"Ready True Available: Deployment web: all 3 pods are available", "Reconciling False OperatingNormally: No change in progress", "Stalled False OperatingNormally: No action required",
				"Sized False QuotaExceeded: no room",
			},
		},
		"a scaler without a status": {
			scope: scope{deployment: aDeployment(), scaler: &v1beta1.VerticalScaler{}}, scaling: true,
			want: []string{
				"Ready True Available: Deployment web: all 3 pods are available", "Reconciling False OperatingNormally: No change in progress", "Stalled False OperatingNormally: No action required",
				"Sized Unknown Unknown: The VerticalScaler has not reported its status yet",
			},
		},
		"no scaler yet": {
			scope: scope{waiting: "waiting for a deletion"}, scaling: true,
			want: []string{
				"Ready False Replacing: waiting for a deletion", "Reconciling True Replacing: waiting for a deletion", "Stalled False OperatingNormally: No action required",
				"Sized Unknown Unknown: The VerticalScaler has not reported its status yet",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			owner := anOwner()
			if tc.scaling {
				owner.Spec.Scaling = &v1beta1.Scaling{}
			}
			tc.scope.owner, tc.scope.now = owner, noon
			conditions := conditionsOf(&tc.scope)
			var got []string
			for _, c := range conditions {
				got = append(got, fmt.Sprintf("%s %s %s: %s", c.Type, c.Status, c.Reason, c.Message))
				if c.ObservedGeneration != 4 || !c.LastTransitionTime.Equal(ptr.To(metav1.NewTime(noon.Truncate(time.Second)))) {
					t.Errorf("%s is of generation %d, since %s", c.Type, c.ObservedGeneration, c.LastTransitionTime)
				}
			}
			assert.Equal(t, "conditions", tc.want, got)
			// Never both: kstatus reads at most one of them as True.
			if meta.IsStatusConditionTrue(conditions, "Stalled") && (meta.IsStatusConditionTrue(conditions, "Reconciling") || meta.IsStatusConditionTrue(conditions, "Ready")) {
				t.Errorf("Stalled together with another condition: %q", got)
			}

			// The same reconcile a minute later changes nothing.
			owner.Status.Conditions = conditions
			tc.scope.now = noon.Add(time.Minute)
			assert.Equal(t, "a second reconcile", conditions, conditionsOf(&tc.scope))
		})
	}
}

func TestStatusOf(t *testing.T) {
	known := v1beta1.ScaledDeploymentStatus{ObservedGeneration: 3, Replicas: 7, ReadyReplicas: 6, AvailableReplicas: 5, UpdatedReplicas: 4, Selector: "autoscaling.verticalscaler.io/scaled-deployment=web"}
	cases := map[string]struct {
		scope scope
		want  [4]int32
	}{
		"the counts are those of the Deployment": {scope{deployment: aDeployment(withReplicas(9, 3, 2))}, [4]int32{9, 3, 2, 3}},
		"without a Deployment there are no pods": {
			scope{rejection: apierror.Rejection{Reason: "NotControlled", Message: "no"}}, [4]int32{},
		},
		"a failed read keeps the last known counts": {scope{err: errors.New("timeout")}, [4]int32{7, 6, 5, 4}},
		"a failure after the read reports the counts that were read": {
			scope{err: errors.New("timeout"), deployment: aDeployment()}, [4]int32{3, 3, 3, 3},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			owner := anOwner()
			owner.Status = *known.DeepCopy()
			tc.scope.owner, tc.scope.now = owner, noon
			s := statusOf(&tc.scope)
			if got := [4]int32{s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.UpdatedReplicas}; got != tc.want {
				t.Errorf("replicas, ready, available, updated: %d, want %d", got, tc.want)
			}
			if s.ObservedGeneration != 4 || s.Selector != known.Selector {
				t.Errorf("generation %d, selector %s", s.ObservedGeneration, s.Selector)
			}
		})
	}
	t.Run("the selector is that of the owner", func(t *testing.T) {
		owner := anOwner(func(o *v1beta1.ScaledDeployment) {
			o.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "c", Operator: "In", Values: []string{"e", "d"}}}}
		})
		if got := statusOf(&scope{owner: owner, now: noon, deployment: aDeployment()}).Selector; got != "a=b,c in (d,e)" {
			t.Errorf("selector %q", got)
		}
	})
	t.Run("an invalid selector is left for the API server to reject", func(t *testing.T) {
		owner := anOwner(func(o *v1beta1.ScaledDeployment) {
			o.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "c", Operator: "Is"}}}
		})
		if got := statusOf(&scope{owner: owner, now: noon, rejection: apierror.Rejection{Reason: "Rejected"}}).Selector; got != "" {
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
		"no owner":                            {&appsv1.Deployment{ObjectMeta: owned()}, "Deployment web already exists and has no controller: delete or rename one of the two"},
		"an owner that is not the controller": {&appsv1.Deployment{ObjectMeta: owned(metav1.OwnerReference{Kind: "ConfigMap", Name: "a"})}, "Deployment web already exists and has no controller: delete or rename one of the two"},
		"a controller of another kind": {
			&appsv1.Deployment{ObjectMeta: owned(metav1.OwnerReference{Kind: "ConfigMap", Name: "a"}, metav1.OwnerReference{Kind: "Rollout", Name: "b", Controller: ptr.To(true)})},
			"Deployment web already exists and is controlled by Rollout b: delete or rename one of the two",
		},
		"a scaler": {&v1beta1.VerticalScaler{ObjectMeta: owned()}, "VerticalScaler web already exists and has no controller: delete or rename one of the two"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := describeForeignObject(tc.object); got != tc.want {
				t.Errorf("describeForeignObject() = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestARejectionIsRecordedOnce(t *testing.T) {
	rejection := apierror.Rejection{Reason: "Rejected", Message: "no"}
	for name, tc := range map[string]struct {
		before, now scope
		want        int
	}{
		"the first time":  {scope{deployment: aDeployment()}, scope{rejection: rejection}, 1},
		"the second time": {scope{rejection: rejection}, scope{rejection: rejection}, 0},
		"the second time, with a message that is too long": {scope{rejection: apierror.Rejection{Reason: "Rejected", Message: strings.Repeat("no", 2000)}}, scope{rejection: apierror.Rejection{Reason: "Rejected", Message: strings.Repeat("no", 2000)}}, 0},
		"with another reason":                              {scope{rejection: rejection}, scope{rejection: apierror.Rejection{Reason: "Forbidden", Message: "no"}}, 1},
		"with another message":                             {scope{rejection: rejection}, scope{rejection: apierror.Rejection{Reason: "Rejected", Message: "other"}}, 1},
		"a rollout that exceeds its deadline":              {scope{deployment: aDeployment()}, scope{deployment: aDeployment(withCondition("Progressing", "False", "ProgressDeadlineExceeded", "late"))}, 1},
		"not without a rejection":                          {scope{rejection: rejection}, scope{deployment: aDeployment()}, 0},
		"not after a failed reconcile":                     {scope{rejection: rejection}, scope{err: errors.New("timeout")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(10)
			r := &Reconciler{Recorder: recorder}
			owner := anOwner()
			tc.before.owner, tc.now.owner = owner, owner
			tc.before.now, tc.now.now = noon, noon
			owner.Status.Conditions = conditionsOf(&tc.before)
			r.recordEvents(&tc.now, conditionsOf(&tc.now))
			got := 0
			for len(recorder.Events) > 0 {
				if strings.HasPrefix(<-recorder.Events, "Warning Refused") {
					got++
				}
			}
			if got != tc.want {
				t.Errorf("%d events, want %d", got, tc.want)
			}
		})
	}
}

// Ready is recorded once, when all pods are available, and again after the next rollout. Neither the next reconcile nor one of
// an operator that has restarted, nor one after a failed one, records it again.
func TestReadyIsRecordedOnce(t *testing.T) {
	owner, recorder := anOwner(), events.NewFakeRecorder(20)
	r := &Reconciler{Recorder: recorder}
	rollingOut := func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = 0 }
	for _, step := range []struct {
		name string
		now  scope
		want int
	}{
		{"the first pods start", scope{deployment: aDeployment(rollingOut)}, 0},
		{"they are available", scope{deployment: aDeployment()}, 1},
		{"the next reconcile", scope{deployment: aDeployment()}, 0},
		{"a failed one", scope{err: errors.New("timeout")}, 0},
		{"one after a failed one", scope{deployment: aDeployment()}, 0},
		{"the next rollout", scope{deployment: aDeployment(rollingOut)}, 0},
		{"its end", scope{deployment: aDeployment()}, 1},
	} {
		step.now.owner, step.now.now = owner, noon
		conditions := conditionsOf(&step.now)
		r.recordEvents(&step.now, conditions)
		owner.Status.Conditions = conditions
		if got := len(recorder.Events); got != step.want {
			t.Errorf("%s: %d events, want %d", step.name, got, step.want)
		}
		for len(recorder.Events) > 0 {
			if e := <-recorder.Events; !strings.HasPrefix(e, "Normal Ready Available: Deployment web: all ") {
				t.Errorf("%s: %s", step.name, e)
			}
		}
	}
}

// A failed reconcile in between knows nothing new and causes no second event.
func TestARejectionSurvivesAFailedReconcile(t *testing.T) {
	owner := anOwner()
	rejected := scope{owner: owner, now: noon, rejection: apierror.Rejection{Reason: "Rejected", Message: "no"}}
	owner.Status.Conditions = conditionsOf(&rejected)
	owner.Status.Conditions = conditionsOf(&scope{owner: owner, now: noon, err: errors.New("timeout")})
	if c := meta.FindStatusCondition(owner.Status.Conditions, "Stalled"); c.Status != metav1.ConditionTrue || c.Reason != "Rejected" {
		t.Errorf("Stalled is %+v", c)
	}
	if c := meta.FindStatusCondition(owner.Status.Conditions, "Ready"); c.Status != metav1.ConditionUnknown {
		t.Errorf("Ready is %+v", c)
	}
	recorder := events.NewFakeRecorder(10)
	(&Reconciler{Recorder: recorder}).recordEvents(&rejected, conditionsOf(&rejected))
	if n := len(recorder.Events); n > 0 {
		t.Errorf("recorded %d times more", n)
	}
}

// kubectl wait must not see a Deployment that is gone, nor lose one that only could not be read.
func TestTheConditionsOfTheDeploymentGoWithIt(t *testing.T) {
	owner := anOwner()
	available := aDeployment(withCondition("Available", "True", "MinimumReplicasAvailable", "enough"))
	owner.Status.Conditions = conditionsOf(&scope{owner: owner, now: noon, deployment: available})
	for name, tc := range map[string]struct {
		scope scope
		want  bool
	}{
		"it is there":          {scope{deployment: available}, true},
		"it could not be read": {scope{err: errors.New("timeout")}, true},
		"it is gone":           {scope{}, false},
		"it is replaced":       {scope{deployment: available, waiting: "waiting for a deletion"}, false},
		"it reports nothing":   {scope{deployment: aDeployment()}, false},
	} {
		if name == "it is gone" {
			tc.scope.rejection = apierror.Rejection{Reason: "Rejected", Message: "no"}
		}
		tc.scope.owner, tc.scope.now = owner, noon.Add(time.Hour)
		c := meta.FindStatusCondition(conditionsOf(&tc.scope), "Available")
		if (c != nil) != tc.want {
			t.Errorf("%s: Available is %+v", name, c)
		}
		if c != nil && !c.LastTransitionTime.Time.Equal(noon.Truncate(time.Second)) {
			t.Errorf("%s: Available since %s", name, c.LastTransitionTime)
		}
	}
}

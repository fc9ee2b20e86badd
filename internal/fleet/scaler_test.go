// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
)

// untidyScaler has everything that users and other programs add to a scaler of policy shop/old.
func untidyScaler(changes ...func(*v1beta1.VerticalScaler)) *v1beta1.VerticalScaler {
	s := &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web", UID: "web-1", ResourceVersion: "41", Generation: 7, CreationTimestamp: created,
		Labels:      map[string]string{"team": "web", v1beta1.PolicyLabel: "old"},
		Annotations: map[string]string{"note": "do not touch", v1beta1.DetachedAnnotation: "false"},
		Finalizers:  []string{"autoscaling.verticalscaler.io/restore"},
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ConfigMap", Name: "first", UID: "first"},
			{APIVersion: v1beta1.GroupVersion.String(), Kind: v1beta1.ScalingPolicyKind, Name: "old", UID: "shop/old", Controller: new(true), BlockOwnerDeletion: new(true)},
			{APIVersion: "example.com/v1", Kind: "ScalingPolicy", Name: "foreign", UID: "foreign", Controller: new(false)},
		},
	}}
	s.Spec.DeploymentName, s.Spec.Suspend, s.Spec.UpdatePolicy.UpdateMode = "edited", true, v1beta1.UpdateModeRollout
	s.Status.ObservedGeneration = 6
	for _, change := range changes {
		change(s)
	}
	return s
}

func promotedScaler(s *v1beta1.VerticalScaler) {
	s.Annotations[v1beta1.PromotedAnnotation] = "2026-02-03T10:00:00Z"
}

// A policy gives a scaler its spec, its label and its controller, and leaves everything else as it is. That also takes
// the scaler over from another policy.
func TestAPolicyTakesAScalerOverAndKeepsWhatIsNotItsOwn(t *testing.T) {
	policy := aPolicy(t, "new", func(p *v1beta1.ScalingPolicy) {
		p.Spec.Template.UpdatePolicy.TolerancePercent, p.Spec.Template.UpdatePolicy.CooldownSeconds = new(int32(7)), new(int32(0))
	})
	before := untidyScaler()
	if policy.Controls(before) || policy.IsUpToDate(before) {
		t.Error("the policy controls a scaler of another one")
	}
	got := policy.Desired(before)
	want := untidyScaler(func(s *v1beta1.VerticalScaler) {
		s.Labels[v1beta1.PolicyLabel] = "new"
		s.OwnerReferences = []metav1.OwnerReference{
			s.OwnerReferences[0], s.OwnerReferences[2],
			{APIVersion: v1beta1.GroupVersion.String(), Kind: v1beta1.ScalingPolicyKind, Name: "new", UID: "shop/new", Controller: new(true)},
		}
		s.Spec = v1beta1.VerticalScalerSpec{DeploymentName: "web", Scaling: *policy.Rules.Template.DeepCopy()}
		s.Spec.UpdatePolicy.UpdateMode = v1beta1.UpdateModeRecommend
	})
	assert.Equal(t, "Desired()", want, got)
	assert.Equal(t, "the scaler that was read", untidyScaler(), before)
	if !policy.Controls(got) || !policy.IsUpToDate(got) || !IsGenerated(got) {
		t.Error("what the policy wants is not up to date")
	}
	assert.Equal(t, "Desired() twice", got, policy.Desired(got))
	// The scaler has its own copy.
	*got.Spec.UpdatePolicy.TolerancePercent = 99
	if *policy.Rules.Template.UpdatePolicy.TolerancePercent != 7 {
		t.Error("scaler and policy share their template")
	}
}

// Without a label of the policy, or with any other spec, a scaler is not up to date.
func TestAScalerThatDiffersIsNotUpToDate(t *testing.T) {
	policy := aPolicy(t, "new")
	for name, tc := range map[string]struct {
		change func(*v1beta1.VerticalScaler)
		want   bool
	}{
		"as it is":                     {func(*v1beta1.VerticalScaler) {}, true},
		"other labels and annotations": {func(s *v1beta1.VerticalScaler) { s.Labels["x"], s.Annotations["x"] = "y", "y" }, true},
		"a status":                     {func(s *v1beta1.VerticalScaler) { s.Status.ObservedGeneration = 99 }, true},
		"no label":                     {func(s *v1beta1.VerticalScaler) { delete(s.Labels, v1beta1.PolicyLabel) }, false},
		"another policy's label":       {func(s *v1beta1.VerticalScaler) { s.Labels[v1beta1.PolicyLabel] = "old" }, false},
		"another Deployment":           {func(s *v1beta1.VerticalScaler) { s.Spec.DeploymentName = "api" }, false},
		"another mode":                 {func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.UpdateMode = v1beta1.UpdateModeInPlace }, false},
		"a namesake of the policy":     {func(s *v1beta1.VerticalScaler) { s.OwnerReferences[2].UID = "former" }, false},
		"a plain owner":                {func(s *v1beta1.VerticalScaler) { s.OwnerReferences[2].Controller = nil }, false},
		"promoted, in the mode before": {promotedScaler, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := policy.Desired(untidyScaler())
			tc.change(s)
			if got := policy.IsUpToDate(s); got != tc.want {
				t.Errorf("IsUpToDate() = %t", got)
			}
		})
	}
}

func TestAPromotedScalerHasTheModeOfTheTemplate(t *testing.T) {
	policy := aPolicy(t, "new")
	s := policy.Desired(untidyScaler())
	now := time.Date(2026, 2, 3, 12, 0, 0, 999, time.FixedZone("CET", 3600))
	got := policy.Promoted(s, now)
	if IsPromoted(s) || s.Spec.UpdatePolicy.UpdateMode != v1beta1.UpdateModeRecommend {
		t.Error("the scaler that was read was modified")
	}
	if got.Annotations[v1beta1.PromotedAnnotation] != "2026-02-03T11:00:00Z" || got.Annotations["note"] != "do not touch" ||
		!PromotedAt(got).Equal(now.Truncate(time.Second)) || got.Spec.UpdatePolicy.UpdateMode != v1beta1.UpdateModeInPlace || !policy.IsUpToDate(got) {
		t.Errorf("promoted: %+v", got)
	}
	harmed := Marked(got, v1beta1.HarmedAnnotation, now.Add(time.Minute))
	if !HarmedAt(harmed).Equal(now.Add(time.Minute).Truncate(time.Second)) || !policy.IsUpToDate(harmed) || !HarmedAt(got).IsZero() {
		t.Errorf("harmed: %v", harmed.Annotations)
	}
	// Another policy takes it over: it stays promoted.
	other := aClusterPolicy(t, "fleet", func(p *v1beta1.ClusterScalingPolicy) {
		p.Spec.Template.UpdatePolicy.UpdateMode = v1beta1.UpdateModeRollout
	})
	if taken := other.Desired(harmed); taken.Spec.UpdatePolicy.UpdateMode != v1beta1.UpdateModeRollout || HarmedAt(taken) != HarmedAt(harmed) {
		t.Errorf("taken over: %+v", taken)
	}
	bare := Marked(&v1beta1.VerticalScaler{}, v1beta1.HarmedAnnotation, now)
	if HarmedAt(bare).IsZero() {
		t.Error("a scaler without annotations cannot be marked")
	}
}

func TestATimeThatCannotBeReadIsNone(t *testing.T) {
	for _, value := range []string{"", "yes", "2026-02-30T10:00:00Z", "2026-02-03"} {
		s := &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: created, Annotations: map[string]string{v1beta1.PromotedAnnotation: value, v1beta1.HarmedAnnotation: value}}}
		if !PromotedAt(s).IsZero() || !HarmedAt(s).IsZero() {
			t.Errorf("%q is a time", value)
		}
		// It still counts as promoted, for a long time.
		if !IsPromoted(s) || !candidate(s).Promoted.Equal(created.Time) {
			t.Errorf("with %q: promoted %t at %s", value, IsPromoted(s), candidate(s).Promoted)
		}
	}
	if s := (&v1beta1.VerticalScaler{}); IsPromoted(s) || !candidate(s).Promoted.IsZero() {
		t.Error("a scaler without the annotation is promoted")
	}
}

func TestAReleasedScalerBelongsToItsUsers(t *testing.T) {
	s := untidyScaler()
	got := Released(s)
	want := untidyScaler(func(s *v1beta1.VerticalScaler) {
		s.Labels = map[string]string{"team": "web"}
		s.OwnerReferences = []metav1.OwnerReference{s.OwnerReferences[0], s.OwnerReferences[2]}
	})
	assert.Equal(t, "Released()", want, got)
	if IsGenerated(got) || !IsGenerated(s) {
		t.Errorf("generated: %t before, %t after", IsGenerated(s), IsGenerated(got))
	}
	assert.Equal(t, "the scaler that was read", untidyScaler(), s)
}

func TestWhichScalersAreReleased(t *testing.T) {
	policy := metav1.OwnerReference{APIVersion: v1beta1.GroupVersion.String(), Kind: v1beta1.ScalingPolicyKind, Name: "x", Controller: new(true)}
	owner := metav1.OwnerReference{APIVersion: v1beta1.GroupVersion.String(), Kind: "ScaledDeployment", Name: "x", Controller: new(true)}
	labels, detached := map[string]string{v1beta1.PolicyLabel: "x"}, map[string]string{v1beta1.DetachedAnnotation: ""}
	for name, tc := range map[string]struct {
		scaler metav1.ObjectMeta
		want   bool
	}{
		"a user's":                               {metav1.ObjectMeta{}, false},
		"a user's, detached from nothing":        {metav1.ObjectMeta{Annotations: detached}, false},
		"a policy's":                             {metav1.ObjectMeta{Labels: labels, OwnerReferences: []metav1.OwnerReference{policy}}, false},
		"a policy's, detached":                   {metav1.ObjectMeta{Labels: labels, Annotations: detached, OwnerReferences: []metav1.OwnerReference{policy}}, true},
		"orphaned by a policy":                   {metav1.ObjectMeta{Labels: labels}, true},
		"a ScaledDeployment's with such a label": {metav1.ObjectMeta{Labels: labels, OwnerReferences: []metav1.OwnerReference{owner}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &v1beta1.VerticalScaler{ObjectMeta: tc.scaler}
			if got := IsReleasable(s); got != tc.want {
				t.Errorf("IsReleasable() = %t", got)
			}
			if tc.want && IsReleasable(Released(s)) {
				t.Error("it would be released again")
			}
		})
	}
}

func TestOnlyAPolicyAsControllerMakesAScalerGenerated(t *testing.T) {
	reference := func(apiVersion, kind string, controller *bool) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: "x", UID: types.UID("x"), Controller: controller}
	}
	const group = "autoscaling.verticalscaler.io"
	for name, tc := range map[string]struct {
		owners []metav1.OwnerReference
		want   bool
	}{
		"no owner":                       {nil, false},
		"a ScalingPolicy":                {[]metav1.OwnerReference{reference(group+"/v1beta1", "ScalingPolicy", new(true))}, true},
		"a ClusterScalingPolicy":         {[]metav1.OwnerReference{reference(group+"/v1beta1", "ClusterScalingPolicy", new(true))}, true},
		"a policy of a later version":    {[]metav1.OwnerReference{reference(group+"/v1", "ScalingPolicy", new(true))}, false},
		"a plain owner":                  {[]metav1.OwnerReference{reference(group+"/v1beta1", "ScalingPolicy", nil)}, false},
		"an owner that does not control": {[]metav1.OwnerReference{reference(group+"/v1beta1", "ScalingPolicy", new(false))}, false},
		"a ScaledDeployment":             {[]metav1.OwnerReference{reference(group+"/v1beta1", "ScaledDeployment", new(true))}, false},
		"another group":                  {[]metav1.OwnerReference{reference("example.com/v1beta1", "ScalingPolicy", new(true))}, false},
		"a policy beside a controller":   {[]metav1.OwnerReference{reference(group+"/v1beta1", "ScalingPolicy", nil), reference("apps/v1", "Deployment", new(true))}, false},
		"a group without a version":      {[]metav1.OwnerReference{reference(group, "ScalingPolicy", new(true))}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{OwnerReferences: tc.owners}}
			s.Labels = map[string]string{v1beta1.PolicyLabel: "x"} // Anyone may set it.
			if got := IsGenerated(s); got != tc.want {
				t.Errorf("IsGenerated() = %t", got)
			}
		})
	}
}

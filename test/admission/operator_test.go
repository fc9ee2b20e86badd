// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/objects"
)

// written are the metadata fields that the API server sets itself, or that it lets every
// writer change.
var written = []string{".metadata.managedFields", ".metadata.generation", ".metadata.resourceVersion"}

func sizesUnder(containers string) []string {
	var out []string
	for _, list := range []string{"requests", "limits"} {
		for _, name := range []string{"cpu", "memory"} {
			out = append(out, containers+"[].resources."+list+"["+name+"]")
		}
	}
	return out
}

func TestTheOperatorChangesNothingOfADeploymentButSizes(t *testing.T) {
	t.Parallel()
	p := compiled(t, "operator_deployments.yaml")
	r := request{resource: "deployments"}
	free := append(sizesUnder(".spec.template.spec.containers"), written...)
	everyField[appsv1.Deployment](t, p, r, free, 0, 1, 2, 3, 4, 5, 6, 7)
	everyNewField[appsv1.Deployment](t, p, r, ".metadata.managedFields")

	sidecar := filled[appsv1.Deployment](t)
	sidecar.Spec.Template.Spec.InitContainers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	everyFieldOf(t, sidecar, p, r, append(free, sizesUnder(".spec.template.spec.initContainers")...), 0, 1, 2, 3, 4, 5, 6, 7)
}

// operator_owned.yaml compares the template and the replicas with the ScaledDeployment.
func TestTheOperatorChangesNothingOfAnOwnedDeploymentButWhatIsAsked(t *testing.T) {
	t.Parallel()
	p := compiled(t, "operator_deployments.yaml")
	before := filled[appsv1.Deployment](t)
	before.Labels[v1beta1.ApplyingLabel], before.OwnerReferences = "true", controlled().OwnerReferences
	before.OwnerReferences[0].BlockOwnerDeletion = ptr.To(true)
	free := append([]string{".spec.template", ".spec.replicas", ".metadata.ownerReferences[].blockOwnerDeletion"}, written...)
	everyFieldOf(t, before, p, request{resource: "deployments"}, free, 0, 1, 3, 4, 5, 6, 7, 10, 11, 12)
	for name, change := range map[string]func(*appsv1.Deployment){
		"without the label":      func(d *appsv1.Deployment) { delete(d.Labels, v1beta1.ApplyingLabel) },
		"with its own label":     func(d *appsv1.Deployment) { d.Labels[v1beta1.ScaledDeploymentLabel] = "ours" },
		"with its annotation":    func(d *appsv1.Deployment) { d.Annotations[v1beta1.AppliedAnnotation] = "5" },
		"with no owner of its":   func(d *appsv1.Deployment) { d.OwnerReferences[0].BlockOwnerDeletion = nil },
		"with another container": func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Name = "other" },
	} {
		after := before.DeepCopy()
		change(after)
		if _, refuses := p.asks(t, request{resource: "deployments", before: before, after: after}); len(refuses) > 0 {
			t.Errorf("%s: refused by %v", name, refuses)
		}
	}
}

func TestTheOperatorChangesNothingOfAPodButSizes(t *testing.T) {
	t.Parallel()
	p := compiled(t, "operator_pods.yaml")
	r := request{resource: "pods", subresource: "resize"}
	podLevel := []string{".spec.resources.requests[cpu]", ".spec.resources.requests[memory]", ".spec.resources.limits[cpu]", ".spec.resources.limits[memory]"}
	free := slices.Concat(sizesUnder(".spec.containers"), podLevel, written, []string{".status"})
	everyField[corev1.Pod](t, p, r, free)
	everyNewField[corev1.Pod](t, p, r, ".metadata.managedFields", ".status")
	whole := filled[corev1.Pod](t)
	whole.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}
	without := whole.DeepCopy()
	without.Spec.Resources = nil
	for name, r := range map[string]request{"added": {before: without, after: whole}, "removed": {before: whole, after: without}} {
		r.resource, r.subresource = "pods", "resize"
		if _, refuses := p.asks(t, r); len(refuses) == 0 {
			t.Errorf("pod-level resources are %s", name)
		}
	}

	sidecar := filled[corev1.Pod](t)
	sidecar.Spec.InitContainers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	everyFieldOf(t, sidecar, p, r, append(free, sizesUnder(".spec.initContainers")...))
}

func TestTheOperatorChangesNothingOfAScalerButItsFinalizer(t *testing.T) {
	t.Parallel()
	p := compiled(t, "operator_scalers.yaml")
	r := request{resource: "verticalscalers"}
	everyField[v1beta1.VerticalScaler](t, p, r, written, 0, 1, 3, 4, 5, 6, 7, 8)
	everyNewField[v1beta1.VerticalScaler](t, p, r, ".metadata.managedFields")
}

// ofPolicy is the scaler of Deployment web that a policy called fleet controls, with variations.
func ofPolicy(kind string, changes ...func(*v1beta1.VerticalScaler)) *v1beta1.VerticalScaler {
	s := objects.Scaler("shop", "web", "web")
	s.Spec.UpdatePolicy.UpdateMode = v1beta1.UpdateModeRecommend
	s.Labels = map[string]string{v1beta1.PolicyLabel: "fleet"}
	s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "autoscaling.verticalscaler.io/v1beta1", Kind: kind, Name: "fleet", UID: "1", Controller: ptr.To(true)}}
	for _, change := range changes {
		change(s)
	}
	return s
}

// noted sets an annotation.
func noted(key, value string) func(*v1beta1.VerticalScaler) {
	return func(s *v1beta1.VerticalScaler) {
		s.Annotations = maps.Clone(s.Annotations)
		if s.Annotations == nil {
			s.Annotations = map[string]string{}
		}
		s.Annotations[key] = value
	}
}

// given gives a scaler to another policy.
func given(kind, name string, uid types.UID) func(*v1beta1.VerticalScaler) {
	return func(s *v1beta1.VerticalScaler) {
		owner := &s.OwnerReferences[0]
		owner.Kind, owner.Name, owner.UID = kind, name, uid
		s.Labels = maps.Clone(s.Labels)
		s.Labels[v1beta1.PolicyLabel] = name
	}
}

// labelledBy sets a label of a scaler.
func labelledBy(key, value string) func(*v1beta1.VerticalScaler) {
	return func(s *v1beta1.VerticalScaler) { s.Labels[key] = value }
}

// ownedToo adds an owner that does not control the scaler.
func ownedToo(s *v1beta1.VerticalScaler) {
	s.OwnerReferences = append(s.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "7"})
}

// released removes the policy from a scaler.
func released(s *v1beta1.VerticalScaler) {
	delete(s.Labels, v1beta1.PolicyLabel)
	s.OwnerReferences = slices.DeleteFunc(s.OwnerReferences, func(r metav1.OwnerReference) bool { return v1beta1.IsPolicy(&r) })
}

// orphaned labels a scaler as one whose policy was deleted.
func orphaned(s *v1beta1.VerticalScaler) { s.Labels = map[string]string{v1beta1.PolicyLabel: "fleet"} }

func finalizedBy(names ...string) func(*v1beta1.VerticalScaler) {
	return func(s *v1beta1.VerticalScaler) { s.Finalizers = names }
}

func targeting(deployment string) func(*v1beta1.VerticalScaler) {
	return func(s *v1beta1.VerticalScaler) { s.Spec.DeploymentName = deployment }
}

func inMode(mode v1beta1.UpdateMode) func(*v1beta1.VerticalScaler) {
	return func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.UpdateMode = mode }
}

const own = "autoscaling.verticalscaler.io/restore-original-resources"

// The operator may write the scalers of both kinds of policies, but nothing that would outlive the policy.
func TestTheOperatorWritesTheScalersOfPolicies(t *testing.T) {
	t.Parallel()
	p := compiled(t, "operator_scalers.yaml")
	const (
		createsOnly = "may only create and delete scalers"
		mustDie     = "it must be deleted with the policy"
		nothingElse = "may only change the spec, the policy that controls it"
		label       = "must label the scaler of a policy"
		name        = "must have the name of its Deployment"
		ownerOnly   = "may only give the scaler of a policy to another policy"
		finalizer   = "may only change its own finalizer, and remove the label of a policy"
		keeps       = "may not change the owner of a scaler of a ScaledDeployment"
		promoted    = v1beta1.PromotedAnnotation
	)
	for _, kind := range []string{v1beta1.ScalingPolicyKind, v1beta1.ClusterScalingPolicyKind} {
		s := func(changes ...func(*v1beta1.VerticalScaler)) *v1beta1.VerticalScaler {
			return ofPolicy(kind, changes...)
		}
		other := map[string]string{v1beta1.ScalingPolicyKind: v1beta1.ClusterScalingPolicyKind, v1beta1.ClusterScalingPolicyKind: v1beta1.ScalingPolicyKind}[kind]
		ofUser := objects.Scaler("shop", "web", "web")
		detached, kept := noted(v1beta1.DetachedAnnotation, ""), noted(v1beta1.DetachedAnnotation, "false")
		for what, c := range map[string]struct {
			before, after *v1beta1.VerticalScaler
			says          string // "" if it is accepted
		}{
			"creating one":                             {nil, s(), ""},
			"creating one of a version not served":     {nil, s(func(s *v1beta1.VerticalScaler) { s.OwnerReferences[0].APIVersion = "autoscaling.verticalscaler.io/v9" }), createsOnly},
			"creating one that a webhook has labelled": {nil, s(labelledBy("cost-center", "7"), noted("webhook", "was here")), ""},
			"creating one for another Deployment":      {nil, s(targeting("api")), name},
			"creating one with another label":          {nil, s(labelledBy(v1beta1.PolicyLabel, "other")), label},
			"creating one without the label":           {nil, s(func(s *v1beta1.VerticalScaler) { s.Labels = nil }), label},
			"creating one with another owner":          {nil, s(ownedToo), mustDie},
			"creating one with its finalizer":          {nil, s(finalizedBy(own)), mustDie},
			"creating one that is detached":            {nil, s(detached), mustDie},
			"creating one that is not detached":        {nil, s(kept), ""},
			"creating one that it does not control":    {nil, s(func(s *v1beta1.VerticalScaler) { s.OwnerReferences[0].Controller = nil }), createsOnly},
			"creating one of another group":            {nil, s(func(s *v1beta1.VerticalScaler) { s.OwnerReferences[0].APIVersion = "example.com/v1beta1" }), createsOnly},
			"creating one of a group that begins alike": {nil, s(func(s *v1beta1.VerticalScaler) {
				s.OwnerReferences[0].APIVersion = "autoscaling.verticalscaler.io.evil/v1"
			}), createsOnly},
			"creating one of another kind":                       {nil, s(given("VerticalScaler", "fleet", "1")), createsOnly},
			"deleting one":                                       {s(), nil, ""},
			"deleting one that a user has retargeted":            {s(targeting("api"), func(s *v1beta1.VerticalScaler) { s.Labels = nil }), nil, ""},
			"deleting one that is released":                      {s(released), nil, createsOnly},
			"deleting one of a user":                             {ofUser, nil, createsOnly},
			"changing the spec":                                  {s(ownedToo, finalizedBy(own)), s(ownedToo, finalizedBy(own), inMode("InPlace")), ""},
			"reverting another Deployment":                       {s(targeting("api")), s(), ""},
			"reverting another label":                            {s(labelledBy(v1beta1.PolicyLabel, "other")), s(), ""},
			"naming another Deployment":                          {s(), s(targeting("api")), name},
			"changing the spec, which names another Deployment":  {s(targeting("api")), s(targeting("api"), inMode("InPlace")), name},
			"another label":                                      {s(), s(labelledBy(v1beta1.PolicyLabel, "other")), label},
			"removing the label":                                 {s(), s(func(s *v1beta1.VerticalScaler) { s.Labels = nil }), label},
			"promoting":                                          {s(), s(noted(promoted, "2026-01-01T00:00:00Z"), inMode("InPlace")), ""},
			"noting harm":                                        {s(noted(promoted, "a")), s(noted(promoted, "a"), noted(v1beta1.HarmedAnnotation, "b")), ""},
			"beginning again":                                    {s(noted(promoted, "a")), s(), ""},
			"detaching by itself":                                {s(), s(detached), nothingElse},
			"pausing":                                            {s(), s(noted("autoscaling.verticalscaler.io/paused", "")), nothingElse},
			"removing a user's annotation":                       {s(noted("a", "b")), s(), nothingElse},
			"labelling":                                          {s(), s(labelledBy("a", "b")), nothingElse},
			"adding an owner":                                    {s(), s(ownedToo), nothingElse},
			"removing an owner":                                  {s(ownedToo), s(), nothingElse},
			"setting its finalizer":                              {s(targeting("api"), labelledBy(v1beta1.PolicyLabel, "other")), s(targeting("api"), labelledBy(v1beta1.PolicyLabel, "other"), finalizedBy(own)), ""},
			"removing its finalizer":                             {s(finalizedBy("example.com/a", own)), s(finalizedBy("example.com/a")), ""},
			"setting another finalizer":                          {s(), s(finalizedBy("orphan")), nothingElse},
			"giving it to another policy":                        {s(ownedToo), s(given(kind, "other", "2"), ownedToo), ""},
			"giving it to another kind of policy, and promoted":  {s(), s(given(other, "other", "2"), noted(promoted, "a"), inMode("InPlace")), ""},
			"giving it to another policy, and not its label":     {s(), s(given(kind, "other", "2"), labelledBy(v1beta1.PolicyLabel, "fleet")), label},
			"giving it to a ScaledDeployment":                    {s(), s(given("ScaledDeployment", "web", "3")), ownerOnly},
			"giving it to nobody":                                {s(), s(released), ownerOnly},
			"taking it from a user":                              {ofUser, s(), finalizer},
			"taking it from a ScaledDeployment":                  {s(given("ScaledDeployment", "web", "3")), s(), keeps},
			"taking it from a ScaledDeployment, for nobody":      {s(given("ScaledDeployment", "web", "3")), s(given("ScaledDeployment", "web", "3"), func(s *v1beta1.VerticalScaler) { s.OwnerReferences = nil }), keeps},
			"giving it to another ScaledDeployment":              {s(given("ScaledDeployment", "web", "3")), s(given("ScaledDeployment", "api", "4")), keeps},
			"no longer controlling it":                           {s(given("ScaledDeployment", "web", "3")), s(given("ScaledDeployment", "web", "3"), func(s *v1beta1.VerticalScaler) { s.OwnerReferences[0].Controller = nil }), keeps},
			"giving it to another API's ScaledDeployment":        {s(given("ScaledDeployment", "web", "3")), s(given("ScaledDeployment", "web", "3"), func(s *v1beta1.VerticalScaler) { s.OwnerReferences[0].APIVersion = "example.com/v1" }), keeps},
			"removing the label of an orphan":                    {testkitScaler(orphaned), testkitScaler(), ""},
			"removing the label of an orphan, and the finalizer": {testkitScaler(orphaned, finalizedBy(own)), testkitScaler(), ""},
			"removing another label of an orphan":                {testkitScaler(orphaned, labelledBy("a", "b")), testkitScaler(orphaned), finalizer},
			"changing the label of an orphan":                    {testkitScaler(orphaned), testkitScaler(orphaned, labelledBy(v1beta1.PolicyLabel, "other")), finalizer},
			"labelling one of a user":                            {testkitScaler(), testkitScaler(orphaned), finalizer},
			"removing the label of an orphan, and its spec":      {testkitScaler(orphaned), testkitScaler(inMode("InPlace")), finalizer},
			"setting its finalizer in one of a user":             {ofUser, testkitScaler(finalizedBy(own)), ""},
			"releasing one that a user has detached":             {s(detached), s(detached, released), ""},
			"releasing one with another owner":                   {s(detached, ownedToo, targeting("api")), s(detached, ownedToo, targeting("api"), released), ""},
			"releasing one with other labels":                    {s(detached, labelledBy("a", "b")), s(detached, labelledBy("a", "b"), released), ""},
			"releasing one that a user has not detached":         {s(kept), s(kept, released), ownerOnly},
			"releasing one by its own annotation":                {s(), s(detached, released), ownerOnly},
			"releasing it, and the owners of a user":             {s(detached, ownedToo), s(detached, released), ownerOnly},
			"releasing it, and leaving the label":                {s(detached), s(detached, released, func(s *v1beta1.VerticalScaler) { s.Labels = map[string]string{v1beta1.PolicyLabel: "fleet"} }), ownerOnly},
			"releasing it, with another label":                   {s(detached), s(detached, released, labelledBy("a", "b")), ownerOnly},
			"releasing it, with another spec":                    {s(detached), s(detached, released, inMode("InPlace")), ownerOnly},
			"releasing it, with another annotation":              {s(detached), s(detached, released, noted(promoted, "a")), ownerOnly},
			"changing the spec of one that is detached":          {s(detached), s(detached, inMode("InPlace")), "may not change the spec of a scaler with the annotation"},
		} {
			t.Run(what+", "+kind, func(t *testing.T) {
				r := request{resource: "verticalscalers"}
				if c.before != nil {
					r.before = c.before
				}
				if c.after != nil {
					r.after = c.after
				}
				judgeBothForms(t, p, r, c.says)
			})
		}
	}
}

// All writes of the operator in the life of such a scaler are accepted, and no policy asks for its rights on Deployments.
func TestTheOperatorCarriesOutPolicies(t *testing.T) {
	t.Parallel()
	object := &v1beta1.ScalingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "fleet", UID: "1"}}
	object.Spec.Rollout.Start, object.Spec.Template.UpdatePolicy.UpdateMode = v1beta1.UpdateModeRecommend, v1beta1.UpdateModeInPlace
	policy, err := fleet.Read(object, "verticalscaler-system")
	must.Succeed(t, err)
	other, err := fleet.Read(&v1beta1.ClusterScalingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "all", UID: "2"}}, "verticalscaler-system")
	must.Succeed(t, err)
	created := policy.Scaler(&fleet.Deployment{Namespace: "shop", Name: "web"})
	promoted := policy.Promoted(created, time.Now())
	edited := promoted.DeepCopy()
	targeting("api")(edited)
	finalizedBy(own)(edited)
	detached := promoted.DeepCopy()
	noted(v1beta1.DetachedAnnotation, "yes")(detached)
	labelledBy("team", "shop")(detached)
	for what, c := range map[string]struct{ before, after *v1beta1.VerticalScaler }{
		"creating":            {nil, created},
		"promoting":           {created, promoted},
		"noting harm":         {promoted, fleet.Marked(promoted, v1beta1.HarmedAnnotation, time.Now())},
		"giving to another":   {promoted, other.Desired(promoted)},
		"reverting an edit":   {edited, policy.Desired(edited)},
		"releasing":           {detached, fleet.Released(detached)},
		"releasing an orphan": {testkitScaler(orphaned), fleet.Released(testkitScaler(orphaned))},
		"deleting":            {created, nil},
	} {
		t.Run(what, func(t *testing.T) {
			r := request{resource: "verticalscalers", may: may{"update verticalscalers/status"}}
			if c.before != nil {
				r.before = c.before
			}
			if c.after != nil {
				r.after = c.after
			}
			judgeBothForms(t, compiled(t, "operator_scalers.yaml"), r, "")
			if c.after == nil {
				return // Policy users does not look at deletions.
			}
			if _, refuses, says := compiled(t, "users.yaml").answers(t, r); len(refuses) > 0 {
				t.Errorf("policy users says %q", says)
			}
		})
	}
}

// Nothing else of such a scaler can be changed, whatever the API has in the future.
func TestTheOperatorChangesOnlyTheSpecOfAPolicysScaler(t *testing.T) {
	t.Parallel()
	p := compiled(t, "operator_scalers.yaml")
	r := request{resource: "verticalscalers"}
	before := filled[v1beta1.VerticalScaler](t)
	before.Labels = map[string]string{v1beta1.PolicyLabel: "fleet"}
	before.OwnerReferences = ofPolicy(v1beta1.ScalingPolicyKind).OwnerReferences
	before.OwnerReferences[0].BlockOwnerDeletion = ptr.To(true)
	free := slices.Clone(written)
	for field := range reflect.TypeFor[v1beta1.Scaling]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		free = append(free, ".spec."+name)
	}
	free = append(free, ".metadata.ownerReferences[].uid", ".metadata.ownerReferences[].blockOwnerDeletion")
	everyFieldOf(t, before, p, r, free, 0, 1, 2, 3, 6)
}

func TestTheOperatorEvictsOnlyTheObservedPod(t *testing.T) {
	t.Parallel()
	p := compiled(t, "operator_evictions.yaml")
	seen := func() *metav1.DeleteOptions {
		return &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(types.UID("u")), ResourceVersion: ptr.To("7")}}
	}
	with := func(change func(*metav1.DeleteOptions)) *metav1.DeleteOptions {
		o := seen()
		change(o)
		return o
	}
	for name, c := range map[string]struct {
		options *metav1.DeleteOptions
		passes  bool
	}{
		"the pod with the UID and the version seen": {seen(), true},
		"the same pod, as a dry run":                {with(func(o *metav1.DeleteOptions) { o.DryRun = []string{"All"} }), true},
		"any pod with that name":                    {nil, false},
		"any pod, with empty preconditions":         {&metav1.DeleteOptions{}, false},
		"that pod in any version":                   {with(func(o *metav1.DeleteOptions) { o.Preconditions.ResourceVersion = nil }), true},
		"any pod with that version":                 {with(func(o *metav1.DeleteOptions) { o.Preconditions.UID = nil }), false},
		"without a grace period":                    {with(func(o *metav1.DeleteOptions) { o.GracePeriodSeconds = ptr.To[int64](0) }), false},
		"with another propagation policy":           {with(func(o *metav1.DeleteOptions) { o.PropagationPolicy = ptr.To(metav1.DeletePropagationOrphan) }), false},
		"a request that cannot be decoded":          {with(func(o *metav1.DeleteOptions) { o.IgnoreStoreReadErrorWithClusterBreakingPotential = ptr.To(true) }), false},
	} {
		t.Run(name, func(t *testing.T) {
			eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1"}, DeleteOptions: c.options}
			looks, refuses := p.asks(t, request{resource: "pods", subresource: "eviction", after: eviction})
			if !looks || c.passes != (len(refuses) == 0) {
				t.Errorf("looked at: %t, refused by %v", looks, refuses)
			}
		})
	}
}

func TestTheOperatorMaySizeInAnyWay(t *testing.T) {
	t.Parallel()
	p := compiled(t, "operator_deployments.yaml")
	list := func(amounts ...string) corev1.ResourceList {
		out := corev1.ResourceList{}
		for i, amount := range amounts {
			out[resources[i]] = resource.MustParse(amount)
		}
		return out
	}
	for name, c := range map[string]struct{ before, after corev1.ResourceRequirements }{
		"a first request":   {after: corev1.ResourceRequirements{Requests: list("1")}},
		"all lists at once": {after: corev1.ResourceRequirements{Requests: list("1", "1Gi"), Limits: list("2", "2Gi")}},
		"all removed":       {before: corev1.ResourceRequirements{Requests: list("1", "1Gi"), Limits: list("2", "2Gi")}},
		"one less": {
			before: corev1.ResourceRequirements{Requests: list("1", "1Gi"), Limits: list("2", "2Gi")},
			after:  corev1.ResourceRequirements{Requests: list("1"), Limits: list("2")},
		},
		"with a device that stays": {
			before: corev1.ResourceRequirements{Requests: list("1", "1Gi", "1"), Limits: list("2", "2Gi", "1")},
			after:  corev1.ResourceRequirements{Requests: list("2", "2Gi", "1"), Limits: list("4", "4Gi", "1")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := objects.Deployment("shop", "web")
			after := before.DeepCopy()
			before.Spec.Template.Spec.Containers[0].Resources = c.before
			after.Spec.Template.Spec.Containers[0].Resources = c.after
			if looks, refuses := p.asks(t, request{resource: "deployments", before: before, after: after}); !looks || len(refuses) > 0 {
				t.Errorf("looked at: %t, refused by %v", looks, refuses)
			}
		})
	}
}

// Expressions have a cost budget. The largest object that an API server accepts is 3 MB.
func TestLargeDeploymentsAreWithinTheBudget(t *testing.T) {
	t.Parallel()
	p := compiled(t, "operator_deployments.yaml")
	before := objects.Deployment("shop", "web")
	container := before.Spec.Template.Spec.Containers[0]
	for i := range 200 {
		container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", i), Value: strings.Repeat("x", 50)})
	}
	before.Spec.Template.Spec.Containers = slices.Repeat([]corev1.Container{container}, 100)
	after := before.DeepCopy()
	after.Spec.Template.Spec.Containers[99].Resources.Requests["cpu"] = resource.MustParse("3")
	encoded, err := json.Marshal(before)
	must.Succeed(t, err)
	t.Logf("%d bytes", len(encoded))
	if len(encoded) < 1<<20 {
		t.Errorf("a Deployment of %d bytes is not large", len(encoded))
	}
	if looks, refuses := p.asks(t, request{resource: "deployments", before: before, after: after}); !looks || len(refuses) > 0 {
		t.Errorf("looked at: %t, refused by %v", looks, refuses)
	}
}

// controlled returns an object that a ScaledDeployment controls, with variations.
func controlled(changes ...func(*metav1.OwnerReference)) *appsv1.Deployment {
	owner := metav1.OwnerReference{APIVersion: "autoscaling.verticalscaler.io/v1beta1", Kind: "ScaledDeployment", Name: "ours", UID: "1", Controller: ptr.To(true)}
	for _, change := range changes {
		change(&owner)
	}
	d := objects.Deployment("shop", "web")
	d.Labels = map[string]string{v1beta1.ScaledDeploymentLabel: "ours", v1beta1.ApplyingLabel: "true"}
	d.OwnerReferences = []metav1.OwnerReference{owner}
	return d
}

func TestTheOperatorWritesWhatAScaledDeploymentControls(t *testing.T) {
	t.Parallel()
	p := compiled(t, "operator_deployments.yaml")
	replaced := func(d *appsv1.Deployment) *appsv1.Deployment {
		d.Annotations = map[string]string{v1beta1.AppliedAnnotation: "5"}
		d.Spec.Replicas, d.Spec.Template.Spec.Containers[0].Image = ptr.To[int32](3), "example.com/other:1"
		return d
	}
	ownedToo := func(name string) *appsv1.Deployment {
		d := controlled()
		d.OwnerReferences = append(d.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: "7"})
		return d
	}
	for name, c := range map[string]struct {
		before, after *appsv1.Deployment
		subresource   string
		passes        bool
	}{
		"creating one": {after: controlled(), passes: true},
		"changing one": {before: controlled(), after: replaced(controlled()), passes: true},
		"deleting one": {before: controlled(), passes: true},
		"when it no longer blocks the owner's deletion": {
			before: controlled(func(o *metav1.OwnerReference) { o.BlockOwnerDeletion = ptr.To(true) }), after: controlled(), passes: true,
		},
		"but not creating a foreign one":                     {after: objects.Deployment("shop", "web")},
		"but not deleting a foreign one":                     {before: objects.Deployment("shop", "web")},
		"but not adopting a foreign one":                     {before: objects.Deployment("shop", "web"), after: controlled()},
		"but not releasing one":                              {before: controlled(), after: objects.Deployment("shop", "web")},
		"but not changing its owner":                         {before: controlled(), after: controlled(func(o *metav1.OwnerReference) { o.UID = "3" })},
		"but not giving one to another ScaledDeployment":     {before: controlled(), after: controlled(func(o *metav1.OwnerReference) { o.Name, o.UID = "another", "3" })},
		"but not giving one to another API's kind":           {before: controlled(), after: controlled(func(o *metav1.OwnerReference) { o.APIVersion = "example.com/v1" })},
		"but not ceasing to control one":                     {before: controlled(), after: controlled(func(o *metav1.OwnerReference) { o.Controller = nil })},
		"but not creating one that is owned, not controlled": {after: controlled(func(o *metav1.OwnerReference) { o.Controller = nil })},
		"but not one that is explicitly not controlled":      {after: controlled(func(o *metav1.OwnerReference) { o.Controller = ptr.To(false) })},
		"but not one of another API group":                   {after: controlled(func(o *metav1.OwnerReference) { o.APIVersion = "example.com/v1beta1" })},
		"but not one of an API group with the same prefix":   {after: controlled(func(o *metav1.OwnerReference) { o.APIVersion = "autoscaling.verticalscaler.io.example.com/v1" })},
		"but not one of a version that is not served":        {after: controlled(func(o *metav1.OwnerReference) { o.APIVersion = "autoscaling.verticalscaler.io/v9" })},
		"but not one of another kind":                        {after: controlled(func(o *metav1.OwnerReference) { o.Kind = "VerticalScaler" })},
		"changing one with another owner":                    {before: ownedToo("a"), after: replaced(ownedToo("a")), passes: true},
		"but not changing that owner":                        {before: ownedToo("a"), after: ownedToo("b")},
		"but not scaling one":                                {before: controlled(), after: controlled(), subresource: "scale"},
	} {
		t.Run(name, func(t *testing.T) {
			r := request{resource: "deployments", subresource: c.subresource}
			if c.before != nil {
				r.before = c.before
			}
			if c.after != nil {
				r.after = c.after
			}
			if looks, refuses := p.asks(t, r); !looks || c.passes != (len(refuses) == 0) {
				t.Errorf("looked at: %t, refused by %v", looks, refuses)
			}
		})
	}
}

// The policies confine the operator, wherever it is installed, and no other user.
func TestOnlyTheOperatorIsConfined(t *testing.T) {
	t.Parallel()
	owner := asking("web", objects.Deployment("shop", "web").Spec.Template)
	for _, file := range []string{
		"operator_deployments.yaml", "operator_evictions.yaml", "operator_objects.yaml", "operator_owned.yaml", "operator_pods.yaml", "operator_scalers.yaml",
	} {
		p := compiled(t, file)
		for name, want := range map[string]bool{
			"system:serviceaccount:verticalscaler-system:verticalscaler-operator": true,
			"system:serviceaccount:operators:verticalscaler-operator":             true,
			"system:serviceaccount:operators:verticalscaler-operator-2":           false,
			"system:serviceaccount:operators:my-verticalscaler-operator":          false,
			"system:serviceaccount:verticalscaler-operator:default":               false,
			"verticalscaler-operator":                                             false,
			"system:kube-controller-manager":                                      false,
		} {
			d := answering(owner)
			if looks, _ := p.asks(t, request{user: name, resource: "deployments", before: d, after: d, params: mapsOf(t, owner)}); looks != want {
				t.Errorf("%s looks at what %q does: %t", file, name, looks)
			}
		}
	}
}

// An init container that ends is not sized, wherever it is among native sidecars, and no container becomes
// one or ceases to be one.
func TestOnlyNativeSidecarsAreSizedAmongInitContainers(t *testing.T) {
	t.Parallel()
	p := compiled(t, "operator_deployments.yaml")
	always := ptr.To(corev1.ContainerRestartPolicyAlways)
	before := objects.Deployment("shop", "web")
	for i, policy := range []*corev1.ContainerRestartPolicy{nil, always, nil, always} {
		c := objects.Container(fmt.Sprintf("init-%d", i))
		c.RestartPolicy = policy
		before.Spec.Template.Spec.InitContainers = append(before.Spec.Template.Spec.InitContainers, c)
	}
	for name, c := range map[string]struct {
		change func(list []corev1.Container)
		passes bool
	}{
		"the first sidecar":               {func(l []corev1.Container) { l[1].Resources.Requests["cpu"] = resource.MustParse("1") }, true},
		"both sidecars":                   {func(l []corev1.Container) { l[1].Resources.Limits, l[3].Resources.Limits = nil, nil }, true},
		"an init container":               {func(l []corev1.Container) { l[2].Resources.Requests["cpu"] = resource.MustParse("1") }, false},
		"a sidecar that no longer is":     {func(l []corev1.Container) { l[1].RestartPolicy = nil }, false},
		"an init container that is now":   {func(l []corev1.Container) { l[0].RestartPolicy = always }, false},
		"two sidecars that change places": {func(l []corev1.Container) { l[1], l[3] = l[3], l[1] }, false},
		"another image":                   {func(l []corev1.Container) { l[1].Image = "example.com/other:1" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			after := before.DeepCopy()
			c.change(after.Spec.Template.Spec.InitContainers)
			if looks, refuses := p.asks(t, request{resource: "deployments", before: before, after: after}); !looks || c.passes != (len(refuses) == 0) {
				t.Errorf("looked at: %t, refused by %v", looks, refuses)
			}
		})
	}
}

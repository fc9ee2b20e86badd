// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
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

func TestTheOperatorChangesNothingOfAPodButSizes(t *testing.T) {
	t.Parallel()
	p := compiled(t, "operator_pods.yaml")
	r := request{resource: "pods", subresource: "resize"}
	podLevel := []string{".spec.resources.requests[cpu]", ".spec.resources.requests[memory]", ".spec.resources.limits[cpu]", ".spec.resources.limits[memory]"}
	free := slices.Concat(sizesUnder(".spec.containers"), podLevel, written, []string{".status"})
	everyField[corev1.Pod](t, p, r, free)
	everyNewField[corev1.Pod](t, p, r, ".metadata.managedFields", ".status")

	sidecar := filled[corev1.Pod](t)
	sidecar.Spec.InitContainers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	everyFieldOf(t, sidecar, p, r, append(free, sizesUnder(".spec.initContainers")...))
}

func TestTheOperatorChangesNothingOfAScalerButItsFinalizer(t *testing.T) {
	t.Parallel()
	p := compiled(t, "operator_scalers.yaml")
	r := request{resource: "verticalscalers"}
	everyField[v1beta1.VerticalScaler](t, p, r, written, 0, 1)
	everyNewField[v1beta1.VerticalScaler](t, p, r, ".metadata.managedFields")
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
		"any version of the pod":                    {with(func(o *metav1.DeleteOptions) { o.Preconditions.ResourceVersion = nil }), false},
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
			before := testkit.Deployment("shop", "web")
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
	before := testkit.Deployment("shop", "web")
	container := before.Spec.Template.Spec.Containers[0]
	for i := range 200 {
		container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", i), Value: strings.Repeat("x", 50)})
	}
	before.Spec.Template.Spec.Containers = slices.Repeat([]corev1.Container{container}, 100)
	after := before.DeepCopy()
	after.Spec.Template.Spec.Containers[99].Resources.Requests["cpu"] = resource.MustParse("3")
	encoded, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
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
	d := testkit.Deployment("shop", "web")
	d.Labels = map[string]string{v1beta1.ScaledDeploymentLabel: "ours"}
	d.OwnerReferences = []metav1.OwnerReference{owner}
	return d
}

func TestTheOperatorWritesWhatAScaledDeploymentControls(t *testing.T) {
	t.Parallel()
	p := compiled(t, "operator_deployments.yaml")
	replaced := func(d *appsv1.Deployment) *appsv1.Deployment {
		d.Labels["a"] = "b"
		d.Spec.Template.Spec.Containers[0].Image = "example.com/other:1"
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
		"when the owner's API has another version": {
			before: controlled(), after: replaced(controlled(func(o *metav1.OwnerReference) { o.APIVersion = "autoscaling.verticalscaler.io/v1" })), passes: true,
		},
		"when it no longer blocks the owner's deletion": {
			before: controlled(func(o *metav1.OwnerReference) { o.BlockOwnerDeletion = ptr.To(true) }), after: controlled(), passes: true,
		},
		"but not creating a foreign one":                     {after: testkit.Deployment("shop", "web")},
		"but not deleting a foreign one":                     {before: testkit.Deployment("shop", "web")},
		"but not adopting a foreign one":                     {before: testkit.Deployment("shop", "web"), after: controlled()},
		"but not releasing one":                              {before: controlled(), after: testkit.Deployment("shop", "web")},
		"but not changing its owner":                         {before: controlled(), after: controlled(func(o *metav1.OwnerReference) { o.UID = "3" })},
		"but not creating one that is owned, not controlled": {after: controlled(func(o *metav1.OwnerReference) { o.Controller = nil })},
		"but not one that is explicitly not controlled":      {after: controlled(func(o *metav1.OwnerReference) { o.Controller = ptr.To(false) })},
		"but not one of another API group":                   {after: controlled(func(o *metav1.OwnerReference) { o.APIVersion = "example.com/v1beta1" })},
		"but not one of an API group with the same prefix":   {after: controlled(func(o *metav1.OwnerReference) { o.APIVersion = "autoscaling.verticalscaler.io.example.com/v1" })},
		"but not one of another kind":                        {after: controlled(func(o *metav1.OwnerReference) { o.Kind = "VerticalScaler" })},
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
	owner := asking("web", testkit.Deployment("shop", "web").Spec.Template)
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
	before := testkit.Deployment("shop", "web")
	for i, policy := range []*corev1.ContainerRestartPolicy{nil, always, nil, always} {
		c := testkit.Container(fmt.Sprintf("init-%d", i))
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

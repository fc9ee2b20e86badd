// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/objects"
)

// grants are the rights of users: administrators have all, and the operator may write the status of scalers.
type grants struct{}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (grants) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	name := a.GetUser().GetName()
	if name == administrator || slices.Contains(operators, name) && a.GetResource() == "verticalscalers" && a.GetSubresource() == "status" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

const administrator = "admin"

// operators are the accounts of the default installation and of one with OLM.
var operators = []string{
	"system:serviceaccount:verticalscaler-system:verticalscaler-operator",
	"system:serviceaccount:operators:verticalscaler-operator",
}

// server dispatches requests to the installed policies, as an API server does.
type server struct {
	plugin  *validating.Plugin
	schemes admission.ObjectInterfaces
}

// write is a request.
type write struct {
	resource, subresource string
	before, after         runtime.Object // nil for none
}

// newServer is a server with all policies, without the bindings of one. It knows the kinds of
// parameters unless it has no CRDs.
func newServer(t *testing.T, unbound string, hasCRDs bool, params ...runtime.Object) server {
	t.Helper()
	stored := []runtime.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}
	files, err := filepath.Glob(filepath.Join(folder(), "*.yaml"))
	must.Succeed(t, err)
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		p, bindings := read(t, filepath.Base(file))
		stored = append(stored, &p)
		for _, b := range bindings {
			if p.Name != unbound {
				stored = append(stored, &b)
			}
		}
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	if hasCRDs {
		mapper.Add(v1beta1.GroupVersion.WithKind("ScaledDeployment"), meta.RESTScopeNamespace)
	}
	client := fake.NewClientset(stored...)
	factory := informers.NewSharedInformerFactory(client, 0)
	plugin, err := validating.NewPlugin(nil)
	must.Succeed(t, err)
	plugin.SetExternalKubeClientSet(client)
	plugin.SetExternalKubeInformerFactory(factory)
	plugin.SetDynamicClient(dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		v1beta1.GroupVersion.WithResource("scaleddeployments"): "ScaledDeploymentList",
	}, params...))
	plugin.SetRESTMapper(mapper)
	plugin.SetUnconditionalAuthorizer(grants{})
	plugin.SetDrainedNotification(t.Context().Done())
	must.Succeed(t, plugin.ValidateInitialization())
	factory.Start(t.Context().Done())
	if !plugin.WaitForReady() {
		t.Fatal("the policies are not loaded")
	}
	return server{plugin, admission.NewObjectInterfacesFromScheme(scheme.Scheme)}
}

// refusal is the name of the policy that refuses the request of the user; "" if none does.
func (s server) refusal(t *testing.T, who string, w write) string {
	t.Helper()
	operation, object := admission.Update, w.after
	switch {
	case w.before == nil:
		operation = admission.Create
	case w.after == nil:
		operation, object = admission.Delete, w.before
	}
	kind := object.GetObjectKind().GroupVersionKind()
	resource := kind.GroupVersion().WithResource(w.resource)
	if w.subresource == "eviction" {
		resource.Group = ""
	}
	named, err := meta.Accessor(object)
	must.Succeed(t, err)
	err = s.plugin.Validate(t.Context(), admission.NewAttributesRecord(w.after, w.before, kind, "shop", named.GetName(), resource, w.subresource,
		operation, nil, false, &user.DefaultInfo{Name: who}), s.schemes)
	if err == nil {
		return ""
	}
	_, rest, _ := strings.Cut(err.Error(), "ValidatingAdmissionPolicy '")
	policy, _, _ := strings.Cut(rest, "'")
	if policy == "" {
		t.Errorf("%s: %v", who, err)
	}
	return policy
}

// refusedWrites has, for each policy, a request of its users that it refuses, and no other policy.
func refusedWrites(t *testing.T) map[string]write {
	t.Helper()
	as := func(kind schema.GroupVersionKind, o runtime.Object) runtime.Object {
		o.GetObjectKind().SetGroupVersionKind(kind)
		return o
	}
	ours := func(kind string, o runtime.Object) runtime.Object {
		return as(v1beta1.GroupVersion.WithKind(kind), mapsOf(t, o))
	}
	deployment := func(d *appsv1.Deployment) runtime.Object {
		return as(appsv1.SchemeGroupVersion.WithKind("Deployment"), d)
	}
	miner := func(d *appsv1.Deployment) *appsv1.Deployment {
		d.Spec.Template.Spec.Containers[0].Image = "example.com/miner:1"
		return d
	}
	pod := func(image string) runtime.Object {
		return as(corev1.SchemeGroupVersion.WithKind("Pod"), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: image}}},
		})
	}
	named := metav1.ObjectMeta{Namespace: "shop", Name: "web"}
	return map[string]write{
		"operator-deployments": {resource: "deployments", before: deployment(objects.Deployment("shop", "web")), after: deployment(miner(objects.Deployment("shop", "web")))},
		"operator-owned":       {resource: "deployments", after: deployment(miner(answering(askingWeb())))},
		"operator-objects":     {resource: "leases", after: as(coordinationv1.SchemeGroupVersion.WithKind("Lease"), &coordinationv1.Lease{ObjectMeta: named})},
		"operator-pods":        {resource: "pods", subresource: "resize", before: pod("app:1"), after: pod("miner:1")},
		"operator-evictions":   {resource: "pods", subresource: "eviction", after: as(policyv1.SchemeGroupVersion.WithKind("Eviction"), &policyv1.Eviction{ObjectMeta: named})},
		"operator-scalers":     {resource: "verticalscalers", before: ours("VerticalScaler", testkitScaler())},
		"checkpoints":          {resource: "newpodsizes", after: ours("NewPodSizes", &v1beta1.NewPodSizes{ObjectMeta: named})},
		"promotions": {
			resource: "verticalscalers", before: ours("VerticalScaler", ofPolicy(v1beta1.ScalingPolicyKind)),
			after: ours("VerticalScaler", ofPolicy(v1beta1.ScalingPolicyKind, noted(v1beta1.PromotedAnnotation, "2026-01-01T00:00:00Z"))),
		},
		"users":          {resource: "verticalscalers", after: ours("VerticalScaler", testkitScaler())},
		"users-policies": {resource: "scalingpolicies", after: as(v1beta1.GroupVersion.WithKind("ScalingPolicy"), policyFrom(t, modes("Recommend", "Recommend")))},
	}
}

// askingWeb is a ScaledDeployment that asks for the Deployment web.
func askingWeb() *v1beta1.ScaledDeployment {
	return asking("web", objects.Deployment("shop", "web").Spec.Template)
}

// Each policy refuses the operator the same, even if objects are missing in the cluster. No other user is refused to restore,
// update or delete a Deployment. Without its binding, a policy refuses nothing. An account that has the operator's name in
// another namespace gets nothing that only the operator may do, with the names of the default installation and those of OLM.
func TestEachPolicyRefusesWhateverIsMissing(t *testing.T) {
	t.Cleanup(generic.SetPolicyRefreshIntervalForTests(time.Millisecond))
	klog.SetLogger(logr.Discard()) // a missing kind is an error each time
	t.Cleanup(klog.ClearLogger)
	param := mapsOf(t, askingWeb())
	param.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("ScaledDeployment"))
	servers := map[string]server{
		"nothing":            newServer(t, "", true, param),
		"a ScaledDeployment": newServer(t, "", true),
		"the CRDs":           newServer(t, "", false),
	}
	writes := refusedWrites(t)
	for policy, w := range writes {
		users, confined := []string{"dev"}, strings.HasPrefix(policy, "operator-")
		if confined {
			users = slices.Concat(operators, []string{tenantAccount})
		}
		for missing, s := range servers {
			for _, who := range users {
				if got := s.refusal(t, who, w); got != policy {
					t.Errorf("without %s, the request for %s of %s is refused by %q", missing, policy, who, got)
				}
			}
			if got := s.refusal(t, tenantAccount, w); got == "" {
				t.Errorf("without %s, the request for %s is accepted of an account with the operator's name", missing, policy)
			}
			for _, who := range operators {
				if got := s.refusal(t, who, w); (policy == "checkpoints" || policy == "promotions") && got != "" {
					t.Errorf("without %s, %s refuses %s its own request for %s", missing, got, who, policy)
				}
			}
			if got := s.refusal(t, administrator, w); got != "" && policy != "operator-owned" { // No other user sets its label.
				t.Errorf("without %s, %s refuses an administrator the request for %s", missing, got, policy)
			}
		}
		if got := newServer(t, policy, true, param).refusal(t, users[0], w); got != "" {
			t.Errorf("without the binding of %s, %q refuses its request", policy, got)
		}
	}
	if len(writes) != 10 {
		t.Errorf("%d policies have a request", len(writes))
	}
	stored := unlabelled(answering(askingWeb()))
	stored.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	edited := stored.DeepCopy()
	extra(edited)
	for missing, s := range servers {
		for what, w := range map[string]write{
			"restore": {resource: "deployments", after: stored}, "update": {resource: "deployments", before: stored, after: edited}, "delete": {resource: "deployments", before: stored},
		} {
			if got := s.refusal(t, "dev", w); got != "" {
				t.Errorf("without %s, %s refuses a user to %s a Deployment", missing, got, what)
			}
		}
		for what, w := range map[string]write{"create": {resource: "deployments", after: stored}, "update": {resource: "deployments", before: stored, after: edited}} {
			if got := s.refusal(t, operators[0], w); got != "operator-deployments" {
				t.Errorf("without %s and without the label, the operator is refused by %q to %s a Deployment", missing, got, what)
			}
		}
	}
}

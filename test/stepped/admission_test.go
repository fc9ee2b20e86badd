// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package stepped

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/policies"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// learned waits until f describes nothing that is wrong: the API server learns of policies, their parameters and rights with
// a delay.
func learned(t *testing.T, f func() string) {
	t.Helper()
	testkit.Eventually(t, time.Minute, f)
}

// installedPolicies are the installed admission policies, by their names without the prefix.
func installedPolicies(t *testing.T) map[string]*admissionregistrationv1.ValidatingAdmissionPolicy {
	t.Helper()
	var list admissionregistrationv1.ValidatingAdmissionPolicyList
	must.Succeed(t, env.Client.List(t.Context(), &list))
	installed := map[string]*admissionregistrationv1.ValidatingAdmissionPolicy{}
	for i := range list.Items {
		if name, ours := strings.CutPrefix(list.Items[i].Name, "verticalscaler-"); ours {
			installed[name] = &list.Items[i]
		}
	}
	if len(installed) != 14 {
		t.Fatalf("%d policies are installed", len(installed))
	}
	return installed
}

// The expressions are checked against the kinds that the API server serves, as the controller manager does it.
func TestAdmissionPoliciesTypeCheck(t *testing.T) {
	t.Parallel()
	served, err := discovery.NewDiscoveryClientForConfig(env.Config)
	must.Succeed(t, err)
	schemas := &resolver.ClientDiscoveryResolver{Discovery: served}
	if _, err := schemas.ResolveSchema(v1beta1.GroupVersion.WithKind("VerticalScaler")); err != nil {
		t.Fatal(err) // Kinds without a schema are not checked.
	}
	checker := validating.TypeChecker{SchemaResolver: schemas, RestMapper: env.Client.RESTMapper()}
	for name, policy := range installedPolicies(t) {
		for _, warning := range checker.Check(policy) {
			t.Errorf("policy %s, %s: %s", name, warning.FieldRef, warning.Warning)
		}
	}
}

// thief is a client of the operator's service account.
func thief(t *testing.T) client.Client {
	t.Helper()
	c, err := env.AsOperator()
	must.Succeed(t, err)
	return c
}

// tenant is a client of a user who has these ClusterRoles and rules in the test's namespace, and nothing else.
func (w *fixture) tenant(name string, roles []string, rules ...rbacv1.PolicyRule) client.Client {
	w.Helper()
	name += "-of-" + w.Namespace
	w.allow(rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}, roles, rules...)
	config := rest.CopyConfig(env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:authenticated"}}
	c, err := client.New(config, client.Options{Scheme: env.Client.Scheme()})
	must.Succeed(w, err)
	return c
}

// allow grants rights in the test's namespace.
func (w *fixture) allow(who rbacv1.Subject, roles []string, rules ...rbacv1.PolicyRule) {
	w.Helper()
	bind := func(ref rbacv1.RoleRef) {
		w.Helper()
		ref.APIGroup = rbacv1.GroupName
		w.Create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, GenerateName: "t-"}, RoleRef: ref, Subjects: []rbacv1.Subject{who}})
	}
	for _, role := range roles {
		bind(rbacv1.RoleRef{Kind: "ClusterRole", Name: role})
	}
	if len(rules) > 0 {
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, GenerateName: "t-"}, Rules: rules}
		w.Create(role)
		bind(rbacv1.RoleRef{Kind: "Role", Name: role.Name})
	}
}

// asking is a ScaledDeployment that sizes nothing, unless it has a mode.
func asking(namespace, name string, mode v1beta1.UpdateMode) *v1beta1.ScaledDeployment {
	o := &v1beta1.ScaledDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1beta1.ScaledDeploymentSpec{Replicas: ptr.To[int32](1), Template: testkit.Deployment(namespace, name).Spec.Template},
	}
	if mode != "" {
		o.Spec.Scaling = &v1beta1.Scaling{UpdatePolicy: v1beta1.UpdatePolicy{UpdateMode: mode, NewPods: v1beta1.NewPodsAsTemplate}}
	}
	return o
}

// Each policy is bound to the requests that it is for, and refuses as itself. The fields that it refuses and accepts are
// tested in test/admission. All requests are dry runs.
func TestStolenTokensAndTenantsAreRefusedByEachPolicy(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	web := w.deploy("web")
	w.Create(asking(w.Namespace, "ours", v1beta1.UpdateModeInPlace))
	mine := testkit.Scaler(w.Namespace, "mine", "web")
	w.Add(mine)
	w.Settle()
	owned := w.Deployment("ours")

	// A pod with an init container that ends, on a node that can resize sidecars.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "alone"}}
	pod.Spec = corev1.PodSpec{NodeName: w.ownNode("InPlacePodVerticalScalingInitContainers"), Containers: []corev1.Container{testkit.Container("app")}, InitContainers: []corev1.Container{testkit.Container("init"), testkit.Container("sidecar")}}
	pod.Spec.InitContainers[1].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	w.Create(pod)

	thief := thief(t)
	w.allow(rbacv1.Subject{Kind: "ServiceAccount", Namespace: testkit.System, Name: testkit.ServiceAccount}, nil,
		rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments/scale"}, Verbs: []string{"update"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}}) // as with config/components/recreate
	const editing = "verticalscaler-editor"
	editor := w.tenant("editor", []string{editing},
		rbacv1.PolicyRule{APIGroups: []string{v1beta1.GroupVersion.Group}, Resources: []string{"verticalscalercheckpoints"}, Verbs: []string{"*"}}) // as OLM grants
	patcher := w.tenant("patcher", []string{editing}, rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, ResourceNames: []string{"web"}, Verbs: []string{"patch"}})
	team := w.tenant("team", []string{editing, "system:aggregate-to-edit"}) // what a team usually has

	checkpoint := &v1beta1.VerticalScalerCheckpoint{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "web"},
		Spec:       v1beta1.VerticalScalerCheckpointSpec{DeploymentName: "web", SaveTime: metav1.Now()},
	}
	lease := func(name string) client.Object {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: testkit.System, Name: name}}
	}
	rolling := testkit.Scaler(w.Namespace, "new", "web")
	world.InMode("Rollout")(rolling)
	fleet := &v1beta1.ScalingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "fleet"}}
	fleet.Spec.DeploymentSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	fleet.Spec.Rollout.Start, fleet.Spec.Template.UpdatePolicy.UpdateMode = v1beta1.UpdateModeRecommend, v1beta1.UpdateModeRecommend

	ctx := t.Context()
	create := func(c client.Client, o client.Object) func() error {
		return func() error { return c.Create(ctx, copied(o), client.DryRunAll) }
	}
	patch := func(c client.Client, o client.Object, text string) func() error {
		return func() error { return c.Patch(ctx, copied(o), patchOf(o, text), client.DryRunAll) }
	}
	resize := func(text string) func() error {
		return func() error {
			return thief.SubResource("resize").Patch(ctx, copied(pod), patchOf(pod, text), client.DryRunAll)
		}
	}
	evict := func(options *metav1.DeleteOptions) func() error {
		return func() error {
			return thief.SubResource("eviction").Create(ctx, copied(pod), &policyv1.Eviction{DeleteOptions: options}, client.DryRunAll)
		}
	}
	scale := func(c client.Client) func() error {
		return func() error {
			return c.SubResource("scale").Update(ctx, copied(web), client.WithSubResourceBody(&autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 2}}), client.DryRunAll)
		}
	}
	other := `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"example.com/other:1"}]}}}}`
	applying := func(text string) string {
		return strings.Replace(text, "{", `{"metadata":{"labels":{"`+v1beta1.ApplyingLabel+`":"true"}},`, 1)
	}
	deleteCRD := func(plural string) func() error {
		crd := &unstructured.Unstructured{}
		crd.SetAPIVersion("apiextensions.k8s.io/v1")
		crd.SetKind("CustomResourceDefinition")
		crd.SetName(plural + "." + v1beta1.GroupVersion.Group)
		return func() error { return env.Client.Delete(ctx, crd, client.DryRunAll) }
	}
	missing := installedPolicies(t)
	delete(missing, "warnings") // They refuse nothing.
	delete(missing, "warnings-target")
	delete(missing, "warnings-deletion")
	for _, c := range []struct {
		policy, what string
		refused      func() error
		message      string
		accepted     func() error
	}{
		{
			"operator-deployments", "another image", patch(thief, web, other), "other fields of a container",
			patch(thief, web, `{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"150m"}}}]}}}}`),
		},
		{"operator-deployments", "scaling, even with the right to do so", scale(thief), "", scale(env.Client)},
		{"operator-owned", "changing the image", patch(thief, owned, applying(other)), "changes a container", patch(thief, owned, applying(`{"spec":{}}`))},
		{
			"operator-deployments", "replicas without the label", patch(thief, owned, `{"spec":{"replicas":2}}`), "fields outside of the pod template",
			patch(thief, owned, `{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"150m"}}}]}}}}`),
		},
		{
			"operator-pods", "an init container that ends", resize(`{"spec":{"initContainers":[{"name":"init","resources":{"requests":{"cpu":"150m"}}}]}}`), "other fields",
			resize(`{"spec":{"initContainers":[{"name":"sidecar","resources":{"requests":{"cpu":"150m"}}}],"containers":[{"name":"app","resources":{"requests":{"cpu":"150m"}}}]}}`),
		},
		{"operator-evictions", "any pod with that name", evict(nil), "", evict(&metav1.DeleteOptions{
			DryRun: []string{metav1.DryRunAll}, Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion},
		})},
		{"operator-objects", "the lease of others", create(thief, lease("kube-scheduler")), "only its own objects", create(thief, lease(v1beta1.LeaseName))},
		{
			"operator-scalers", "another mode", patch(thief, mine, `{"spec":{"updatePolicy":{"updateMode":"Rollout"}}}`), "may only change its own finalizer",
			patch(thief, mine, `{"metadata":{"finalizers":["autoscaling.verticalscaler.io/restore-original-resources"]}}`),
		},
		{"checkpoints", "what was learned", create(editor, checkpoint), "Only the operator writes checkpoints", create(env.Client, checkpoint)},
		{
			"promotions", "promoting", patch(team, mine, `{"metadata":{"annotations":{"autoscaling.verticalscaler.io/promoted":"2026-01-01T00:00:00Z"}}}`),
			"Only the operator sets", patch(editor, mine, `{"metadata":{"labels":{"a":"b"}}}`),
		},
		{
			"users", "a Deployment that the user may not patch", create(editor, rolling),
			`user "editor-of-` + w.Namespace + `" cannot patch resource "deployments" in API group "apps" in the namespace "` + w.Namespace + `", name "web"`, create(patcher, rolling),
		},
		{
			"crd-deletion", "the kind that owns Deployments", deleteCRD("scaleddeployments"), "This would delete all ScaledDeployments and their Deployments",
			deleteCRD("verticalscalers"),
		},
		{"users-policies", "a ScalingPolicy", create(editor, fleet), `cannot patch resource "deployments"`, create(team, fleet)},
	} {
		delete(missing, c.policy)
		t.Run(c.policy+", "+c.what, func(t *testing.T) {
			learned(t, func() string {
				if err := c.refused(); err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'verticalscaler-"+c.policy+"'") || !strings.Contains(err.Error(), c.message) {
					return fmt.Sprintf("got %v, want a refusal of policy %s with %q", err, c.policy, c.message)
				}
				return ""
			})
			learned(t, func() string {
				if err := c.accepted(); err != nil {
					return "it is refused: " + err.Error()
				}
				return ""
			})
		})
	}
	for name := range missing {
		t.Errorf("no request shows that policy %s is enforced", name)
	}
}

// copied is a copy of an object that is written as a new one.
func copied(o client.Object) client.Object {
	out, _ := o.DeepCopyObject().(client.Object)
	return out
}

// patchOf is a patch of the object as kubectl sends it: only kinds that are built in merge lists.
func patchOf(o client.Object, text string) client.Patch {
	switch o.(type) {
	case *appsv1.Deployment, *corev1.Pod:
		return client.RawPatch(types.StrategicMergePatchType, []byte(text))
	}
	return client.RawPatch(types.MergePatchType, []byte(text))
}

// heard are the warnings of our policies that the API server sends to a client.
type heard struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (h *heard) HandleWarningHeader(_ int, _, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if strings.Contains(text, "verticalscaler-warnings") {
		h.texts = append(h.texts, text)
	}
}

// taken returns the warnings since the last call.
func (h *heard) taken() (out []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	out, h.texts = h.texts, nil
	return out
}

// The warnings of each policy are tested in test/admission.
func TestATenantIsWarnedOfImplausibleSpecs(t *testing.T) {
	t.Parallel()
	namespace := env.Namespace(t)
	must.Succeed(t, env.Client.Create(t.Context(), testkit.Deployment(namespace, "web")))
	h := &heard{}
	config := rest.CopyConfig(env.Config)
	config.WarningHandler = h
	c, err := client.New(config, client.Options{Scheme: env.Client.Scheme()})
	must.Succeed(t, err)
	o := testkit.Scaler(namespace, "new", "web")
	pinned("400", "1Gi")(o)
	o.Spec.ResourcePolicy.ContainerPolicies[0].ContainerName = "job"
	learned(t, func() string {
		if err := c.Create(t.Context(), copied(o), client.DryRunAll); err != nil {
			return err.Error()
		}
		all := strings.Join(h.taken(), "\n")
		for _, words := range []string{"Deployment web has no container job in its template", "minAllowed.cpu 400 of container job"} {
			if !strings.Contains(all, words) {
				return fmt.Sprintf("warned of %q, not %q", all, words)
			}
		}
		return ""
	})
	decided := testkit.Scaler(namespace, "decided", "web")
	must.Succeed(t, env.Client.Create(t.Context(), decided))
	decided.Status.Decision = &v1beta1.Decision{Time: metav1.Now(), Reason: plan.DecidedScaleUp}
	must.Succeed(t, env.Client.Status().Update(t.Context(), decided))
	learned(t, func() string {
		if err := c.Delete(t.Context(), decided, client.DryRunAll); err != nil {
			return err.Error()
		}
		want := "keep their sizes until they are replaced: kubectl rollout restart deployment/web -n " + namespace
		if all := strings.Join(h.taken(), "\n"); !strings.Contains(all, want) {
			return fmt.Sprintf("warned of %q, not %q", all, want)
		}
		return ""
	})
}

// reported are the conditions that a check of the policies reports.
type reported []metav1.Condition

func (r *reported) Set(_ context.Context, c metav1.Condition) error {
	*r = append(*r, c)
	return nil
}

// The operator sees that the policies refuse it something. They refuse it to no other user, so to another user they are missing.
func TestMissingAdmissionPoliciesAreNoticed(t *testing.T) {
	t.Parallel()
	for want, c := range map[metav1.ConditionStatus]client.Client{metav1.ConditionTrue: thief(t), metav1.ConditionFalse: env.Client} {
		learned(t, func() string {
			var got reported
			(&policies.Check{Client: c, Condition: &got, Namespace: testkit.System, Clock: clock.RealClock{}}).Round(t.Context())
			if len(got) != 1 || got[0].Status != want {
				return fmt.Sprintf("reported %+v, want %s", got, want)
			}
			return ""
		})
	}
	for _, o := range []client.Object{&coordinationv1.Lease{}, &appsv1.Deployment{}} {
		if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: testkit.System, Name: policies.Name}, o); !apierrors.IsNotFound(err) {
			t.Errorf("the check has created a %T: %v", o, err)
		}
	}
}

// A stolen token must not be enough to remove the policies.
func TestTheOperatorHasNoRightOnAdmissionPolicies(t *testing.T) {
	t.Parallel()
	thief := thief(t)
	for _, kind := range []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"} {
		for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"} {
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{Group: "admissionregistration.k8s.io", Resource: kind, Verb: verb},
			}}
			must.Succeed(t, thief.Create(t.Context(), review))
			if review.Status.Allowed {
				t.Errorf("the operator may %s %s", verb, kind)
			}
		}
	}
}

// stalled is the condition Stalled of a ScaledDeployment.
func (w *fixture) stalled(name string) string {
	w.Helper()
	var o v1beta1.ScaledDeployment
	must.Succeed(w, env.Client.Get(w.t.Context(), w.Key(name), &o))
	c := ptr.Deref(meta.FindStatusCondition(o.Status.Conditions, v1beta1.ConditionStalled), metav1.Condition{})
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

// A ScaledDeployment reports what a policy refuses, and who can allow it.
func TestStolenTokenPoliciesAreReportedWhereTheyRefuse(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	agent := asking(w.Namespace, "agent", "")
	agent.Spec.Template.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	w.Create(agent)
	w.Until(func() string {
		if now := w.stalled("agent"); !strings.HasPrefix(now, "True Rejected") || !strings.Contains(now, "pod-security.kubernetes.io/enforce=privileged") {
			return "Stalled is " + now
		}
		return ""
	})
}

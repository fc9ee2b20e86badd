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
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/policies"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
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
	if err := env.Client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	installed := map[string]*admissionregistrationv1.ValidatingAdmissionPolicy{}
	for i := range list.Items {
		if name, ours := strings.CutPrefix(list.Items[i].Name, "verticalscaler-"); ours {
			installed[name] = &list.Items[i]
		}
	}
	if len(installed) != 12 {
		t.Fatalf("%d policies are installed", len(installed))
	}
	return installed
}

// The expressions are checked against the kinds that the API server serves, as the controller manager does it.
func TestAdmissionPoliciesTypeCheck(t *testing.T) {
	t.Parallel()
	served, err := discovery.NewDiscoveryClientForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		w.Fatal(err)
	}
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

// ownedBy is what says that a ScaledDeployment controls an object.
func ownedBy(name string, uid types.UID) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: v1beta1.GroupVersion.String(), Kind: "ScaledDeployment", Name: name, UID: uid, Controller: ptr.To(true)}}
}

// claiming is a Deployment that says that a ScaledDeployment controls it.
func claiming(namespace, owner string, uid types.UID, changes ...func(*corev1.PodSpec)) *appsv1.Deployment {
	d := testkit.Deployment(namespace, owner)
	d.Labels, d.OwnerReferences = map[string]string{v1beta1.ScaledDeploymentLabel: owner, v1beta1.ApplyingLabel: "true"}, ownedBy(owner, uid)
	d.Spec.Template.Labels[v1beta1.ScaledDeploymentLabel] = owner
	for _, change := range changes {
		change(&d.Spec.Template.Spec)
	}
	return d
}

// Each policy is bound to the requests that it is for, and refuses as itself. What it refuses and accepts, field by field,
// is in test/admission. All requests are dry runs.
func TestStolenTokensAndTenantsAreRefusedByEachPolicy(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	w.deploy("web")
	ours, planned := asking(w.Namespace, "ours", v1beta1.UpdateModeInPlace), asking(w.Namespace, "planned", "")
	w.Create(ours)
	mine := testkit.Scaler(w.Namespace, "mine", "web")
	w.create(mine)
	w.Settle()
	w.Stop() // It would create what is planned.
	w.Create(planned)
	web, owned, scaler := w.Deployment("web"), w.Deployment("ours"), w.Scaler("ours")
	unowned := env.Namespace(t) // without a ScaledDeployment
	// The API server reads the labels of a new namespace.
	privileged := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"}}}
	w.Create(privileged)
	w.Create(asking(privileged.Name, "any", ""))

	// A pod with an init container that ends, on a node that can resize sidecars.
	if err := env.Node(t.Context(), w.Namespace); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}
	if err := env.Client.Status().Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(`{"status":{"declaredFeatures":["InPlacePodVerticalScalingInitContainers"]}}`))); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "alone"}}
	pod.Spec = corev1.PodSpec{NodeName: node.Name, Containers: []corev1.Container{testkit.Container("app")}, InitContainers: []corev1.Container{testkit.Container("init"), testkit.Container("sidecar")}}
	pod.Spec.InitContainers[1].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	w.Create(pod)

	thief := thief(t)
	w.allow(rbacv1.Subject{Kind: "ServiceAccount", Namespace: testkit.System, Name: testkit.ServiceAccount}, nil,
		rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments/scale"}, Verbs: []string{"update"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}}) // as with config/components/recreate
	const editing = "verticalscaler-editor"
	edits := []string{editing, "system:aggregate-to-edit"} // what a team usually has
	editor := w.tenant("editor", []string{editing},
		rbacv1.PolicyRule{APIGroups: []string{v1beta1.GroupVersion.Group}, Resources: []string{"newpodsizes", "verticalscalercheckpoints"}, Verbs: []string{"*"}}) // as OLM grants
	patcher := w.tenant("patcher", []string{editing}, rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, ResourceNames: []string{"web"}, Verbs: []string{"patch"}})
	team := w.tenant("team", edits)
	resizer := w.tenant("resizer", append(edits, "verticalscaler-resizer"))

	checkpoint := &v1beta1.VerticalScalerCheckpoint{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "web"},
		Spec:       v1beta1.VerticalScalerCheckpointSpec{DeploymentName: "web", SaveTime: metav1.Now()},
	}
	sizes := &v1beta1.NewPodSizes{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: v1beta1.NewPodSizesName},
		Spec:       v1beta1.NewPodSizesSpec{Deployments: "\nweb app,1,,,\n"},
	}
	lease := func(name string) client.Object {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: testkit.System, Name: name}}
	}
	ofPlanned := testkit.Scaler(w.Namespace, "planned", "planned")
	ofPlanned.OwnerReferences = ownedBy("planned", planned.UID)
	sizing := func(deployment string, mode v1beta1.UpdateMode) client.Object {
		s := testkit.Scaler(w.Namespace, "new", deployment)
		s.Spec.UpdatePolicy.UpdateMode = mode
		return s
	}
	fleet := &v1beta1.ScalingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "fleet"}}
	fleet.Spec.DeploymentSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	fleet.Spec.Rollout.Start, fleet.Spec.Template.UpdatePolicy.UpdateMode = v1beta1.UpdateModeRecommend, v1beta1.UpdateModeRecommend

	ctx := t.Context()
	create := func(c client.Client, o client.Object) func() error {
		return func() error { return c.Create(ctx, copied(o), client.DryRunAll) }
	}
	remove := func(c client.Client, o client.Object) func() error {
		return func() error { return c.Delete(ctx, copied(o), client.DryRunAll) }
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
	scale := func(c client.Client, o client.Object) func() error {
		return func() error {
			return c.SubResource("scale").Update(ctx, copied(o), client.WithSubResourceBody(&autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 2}}), client.DryRunAll)
		}
	}
	escape := func(p *corev1.PodSpec) { p.HostPID = true }
	mine150m := `{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"150m"}}}]}}}}`
	other := `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"example.com/other:1"}]}}}}`
	label := `{"metadata":{"labels":{"a":"b"}}}`
	applying := func(text string) string {
		return strings.Replace(text, "{", `{"metadata":{"labels":{"`+v1beta1.ApplyingLabel+`":"true"}},`, 1)
	}
	place := ` in the namespace "` + w.Namespace + `"`

	missing := installedPolicies(t)
	delete(missing, "warnings") // They refuse nothing.
	delete(missing, "warnings-target")
	for _, c := range []struct {
		policy, what string
		refused      func() error
		says         string
		accepted     func() error
	}{
		{"operator-deployments", "another image", patch(thief, web, other), "other fields of a container", patch(thief, web, mine150m)},
		{"operator-deployments", "creating", create(thief, testkit.Deployment(w.Namespace, "made")), "may only create and delete Deployments", create(thief, claiming(w.Namespace, "planned", planned.UID))},
		{"operator-deployments", "deleting", remove(thief, web), "may only create and delete Deployments", remove(thief, owned)},
		{"operator-deployments", "scaling, even with the right to do so", scale(thief, web), "", scale(env.Client, web)},
		{
			"operator-deployments", "access to the node", create(thief, claiming(w.Namespace, "gone", "invented", escape)), "pod-security.kubernetes.io/enforce=privileged",
			create(thief, claiming(privileged.Name, "gone", "invented", escape)),
		},
		{
			"operator-owned", "creating another image", create(thief, claiming(w.Namespace, "planned", planned.UID, func(p *corev1.PodSpec) { p.Containers[0].Image = "example.com/miner:1" })),
			"changes a container", create(thief, claiming(w.Namespace, "planned", planned.UID)),
		},
		{
			"operator-owned", "creating what no ScaledDeployment asks for", create(thief, claiming(unowned, "gone", "invented")), "failed to configure binding: no params found",
			create(thief, claiming(w.Namespace, "gone", "invented")),
		}, // The garbage collector deletes that.
		{"operator-owned", "changing the image", patch(thief, owned, applying(other)), "changes a container", patch(thief, owned, applying(`{"spec":{"replicas":2}}`))},
		{"operator-deployments", "replicas without the label", patch(thief, owned, `{"spec":{"replicas":2}}`), "fields outside of the pod template", patch(thief, owned, mine150m)},
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
		{"operator-scalers", "creating", create(thief, sizing("web", "Recommend")), "may only create and delete scalers", create(thief, ofPlanned)},
		{"operator-scalers", "deleting", remove(thief, mine), "may only create and delete scalers", remove(thief, scaler)},
		{"checkpoints", "what was learned", create(editor, checkpoint), "Only the operator writes checkpoints", create(env.Client, checkpoint)},
		{"checkpoints", "sizes of new pods", create(editor, sizes), "sizes of new pods", create(thief, sizes)},
		{
			"promotions", "promoting", patch(resizer, mine, `{"metadata":{"annotations":{"autoscaling.verticalscaler.io/promoted":"2026-01-01T00:00:00Z"}}}`),
			"Only the operator sets", patch(editor, mine, label),
		},
		{
			"users", "a Deployment that the user may not patch", create(editor, sizing("web", "Rollout")),
			`user "editor-of-` + w.Namespace + `" cannot patch resource "deployments" in API group "apps"` + place + `, name "web"`, create(patcher, sizing("web", "Rollout")),
		},
		{"users", "another Deployment than the user may patch", create(patcher, sizing("api", "Rollout")), `name "api"`, remove(editor, mine)},
		{"users", "resizing pods", create(team, sizing("web", "InPlace")), `cannot patch resource "pods/resize" in API group ""` + place, create(resizer, sizing("web", "InPlace"))},
		{"users", "a ScaledDeployment", create(editor, asking(w.Namespace, "new", "")), `cannot create resource "deployments" in API group "apps"` + place, create(team, asking(w.Namespace, "new", ""))},
		{"users", "a ScaledDeployment that resizes pods", create(team, asking(w.Namespace, "new", "InPlace")), `cannot patch resource "pods/resize"`, create(team, asking(w.Namespace, "new", "Recommend"))},
		{"users", "changing a ScaledDeployment", patch(editor, ours, `{"spec":{"replicas":4}}`), `cannot create resource "deployments"`, scale(editor, ours)},
		{"users-policies", "a ScalingPolicy", create(editor, fleet), `cannot patch resource "deployments"`, create(team, fleet)},
	} {
		delete(missing, c.policy)
		t.Run(c.policy+", "+c.what, func(t *testing.T) {
			learned(t, func() string {
				if err := c.refused(); err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'verticalscaler-"+c.policy+"'") || !strings.Contains(err.Error(), c.says) {
					return fmt.Sprintf("got %v, want a refusal of policy %s with %q", err, c.policy, c.says)
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

// Users restore, copy and update Deployments of ScaledDeployments without a ScaledDeployment in the namespace, also after the
// CRDs are gone. The operator does not.
func TestAUserRestoresADeploymentWithoutAScaledDeployment(t *testing.T) {
	t.Parallel()
	// A copy of the policy with a kind that the API server does not know: all other tests need the CRD.
	namespace, thief := env.Namespace(t), thief(t)
	installed := installedPolicies(t)["operator-owned"]
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "without-crd-" + namespace}, Spec: installed.Spec}
	policy.Spec.ParamKind.Kind = "Gone"
	policy.Spec.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	var bound admissionregistrationv1.ValidatingAdmissionPolicyBinding
	if err := env.Client.Get(t.Context(), client.ObjectKey{Name: installed.Name}, &bound); err != nil {
		t.Fatal(err)
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: policy.Name}, Spec: bound.Spec}
	binding.Spec.PolicyName = policy.Name
	for _, o := range []client.Object{policy, binding} {
		if err := env.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := env.Client.Delete(context.Background(), o); err != nil {
				t.Error(err)
			}
		})
	}
	if err := env.Client.Create(t.Context(), asking(namespace, "any", "")); err != nil { // for the policy that is installed
		t.Fatal(err)
	}
	for reason, namespace := range map[string]string{"no params found": env.Namespace(t), "failed to find resource referenced by paramKind": namespace} {
		t.Run(reason, func(t *testing.T) {
			applying, stored := claiming(namespace, "web", "gone"), claiming(namespace, "web", "gone")
			delete(stored.Labels, v1beta1.ApplyingLabel)
			refused := func(o client.Object, reason string) string {
				if err := thief.Create(t.Context(), copied(o), client.DryRunAll); err == nil || !strings.Contains(err.Error(), reason) {
					return fmt.Sprintf("the operator's request ends with %v", err)
				}
				return ""
			}
			learned(t, func() string { return refused(applying, reason) })
			if wrong := refused(stored, "verticalscaler-operator-deployments"); wrong != "" {
				t.Error(wrong)
			}
			if err := env.Client.Create(t.Context(), stored); err != nil {
				t.Fatalf("a user is refused to restore it: %v", err)
			}
			stored.Spec.Template.Spec.Containers[0].Image = "example.com/app:2"
			if err := env.Client.Update(t.Context(), stored); err != nil {
				t.Errorf("a user is refused to update it: %v", err)
			}
		})
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

// What the policies warn about is in test/admission.
func TestATenantIsWarnedOfImplausibleSpecs(t *testing.T) {
	t.Parallel()
	namespace := env.Namespace(t)
	if err := env.Client.Create(t.Context(), testkit.Deployment(namespace, "web")); err != nil {
		t.Fatal(err)
	}
	h := &heard{}
	config := rest.CopyConfig(env.Config)
	config.WarningHandler = h
	c, err := client.New(config, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		what, kind, spec string
		says             []string
	}{
		{
			"a Deployment's containers", "VerticalScaler", `{deploymentName: web, resourcePolicy: {containerPolicies: [{containerName: job}]}}`,
			[]string{"Deployment web has no container job in its template"},
		},
		{
			"cores for millicores", "VerticalScaler", `{deploymentName: web, resourcePolicy: {containerPolicies: [{containerName: app, minAllowed: {cpu: 400}}]}}`,
			[]string{"minAllowed.cpu 400 of container app. CPU is in cores"},
		},
		{"nothing", "VerticalScaler", `{deploymentName: web, resourcePolicy: {containerPolicies: [{containerName: app, minAllowed: {cpu: 100m}}]}}`, nil},
		{"no Deployment", "VerticalScaler", `{deploymentName: none, resourcePolicy: {containerPolicies: [{containerName: job}]}}`, nil},
	} {
		t.Run(tc.what, func(t *testing.T) {
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte("spec: "+tc.spec), &object.Object); err != nil {
				t.Fatal(err)
			}
			object.SetGroupVersionKind(v1beta1.GroupVersion.WithKind(tc.kind))
			object.SetNamespace(namespace)
			object.SetName("new")
			learned(t, func() string {
				if err := c.Create(t.Context(), copied(object), client.DryRunAll); err != nil {
					return err.Error()
				}
				got := h.taken()
				all := strings.Join(got, "\n")
				for _, words := range tc.says {
					if !strings.Contains(all, words) {
						return fmt.Sprintf("warned of %q, not %q", got, words)
					}
				}
				if len(got) != len(tc.says) {
					return fmt.Sprintf("warned of %q", got)
				}
				return ""
			})
		})
	}
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
			if err := thief.Create(t.Context(), review); err != nil {
				t.Fatal(err)
			}
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
	if err := env.Client.Get(w.t.Context(), w.Key(name), &o); err != nil {
		w.Fatal(err)
	}
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
	w.eventually(func() string {
		if now := w.stalled("agent"); !strings.HasPrefix(now, "True Rejected") || !strings.Contains(now, "pod-security.kubernetes.io/enforce=privileged") {
			return "Stalled is " + now
		}
		return ""
	})
}

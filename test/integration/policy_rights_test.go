// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// installRights installs the roles and admission policies of config/default and config/policies until the test ends. The
// administrator, who runs all other tests, passes the policies.
func installRights(t *testing.T) {
	t.Helper()
	for _, folder := range []string{"default", "policies"} {
		for _, object := range env.Rendered(t, filepath.Join(testkit.Root(), "config", folder)) {
			switch object.GetKind() {
			case "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
			default:
				continue
			}
			create(t, object)
			t.Cleanup(func() {
				if err := client.IgnoreNotFound(env.Client.Delete(context.Background(), object)); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// actor is a user of the API server whose warnings are recorded.
type actor struct {
	client.Client
	name string

	mu       sync.Mutex
	warnings []string
}

// actingAs is a client of that user. It has the group of all who are authenticated.
func actingAs(t *testing.T, name string) *actor {
	t.Helper()
	a := &actor{name: name}
	config := rest.CopyConfig(env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:authenticated"}}
	config.WarningHandler = a
	var err error
	if a.Client, err = client.New(config, client.Options{Scheme: env.Client.Scheme()}); err != nil {
		t.Fatal(err)
	}
	return a
}

// HandleWarningHeader implements rest.WarningHandler.
func (a *actor) HandleWarningHeader(_ int, _, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.warnings = append(a.warnings, text)
}

// heard returns the warnings of our policies since the last call.
func (a *actor) heard() (out []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, text := range a.warnings {
		if strings.Contains(text, "verticalscaler-warnings") {
			out = append(out, text)
		}
	}
	a.warnings = nil
	return out
}

// may binds a ClusterRole to the user: in a namespace, or in all for "".
func (a *actor) may(t *testing.T, role, namespace string) {
	t.Helper()
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: a.name}}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	var binding client.Object = &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "t-"}, RoleRef: ref, Subjects: subjects}
	if namespace == "" {
		binding = &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}, RoleRef: ref, Subjects: subjects}
	}
	create(t, binding)
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(env.Client.Delete(context.Background(), binding)); err != nil {
			t.Error(err)
		}
	})
}

// aRole is a ClusterRole of a test.
func aRole(t *testing.T, rules ...rbacv1.PolicyRule) string {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}, Rules: rules}
	create(t, role)
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(env.Client.Delete(context.Background(), role)); err != nil {
			t.Error(err)
		}
	})
	return role.Name
}

func ruleFor(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

// untilRefused waits until a policy refuses a dry run: the API server enforces a new policy with a delay.
func untilRefused(t *testing.T, policy, words string, try func() error) {
	t.Helper()
	testkit.Eventually(t, time.Minute, func() string {
		if err := try(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "'verticalscaler-"+policy+"'") || !strings.Contains(err.Error(), words) {
			return fmt.Sprintf("policy %s does not say %q yet: %v", policy, words, err)
		}
		return ""
	})
}

// untilAllowed waits until a dry run is accepted: the API server observes new rights with a delay.
func untilAllowed(t *testing.T, try func() error) {
	t.Helper()
	testkit.Eventually(t, time.Minute, func() string {
		if err := try(); err != nil {
			return err.Error()
		}
		return ""
	})
}

// refusedBy fails unless the policy refuses with these words, or nothing does if there are none.
func refusedBy(t *testing.T, err error, policy, words string) {
	t.Helper()
	switch {
	case words == "" && err != nil:
		t.Errorf("refused: %v", err)
	case words != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "'verticalscaler-"+policy+"'") || !strings.Contains(err.Error(), words)):
		t.Errorf("got %v, want a refusal of policy %s with %q", err, policy, words)
	}
}

func withModes(start, template v1beta1.UpdateMode) func(*v1beta1.PolicyRules) {
	return func(r *v1beta1.PolicyRules) { r.Rollout.Start, r.Template.UpdatePolicy.UpdateMode = start, template }
}

// A tenant's policy does nothing that the tenant may not do by hand.
func TestATenantsPolicyDoesWhatTheTenantMayDo(t *testing.T) {
	installRights(t)
	namespace := env.Namespace(t)
	tenant := actingAs(t, "tenant-of-"+namespace)
	tenant.may(t, "verticalscaler-editor", namespace)
	policy := func(change func(*v1beta1.PolicyRules)) *v1beta1.ScalingPolicy {
		return policyOf(namespace, "fleet", func(p *v1beta1.ScalingPolicy) { change(&p.Spec.PolicyRules) })
	}
	tries := func(change func(*v1beta1.PolicyRules)) func() error {
		return func() error { return tenant.Create(t.Context(), policy(change), client.DryRunAll) }
	}
	const users = "users-policies"
	where := ` in the namespace "` + namespace + `"`

	// One Deployment by name is not enough for a policy that may select others.
	byName := ruleFor("apps", []string{"deployments"}, "patch")
	byName.ResourceNames = []string{"web"}
	tenant.may(t, aRole(t, byName), namespace)
	untilAllowed(t, func() error { // The right on one Deployment is observed.
		scaler := testkit.Scaler(namespace, "web", "web")
		scaler.Spec.UpdatePolicy.UpdateMode = v1beta1.UpdateModeRecommend
		return tenant.Create(t.Context(), scaler, client.DryRunAll)
	})
	untilRefused(t, users, `a ScalingPolicy changes the Deployments that it selects: user "`+tenant.name+`" cannot patch resource "deployments" in API group "apps"`+where,
		tries(withModes("Recommend", "Recommend")))

	tenant.may(t, "system:aggregate-to-edit", namespace)
	untilAllowed(t, tries(withModes("Recommend", "Recommend")))
	const resize = `with updateMode InPlace in its template or in rollout.start resizes running pods`
	for name, c := range map[string]struct {
		change func(*v1beta1.PolicyRules)
		says   string
	}{
		"all modes by default":          {func(r *v1beta1.PolicyRules) { r.Priority = 1 }, resize},
		"resizing after a promotion":    {withModes("Recommend", "InPlace"), resize + `: user "` + tenant.name + `" cannot patch resource "pods/resize" in API group ""` + where},
		"resizing at the start":         {withModes("InPlace", "Rollout"), resize},
		"rolling out after a promotion": {withModes("Recommend", "Rollout"), ""},
		"new pods":                      {withModes("Initial", "Initial"), ""},
		"suspended":                     {func(r *v1beta1.PolicyRules) { r.Template.Suspend = true }, ""},
	} {
		t.Run(name, func(t *testing.T) { refusedBy(t, tries(c.change)(), users, c.says) })
	}

	stored := policy(withModes("Recommend", "Rollout"))
	if err := tenant.Create(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	patch := func(text string) error {
		return tenant.Patch(t.Context(), stored.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)), client.DryRunAll)
	}
	refusedBy(t, patch(`{"spec":{"template":{"updatePolicy":{"updateMode":"InPlace"}}}}`), users, resize)
	refusedBy(t, patch(`{"spec":{"rollout":{"start":"InPlace"}}}`), users, resize)
	refusedBy(t, patch(`{"spec":{"template":null}}`), users, resize)
	refusedBy(t, patch(`{"metadata":{"annotations":{"autoscaling.verticalscaler.io/paused":""}}}`), "", "")
	tenant.may(t, "verticalscaler-resizer", namespace)
	untilAllowed(t, func() error { return patch(`{"spec":{"rollout":{"start":"InPlace"}}}`) })

	t.Run("another namespace", func(t *testing.T) {
		if err := tenant.Create(t.Context(), policyOf(env.Namespace(t), "fleet"), client.DryRunAll); !apierrors.IsForbidden(err) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("all namespaces", func(t *testing.T) {
		// As a role of its own, by mistake.
		tenant.may(t, aRole(t, ruleFor(v1beta1.GroupVersion.Group, []string{"clusterscalingpolicies"}, "*")), "")
		everywhere := clusterPolicy(namespace, namespace, func(p *v1beta1.ClusterScalingPolicy) { withModes("Recommend", "InPlace")(&p.Spec.PolicyRules) })
		tries := func() error { return tenant.Create(t.Context(), everywhere.DeepCopy(), client.DryRunAll) }
		scalers := []string{"verticalscalers"}
		for _, step := range []struct {
			says string
			role string // that ends the refusal
		}{
			{`cannot create resource "verticalscalers"`, aRole(t, ruleFor(v1beta1.GroupVersion.Group, scalers, "create"))},
			{`cannot update resource "verticalscalers"`, aRole(t, ruleFor(v1beta1.GroupVersion.Group, scalers, "update"))},
			{`cannot delete resource "verticalscalers"`, aRole(t, ruleFor(v1beta1.GroupVersion.Group, scalers, "delete"))},
			{`cannot patch resource "deployments" in API group "apps" at the cluster scope`, aRole(t, ruleFor("apps", []string{"deployments"}, "patch"))},
			{`cannot patch resource "pods/resize" in API group "" at the cluster scope`, "verticalscaler-resizer"},
		} {
			untilRefused(t, users, step.says, tries)
			tenant.may(t, step.role, "")
		}
		untilAllowed(t, tries)
	})
	if err := tenant.Delete(t.Context(), stored); err != nil {
		t.Errorf("deleting: %v", err)
	}
}

// A tenant cannot promote scalers, and neither can an account of theirs that has the operator's name.
func TestATenantPromotesNoScaler(t *testing.T) {
	installRights(t)
	namespace := env.Namespace(t)
	stored := generatedBy(t, "of-a-policy", namespace, "web")
	create(t, stored)
	dev := actingAs(t, "dev-of-"+namespace)
	account := actingAs(t, "system:serviceaccount:"+namespace+":verticalscaler-operator")
	const promotion = `{"metadata":{"annotations":{"autoscaling.verticalscaler.io/promoted":"2026-01-01T00:00:00Z"}}}`
	const refusal = "Only the operator sets, changes and removes the annotations"
	patch := func(who *actor, text string) error {
		return who.Patch(t.Context(), stored.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)), client.DryRunAll)
	}
	for _, who := range []*actor{dev, account} {
		who.may(t, "verticalscaler-editor", namespace)
		untilRefused(t, "promotions", refusal, func() error { return patch(who, promotion) })
		untilRefused(t, "users", "a VerticalScaler changes its Deployment", func() error { // also if it says that a policy controls it
			forged := generatedBy(t, "invented", namespace, "api")
			forged.Spec.UpdatePolicy.UpdateMode = v1beta1.UpdateModeInPlace
			return who.Create(t.Context(), forged, client.DryRunAll)
		})
	}
	refusedBy(t, patch(dev, `{"metadata":{"annotations":{"autoscaling.verticalscaler.io/harmed":"2026-01-01T00:00:00Z"}}}`), "promotions", refusal)
	refusedBy(t, patch(dev, `{"metadata":{"annotations":{"autoscaling.verticalscaler.io/detached":""}}}`), "", "")
	if err := env.Client.Patch(t.Context(), stored.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(promotion))); err != nil {
		t.Fatalf("the administrator: %v", err)
	}
	refusedBy(t, patch(dev, `{"metadata":{"annotations":null}}`), "promotions", refusal)
	refusedBy(t, patch(dev, `{"metadata":{"labels":{"a":"b"}}}`), "", "")
	if err := dev.Delete(t.Context(), stored.DeepCopy()); err != nil {
		t.Errorf("deleting: %v", err)
	}
}

// generatedBy is what the operator creates for a policy of that UID.
func generatedBy(t *testing.T, uid types.UID, namespace, deployment string) *v1beta1.VerticalScaler {
	t.Helper()
	p := policyOf(namespace, "fleet", func(p *v1beta1.ScalingPolicy) { withModes("Recommend", "InPlace")(&p.Spec.PolicyRules) })
	p.UID = uid
	return readPolicy(t, p).Desired(&v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: deployment}})
}

func readPolicy(t *testing.T, p *v1beta1.ScalingPolicy) *fleet.Policy {
	t.Helper()
	read, err := fleet.Read(p)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// The token of the operator writes what a policy leads to, also without the rights on Deployments, and no more.
func TestAStolenTokenWritesOnlyTheScalersOfPolicies(t *testing.T) {
	installRights(t)
	// Only the rights for policies: the operator lacks those on Deployments.
	for _, role := range []string{"verticalscaler-manager-rollout", "verticalscaler-manager-scaled-deployment"} {
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role}}
		if err := env.Client.Delete(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
	}
	namespace := env.Namespace(t)
	thief := actingAs(t, "system:serviceaccount:"+testkit.System+":"+testkit.ServiceAccount)
	ofUser := testkit.Scaler(namespace, "mine", "mine")
	create(t, ofUser)
	stored := policyOf(namespace, "fleet", func(p *v1beta1.ScalingPolicy) { withModes("Recommend", "InPlace")(&p.Spec.PolicyRules) })
	create(t, stored)
	policy := readPolicy(t, stored)
	other := clusterPolicy(namespace, namespace)
	create(t, other)
	t.Cleanup(func() { deleteObjectAfter(t, other) })

	const scalers = "operator-scalers"
	untilRefused(t, scalers, "must have the name of its Deployment", func() error {
		s := generatedBy(t, stored.UID, namespace, "web")
		s.Spec.DeploymentName = "api"
		return thief.Create(t.Context(), s, client.DryRunAll)
	})
	orByUsers := func(what string, err error, says string) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "'verticalscaler-users'") && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	dev := actingAs(t, "dev-of-"+namespace)
	dev.may(t, "verticalscaler-editor", namespace)
	untilRefused(t, "users", "cannot patch resource", func() error { // What the operator is not asked for.
		return dev.Create(t.Context(), generatedBy(t, stored.UID, namespace, "web"), client.DryRunAll)
	})
	wanted := func(changes ...func(*v1beta1.VerticalScaler)) *v1beta1.VerticalScaler {
		s := policy.Desired(&v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}})
		for _, change := range changes {
			change(s)
		}
		return s
	}
	for name, c := range map[string]struct {
		change func(*v1beta1.VerticalScaler)
		says   string
	}{
		"for another Deployment": {func(s *v1beta1.VerticalScaler) { s.Spec.DeploymentName = "api" }, "must have the name of its Deployment"},
		"with another label":     {func(s *v1beta1.VerticalScaler) { s.Labels[v1beta1.PolicyLabel] = "other" }, "must label the scaler of a policy"},
		"that is detached":       {annotated(v1beta1.DetachedAnnotation, ""), "must be deleted with the policy"},
		"that stays":             {func(s *v1beta1.VerticalScaler) { s.Finalizers = []string{"example.com/a"} }, "must be deleted with the policy"},
		"as asked for":           {func(*v1beta1.VerticalScaler) {}, ""},
	} {
		t.Run("creating one "+name, func(t *testing.T) {
			refusedBy(t, thief.Create(t.Context(), wanted(c.change), client.DryRunAll), scalers, c.says)
		})
	}
	orByUsers("creating one of no policy", thief.Create(t.Context(), testkit.Scaler(namespace, "made", "web"), client.DryRunAll), "may only create and delete scalers that")
	scaler := wanted()
	if err := thief.Create(t.Context(), scaler); err != nil {
		t.Fatal(err)
	}
	updates := func(what string, s *v1beta1.VerticalScaler, says string) {
		t.Helper()
		t.Run(what, func(t *testing.T) { refusedBy(t, thief.Update(t.Context(), s, client.DryRunAll), scalers, says) })
	}
	changed := func(change func(*v1beta1.VerticalScaler)) *v1beta1.VerticalScaler {
		s := scaler.DeepCopy()
		change(s)
		return s
	}
	updates("promoting", policy.Promoted(scaler, time.Now()), "")
	updates("naming another Deployment", changed(func(s *v1beta1.VerticalScaler) { s.Spec.DeploymentName = "api" }), "must have the name of its Deployment")
	updates("pausing", changed(annotated("autoscaling.verticalscaler.io/paused", "")), "may only change the spec")
	updates("detaching by itself", changed(annotated(v1beta1.DetachedAnnotation, "")), "may only change the spec")
	updates("releasing it", fleet.Released(scaler), "may only give the scaler of a policy to another policy")
	// The account lacks rights on Deployments, so two policies refuse these. The API server names one of them.
	suspended := ofUser.DeepCopy()
	suspended.Spec.Suspend = true
	orByUsers("changing a user's", thief.Update(t.Context(), suspended, client.DryRunAll), "may only change its own finalizer")
	orByUsers("taking a user's", thief.Update(t.Context(), policy.Desired(ofUser), client.DryRunAll), "may only change its own finalizer")
	refusedBy(t, thief.Delete(t.Context(), ofUser.DeepCopy(), client.DryRunAll), scalers, "may only create and delete")

	// From here on, the operator does its work.
	cluster, err := fleet.ReadCluster(other, testkit.System)
	if err != nil {
		t.Fatal(err)
	}
	for _, next := range []func(*v1beta1.VerticalScaler) *v1beta1.VerticalScaler{
		func(s *v1beta1.VerticalScaler) *v1beta1.VerticalScaler { return policy.Promoted(s, time.Now()) },
		func(s *v1beta1.VerticalScaler) *v1beta1.VerticalScaler {
			return fleet.Marked(s, v1beta1.HarmedAnnotation, time.Now())
		},
		cluster.Desired,
		policy.Desired,
	} {
		scaler = next(scaler)
		if err := thief.Update(t.Context(), scaler); err != nil {
			t.Fatal(err)
		}
	}
	if scaler.Spec.UpdatePolicy.UpdateMode != v1beta1.UpdateModeInPlace {
		t.Errorf("the scaler is in mode %s", scaler.Spec.UpdatePolicy.UpdateMode)
	}
	// A user's edit and a finalizer that was set before the edit is reverted.
	patchObject(t, &v1beta1.VerticalScaler{}, client.ObjectKeyFromObject(scaler), `{"spec":{"deploymentName":"api"},"metadata":{"finalizers":["autoscaling.verticalscaler.io/restore-original-resources"]}}`)
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(scaler), scaler); err != nil {
		t.Fatal(err)
	}
	scaler.Finalizers = nil
	if err := thief.Update(t.Context(), scaler); err != nil {
		t.Errorf("removing the finalizer: %v", err)
	}
	scaler = policy.Desired(scaler)
	if err := thief.Update(t.Context(), scaler); err != nil {
		t.Errorf("reverting the edit: %v", err)
	}
	patchObject(t, &v1beta1.VerticalScaler{}, client.ObjectKeyFromObject(scaler), `{"metadata":{"annotations":{"autoscaling.verticalscaler.io/detached":"yes"},"labels":{"team":"shop"}}}`)
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(scaler), scaler); err != nil {
		t.Fatal(err)
	}
	updates("changing one that is detached", changed(func(s *v1beta1.VerticalScaler) { s.Spec.Suspend = true }), "may not change the spec of a scaler with the annotation")
	scaler = fleet.Released(scaler)
	if err := thief.Update(t.Context(), scaler); err != nil {
		t.Fatalf("releasing: %v", err)
	}
	if fleet.IsGenerated(scaler) || len(scaler.OwnerReferences) > 0 || scaler.Labels["team"] != "shop" {
		t.Errorf("it is still %+v", scaler.ObjectMeta)
	}
	orByUsers("changing what was released", thief.Update(t.Context(), changed(func(s *v1beta1.VerticalScaler) { s.Spec.Suspend = true }), client.DryRunAll), "may only change its own finalizer")
	second := wanted()
	second.Name, second.Spec.DeploymentName = "api", "api"
	if err := thief.Create(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if err := thief.Delete(t.Context(), second, client.Preconditions{UID: ptr.To(second.UID), ResourceVersion: ptr.To(second.ResourceVersion)}); err != nil {
		t.Errorf("deleting: %v", err)
	}
}

// annotated sets an annotation.
func annotated(key, value string) func(*v1beta1.VerticalScaler) {
	return func(s *v1beta1.VerticalScaler) { metav1.SetMetaDataAnnotation(&s.ObjectMeta, key, value) }
}

// deleteObjectAfter deletes an object at the end of a test.
func deleteObjectAfter(t *testing.T, object client.Object) {
	t.Helper()
	if err := client.IgnoreNotFound(env.Client.Delete(context.Background(), object)); err != nil {
		t.Error(err)
	}
}

// The API server warns about policies that reach far or act at once, and stores them.
func TestAPolicyThatSelectsEverythingIsWarnedAbout(t *testing.T) {
	installRights(t)
	admin := actingAs(t, "admin-of-policies")
	admin.may(t, "cluster-admin", "")
	create := func(p client.Object) []string {
		t.Helper()
		if err := admin.Create(t.Context(), p, client.DryRunAll); err != nil {
			t.Fatal(err)
		}
		return admin.heard()
	}
	everything := &v1beta1.ClusterScalingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "everything"}}
	everything.Spec.NamespaceSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpExists}}
	untilAllowed(t, func() error { return admin.Create(t.Context(), everything.DeepCopy(), client.DryRunAll) })
	testkit.Eventually(t, time.Minute, func() string { // The API server enforces a new policy with a delay.
		if got := create(everything.DeepCopy()); len(got) == 0 {
			return "there is no warning yet"
		}
		return ""
	})
	const all = "selects all Deployments of all namespaces, except system namespaces. See what it would do with: kubectl vscaler adopt"
	const atOnce = "rollout.start is the updateMode of the template, InPlace: all scalers change pods at once"
	for name, c := range map[string]struct {
		policy client.Object
		says   []string
	}{
		"everything": {everything.DeepCopy(), []string{all}},
		"everything at once": {func() client.Object {
			p := everything.DeepCopy()
			withModes("InPlace", "InPlace")(&p.Spec.PolicyRules)
			return p
		}(), []string{all, atOnce}},
		"some namespaces":     {clusterPolicy("some", "a"), nil},
		"a namespace at once": {policyOf("default", "at-once", func(p *v1beta1.ScalingPolicy) { p.Spec.Rollout.Start = v1beta1.UpdateModeInPlace }), []string{atOnce}},
		"bounds": {policyOf("default", "bounds", func(p *v1beta1.ScalingPolicy) {
			p.Spec.Template.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{{
				ContainerName: "*", MinAllowed: &v1beta1.ResourceBounds{CPU: ptr.To(resource.MustParse("400"))},
			}}}
		}), []string{"minAllowed.cpu 400 of container *. CPU is in cores"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := create(c.policy)
			if len(got) != len(c.says) {
				t.Fatalf("warned of %q, want %q", got, c.says)
			}
			for _, words := range c.says {
				if !slices.ContainsFunc(got, func(text string) bool { return strings.Contains(text, words) }) {
					t.Errorf("warned of %q, not %q", got, words)
				}
			}
		})
	}
}

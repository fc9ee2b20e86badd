// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// thief is a client with the operator's own token, and all rights of the operator.
func (w *fixture) thief() client.Client {
	w.Helper()
	account := env.Account(w.T, testkit.System, testkit.ServiceAccount)
	c, err := client.New(account.Config, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		w.Fatal(err)
	}
	return c
}

// refused fails unless the error is the policy's rejection with these words.
func refused(t *testing.T, err error, policy string, words ...string) {
	t.Helper()
	wrong := !apierrors.IsForbidden(err)
	for _, word := range append(words, "ValidatingAdmissionPolicy 'verticalscaler-"+policy+"'") {
		wrong = wrong || !strings.Contains(err.Error(), word)
	}
	if wrong {
		t.Errorf("got %v, want a refusal of policy %s with %q", err, policy, words)
	}
}

// untilRejectedBy waits until a policy rejects the request, which must change nothing: the API
// server enforces a new policy with a delay.
func (w *fixture) untilRejectedBy(policy string, try func() error) {
	w.Helper()
	w.eventually(func() string {
		if err := try(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "verticalscaler-"+policy) {
			return fmt.Sprintf("policy %s is not enforced yet: %v", policy, err)
		}
		return ""
	})
}

func TestAStolenTokenChangesNothingOfADeploymentButSizes(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web", twoContainers)
	thief := w.thief()
	w.untilRejectedBy("operator-deployments", func() error {
		return thief.Create(t.Context(), testkit.Deployment(w.namespace, "made"), client.DryRunAll)
	})

	before := w.deployment("web")
	container := func(change func(*corev1.Container)) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) { change(&d.Spec.Template.Spec.Containers[0]) }
	}
	pod := func(change func(*corev1.PodSpec)) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) { change(&d.Spec.Template.Spec) }
	}
	for name, c := range map[string]struct {
		change func(*appsv1.Deployment)
		says   string
	}{
		"the image":           {container(func(c *corev1.Container) { c.Image = "example.com/other:1" }), "other fields of a container"},
		"the command":         {container(func(c *corev1.Container) { c.Command = []string{"sh"} }), "other fields of a container"},
		"the environment":     {container(func(c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "A", Value: "b"}} }), "other fields of a container"},
		"the resize policy":   {container(func(c *corev1.Container) { c.ResizePolicy = restartAlways }), "other fields of a container"},
		"a security context":  {container(func(c *corev1.Container) { c.SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)} }), "other fields of a container"},
		"a device":            {container(func(c *corev1.Container) { device(c) }), "another resource"},
		"storage":             {container(func(c *corev1.Container) { c.Resources.Requests["ephemeral-storage"] = resource.MustParse("1Gi") }), "another resource"},
		"another container":   {pod(func(p *corev1.PodSpec) { p.Containers = append(p.Containers, testkit.Container("more")) }), "other fields of a container"},
		"a removed container": {pod(func(p *corev1.PodSpec) { p.Containers = p.Containers[:1] }), "other fields of a container"},
		"containers' order":   {pod(func(p *corev1.PodSpec) { p.Containers[0], p.Containers[1] = p.Containers[1], p.Containers[0] }), "other fields of a container"},
		"an init container":   {pod(func(p *corev1.PodSpec) { p.InitContainers = []corev1.Container{testkit.Container("init")} }), "other fields of the pod template"},
		"a volume":            {pod(func(p *corev1.PodSpec) { p.Volumes = []corev1.Volume{{Name: "v"}} }), "other fields of the pod template"},
		"the service account": {pod(func(p *corev1.PodSpec) { p.ServiceAccountName = "other" }), "other fields of the pod template"},
		"the host's network":  {pod(func(p *corev1.PodSpec) { p.HostNetwork = true }), "other fields of the pod template"},
		"the pod's resources": {pod(func(p *corev1.PodSpec) {
			p.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("3")}}
		}), "other fields of the pod template"},
		"the pods' labels":      {func(d *appsv1.Deployment) { d.Spec.Template.Labels["b"] = "c" }, "other fields of the pod template"},
		"the pods' annotations": {func(d *appsv1.Deployment) { d.Spec.Template.Annotations = map[string]string{"a": "b"} }, "other fields of the pod template"},
		"replicas":              {func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(0)) }, "outside of the pod template"},
		"paused":                {func(d *appsv1.Deployment) { d.Spec.Paused = true }, "outside of the pod template"},
		"the strategy":          {func(d *appsv1.Deployment) { d.Spec.Strategy = appsv1.DeploymentStrategy{Type: "Recreate"} }, "outside of the pod template"},
		"labels":                {func(d *appsv1.Deployment) { d.Labels = map[string]string{"a": "b"} }, "its metadata"},
		"annotations":           {func(d *appsv1.Deployment) { d.Annotations["a"] = "b" }, "its metadata"},
		"finalizers":            {func(d *appsv1.Deployment) { d.Finalizers = []string{"example.com/a"} }, "its metadata"},
		"an owner":              {func(d *appsv1.Deployment) { d.OwnerReferences = []metav1.OwnerReference{someOwner("x")} }, "its metadata"},
		"a size, and an image": {container(func(c *corev1.Container) {
			c.Resources.Requests["cpu"], c.Image = resource.MustParse("150m"), "example.com/other:1"
		}), "other fields of a container"},
	} {
		t.Run(name, func(t *testing.T) {
			after := before.DeepCopy()
			c.change(after)
			refused(t, thief.Patch(t.Context(), after, client.StrategicMergeFrom(before)), "operator-deployments", c.says)
		})
	}
	t.Run("creating a Deployment", func(t *testing.T) {
		refused(t, thief.Create(t.Context(), testkit.Deployment(w.namespace, "made")), "operator-deployments", "may only create and delete Deployments")
		other := testkit.Deployment(w.namespace, "made")
		other.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(before, appsv1.SchemeGroupVersion.WithKind("ScaledDeployment"))}
		refused(t, thief.Create(t.Context(), other), "operator-deployments", "may only create and delete Deployments")
		owner := someOwner("x")
		owner.Controller = nil
		other.OwnerReferences = []metav1.OwnerReference{owner}
		refused(t, thief.Create(t.Context(), other), "operator-deployments", "may only create and delete Deployments")
	})
	t.Run("deleting a Deployment", func(t *testing.T) {
		refused(t, thief.Delete(t.Context(), before.DeepCopy()), "operator-deployments", "may only create and delete Deployments")
	})
	t.Run("scaling a Deployment, even with the right to do so", func(t *testing.T) {
		w := w.in(t)
		w.grant(rbacv1.Subject{Kind: "ServiceAccount", Namespace: testkit.System, Name: testkit.ServiceAccount},
			rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments/scale"}, Verbs: []string{"update"}})
		w.untilRejectedBy("operator-deployments", func() error {
			scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 0}}
			return thief.SubResource("scale").Update(t.Context(), before.DeepCopy(), client.WithSubResourceBody(scale))
		})
	})
	if now := w.deployment("web"); !equality.Semantic.DeepEqual(before.Spec, now.Spec) || now.UID != before.UID {
		t.Errorf("the spec was\n%+v\nand is\n%+v", before.Spec, now.Spec)
	}
	t.Run("setting only sizes", func(t *testing.T) {
		after := before.DeepCopy()
		container(func(c *corev1.Container) {
			c.Resources.Requests["cpu"], c.Resources.Requests["memory"] = resource.MustParse("150m"), resource.MustParse("150Mi")
			delete(c.Resources.Limits, "cpu")
			c.Resources.Limits["memory"] = resource.MustParse("300Mi")
		})(after)
		if err := thief.Patch(t.Context(), after, client.StrategicMergeFrom(before)); err != nil {
			t.Error(err)
		}
	})
}

var restartAlways = []corev1.ContainerResizePolicy{
	{ResourceName: "cpu", RestartPolicy: "RestartContainer"}, {ResourceName: "memory", RestartPolicy: "RestartContainer"},
}

func device(c *corev1.Container) {
	c.Resources.Requests["example.com/device"], c.Resources.Limits["example.com/device"] = resource.MustParse("1"), resource.MustParse("1")
}

// someOwner is a controller reference to a ScaledDeployment with that UID.
func someOwner(uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: "autoscaling.verticalscaler.io/v1beta1", Kind: "ScaledDeployment", Name: "ours", UID: uid, Controller: ptr.To(true),
	}
}

// The operator may write what a ScaledDeployment controls, but not change its controller.
func TestAStolenTokenCannotTakeADeploymentFromItsOwner(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.own("ours", scaled("InPlace"))
	w.operator.Stop(t) // it would revert the changes below
	thief := w.thief()
	d, s := w.deployment("ours"), w.scaler("ours")
	for name, references := range map[string][]metav1.OwnerReference{
		"none":                            nil,
		"another":                         {func() metav1.OwnerReference { r := someOwner("x"); r.Name = "another"; return r }()},
		"the same, not as the controller": {func() metav1.OwnerReference { r := d.OwnerReferences[0]; r.Controller = nil; return r }()},
		"one of another API's kinds":      {func() metav1.OwnerReference { r := d.OwnerReferences[0]; r.APIVersion = "example.com/v1"; return r }()},
	} {
		for policy, before := range map[string]client.Object{"operator-deployments": d, "operator-scalers": s} {
			after, _ := before.DeepCopyObject().(client.Object)
			after.SetOwnerReferences(references)
			// A merge patch replaces lists as a whole.
			err := thief.Patch(t.Context(), after, client.MergeFrom(before))
			t.Run(name+", "+policy, func(t *testing.T) { refused(t, err, policy, "may not change the owner") })
		}
	}
	after := d.DeepCopy()
	after.Spec.Template.Spec.Containers[0].Image = "example.com/other:1"
	refused(t, thief.Patch(t.Context(), after, client.MergeFrom(d)), "operator-owned", "changes a container")
	after = d.DeepCopy()
	after.Spec.Replicas = ptr.To(int32(1))
	if err := thief.Patch(t.Context(), after, client.MergeFrom(d)); err != nil {
		t.Errorf("the operator cannot write what a ScaledDeployment controls: %v", err)
	}
}

func TestAStolenTokenChangesNothingOfAPodButSizes(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web", func(d *appsv1.Deployment) {
		sidecar := testkit.Container("sidecar")
		sidecar.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		d.Spec.Template.Spec.InitContainers = []corev1.Container{sidecar, testkit.Container("init")}
	})
	thief := w.thief()
	before := w.pods("web")[0]
	// The API server refuses to resize an init container where the node does not support it.
	w.declareAll(before.Spec.NodeName)
	at := func(p *corev1.Pod, name string) corev1.ResourceList {
		i := slices.IndexFunc(p.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name })
		return p.Spec.InitContainers[i].Resources.Requests
	}
	resize := func(change func(*corev1.Pod), options ...client.SubResourcePatchOption) (*corev1.Pod, error) {
		after := before.DeepCopy()
		change(after)
		err := thief.SubResource("resize").Patch(t.Context(), after, client.StrategicMergeFrom(&before), options...)
		return after, err
	}
	init := func(p *corev1.Pod) { at(p, "init")["cpu"] = resource.MustParse("150m") }
	w.untilRejectedBy("operator-pods", func() error {
		_, err := resize(init, client.DryRunAll)
		return err
	})
	_, err := resize(func(p *corev1.Pod) { at(p, "sidecar")["cpu"] = resource.MustParse("150m") }, client.DryRunAll)
	if err != nil {
		t.Errorf("the operator cannot size a native sidecar: %v", err)
	}
	_, err = resize(func(p *corev1.Pod) {
		init(p)
		p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("150m")
	})
	refused(t, err, "operator-pods", "other fields")
	// Other users may do that.
	after := before.DeepCopy()
	init(after)
	if err := env.Client.SubResource("resize").Patch(t.Context(), after, client.StrategicMergeFrom(&before), client.DryRunAll); err != nil {
		t.Error(err)
	}
	// The API server itself rejects this for every user.
	if _, err = resize(func(p *corev1.Pod) { p.Spec.Containers[0].ResizePolicy = restartAlways }); !apierrors.IsInvalid(err) {
		t.Errorf("changing the resize policy: %v", err)
	}

	// The API server drops the other changes before admission.
	after, err = resize(func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("150m")
		p.Spec.Containers[0].Image = "example.com/other:1"
		p.Spec.ActiveDeadlineSeconds = ptr.To(int64(1))
		p.Labels["app"] = "other"
		p.Annotations = map[string]string{"a": "b"}
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := after.Spec.Containers[0].Resources.Requests.Cpu().String(); got != "150m" {
		t.Errorf("the pod has %s of CPU", got)
	}
	if after.Spec.Containers[0].Image != before.Spec.Containers[0].Image || after.Spec.ActiveDeadlineSeconds != nil ||
		!equality.Semantic.DeepEqual(after.Labels, before.Labels) || after.Annotations["a"] != "" {
		t.Errorf("the resize has changed something else: %+v", after)
	}
}

func TestAStolenTokenChangesNothingOfAScalerButItsFinalizer(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.operator.Stop(t)
	w.scale("web")
	thief := w.thief()
	before := w.scaler("web")
	w.untilRejectedBy("operator-scalers", func() error {
		return thief.Create(t.Context(), testkit.Scaler(w.namespace, "made", "web"), client.DryRunAll)
	})
	for name, change := range map[string]func(*v1beta1.VerticalScaler){
		"the target":          func(s *v1beta1.VerticalScaler) { s.Spec.DeploymentName = "other" },
		"the mode":            func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.UpdateMode = "Rollout" },
		"labels":              func(s *v1beta1.VerticalScaler) { s.Labels = map[string]string{"a": "b"} },
		"an owner":            func(s *v1beta1.VerticalScaler) { s.OwnerReferences = []metav1.OwnerReference{someOwner("x")} },
		"another's finalizer": func(s *v1beta1.VerticalScaler) { s.Finalizers = []string{"example.com/a"} },
	} {
		t.Run(name, func(t *testing.T) {
			after := before.DeepCopy()
			change(after)
			refused(t, thief.Patch(t.Context(), after, client.MergeFrom(before)), "operator-scalers", "may only change its own finalizer")
		})
	}
	refused(t, thief.Create(t.Context(), testkit.Scaler(w.namespace, "made", "web")), "operator-scalers", "may only create and delete scalers")
	refused(t, thief.Delete(t.Context(), before.DeepCopy()), "operator-scalers", "may only create and delete scalers")
	for _, finalizers := range [][]string{{"autoscaling.verticalscaler.io/restore-original-resources"}, nil} {
		after := w.scaler("web")
		now := after.DeepCopy()
		after.Finalizers = finalizers
		if err := thief.Patch(t.Context(), after, client.MergeFrom(now)); err != nil {
			t.Errorf("the operator cannot set its finalizers to %v: %v", finalizers, err)
		}
	}
}

// A stolen token must not be enough to remove the policies.
func TestTheOperatorHasNoRightOnAdmissionPolicies(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	thief := w.thief()
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

// The API server type-checks the expressions against the kinds that it serves.
func TestAdmissionPoliciesTypeCheck(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	for _, name := range []string{
		"checkpoints", "operator-deployments", "operator-evictions", "operator-objects", "operator-owned", "operator-pods", "operator-scalers", "promotions", "users", "users-policies", "warnings", "warnings-target",
	} {
		w.eventually(func() string {
			var p admissionregistrationv1.ValidatingAdmissionPolicy
			if err := env.Client.Get(t.Context(), types.NamespacedName{Name: "verticalscaler-" + name}, &p); err != nil {
				return err.Error()
			}
			if p.Status.ObservedGeneration != p.Generation || p.Status.TypeChecking == nil {
				return "policy " + name + " is not checked yet"
			}
			for _, warning := range p.Status.TypeChecking.ExpressionWarnings {
				t.Errorf("policy %s, %s: %s", name, warning.FieldRef, warning.Warning)
			}
			return ""
		})
	}
}

// grant grants rights in the test's namespace until the test ends.
func (w *fixture) grant(to rbacv1.Subject, rules ...rbacv1.PolicyRule) (withdraw func()) {
	w.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, GenerateName: "t-"}, Rules: rules}
	w.create(role)
	if to.Kind == rbacv1.UserKind {
		to.APIGroup = rbacv1.GroupName
	}
	w.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, GenerateName: "t-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{to},
	})
	return func() {
		w.Helper()
		w.remove(role)
	}
}

// user is a client with the rights that a test grants it in its namespace.
type user struct {
	*fixture
	client.Client
	subject rbacv1.Subject
}

// user may do everything with scalers and ScaledDeployments, and nothing with Deployments.
func (w *fixture) user(name string) user {
	w.Helper()
	u := w.stranger(name)
	w.grant(u.subject, rbacv1.PolicyRule{
		APIGroups: []string{"autoscaling.verticalscaler.io"}, Verbs: []string{"*"},
		Resources: []string{"verticalscalers", "scaleddeployments", "scaleddeployments/scale"},
	})
	return u
}

// stranger has no rights in the test's namespace.
func (w *fixture) stranger(name string) user {
	w.Helper()
	config := rest.CopyConfig(env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:authenticated"}}
	c, err := client.New(config, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		w.Fatal(err)
	}
	return user{w, c, rbacv1.Subject{Kind: rbacv1.UserKind, Name: name}}
}

// mayResize grants the user the right to resize pods, as the ClusterRole verticalscaler-resizer
// does.
func (u user) mayResize() (withdraw func()) {
	u.Helper()
	return u.isBoundTo("verticalscaler-resizer")
}

// isBoundTo binds a ClusterRole to the user, in the test's namespace.
func (u user) isBoundTo(role string) (withdraw func()) {
	u.Helper()
	subject := u.subject
	subject.APIGroup = rbacv1.GroupName
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: u.namespace, GenerateName: "t-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{subject},
	}
	u.create(binding)
	return func() {
		u.Helper()
		u.remove(binding)
	}
}

// may grants the user a right on Deployments, on those names or on all.
func (u user) may(verb string, names ...string) (withdraw func()) {
	u.Helper()
	return u.grant(u.subject, rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{verb}, ResourceNames: names})
}

// tries retries until the request is allowed: the API server observes new rights with a
// delay.
func (u user) tries(what string, try func() error) {
	u.Helper()
	u.eventually(func() string {
		if err := try(); err != nil {
			return what + ": " + err.Error()
		}
		return ""
	})
}

func TestUsersSizeOnlyDeploymentsThatTheyMayPatch(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	u := w.user("dev-of-" + w.namespace)
	scalerOf := func(deployment string) *v1beta1.VerticalScaler {
		s := testkit.Scaler(w.namespace, "mine", deployment)
		s.Spec.UpdatePolicy.UpdateMode = "Rollout"
		return s
	}
	w.untilRejectedBy("users", func() error { return u.Create(t.Context(), scalerOf("web"), client.DryRunAll) })
	refused(t, u.Create(t.Context(), scalerOf("web")), "users",
		`user "dev-of-`+w.namespace+`" cannot patch resource "deployments" in API group "apps" in the namespace "`+w.namespace+`", name "web"`)

	withdraw := u.may("patch", "web")
	u.tries("making a scaler of web", func() error { return u.Create(t.Context(), scalerOf("web")) })
	refused(t, u.Create(t.Context(), testkit.Scaler(w.namespace, "yours", "api")), "users", `cannot patch`, `name "api"`)
	patch := func(text string, options ...client.PatchOption) error {
		return u.Patch(t.Context(), scalerOf(""), client.RawPatch(types.MergePatchType, []byte(text)), options...)
	}
	refused(t, patch(`{"spec":{"deploymentName":"api"}}`), "users", `cannot patch`, `name "api"`)
	if err := patch(`{"spec":{"updatePolicy":{"updateMode":"Recommend"}}}`); err != nil {
		t.Errorf("changing the mode: %v", err)
	}

	// Without the right, existing objects can be labelled and deleted, but not changed.
	withdraw()
	// A patch that gets through before the policy knows would leave nothing to refuse: so these
	// are dry runs.
	w.untilRejectedBy("users", func() error { return patch(`{"spec":{"updatePolicy":{"updateMode":"Initial"}}}`, client.DryRunAll) })
	refused(t, patch(`{"spec":{"updatePolicy":{"updateMode":"Initial"}}}`), "users", `cannot patch`, `name "web"`)
	if err := patch(`{"metadata":{"labels":{"a":"b"}}}`); err != nil {
		t.Errorf("setting a label: %v", err)
	}
	if err := u.Delete(t.Context(), scalerOf("")); err != nil {
		t.Errorf("deleting: %v", err)
	}
}

func TestUsersOwnOnlyDeploymentsThatTheyMayCreate(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	u := w.user("dev-of-" + w.namespace)
	w.untilRejectedBy("users", func() error { return u.Create(t.Context(), w.newOwner("mine"), client.DryRunAll) })
	withdraw := u.may("patch")
	other := testkit.Scaler(w.namespace, "other", "other")
	other.Spec.UpdatePolicy.UpdateMode = "Recommend"
	u.tries("making a scaler", func() error { return u.Create(t.Context(), other) })
	refused(t, u.Create(t.Context(), w.newOwner("mine")), "users",
		`user "dev-of-`+w.namespace+`" cannot create resource "deployments" in API group "apps" in the namespace "`+w.namespace+`"`)
	withdraw()

	// The operator creates the scaler, which the user could not.
	withdraw = u.may("create")
	u.mayResize()
	u.tries("making a ScaledDeployment", func() error { return u.Create(t.Context(), w.newOwner("mine", scaled("InPlace"), named("web"))) })
	w.settled("mine")
	w.eventually(func() string { return said(env.Client.Get(t.Context(), w.key("mine"), &v1beta1.VerticalScaler{})) })
	patch := func(text string, options ...client.PatchOption) error {
		return u.Patch(t.Context(), w.newOwner("mine"), client.RawPatch(types.MergePatchType, []byte(text)), options...)
	}
	w.untilRejectedBy("users", func() error { return patch(`{"spec":{"replicas":4}}`, client.DryRunAll) })
	refused(t, patch(`{"spec":{"deploymentName":"api"}}`), "users", `cannot patch resource "deployments"`, `name "web"`)

	u.may("patch", "web")
	u.tries("changing the template", func() error { return patch(`{"spec":{"template":{"metadata":{"annotations":{"a":"b"}}}}}`) })
	refused(t, patch(`{"spec":{"deploymentName":"api"}}`), "users", `deletes its Deployment when deploymentName changes`,
		`cannot delete resource "deployments" in API group "apps"`, `name "web"`)
	u.may("delete", "web")
	u.tries("renaming the Deployment", func() error { return patch(`{"spec":{"deploymentName":"api"}}`, client.DryRunAll) })
	withdraw()
	w.untilRejectedBy("users", func() error { return patch(`{"spec":{"replicas":2}}`, client.DryRunAll) })
	refused(t, patch(`{"spec":{"replicas":2}}`), "users", `cannot create resource "deployments"`)
	if err := patch(`{"metadata":{"labels":{"a":"b"}}}`); err != nil {
		t.Errorf("setting a label: %v", err)
	}
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 2}}
	if err := u.SubResource("scale").Update(t.Context(), w.owner("mine"), client.WithSubResourceBody(scale)); err != nil {
		t.Errorf("scaling: %v", err)
	}
	if err := u.Delete(t.Context(), w.newOwner("mine")); err != nil {
		t.Errorf("deleting: %v", err)
	}
}

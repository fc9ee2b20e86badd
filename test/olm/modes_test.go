// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build olm

package olm

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
)

// The namespaces of the workloads. Each scenario has its own Deployments in them.
const (
	shop = "shop"
	blog = "blog"
	lab  = "lab"
	// own is the operator's namespace when it is installed for its own namespace.
	own = "own"
)

// made reports whether the workloads exist.
var made bool

// workloads creates the Deployments of all install mode scenarios once: metrics-server
// needs half a minute for the usage of a new pod, whatever the number of pods.
func workloads(t *testing.T) {
	t.Helper()
	if made {
		return
	}
	made = true
	for _, namespace := range []string{shop, blog, lab} {
		namespaced(t, namespace, nil)
		for _, scenario := range []string{"all", "own", "single", "multi"} {
			deploy(t, namespace, scenario, 1)
		}
	}
	namespaced(t, own, nil)
	deploy(t, own, "own", 1)
	deploy(t, shop, "ledger", 2)
}

// allNamespaces installs the operator for the whole cluster, checks all that OLM has
// created, and lets the operator use all of its features.
func allNamespaces(t *testing.T) {
	counted(t)
	workloads(t)
	i := &installation{namespace: "verticalscaler-system", bundle: released(t)}
	pod := i.install(t)
	i.isComplete(t)

	for _, namespace := range []string{shop, blog} {
		scale(t, namespace, "all", v1beta1.UpdateModeInPlace)
	}
	scale(t, shop, "ledger", v1beta1.UpdateModeRollout)
	for _, namespace := range []string{shop, blog} {
		sized(t, namespace, "all", "300m")
		if c := meta.FindStatusCondition(scaler(t, namespace, "all").Status.Conditions, v1beta1.ConditionClusterAccess); c != nil {
			t.Errorf("scaler %s/all has the condition ClusterAccess %s: %s", namespace, c.Status, c.Message)
		}
	}
	t.Log("pods in two namespaces are resized in place")
	eventually(t, func() string {
		if got := told(t, shop, "all"); !slices.Equal(got, []string{"Applied", "Decided", "Ready"}) {
			return fmt.Sprintf("the events on the scaler are %v", got)
		}
		return said(env.Client.Get(t.Context(), key(shop, "all"), &v1beta1.VerticalScalerCheckpoint{}))
	})

	// Once more: a repeated event increases its count, and an existing checkpoint is
	// updated.
	allowMore(t, shop, "all")
	annotatePods(t, shop, "all", usesCPU, "420m")
	sized(t, shop, "all", "390m")
	t.Log("pods follow the usage")

	sized(t, shop, "ledger", "300m")
	if held := scaler(t, shop, "ledger").Status.OriginalResources; held == nil {
		t.Error("the scaler in Rollout mode does not say what it has taken over")
	}
	allow := refuseChanges(t, shop, "ledger")
	if err := env.Client.Delete(t.Context(), scaler(t, shop, "ledger")); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if n := repeats(t, shop, "ledger", "Blocked"); n < 2 {
			return fmt.Sprintf("a template that cannot be restored was reported %d times: %s", n, strings.Join(told(t, shop, "ledger"), ", "))
		}
		return ""
	})
	allow()
	restored(t, shop, "ledger")
	t.Log("a template is rewritten, and restored as soon as that is allowed")

	blockingIsGuarded(t, shop)
	keepsWhatItOwns(t, shop)
	i.servesPolicies(t)

	i.answersScrapers(t, pod)
	i.isAllowed(t)
}

// refuseChanges makes the API server reject all changes of a Deployment by the operator, as
// an organization's policy may. It returns a function that removes the policy.
func refuseChanges(t *testing.T, namespace, name string) (allow func()) {
	t.Helper()
	const policyName = "refuse-changes"
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: policyName},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				ResourceNames: []string{name},
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
				},
			}}},
			Validations: []admissionv1.Validation{{
				Expression: "!request.userInfo.username.endsWith(':" + operatorName + "')", Message: "not today",
			}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policyName},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: policyName, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}},
		},
	}
	create(t, policy)
	create(t, binding)
	// A policy is enforced with a delay.
	as := rest.CopyConfig(env.Config)
	as.Impersonate = rest.ImpersonationConfig{UserName: "someone:" + operatorName, Groups: []string{"system:masters"}}
	operator, err := client.New(as, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		err := operator.Patch(t.Context(), deployment(t, namespace, name), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"tried":"yes"}}}`)), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "not today") {
			return fmt.Sprintf("the policy is not enforced yet: %v", err)
		}
		return ""
	})
	return func() {
		for _, o := range []client.Object{binding, policy} {
			if err := env.Client.Delete(context.Background(), o); err != nil {
				t.Error(err)
			}
		}
	}
}

// repeats is how often an event on a scaler was repeated, as its series counts it.
func repeats(t *testing.T, namespace, name, reason string) (n int32) {
	t.Helper()
	var list eventsv1.EventList
	if err := env.Client.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Regarding.Kind == "VerticalScaler" && e.Regarding.Name == name && e.Reason == reason {
			n = max(n, 1)
			if e.Series != nil {
				n = max(n, e.Series.Count)
			}
		}
	}
	return n
}

// restored waits until a deleted scaler no longer exists and the Deployment's template has
// its original values.
func restored(t *testing.T, namespace, name string) {
	t.Helper()
	eventually(t, func() string {
		err := env.Client.Get(t.Context(), key(namespace, name), &v1beta1.VerticalScaler{})
		if !apierrors.IsNotFound(err) {
			return fmt.Sprintf("scaler %s/%s is still there: %v", namespace, name, err)
		}
		return ""
	})
	if cpu := deployment(t, namespace, name).Spec.Template.Spec.Containers[0].Resources.Requests.Cpu(); cpu.String() != "100m" {
		t.Errorf("the template of %s/%s requests %s CPU, not the 100m that were there before", namespace, name, cpu)
	}
}

// isComplete checks what OLM has created from the bundle.
func (i *installation) isComplete(t *testing.T) {
	t.Helper()
	mustExist := []client.Object{
		object("v1", "ServiceAccount", i.namespace, operatorName),
		object("apps/v1", "Deployment", i.namespace, operatorName),
		object("v1", "ConfigMap", i.namespace, configName),
		object("v1", "Service", i.namespace, "verticalscaler-metrics"),
		object("operators.coreos.com/v2", "OperatorCondition", i.namespace, i.bundle.csv),
		object("rbac.authorization.k8s.io/v1", "Role", i.namespace, i.bundle.csv), // of the OperatorCondition
		object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "verticalscaler-viewer"),
		object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "verticalscaler-editor"),
		object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "verticalscaler-resizer"),
		object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "verticalscaler-metrics-reader"),
	}
	for _, name := range allCRDs {
		mustExist = append(mustExist, object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", name))
	}
	for _, o := range mustExist {
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Errorf("OLM has not made %s %s: %v", o.GetObjectKind().GroupVersionKind().Kind, o.GetName(), err)
		}
	}
	if rights := i.rights(t); len(rights) < 2 {
		t.Errorf("OLM has bound the service account to no role: %v", rights)
	} else {
		t.Logf("OLM has created %d objects and %s", len(mustExist), strings.Join(rights, ", "))
	}
	template := deployment(t, i.namespace, operatorName).Spec.Template
	if _, ok := template.Annotations["olm.targetNamespaces"]; !ok {
		t.Error("the pod template has no annotation olm.targetNamespaces")
	}
	if !slices.ContainsFunc(template.Spec.Containers[0].Env, func(v corev1.EnvVar) bool {
		return v.Name == "OPERATOR_CONDITION_NAME" && v.Value == i.bundle.csv
	}) {
		t.Errorf("the container has no OPERATOR_CONDITION_NAME with the value %s", i.bundle.csv)
	}
}

func lists(apiVersion, kind string) *unstructured.UnstructuredList {
	l := &unstructured.UnstructuredList{}
	l.SetAPIVersion(apiVersion)
	l.SetKind(kind + "List")
	return l
}

// answersScrapers reads the operator's metrics as three users: anonymous, a user without
// the right, and Prometheus, bound to the role in the bundle.
func (i *installation) answersScrapers(t *testing.T, pod *runningPod) {
	t.Helper()
	for _, name := range []string{"prometheus", "stranger"} {
		create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: i.namespace, Name: name}})
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "prometheus-reads-verticalscaler"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "verticalscaler-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: i.namespace, Name: "prometheus"}},
	}
	create(t, binding)
	t.Cleanup(func() {
		if err := env.Client.Delete(context.Background(), binding); err != nil {
			t.Error(err)
		}
	})
	for name, want := range map[string]int{"": http.StatusUnauthorized, "stranger": http.StatusForbidden, "prometheus": http.StatusOK} {
		token := ""
		if name != "" {
			var request authenticationv1.TokenRequest
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: i.namespace, Name: name}}
			if err := env.Client.SubResource("token").Create(t.Context(), account, &request); err != nil {
				t.Fatal(err)
			}
			token = request.Status.Token
		}
		eventually(t, func() string { // the API server observes a binding with a delay
			if got := scrape(t, pod.metrics, token); got != want {
				return fmt.Sprintf("/metrics answers %d to %q, not %d", got, name, want)
			}
			return ""
		})
	}
}

func scrape(t *testing.T, host, token string) (code int) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // only read
	return response.StatusCode
}

func ownNamespace(t *testing.T) {
	counted(t)
	withinOnly(t, "own", own, own)
}

// singleNamespace also switches the running operator to other namespaces.
func singleNamespace(t *testing.T) {
	counted(t)
	i := withinOnly(t, "single", "single-system", blog)
	patch(t, object("operators.coreos.com/v1", "OperatorGroup", i.namespace, "group"), `{"spec":{"targetNamespaces":[%q,%q]}}`, blog, lab)
	sized(t, lab, "single", "300m")
	t.Log("another namespace in the OperatorGroup is watched at once")
}

// multiNamespace also tries to install a second operator for one of the namespaces.
func multiNamespace(t *testing.T) {
	counted(t)
	i := withinOnly(t, "multi", "multi-system", shop, lab)
	second := &installation{namespace: "second-system", bundle: i.bundle, targets: []string{lab}}
	second.prepare(t)
	second.subscribe(t)
	eventually(t, func() string {
		if phase := second.phase(t, second.bundle.csv); !strings.HasPrefix(phase, "Failed (InterOperatorGroupOwnerConflict:") {
			return fmt.Sprintf("the second operator for %s is %s", lab, phase)
		}
		return ""
	})
	t.Log("OLM refuses a second operator for a namespace")
}

// withinOnly installs the operator for some namespaces. It must act in these and in no
// others.
func withinOnly(t *testing.T, name, namespace string, targets ...string) *installation {
	t.Helper()
	workloads(t)
	i := &installation{namespace: namespace, bundle: released(t), targets: targets}
	i.install(t)
	others := []string{shop, blog, lab}
	for _, in := range targets {
		scale(t, in, name, v1beta1.UpdateModeInPlace)
		others = slices.DeleteFunc(others, func(other string) bool { return other == in })
	}
	for _, in := range others {
		scale(t, in, name, v1beta1.UpdateModeInPlace)
	}
	// The same for owned objects.
	for _, in := range slices.Concat(targets, others) {
		ownedIn(t, in, name+"-owned", v1beta1.UpdateModeRecommend)
	}
	for _, in := range targets {
		available(t, in, name+"-owned")
		revertsDrift(t, in, name+"-owned")
	}
	for _, in := range targets {
		sized(t, in, name, "300m")
		t.Logf("pods in %s are resized in place", in)
		c := meta.FindStatusCondition(scaler(t, in, name).Status.Conditions, v1beta1.ConditionClusterAccess)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != "NamespacedInstall" || c.Message == "" {
			t.Errorf("the condition ClusterAccess of scaler %s/%s is %+v", in, name, c)
		}
	}
	for _, in := range others {
		if s := scaler(t, in, name); s.Status.ObservedGeneration != -1 || len(s.Status.Annotations) > 0 || len(s.Status.Conditions) > 0 {
			t.Errorf("scaler %s/%s, where the operator has no business, has the status %+v", in, name, s.Status)
		}
		if o := owner(t, in, name+"-owned"); o.Status.ObservedGeneration != -1 || missing(t, in, o.Name, &appsv1.Deployment{}) != "" {
			t.Errorf("ScaledDeployment %s/%s, where the operator has no business, has the status %+v", in, o.Name, o.Status)
		}
		for _, pod := range pods(t, in, name) {
			if pod.Generation != 1 {
				t.Errorf("pod %s/%s, where the operator has no business, was changed", in, pod.Name)
			}
		}
	}
	i.isAllowed(t)
	i.stays(t, targets)
	return i
}

// stays fails the test for each request outside of the operator's namespaces, except
// cluster-scoped token and access reviews, and the question whether new pods are sized.
func (i *installation) stays(t *testing.T, targets []string) {
	t.Helper()
	allowed := append([]string{i.namespace}, targets...)
	var strange []string
	for _, r := range i.requests(t) {
		asksForPolicy := r.group == "admissionregistration.k8s.io" && r.verb == "get" && r.name == admission.PolicyName
		if asksForPolicy || r.group == "authentication.k8s.io" || r.group == "authorization.k8s.io" || slices.Contains(allowed, r.namespace) {
			continue
		}
		strange = append(strange, r.String())
	}
	if len(strange) > 0 {
		slices.Sort(strange)
		t.Errorf("the operator of %v has sent requests outside of them:\n%s", targets, strings.Join(slices.Compact(strange), "\n"))
	}
}

// patch sends a merge patch.
func patch(t *testing.T, obj client.Object, format string, args ...any) {
	t.Helper()
	if err := env.Client.Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...))); err != nil {
		t.Fatal(err)
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build olm

package olm

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/policies"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// The operator's names in the bundle.
const (
	operatorName     = "verticalscaler-operator"
	subscriptionName = "verticalscaler"
	configName       = "verticalscaler-config"
	leaseName        = "verticalscaler.autoscaling.verticalscaler.io"
	scalersCRD       = "verticalscalers.autoscaling.verticalscaler.io"
	ownersCRD        = "scaleddeployments.autoscaling.verticalscaler.io"
	policiesCRD      = "scalingpolicies.autoscaling.verticalscaler.io"
	fleetsCRD        = "clusterscalingpolicies.autoscaling.verticalscaler.io"
)

// allCRDs are the CustomResourceDefinitions of the bundle.
var allCRDs = []string{fleetsCRD, policiesCRD, ownersCRD, scalersCRD, "verticalscalercheckpoints.autoscaling.verticalscaler.io", "newpodsizes.autoscaling.verticalscaler.io"}

func root() string { return testkit.Root() }

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// installation is the operator in a namespace, and where the audit log was when it was installed.
type installation struct {
	namespace string
	bundle    bundle
	// targets are the namespaces to watch; empty for all.
	targets []string
	began   testkit.AuditMark
	// swapped is the time in which OLM replaced one version's rights by the next one's.
	swapped window
}

// window is a stretch of time.
type window struct{ from, to time.Time }

func (w window) has(at time.Time) bool { return at.After(w.from) && at.Before(w.to) }

// user is the operator's user name.
func (i *installation) user() string {
	return "system:serviceaccount:" + i.namespace + ":" + operatorName
}

// install makes OLM install the operator, and waits until the operator leads. After the
// test, everything is removed, including the CRDs.
func (i *installation) install(t *testing.T) *runningPod {
	t.Helper()
	store.serve(t, i.bundle)
	i.prepare(t)
	// All scenarios run with the admission policies, which a bundle cannot contain.
	i.run(t, applies+"admission-policies.yaml")
	i.subscribe(t)
	i.succeeds(t)
	pod := i.leads(t)
	i.seesPolicies(t)
	return pod
}

// seesPolicies waits until the operator reports that the admission policies are installed.
func (i *installation) seesPolicies(t *testing.T) {
	t.Helper()
	eventually(t, func() string {
		if c := i.condition(t, i.bundle, policies.ConditionType); c.Status != metav1.ConditionTrue {
			return fmt.Sprintf("the condition %s is %+v", policies.ConditionType, c)
		}
		return ""
	})
}

// prepare creates the namespace and the OperatorGroup.
func (i *installation) prepare(t *testing.T) {
	t.Helper()
	if apierrors.IsNotFound(env.Client.Get(t.Context(), key("", i.namespace), &corev1.Namespace{})) {
		// The strictest pod security level: the operator's pod must comply.
		namespaced(t, i.namespace, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	}
	group := object("operators.coreos.com/v1", "OperatorGroup", i.namespace, "group")
	group.Object["spec"] = map[string]any{}
	if len(i.targets) > 0 {
		set(group.Object, anys(i.targets), "spec", "targetNamespaces")
	}
	env.Create(t, group)
	t.Cleanup(func() { i.remove(t) })
}

// subscribe subscribes to the operator.
func (i *installation) subscribe(t *testing.T) {
	t.Helper()
	i.began = env.Mark()
	subscription := object("operators.coreos.com/v1alpha1", "Subscription", i.namespace, subscriptionName)
	subscription.Object["spec"] = map[string]any{
		"name": packageName, "channel": channel, "source": store.name, "sourceNamespace": olmNamespace,
		"installPlanApproval": "Automatic",
	}
	env.Create(t, subscription)
}

// succeeds waits until the ClusterServiceVersion of the bundle is Succeeded.
func (i *installation) succeeds(t *testing.T) {
	t.Helper()
	eventually(t, func() string {
		if phase := i.phase(t, i.bundle.csv); !strings.HasPrefix(phase, "Succeeded ") {
			return fmt.Sprintf("%s is %s", i.bundle.csv, phase)
		}
		return ""
	})
}

// phase is the phase of a ClusterServiceVersion, with its reason and message.
func (i *installation) phase(t *testing.T, name string) string {
	t.Helper()
	csv := object("operators.coreos.com/v1alpha1", "ClusterServiceVersion", i.namespace, name)
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(csv), csv); err != nil {
		if apierrors.IsNotFound(err) {
			return "not there (:)"
		}
		t.Fatal(err)
	}
	phase, _, _ := unstructured.NestedString(csv.Object, "status", "phase")
	reason, _, _ := unstructured.NestedString(csv.Object, "status", "reason")
	message, _, _ := unstructured.NestedString(csv.Object, "status", "message")
	return fmt.Sprintf("%s (%s: %s)", cmp.Or(phase, "new"), reason, message)
}

// leads waits until exactly one operator pod exists, is ready and holds the lease. It
// returns this pod.
func (i *installation) leads(t *testing.T) *runningPod {
	t.Helper()
	var pod *runningPod
	eventually(t, func() string {
		if pod = node.operator(i.namespace); pod == nil {
			return fmt.Sprintf("the operator in %s is not ready", i.namespace)
		}
		var lease coordinationv1.Lease
		if err := env.Client.Get(t.Context(), key(i.namespace, leaseName), &lease); err != nil {
			return err.Error()
		}
		// The identity begins with the host name, which the operator shares with the test.
		// The acquire time distinguishes operators.
		holder := ptr.Deref(lease.Spec.HolderIdentity, "")
		if holder == "" || lease.Spec.AcquireTime == nil || lease.Spec.AcquireTime.Time.Before(pod.started.Add(-time.Second)) {
			return fmt.Sprintf("the lease is held by %q since %v, the operator runs since %v", holder, lease.Spec.AcquireTime, pod.started)
		}
		return ""
	})
	return pod
}

// unsubscribe removes the Subscription and the ClusterServiceVersion, as documented, and
// waits until the operator is removed.
func (i *installation) unsubscribe(t *testing.T) {
	t.Helper()
	i.run(t, "kubectl delete subscription.operators.coreos.com verticalscaler -n verticalscaler-system")
	i.run(t, "kubectl delete clusterserviceversion -n verticalscaler-system -l operators.coreos.com/verticalscaler-operator.verticalscaler-system")
	i.gone(t)
}

const (
	// downloads is where the files of a release are. Here, they are in the folder dist.
	downloads = "https://github.com/verticalscaler/verticalscaler-operator/releases/latest/download/"
	applies   = "kubectl apply --server-side -f " + downloads
	// withdraw removes what was installed beside the operator.
	withdraw = "for file in admission-policies new-pods recreate policies; do kubectl delete --ignore-not-found -f $releases/$file.yaml; done"
)

// run runs a command of docs/olm.md, with replacements: pairs of old and new. It replaces
// the documented namespace by that of this installation, and a download by the file in dist.
func (i *installation) run(t *testing.T, command string, replace ...string) (output string) {
	t.Helper()
	documentation, err := os.ReadFile(filepath.Join(root(), "docs", "olm.md"))
	must.Succeed(t, err)
	if !strings.Contains(string(documentation), command+"\n") {
		t.Fatalf("docs/olm.md does not have this command: %s", command)
	}
	dist := filepath.Join(root(), "dist")
	replace = append(replace, "curl -sSL "+downloads, "cat "+dist+"/", downloads, dist+"/", "$releases", dist, "verticalscaler-system", i.namespace)
	command = strings.NewReplacer(replace...).Replace(command)
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", command)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+env.Kubeconfig(), "PATH="+filepath.Dir(env.Kubectl())+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return strings.TrimSpace(string(out))
}

// gone waits until no operator process runs and OLM has removed its rights.
func (i *installation) gone(t *testing.T) {
	t.Helper()
	eventually(t, func() string {
		if n := node.running(i.namespace); n > 0 {
			return fmt.Sprintf("%d processes of the operator run", n)
		}
		err := env.Client.Get(t.Context(), key(i.namespace, operatorName), &appsv1.Deployment{})
		if !apierrors.IsNotFound(err) {
			return fmt.Sprintf("Deployment %s: %v", operatorName, err)
		}
		if left := i.rights(t); len(left) > 0 {
			return fmt.Sprintf("OLM has not removed %s", strings.Join(left, ", "))
		}
		return ""
	})
}

// listed lists the objects of all kinds that exist. Before it deletes a kind, the API server of 1.37 lists its objects. It
// cannot at once list a kind that was never read since it was created, and may try again only after five minutes.
func listed(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, kind := range []string{"ClusterScalingPolicy", "ScalingPolicy", "ScaledDeployment", "VerticalScaler", "VerticalScalerCheckpoint", "NewPodSizes"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(v1beta1.GroupVersion.WithKind(kind + "List"))
		testkit.Eventually(t, soon, func() string {
			if err := env.Client.List(ctx, list); err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
				return err.Error()
			}
			return ""
		})
	}
}

// allowDeletion lets the CRD of ScaledDeployments be deleted, if it exists.
func allowDeletion(ctx context.Context, t *testing.T) {
	t.Helper()
	crd := object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", ownersCRD)
	patch := `{"metadata":{"annotations":{"autoscaling.verticalscaler.io/allow-deletion":"true"}}}`
	if err := env.Client.Patch(ctx, crd, client.RawPatch(types.MergePatchType, []byte(patch))); client.IgnoreNotFound(err) != nil {
		t.Error(err)
	}
}

// remove removes everything that install has created, whatever state it is in.
func (i *installation) remove(t *testing.T) {
	t.Helper()
	ctx := context.Background() // the test's has ended
	going := []client.Object{object("v1", "Namespace", "", i.namespace)}
	listed(ctx, t)
	for _, name := range allCRDs {
		going = append(going, object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", name))
	}
	for _, o := range []client.Object{
		object("operators.coreos.com/v1alpha1", "Subscription", i.namespace, subscriptionName),
		object("operators.coreos.com/v1", "OperatorGroup", i.namespace, "group"),
	} {
		if err := env.Client.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	}
	if err := env.Client.DeleteAllOf(ctx, object("operators.coreos.com/v1alpha1", "ClusterServiceVersion", "", ""), client.InNamespace(i.namespace)); err != nil {
		t.Error(err)
	}
	testkit.Eventually(t, soon, func() string {
		releaseAll(ctx)
		allowDeletion(ctx, t) // also of a CRD that was created again
		var left []string
		for _, o := range going {
			// A pending InstallPlan may recreate CRDs.
			if err := env.Client.Delete(ctx, o); !apierrors.IsNotFound(err) {
				left = append(left, o.GetObjectKind().GroupVersionKind().Kind+" "+o.GetName())
			}
		}
		if n := node.running(i.namespace); n > 0 {
			left = append(left, fmt.Sprintf("%d processes", n))
		}
		if len(left) == 0 {
			return ""
		}
		return "still there: " + strings.Join(left, ", ")
	})
}

// releaseAll removes the finalizers of all scalers, because no operator is left to do it.
func releaseAll(ctx context.Context) {
	var list unstructured.UnstructuredList
	list.SetAPIVersion("autoscaling.verticalscaler.io/v1beta1")
	list.SetKind("VerticalScalerList")
	if err := env.Client.List(ctx, &list); err != nil {
		return // the kind is gone
	}
	for i := range list.Items {
		if s := &list.Items[i]; len(s.GetFinalizers()) > 0 && s.GetDeletionTimestamp() != nil {
			_ = env.Client.Patch(ctx, s, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		}
	}
}

// rights returns the roles and bindings of the operator's service account, and the account
// itself.
func (i *installation) rights(t *testing.T) (names []string) {
	t.Helper()
	for _, kind := range []string{"ClusterRoleBinding", "RoleBinding"} {
		var list unstructured.UnstructuredList
		list.SetAPIVersion("rbac.authorization.k8s.io/v1")
		list.SetKind(kind + "List")
		must.Succeed(t, env.Client.List(t.Context(), &list))
		for _, binding := range list.Items {
			subjects, _, _ := unstructured.NestedSlice(binding.Object, "subjects")
			for _, s := range subjects {
				if s, ok := s.(map[string]any); ok && s["name"] == operatorName && s["namespace"] == i.namespace {
					names = append(names, strings.TrimSuffix(kind, "Binding")+"Binding "+filepath.Join(binding.GetNamespace(), binding.GetName()))
				}
			}
		}
	}
	if env.Client.Get(t.Context(), key(i.namespace, operatorName), &corev1.ServiceAccount{}) == nil {
		names = append(names, "ServiceAccount "+operatorName)
	}
	return names
}

func anys(list []string) (out []any) {
	for _, s := range list {
		out = append(out, s)
	}
	return out
}

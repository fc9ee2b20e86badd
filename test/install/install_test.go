// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package install

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// TestInstallUseUninstall follows docs/install.md on a cluster without the operator, from the
// installation to the removal of all its objects.
func TestInstallUseUninstall(t *testing.T) {
	bare(t)
	install := commandsOf(t, "## Install")
	mustRun(t, install[0])
	running(t)
	before := versions(t)
	mustRun(t, install[0])
	if after := versions(t); after != before {
		t.Errorf("installing again has changed something:\n%s\nbefore:\n%s", after, before)
	}

	w := newNamespace(t)
	operator(t)
	inPlace, rollout := scaled(w, v1beta1.UpdateModeInPlace), scaled(w, v1beta1.UpdateModeRollout)
	ours, oursInRollout := owned(w, "ours", v1beta1.UpdateModeInPlace), owned(w, "ours-in-rollout", v1beta1.UpdateModeRollout)
	ours.isSized()
	oursInRollout.isSized()
	pods, ourPods := inPlace.pods(), ours.pods()
	if got := rollout.templateCPU(); got < 300 {
		t.Fatalf("the template of the Deployment in Rollout asks for %dm: there is nothing to restore", got)
	}

	for _, command := range commandsOf(t, "## Uninstall") {
		mustRun(t, command)
	}
	forgotten(t)
	if now := inPlace.pods(); !slices.Equal(now, pods) {
		t.Errorf("pods of the Deployment in InPlace are %v, not %v", now, pods)
	}
	for _, pod := range w.Pods(inPlace.name) {
		if got := world.Actual(&pod, "app").Requests.Cpu(); got.Cmp(used) < 0 {
			t.Errorf("pod %s has only %s of CPU left", pod.Name, got)
		}
	}
	if now := ours.pods(); !slices.Equal(now, ourPods) {
		t.Errorf("pods of the ScaledDeployment are %v, not %v: the workload was to stay", now, ourPods)
	}
	for _, w := range []workload{rollout, oursInRollout} {
		w.isRestored()
	}
}

// TestRemovingTheOperatorKeepsDeployments removes the operator without a look at docs/install.md. The Deployments of
// ScaledDeployments stay, though the garbage collector is at work.
func TestRemovingTheOperatorKeepsDeployments(t *testing.T) {
	w, pods := ownedAfterInstall(t)
	const crds = "config/crd/bases/autoscaling.verticalscaler.io_"
	prune := "KUBECTL_APPLYSET=true kubectl apply --server-side --force-conflicts --prune -n " + w.Namespace + " --applyset=crds -f " + crds
	mustRun(t, prune+"scaleddeployments.yaml -f "+crds+"newpodsizes.yaml")
	for _, tc := range []struct {
		command   string
		isRefused bool
	}{
		{"kubectl delete crd scaleddeployments.autoscaling.verticalscaler.io", true},
		{"kubectl delete crd --all", true},
		{prune + "newpodsizes.yaml", true},
		{"kubectl delete namespace " + system, false},
		{"kubectl delete --ignore-not-found -f dist/install.yaml", true}, // deletes the policy, too
	} {
		out, err := run(t, tc.command)
		if isRefused := strings.Contains(out, "This would delete all ScaledDeployments and their Deployments"); isRefused != tc.isRefused || (err != nil) != tc.isRefused {
			t.Errorf("%s: %v\n%s", tc.command, err, out)
		}
	}
	env.AwaitGarbageCollector(t, soon, probe())
	if now := w.pods(); !slices.Equal(now, pods) || w.Deployment(w.name).DeletionTimestamp != nil {
		t.Errorf("pods are %v, not %v", now, pods)
	}
}

// TestDeletingTheCRDDeletesDeployments shows the data loss that docs/install.md
// warns of, and that "make undeploy" avoids it.
func TestDeletingTheCRDDeletesDeployments(t *testing.T) {
	for name, tc := range map[string]struct {
		command string
		stays   bool
	}{
		"without the second command": {command: allow + " && kubectl delete -f dist/install.yaml"},
		"with make undeploy":         {command: "make undeploy", stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			w, pods := ownedAfterInstall(t)
			listed(t)
			mustRun(t, tc.command)
			forgotten(t)
			if tc.stays {
				if now := w.pods(); !slices.Equal(now, pods) {
					t.Errorf("pods are %v, not %v", now, pods)
				}
				if w.Deployment(w.name).DeletionTimestamp != nil {
					t.Error("the Deployment is being deleted")
				}
				return
			}
			gone(t, testkit.Deployment(w.Namespace, w.name))
		})
	}
}

// ownedAfterInstall is a workload of a ScaledDeployment, with its pods, once the garbage collector knows the kind. The operator
// has stopped.
func ownedAfterInstall(t *testing.T) (w workload, pods []string) {
	t.Helper()
	bare(t)
	mustRun(t, commandsOf(t, "## Install")[0])
	running(t)
	o := operator(t)
	w = owned(newNamespace(t), "ours", v1beta1.UpdateModeRecommend)
	w.Settled(w.name)
	o.Stop(t)
	env.AwaitGarbageCollector(t, soon, probe())
	return w, w.pods()
}

// probe is an owner with which the garbage collector is tried.
func probe() *v1beta1.ScaledDeployment {
	return &v1beta1.ScaledDeployment{Spec: v1beta1.ScaledDeploymentSpec{Template: testkit.Deployment("", "probe").Spec.Template}}
}

// TestUninstallInTheWrongOrder removes the operator while a scaler has taken over a
// template, and then tries both remedies of docs/install.md.
func TestUninstallInTheWrongOrder(t *testing.T) {
	for name, tc := range map[string]struct {
		way func(t *testing.T, w workload)
		cpu int64 // the template's final CPU request: at least this
	}{
		"reinstalling":         {way: installAgain, cpu: 100},
		"releasing the scaler": {way: release, cpu: 300},
	} {
		t.Run(name, func(t *testing.T) {
			bare(t)
			mustRun(t, commandsOf(t, "## Install")[0])
			running(t)
			o := operator(t)
			w := scaled(newNamespace(t), v1beta1.UpdateModeRollout)
			pods := w.pods()
			o.Stop(t)
			allowDeletion(t)
			mustRun(t, "kubectl delete --wait=false -f dist/install.yaml")
			testkit.Eventually(t, soon, func() string {
				if s := w.Scaler(w.name); s.DeletionTimestamp == nil || len(s.Finalizers) == 0 {
					return fmt.Sprintf("the scaler is not stuck: deleted at %v, finalizers %v", s.DeletionTimestamp, s.Finalizers)
				}
				return ""
			})
			if now := w.pods(); !slices.Equal(now, pods) {
				t.Errorf("pods are %v, not %v", now, pods)
			}
			tc.way(t, w)
			forgotten(t)
			if got := w.templateCPU(); got < tc.cpu {
				t.Errorf("in the end the template asks for %dm", got)
			}
		})
	}
}

// installAgain lets the operator finish the deletion.
func installAgain(t *testing.T, w workload) {
	t.Helper()
	gone(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}})
	mustRun(t, commandsOf(t, "## Install")[0])
	s := w.Scaler(w.name)
	o := operator(t)
	gone(t, s)
	o.Stop(t)
	w.isRestored()
	listed(t)
	allowDeletion(t)
	mustRun(t, "kubectl delete --ignore-not-found -f dist/install.yaml")
}

// release removes the finalizer by hand.
func release(t *testing.T, w workload) {
	t.Helper()
	mustRun(t, strings.NewReplacer("NAMESPACE", w.Namespace, "NAME", w.name).Replace(linesOf(t, "install.md", "kubectl patch verticalscaler")[0]))
	if got := w.templateCPU(); got < 300 {
		t.Errorf("the template asks for %dm: it should have been left as it was", got)
	}
}

// TestRolesForUsers binds the three roles for users, and the built-in ones, to which a component adds ours. The installation
// binds none. The right to resize pods stays apart.
func TestRolesForUsers(t *testing.T) {
	bare(t)
	mustRun(t, "kubectl apply --server-side -k config/crd && kubectl create namespace "+system)
	const choice = "- ../components/aggregated-roles"
	mustRun(t, "kubectl apply --server-side -k "+configWith(t, strings.Replace(offers(t), "# "+choice, choice, 1)))
	namespace := env.Namespace(t)
	users := []string{"verticalscaler-viewer", "verticalscaler-editor", "verticalscaler-resizer", "view", "edit", "admin"}
	for _, user := range users { // each has the role of the same name
		mustRun(t, "kubectl create rolebinding "+user+" -n "+namespace+" --clusterrole="+user+" --user="+user)
	}
	writers := []string{"verticalscaler-editor", "edit", "admin"}
	readers := append([]string{"verticalscaler-viewer", "view"}, writers...)
	for right, who := range map[string][]string{
		"get scaleddeployments": readers, "watch scaleddeployments": readers, "get scaleddeployments/status": readers, "get scaleddeployments/scale": readers,
		"list verticalscalers": readers, "watch scalingpolicies": readers, "get scalingpolicies/status": readers,
		"create scaleddeployments": writers, "delete scaleddeployments": writers, "update scaleddeployments/scale": writers, "patch scaleddeployments/scale": writers,
		"create verticalscalers": writers, "patch verticalscalers": writers, "create scalingpolicies": writers, "delete scalingpolicies": writers,
		"patch pods/resize": {"verticalscaler-resizer"},
		"patch pods":        {"edit", "admin"}, "create deployments": {"edit", "admin"},
		"update scaleddeployments/status": nil, "patch scaleddeployments/status": nil, "update scaleddeployments/finalizers": nil,
		"update verticalscalers/status": nil, "update scalingpolicies/status": nil, "create clusterscalingpolicies": nil,
	} {
		for _, user := range users {
			mayOrMayNot(t, namespace, user, right, slices.Contains(who, user))
		}
	}
}

// offers is the text of config/default, which offers choices in its comments.
func offers(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Root(), "config", "default", "kustomization.yaml"))
	must.Succeed(t, err)
	return string(text)
}

// configWith returns a copy of config/default with another text.
func configWith(t *testing.T, text string) (folder string) {
	t.Helper()
	config := t.TempDir()
	folder = filepath.Join(config, "default")
	must.Succeed(t, os.CopyFS(config, os.DirFS(filepath.Join(testkit.Root(), "config"))))
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600))
	return folder
}

// mayOrMayNot waits until a user has a right, or until the user has not.
func mayOrMayNot(t *testing.T, namespace, user, right string, want bool) {
	t.Helper()
	verb, resource, _ := strings.Cut(right, " ")
	resource, subresource, _ := strings.Cut(resource, "/")
	testkit.Eventually(t, soon, func() string { // the API server observes a binding with a delay
		// The exit code reports a missing right, too.
		out, _ := run(t, fmt.Sprintf("kubectl auth can-i %s %s --subresource=%q -n %s --as=%s", verb, resource, subresource, namespace, user))
		// There is a warning in front of it if the resource is not in a namespace.
		if got := slices.Contains(strings.Split(strings.TrimSpace(out), "\n"), "yes"); got != want {
			return fmt.Sprintf("the %s may %s: %t", user, right, got)
		}
		return ""
	})
}

// rightsOf names the optional components of config/default that grant rights.
var rightsOf = map[string]string{"Rollout": "rollout", "ScaledDeployments": "scaled-deployment"}

// without is config/default's text without one of its components.
func without(t *testing.T, text, component string) string {
	t.Helper()
	line := "\n- ../components/" + component + "\n"
	if !strings.Contains(text, line) {
		t.Fatalf("config/default does not include %s", component)
	}
	return strings.Replace(text, line, "\n", 1)
}

// TestEachComponentWorksWithoutTheOther omits the rights of Rollout, and then those of
// ScaledDeployments. The operator reports the missing rights, and the other feature works.
func TestEachComponentWorksWithoutTheOther(t *testing.T) {
	for name, component := range rightsOf {
		t.Run("without "+name, func(t *testing.T) {
			bare(t)
			mustRun(t, "kubectl apply --server-side -k "+configWith(t, without(t, offers(t), component)))
			running(t)
			w := newNamespace(t)
			operator(t)
			switch name {
			case "Rollout":
				o := owned(w, "owned", v1beta1.UpdateModeInPlace)
				o.isSized()
				w.Patch(w.NewOwner(o.name), `{"spec":{"deploymentName":"renamed"}}`)
				w.Until(func() string {
					if name := w.Scaler(o.name).Spec.DeploymentName; name != "renamed" {
						return "the scaler names " + name
					}
					return ""
				})
				w.Settled(o.name)
				w.Patch(w.NewOwner(o.name), `{"spec":{"scaling":{"updatePolicy":{"updateMode":"Rollout"}}}}`)
				w.OwnerReports(o.name, v1beta1.ConditionSized, "False", "Forbidden")
			case "ScaledDeployments":
				scaled(w, v1beta1.UpdateModeRollout)
				o := owned(w, "owned", v1beta1.UpdateModeRecommend)
				w.OwnerReports(o.name, v1beta1.ConditionStalled, "True", "Forbidden", "cannot create resource")
			}
			mustRun(t, "kubectl delete scaleddeployments --all -n "+w.Namespace)
			mustRun(t, "kubectl delete verticalscalers --all -n "+w.Namespace)
		})
	}
}

// TestComponents makes the API server check each choice that config/default offers in its
// comments, alone and combined.
func TestComponents(t *testing.T) {
	bare(t)
	mustRun(t, "kubectl apply --server-side -k config/crd && kubectl create namespace "+system)
	original := offers(t)
	offered := regexp.MustCompile(`(?m)^# (- \.\./\S+)$`).FindAllStringSubmatch(original, -1)
	if len(offered) < 2 {
		t.Fatalf("config/default offers only %v", offered)
	}
	choices := map[string]string{"as it is": original}
	for _, match := range offered {
		choices["with "+match[1]] = strings.Replace(original, match[0], match[1], 1)
	}
	const policies, ownNamespace = "- ../components/policies", "- ../components/own-namespace"
	choices["with policies in its own namespace"] = strings.NewReplacer("# "+policies, policies, "# "+ownNamespace, ownNamespace).Replace(original)
	for name, text := range choices {
		t.Run(name, func(t *testing.T) {
			out := mustRun(t, "kubectl apply --server-side --dry-run=server -k "+configWith(t, text))
			if !strings.Contains(out, "deployment.apps/verticalscaler-operator serverside-applied") {
				t.Errorf("there is no operator in it:\n%s", out)
			}
		})
	}
}

// running waits until the API is served and the operator's pod exists. kwok simulates this
// pod: the operator runs in the test process.
func running(t *testing.T) {
	t.Helper()
	mustRun(t, "kubectl wait --for=condition=Established --timeout=2m crd -l app.kubernetes.io/name=verticalscaler-operator")
	mustRun(t, "kubectl wait --for=condition=Available --timeout=2m -n "+system+" deployment/verticalscaler-operator")
	mustRun(t, "kubectl rollout status --timeout=2m -n "+system+" deployment/verticalscaler-operator") // the pods of an upgrade
}

// versions returns the resource versions of all installed objects, except the Deployment's,
// whose status changes.
func versions(t *testing.T) string {
	t.Helper()
	return mustRun(t, `kubectl get crd,clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,services,configmaps -n `+system+
		` -l app.kubernetes.io/name=verticalscaler-operator -o jsonpath='{range .items[*]}{.kind} {.metadata.name} {.metadata.resourceVersion}{"\n"}{end}'`)
}

// forgotten waits until all objects of the operator are deleted.
func forgotten(t *testing.T) {
	t.Helper()
	for _, name := range kinds {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		crd.Name = name + "." + v1beta1.GroupVersion.Group
		must.Succeed(t, apiextensionsv1.AddToScheme(env.Client.Scheme()))
		gone(t, crd)
	}
	testkit.Eventually(t, soon, func() string {
		return mustRun(t, "kubectl get ns,clusterroles,clusterrolebindings -l app.kubernetes.io/name=verticalscaler-operator -o name")
	})
}

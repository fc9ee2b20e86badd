// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build olm && olmv1

package olm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// The names in docs/olm.md.
const (
	catalogName   = "verticalscaler"
	extensionName = "verticalscaler"
	installerName = "verticalscaler-installer"
	v1Namespace   = "verticalscaler-system"
)

// TestVersion1 installs, upgrades and removes the operator with the parts of OLM v1, as docs/olm.md describes it. What
// it applies, and the commands that it runs, are read from that page.
func TestVersion1(t *testing.T) {
	i := &installation{namespace: v1Namespace, bundle: onTheNode(t, released(t)), began: time.Now()}
	second := i.bundle.next(t)
	broken := withoutAField(t, second)
	third := renamed(t, second.next(t))

	catalogIsServed(t, i.bundle)
	i.run(t, applies+"olm-v1.yaml")
	i.run(t, applies+"admission-policies.yaml")
	applyDocumented(t, "ClusterExtension")
	if got := reconcile(t); got != i.bundle.csv {
		t.Fatalf("OLM has installed %q, not %s", got, i.bundle.csv)
	}
	first := i.leads(t)

	const at = "olm-v1"
	namespaced(t, at, nil)
	deploy(t, at, "web", 2)
	scale(t, at, "web", v1beta1.UpdateModeInPlace)
	sized(t, at, "web", "300m")
	t.Log("a scaler has its claim and its recommendation, and pods have their sizes")

	revertsChanges(t, i)

	before, workload := scaler(t, at, "web"), fingerprint(t, at)
	offer(t, "broken", extended(t, broken))
	broken.publish(t)
	allow(t, broken)
	_, err := tryReconcile(t)
	if err == nil || !strings.Contains(err.Error(), `validating upgrade for CRD "`+scalersCRD+`"`) || !strings.Contains(err.Error(), "existingFieldRemoval") {
		t.Fatalf("OLM does not refuse a CRD that lacks a field: %v", err)
	}
	if i.leads(t) != first {
		t.Error("OLM has replaced the operator by a version with a CRD that it refuses")
	}
	t.Logf("OLM refuses a CRD that lacks a field: %v", lastLine(err.Error()))

	second.publish(t)
	offer(t, "second", extended(t, second, third))
	applyVersion(t, second.version)
	if got := reconcile(t); got != second.csv {
		t.Fatalf("OLM has installed %q, not %s", got, second.csv)
	}
	eventually(t, func() string {
		if now := node.operator(i.namespace); now == nil || now == first {
			return "the new operator does not run alone"
		}
		return ""
	})
	i.bundle = second
	i.leads(t)
	i.hasField(t)
	i.run(t, "kubectl delete clusterrole,clusterrolebinding,role,rolebinding verticalscaler-installer.v0.1.0 -n verticalscaler-system",
		"v0.1.0", "v"+released(t).version)
	eventually(t, func() string { return i.hasLookedAt(t, at, "web") })
	isKept(t, before)
	if diff := cmp.Diff(workload, fingerprint(t, at)); diff != "" {
		t.Errorf("the upgrade changes workloads (-before +after):\n%s", diff)
	}
	i.isAllowed(t)

	objects := render(t, second)
	i.ended = time.Now()
	i.run(t, deletePolicies)
	i.run(t, "kubectl delete clusterextension verticalscaler")
	goneAll(t, objects)
	if diff := cmp.Diff(workload, fingerprint(t, at)); diff != "" {
		t.Errorf("the removal changes workloads (-before +after):\n%s", diff)
	}
	t.Logf("all %d objects are gone, with the CRDs; workloads are as before", len(objects))

	replaces(t, i, second, third)
	installerRights(t, i.began, second, third)
	watchesOneNamespace(t, second)
	i.run(t, "kubectl delete --ignore-not-found -f "+downloads+"admission-policies.yaml")
	i.run(t, "kubectl delete --ignore-not-found -f "+downloads+"olm-v1.yaml")
}

// catalogIsServed publishes our bundle and our catalog, and waits until catalogd serves it.
func catalogIsServed(t *testing.T, b bundle) {
	t.Helper()
	b.publish(t)
	tag := "v" + b.version
	publishCatalog(t, filepath.Join(root(), "catalog", packageName), tag)
	kubectlApply(t, strings.ReplaceAll(documented(t, "ClusterCatalog"), "v0.1.0", tag))
	base := served(t, tag)
	var want []any
	for d := range strings.SplitSeq(strings.TrimPrefix(ours(t), "---\n"), "\n---\n") {
		var blob any
		if err := yaml.Unmarshal([]byte(d), &blob); err != nil {
			t.Fatal(err)
		}
		want = append(want, blob)
	}
	var got []any
	for line := range strings.Lines(all(t, base)) {
		var blob any
		if err := yaml.Unmarshal([]byte(line), &blob); err != nil {
			t.Fatal(err)
		}
		got = append(got, blob)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("catalogd serves something else than our catalog (-want +got):\n%s", diff)
	}
	t.Logf("catalogd serves our catalog, %d blobs, at %s", len(got), base)
}

// offer publishes another edition of the catalog, and waits until catalogd serves it.
func offer(t *testing.T, tag, folder string) {
	t.Helper()
	publishCatalog(t, folder, tag)
	i := &installation{namespace: v1Namespace}
	i.run(t, `kubectl patch clustercatalog verticalscaler --type=merge -p '{"spec":{"source":{"image":{"ref":"ghcr.io/verticalscaler/verticalscaler-operator-catalog:v0.1.1"}}}}'`,
		":v0.1.1", ":"+tag)
	served(t, tag)
}

// served waits until catalogd serves that edition of the catalog, and returns its address.
func served(t *testing.T, tag string) (base string) {
	t.Helper()
	eventually(t, func() string {
		if v1.catalogd.HasEnded() {
			t.Fatal(v1.catalogd.Failure())
		}
		c := object("olm.operatorframework.io/v1", "ClusterCatalog", "", catalogName)
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(c), c); err != nil {
			return err.Error()
		}
		var status struct {
			Status struct {
				Conditions []metav1.Condition `json:"conditions"`
				URLs       struct {
					Base string `json:"base"`
				} `json:"urls"`
			} `json:"status"`
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(c.Object, &status); err != nil {
			t.Fatal(err)
		}
		base = status.Status.URLs.Base
		for _, kind := range []string{"Serving", "Progressing"} {
			condition := meta.FindStatusCondition(status.Status.Conditions, kind)
			if condition == nil || condition.Status != metav1.ConditionTrue || condition.Reason == "Retrying" || condition.ObservedGeneration != c.GetGeneration() {
				return fmt.Sprintf("catalogd does not serve edition %s: %+v", tag, status.Status.Conditions)
			}
		}
		return ""
	})
	return base
}

// documented is the YAML of docs/olm.md with an object of that kind.
func documented(t *testing.T, kind string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root(), "docs", "olm.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1) {
		if text := string(match[1]); strings.Contains(text, "\nkind: "+kind+"\n") {
			return text
		}
	}
	t.Fatalf("docs/olm.md has no YAML of a %s", kind)
	return ""
}

func applyDocumented(t *testing.T, kind string) {
	t.Helper()
	kubectlApply(t, documented(t, kind))
}

func kubectlApply(t *testing.T, content string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), env.Kubectl(), "--kubeconfig", env.Kubeconfig(), "apply", "--server-side", "-f", "-")
	cmd.Stdin = strings.NewReader(content)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kubectl apply: %v\n%s", err, out)
	}
}

// applyVersion gives the ClusterExtension a version, as documented.
func applyVersion(t *testing.T, version string) {
	t.Helper()
	i := &installation{namespace: v1Namespace}
	i.run(t, `kubectl patch clusterextension verticalscaler --type=merge -p '{"spec":{"source":{"catalog":{"version":"0.1.1"}}}}'`, "0.1.1", version)
}

// tryReconcile does what operator-controller does in one reconcile. It returns what is installed.
func tryReconcile(t *testing.T) (csv string, err error) {
	t.Helper()
	began := time.Now()
	certificates := filepath.Join(work, "catalogd-ca")
	if err := os.MkdirAll(certificates, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(certificates, "ca.crt"), v1.certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	csv, err = tool(t, "install", "-kubeconfig", env.Kubeconfig(), "-extension", extensionName, "-catalogd-cas-dir", certificates, "-cache-path", t.TempDir())
	t.Logf("a reconcile of the ClusterExtension takes %s", elapsed(began))
	return csv, err
}

func reconcile(t *testing.T) string {
	t.Helper()
	csv, err := tryReconcile(t)
	if err != nil {
		t.Fatal(err)
	}
	return csv
}

// extensionFile is the documented ClusterExtension as a file, changed.
func extensionFile(t *testing.T, change func(map[string]any)) string {
	t.Helper()
	content, err := edited(documented(t, "ClusterExtension"), change)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "extension.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func unchanged(map[string]any) {}

// rightsFor are the namespace, the service account and the rights for a bundle.
func rightsFor(t *testing.T, b bundle) string {
	t.Helper()
	return mustTool(t, "rights", "-bundle", b.dir, "-extension", extensionFile(t, unchanged))
}

// allow grants the service account the rights for a bundle.
func allow(t *testing.T, b bundle) {
	t.Helper()
	kubectlApply(t, rightsFor(t, b))
}

// render are the objects that OLM makes of a bundle.
func render(t *testing.T, b bundle, changes ...func(map[string]any)) []unstructured.Unstructured {
	t.Helper()
	file := extensionFile(t, func(extension map[string]any) {
		for _, change := range changes {
			change(extension)
		}
	})
	return decoded(t, mustTool(t, "render", "-bundle", b.dir, "-extension", file))
}

// decoded are the objects of YAML documents.
func decoded(t *testing.T, text string) (out []unstructured.Unstructured) {
	t.Helper()
	for d := range strings.SplitSeq("\n"+text, "\n---\n") {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(d), &o.Object); err != nil {
			t.Fatal(err)
		}
		if o.GetKind() != "" {
			out = append(out, o)
		}
	}
	return out
}

// goneAll waits until the objects are gone. The API server must have read a kind before it can delete it at once.
func goneAll(t *testing.T, objects []unstructured.Unstructured) {
	t.Helper()
	eventually(t, func() string {
		var left []string
		for _, o := range objects {
			if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(&o), o.DeepCopy()); !apierrors.IsNotFound(err) {
				left = append(left, o.GetKind()+" "+o.GetName())
			}
		}
		if n := node.running(v1Namespace); n > 0 {
			left = append(left, fmt.Sprintf("%d processes", n))
		}
		if len(left) == 0 {
			return ""
		}
		return "still there: " + strings.Join(left, ", ")
	})
}

// revertsChanges changes all objects of the bundle, and the configuration. OLM reverts the changes.
func revertsChanges(t *testing.T, i *installation) {
	t.Helper()
	const label = "olm.operatorframework.io/owner-kind"
	objects := render(t, i.bundle)
	for _, o := range objects {
		patch(t, o.DeepCopy(), `{"metadata":{"labels":{%q:null}}}`, label)
	}
	i.configure(t, i.configuration(t)+"# Ours.\n")
	reconcile(t)
	if strings.Contains(i.configuration(t), "# Ours.") {
		t.Error("OLM has kept a change of the configuration; docs/olm.md says that it reverts it")
	}
	for _, o := range objects {
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(&o), &o); err != nil || o.GetLabels()[label] == "" {
			t.Errorf("OLM has not restored the label of %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// replaces uninstalls the version that runs and installs the next one, which has none of its objects: OLM deletes them.
func replaces(t *testing.T, i *installation, second, third bundle) {
	t.Helper()
	old, next := render(t, second), render(t, third)
	applyDocumented(t, "ClusterExtension")
	applyVersion(t, second.version)
	reconcile(t)
	eventually(t, func() string {
		if node.operator(i.namespace) == nil {
			return "the operator is not ready"
		}
		return ""
	})
	listed(t.Context(), t)
	third.publish(t)
	allow(t, third)
	applyVersion(t, third.version)
	if got := reconcile(t); got != third.csv {
		t.Fatalf("OLM has installed %q, not %s", got, third.csv)
	}
	kept := map[string]bool{}
	for _, o := range next {
		kept[o.GetKind()+" "+o.GetName()] = true
	}
	dropped := slices.DeleteFunc(slices.Clone(old), func(o unstructured.Unstructured) bool { return kept[o.GetKind()+" "+o.GetName()] })
	goneAll(t, dropped)
	t.Logf("an upgrade deletes the %d objects that the next version lacks", len(dropped))
	i.run(t, "kubectl delete clusterextension verticalscaler")
	goneAll(t, next)
}

// watchesOneNamespace shows what docs/olm.md says about one watched namespace: the operator has no right in its own.
func watchesOneNamespace(t *testing.T, b bundle) {
	t.Helper()
	objects := render(t, b, func(extension map[string]any) {
		set(extension, "Inline", "spec", "config", "configType")
		set(extension, map[string]any{"watchNamespace": "shop"}, "spec", "config", "inline")
	})
	var roles []string
	for _, o := range objects {
		if o.GetKind() == "Role" {
			roles = append(roles, o.GetNamespace())
		}
	}
	if !slices.Equal(roles, []string{"shop"}) {
		t.Errorf("with one watched namespace, the operator has roles in %q; docs/olm.md says: only there", roles)
	}
}

// onTheNode schedules the operator of a bundle to the node that the test simulates. OLM v1 has no Subscription that could.
func onTheNode(t *testing.T, b bundle) bundle {
	t.Helper()
	b.editPod(t, func(spec map[string]any) {
		set(spec, map[string]any{corev1.LabelHostname: nodeName}, "nodeSelector")
		set(spec, []any{map[string]any{"key": taintKey, "operator": "Exists"}}, "tolerations")
	})
	return b
}

// deploymentOf is the Deployment in a ClusterServiceVersion.
func deploymentOf(t *testing.T, csv map[string]any) map[string]any {
	t.Helper()
	list, _, err := unstructured.NestedFieldNoCopy(csv, "spec", "install", "spec", "deployments")
	if err != nil {
		t.Fatal(err)
	}
	if all, ok := list.([]any); ok && len(all) == 1 {
		if first, ok := all[0].(map[string]any); ok {
			return first
		}
	}
	t.Fatalf("the bundle has not one Deployment: %v", list)
	return nil
}

// editPod changes the pod of the operator in a bundle.
func (b bundle) editPod(t *testing.T, change func(spec map[string]any)) {
	t.Helper()
	b.edit(t, csvFile, func(csv map[string]any) {
		spec, _, err := unstructured.NestedFieldNoCopy(deploymentOf(t, csv), "spec", "template", "spec")
		pod, ok := spec.(map[string]any)
		if err != nil || !ok {
			t.Fatalf("the Deployment has no pod: %v", err)
		}
		change(pod)
	})
}

// withoutAField copies a bundle and removes a field of the scaler's status.
func withoutAField(t *testing.T, b bundle) bundle {
	t.Helper()
	n := bundle{dir: filepath.Join(t.TempDir(), "broken")}
	if err := os.CopyFS(n.dir, os.DirFS(b.dir)); err != nil {
		t.Fatal(err)
	}
	n.edit(t, scalersFile, func(crd map[string]any) {
		versions, _, err := unstructured.NestedSlice(crd, "spec", "versions")
		first, ok := versions[0].(map[string]any)
		if err != nil || !ok {
			t.Fatalf("the CRD has no version: %v", err)
		}
		unstructured.RemoveNestedField(first, "schema", "openAPIV3Schema", "properties", "status", "properties", "summary")
		set(crd, []any{first}, "spec", "versions")
	})
	n.read(t)
	return n
}

// renamed changes a bundle to one with another Deployment, which has no pods, another service account, and nothing else.
func renamed(t *testing.T, b bundle) bundle {
	t.Helper()
	const name = "verticalscaler-operator-renamed"
	files, err := filepath.Glob(filepath.Join(b.dir, "manifests", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if filepath.Base(file) == filepath.Base(csvFile) {
			continue
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	b.edit(t, csvFile, func(csv map[string]any) {
		set(csv, []any{}, "spec", "customresourcedefinitions", "owned")
		d := deploymentOf(t, csv)
		set(d, name, "name")
		set(d, 0, "spec", "replicas")
		for _, list := range []string{"permissions", "clusterPermissions"} {
			all, _, err := unstructured.NestedFieldNoCopy(csv, "spec", "install", "spec", list)
			permissions, ok := all.([]any)
			if err != nil || !ok {
				t.Fatalf("the bundle has no %s: %v", list, err)
			}
			for _, p := range permissions {
				if permission, ok := p.(map[string]any); ok {
					permission["serviceAccountName"] = name
				}
			}
		}
	})
	return b
}

// lastLine is the last line of a text that is not empty.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

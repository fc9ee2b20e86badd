// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package install

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// TestEveryFileCanBeAppliedAgain applies each file of dist with client-side apply, then as the
// documentation says. A default that the API server adds to an atomic field, and that
// the file does not have, would be a conflict.
func TestEveryFileCanBeAppliedAgain(t *testing.T) {
	bare(t)
	mustRun(t, "kubectl create namespace again")
	defer func() { mustRun(t, "kubectl delete namespace again --wait=false") }()
	for _, path := range distFiles(t) {
		file := "dist/" + filepath.Base(path)
		t.Run(file, func(t *testing.T) {
			in := ""
			switch file {
			case "dist/monitoring.yaml", "dist/monitoring-cert-manager.yaml":
				return // its kinds are not served here
			case "dist/argocd.yaml", "dist/grafana.yaml":
				in = "-n again "
			}
			mustRun(t, "kubectl apply "+in+"-f "+file)
			mustRun(t, "kubectl apply --server-side "+in+"-f "+file)
			before := stored(t, in, file)
			mustRun(t, "kubectl apply --server-side "+in+"-f "+file)
			if after := stored(t, in, file); after != before {
				t.Errorf("applying %s again has changed something:\n%s\nbefore:\n%s", file, after, before)
			}
		})
	}
}

// stored are the generations of the objects in a file, and their data, if they have any. The data of a Secret is a token that
// Kubernetes adds.
func stored(t *testing.T, in, file string) string {
	t.Helper()
	table := mustRun(t, "kubectl get "+in+"-f "+file+" --no-headers -o custom-columns=KIND:.kind,NAME:.metadata.name,GENERATION:.metadata.generation,DATA:.data")
	var lines []string
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "Secret ") {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		t.Errorf("nothing of %s is stored:\n%s", file, table)
	}
	return strings.Join(lines, "")
}

// distFiles lists dist, the operator itself first.
func distFiles(t *testing.T) []string {
	t.Helper()
	others, err := filepath.Glob(filepath.Join(testkit.Root(), "dist", "[^i]*.yaml"))
	if err != nil || len(others) < 5 {
		t.Fatalf("dist holds only %v, %v", others, err)
	}
	return append([]string{filepath.Join(testkit.Root(), "dist", "install.yaml")}, others...)
}

// TestUpgradeByApplyingTheNewFile installs the previous version, uses it, and applies the new
// file over it, without --force-conflicts.
func TestUpgradeByApplyingTheNewFile(t *testing.T) {
	const clientSide, serverSide = "kubectl apply", "kubectl apply --server-side"
	for name, tc := range map[string]struct {
		install, upgrade string
		keeps            bool // what the new version no longer has
	}{
		"server-side":                  {install: serverSide, upgrade: serverSide},
		"client-side":                  {install: clientSide, upgrade: clientSide},
		"client-side then server-side": {install: clientSide, upgrade: serverSide},
		"server-side then client-side": {install: serverSide, upgrade: clientSide, keeps: true},
	} {
		t.Run(name, func(t *testing.T) {
			bare(t)
			mustRun(t, tc.install+" -f "+previous(t))
			running(t)
			o := operator(t)
			in := newNamespace(t)
			w, ours := scaled(in, v1beta1.UpdateModeInPlace), owned(in, "ours", v1beta1.UpdateModeInPlace)
			ours.isSized()
			o.Stop(t)
			pods := w.pods()

			if mustRun(t, tc.upgrade+" -f dist/install.yaml"); tc.upgrade == serverSide {
				mustRun(t, commandsOf(t, "## Upgrade")[0])
			}
			running(t)
			manager := mustRun(t, "kubectl get deployment verticalscaler-operator -n "+system+" -o jsonpath='{.spec.template.spec.containers[0]}'")
			if strings.Contains(manager, ":v0.0.0-previous") || !strings.Contains(manager, "MEMORY_LIMIT") {
				t.Errorf("the operator has not been upgraded: %s", manager)
			}
			if keeps := strings.Contains(manager, "GOMEMLIMIT"); keeps != tc.keeps {
				t.Errorf("the operator keeps a variable of the previous version: %t\n%s", keeps, manager)
			}
			if out, err := run(t, strings.Replace(tc.upgrade, "apply", "diff", 1)+" -f dist/install.yaml"); err != nil && !tc.keeps {
				t.Errorf("applying the file has left differences: %v\n%s", err, out)
			}
			operator(t)
			w.isSized()
			ours.isSized()
			if now := strings.Join(w.pods(), " "); now != strings.Join(pods, " ") {
				t.Errorf("pods are %v, not %v", now, pods)
			}
		})
	}
}

// previous writes the file of the previous version, as far as an upgrade depends on it. It has
// another image and configuration, a variable that is gone, older rules and columns, and atomic
// fields without the defaults of the API.
func previous(t *testing.T) (path string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Root(), "dist", "install.yaml"))
	must.Succeed(t, err)
	objects, err := testkit.Decoded(text)
	must.Succeed(t, err)
	var file bytes.Buffer
	for _, o := range objects {
		age(t, o)
		document, err := yaml.Marshal(o.Object)
		must.Succeed(t, err)
		file.WriteString("---\n" + string(document))
	}
	path = filepath.Join(t.TempDir(), "previous.yaml")
	must.Succeed(t, os.WriteFile(path, file.Bytes(), 0o600))
	return path
}

// age turns an object of the installation into that of the previous version.
func age(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	cut := func(fields ...string) { // the last entry of a list
		if list, _, err := unstructured.NestedSlice(o.Object, fields...); err != nil || len(list) < 2 {
			return
		} else if err := unstructured.SetNestedSlice(o.Object, list[:len(list)-1], fields...); err != nil {
			t.Fatal(err)
		}
	}
	switch o.GetKind() {
	case "ConfigMap":
		o.SetName("verticalscaler-config-previous")
	case "ClusterRole":
		if strings.HasSuffix(o.GetName(), "viewer") || strings.HasSuffix(o.GetName(), "editor") {
			cut("rules")
		}
	case "CustomResourceDefinition":
		unstructured.RemoveNestedField(o.Object, "spec", "names", "categories")
	case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
		cut("spec", "validations")
		for _, field := range []string{"matchConstraints", "matchResources"} {
			unstructured.RemoveNestedField(o.Object, "spec", field, "matchPolicy")
			unstructured.RemoveNestedField(o.Object, "spec", field, "namespaceSelector")
			if empty, _, _ := unstructured.NestedMap(o.Object, "spec", field, "objectSelector"); len(empty) == 0 {
				unstructured.RemoveNestedField(o.Object, "spec", field, "objectSelector")
			}
		}
	case "Service":
		o.SetAnnotations(nil)
	case "Deployment":
		text, err := o.MarshalJSON()
		must.Succeed(t, err)
		_, config, _ := strings.Cut(string(text), `"verticalscaler-config-`)
		config, _, _ = strings.Cut(config, `"`)
		_, tag, _ := strings.Cut(string(text), `"image":"`)
		tag, _, _ = strings.Cut(tag, `"`)
		tag = tag[strings.LastIndex(tag, ":"):]
		text = []byte(strings.NewReplacer("verticalscaler-config-"+config, "verticalscaler-config-previous", tag+`"`, `:v0.0.0-previous"`,
			`"MEMORY_LIMIT"`, `"GOMEMLIMIT"`, `"divisor":"0",`, "", `"apiVersion":"v1","fieldPath"`, `"fieldPath"`).Replace(string(text)))
		must.Succeed(t, o.UnmarshalJSON(text))
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestWanted(t *testing.T) {
	o := Options{Namespace: "ops", Deployment: "operator", Monitoring: true, SecureMetrics: true}
	objects, err := wanted(o, "uid-1")
	if err != nil {
		t.Fatal(err)
	}
	on := map[string]bool{}
	for _, o := range objects {
		on[o.want.GetKind()] = o.on
		if o.want.GetNamespace() != "ops" {
			t.Errorf("%s is in namespace %q", o.want.GetKind(), o.want.GetNamespace())
		}
		owners := []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "operator", UID: "uid-1"}}
		if diff := cmp.Diff(owners, o.want.GetOwnerReferences()); diff != "" {
			t.Errorf("%s: owner references (-want +got):\n%s", o.want.GetKind(), diff)
		}
	}
	if diff := cmp.Diff(map[string]bool{"ServiceMonitor": true, "PrometheusRule": true, "NetworkPolicy": false}, on); diff != "" {
		t.Errorf("what is on (-want +got):\n%s", diff)
	}
}

func TestScrapePlainly(t *testing.T) {
	objects, err := wanted(Options{Namespace: "ops", Deployment: "operator", Monitoring: true}, "uid-1")
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := unstructured.NestedSlice(objects[0].want.Object, "spec", "endpoints")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]any{map[string]any{"port": "metrics", "path": "/metrics", "scheme": "http"}}, got); diff != "" {
		t.Errorf("endpoints (-want +got):\n%s", diff)
	}
}

// Whatever the metrics are served with, a token is sent only to a server whose certificate
// was verified for the name of the Service, and never Prometheus's own token.
func TestATokenIsSentOnlyToAVerifiedServer(t *testing.T) {
	folder := func(files ...string) string {
		dir := t.TempDir()
		for _, name := range files {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	secret := map[string]any{"secret": map[string]any{"name": "verticalscaler-metrics-tls", "key": "ca.crt"}}
	openShift := map[string]any{"configMap": map[string]any{"name": "openshift-service-ca.crt", "key": "service-ca.crt"}}
	for name, tc := range map[string]struct {
		certDir string
		ca      map[string]any
	}{
		"a certificate is missing":          {"", secret},
		"the folder is missing":             {folder() + "/no", secret},
		"the folder is empty":               {folder(), secret},
		"cert-manager's":                    {folder("tls.crt", "tls.key", "ca.crt"), secret},
		"OpenShift's":                       {folder("tls.crt", "tls.key", "service-ca.crt"), openShift},
		"the user's, on OpenShift":          {folder("tls.crt", "tls.key", "ca.crt", "service-ca.crt"), secret},
		"OpenShift's, before its Secret is": {folder("service-ca.crt"), openShift},
	} {
		objects, err := wanted(Options{Namespace: "ops", Deployment: "operator", SecureMetrics: true, CertDir: tc.certDir}, "uid-1")
		if err != nil {
			t.Fatal(err)
		}
		want := []any{map[string]any{
			"port": "metrics", "path": "/metrics", "scheme": "https",
			"authorization": map[string]any{"credentials": map[string]any{"name": "verticalscaler-metrics-scraper", "key": "token"}},
			"tlsConfig":     map[string]any{"serverName": "verticalscaler-metrics.ops.svc", "ca": tc.ca},
		}}
		if diff := cmp.Diff(want, endpoints(objects[0].want)); diff != "" {
			t.Errorf("%s: endpoints (-want +got):\n%s", name, diff)
		}
	}
}

// Each alert has a section in the runbook, and each section has an alert.
func TestEachAlertHasItsSectionInTheRunbook(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "runbook.md"))
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, part := range strings.Split(string(text), "\n## ")[1:] {
		title, body, _ := strings.Cut(part, "\n")
		sections[title] = body
	}
	rule, err := read("prometheus_rule.yaml", "ops")
	if err != nil {
		t.Fatal(err)
	}
	groups, _, err := unstructured.NestedSlice(rule.Object, "spec", "groups")
	if err != nil {
		t.Fatal(err)
	}
	alerts := map[string]bool{}
	for _, group := range groups {
		for _, entry := range group.(map[string]any)["rules"].([]any) {
			alert := entry.(map[string]any)
			name := alert["alert"].(string)
			alerts[name] = true
			annotations := alert["annotations"].(map[string]any)
			want := "https://github.com/verticalscaler/verticalscaler-operator/blob/main/docs/runbook.md#" + strings.ToLower(name)
			if got := annotations["runbook_url"]; got != want {
				t.Errorf("%s leads to %v, want %s", name, got, want)
			}
			for _, part := range []string{"**Meaning:**", "**Impact:**", "**Diagnosis:**", "**Mitigation:**"} {
				if !strings.Contains(sections[name], part) {
					t.Errorf("the runbook has no section %s, or it lacks %s", name, part)
				}
			}
			if annotations["summary"] == nil || annotations["description"] == nil || alert["labels"].(map[string]any)["severity"] == nil {
				t.Errorf("%s lacks a summary, a description or a severity", name)
			}
		}
	}
	if len(alerts) == 0 {
		t.Error("there are no alerts")
	}
	for title := range sections {
		if strings.HasPrefix(title, "VerticalScaler") && !alerts[title] {
			t.Errorf("the runbook has a section %s, which is no alert", title)
		}
	}
}

// The job of the rules, the selector and the port are those of the Service, and the names
// those that the Role grants.
func TestObjectsFitWhatIsInstalled(t *testing.T) {
	file := func(path ...string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(append([]string{"..", "..", "..", "config"}, path...)...))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	prefix := regexp.MustCompile(`(?m)^namePrefix: (.*)$`).FindStringSubmatch(file("default", "kustomization.yaml"))[1]
	service := prefix + regexp.MustCompile(`(?m)^  name: (.*)$`).FindStringSubmatch(file("manager", "metrics_service.yaml"))[1]
	rules, err := files.ReadFile("objects/prometheus_rule.yaml")
	if err != nil {
		t.Fatal(err)
	}
	jobs := regexp.MustCompile(`job="([^"]*)"`).FindAllStringSubmatch(string(rules), -1)
	if len(jobs) == 0 {
		t.Error("the rules name no job")
	}
	for _, job := range jobs {
		if job[1] != service {
			t.Errorf("the rules are about job %q; the Service is %q", job[1], service)
		}
	}
	objects, err := wanted(Options{Namespace: "ops", Deployment: "operator"}, "uid-1")
	if err != nil {
		t.Fatal(err)
	}
	var granted []string
	for _, names := range regexp.MustCompile(`resourceNames: \[(.*)\]`).FindAllStringSubmatch(file("rbac", "own_namespace.yaml"), -1) {
		granted = append(granted, names[1])
	}
	for _, o := range objects {
		if !slices.Contains(granted, o.want.GetName()) {
			t.Errorf("%s %s is in none of the rules, which name %q", o.want.GetKind(), o.want.GetName(), granted)
		}
	}
}

// The Secrets and the name in the ServiceMonitor are those that the manifests create.
func TestTheServiceMonitorFitsTheManifests(t *testing.T) {
	objects, err := wanted(Options{Namespace: "verticalscaler-system", Deployment: "operator", SecureMetrics: true}, "uid-1")
	if err != nil {
		t.Fatal(err)
	}
	at := func(path ...string) string {
		t.Helper()
		value, _, err := unstructured.NestedString(endpoints(objects[0].want)[0].(map[string]any), path...)
		if err != nil || value == "" {
			t.Fatalf("%q is %q, %v", path, value, err)
		}
		return value
	}
	scraper, certificate := at("authorization", "credentials", "name"), at("tlsConfig", "ca", "secret", "name")
	for file, want := range map[string]string{
		"dist/monitoring.yaml":                                    "\nkind: Secret\nmetadata:\n  annotations:\n    kubernetes.io/service-account.name: " + scraper + "\n  name: " + scraper + "\n",
		"dist/monitoring-cert-manager.yaml":                       "\n  secretName: " + certificate + "\n",
		"dist/install.yaml":                                       "\n    service.beta.openshift.io/serving-cert-secret-name: " + certificate + "\n",
		"config/manager/manager.yaml":                             "\n          - secret:\n              name: " + certificate + "\n              optional: true\n",
		"docs/monitoring.md":                                      " create secret generic " + certificate + " ",
		"bundle/manifests/verticalscaler-metrics_v1_service.yaml": "\n    service.beta.openshift.io/serving-cert-secret-name: " + certificate + "\n",
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", filepath.FromSlash(file)))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("%s does not have %q", file, want)
		}
		if name := at("tlsConfig", "serverName"); strings.Contains(file, "cert-manager") && !strings.Contains(string(text), "\n  - "+name+"\n") {
			t.Errorf("%s has no certificate for %s", file, name)
		}
	}
}

func TestDiffers(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(have *unstructured.Unstructured)
		want   bool
	}{
		"the same":              {func(*unstructured.Unstructured) {}, false},
		"a label of the user's": {func(u *unstructured.Unstructured) { put(u, "x", "metadata", "labels", "release") }, false},
		"a field of the user's": {func(u *unstructured.Unstructured) { put(u, int64(5), "spec", "sampleLimit") }, false},
		"a status":              {func(u *unstructured.Unstructured) { put(u, "x", "status", "phase") }, false},
		"another owner beside":  {func(u *unstructured.Unstructured) { own(u, "uid-1", "uid-2") }, false},
		"no owner":              {func(u *unstructured.Unstructured) { own(u) }, true},
		"another owner":         {func(u *unstructured.Unstructured) { own(u, "uid-2") }, true},
		"a label of ours gone":  {func(u *unstructured.Unstructured) { u.SetLabels(nil) }, true},
		"a value changed": {func(u *unstructured.Unstructured) {
			put(u, "http", "spec", "selector", "matchLabels", "app.kubernetes.io/name")
		}, true},
		"an item less": {func(u *unstructured.Unstructured) { put(u, []any{}, "spec", "endpoints") }, true},
		"an item more": {func(u *unstructured.Unstructured) {
			put(u, append(endpoints(u), map[string]any{}), "spec", "endpoints")
		}, true},
		"a section gone":        {func(u *unstructured.Unstructured) { unstructured.RemoveNestedField(u.Object, "spec", "selector") }, true},
		"a list became a value": {func(u *unstructured.Unstructured) { put(u, "x", "spec", "endpoints") }, true},
		"a map became a value":  {func(u *unstructured.Unstructured) { put(u, "x", "spec", "selector") }, true},
		"we own what we want": {func(u *unstructured.Unstructured) {
			manage(u, Manager, "Apply", `{"f:spec":{"f:selector":{},"f:endpoints":{}}}`)
		}, false},
		"we own more":           {func(u *unstructured.Unstructured) { manage(u, Manager, "Apply", `{"f:spec":{"f:jobLabel":{}}}`) }, true},
		"others own more":       {func(u *unstructured.Unstructured) { manage(u, "kubectl", "Apply", `{"f:spec":{"f:jobLabel":{}}}`) }, false},
		"we owned it otherwise": {func(u *unstructured.Unstructured) { manage(u, Manager, "Update", `{"f:spec":{"f:jobLabel":{}}}`) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := wanted(Options{Namespace: "ops", Deployment: "operator", SecureMetrics: true}, "uid-1")
			if err != nil {
				t.Fatal(err)
			}
			have := objects[0].want.DeepCopy()
			tc.change(have)
			if got := differs(objects[0].want, have); got != tc.want {
				t.Errorf("differs() = %t", got)
			}
		})
	}
}

func put(u *unstructured.Unstructured, value any, path ...string) {
	if err := unstructured.SetNestedField(u.Object, value, path...); err != nil {
		panic(err)
	}
}

func endpoints(u *unstructured.Unstructured) []any {
	return u.Object["spec"].(map[string]any)["endpoints"].([]any)
}

func own(u *unstructured.Unstructured, uids ...string) {
	var owners []any
	for _, uid := range uids {
		owners = append(owners, map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "operator", "uid": uid})
	}
	put(u, owners, "metadata", "ownerReferences")
}

func manage(u *unstructured.Unstructured, manager, operation, fields string) {
	u.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: manager, Operation: metav1.ManagedFieldsOperationType(operation), FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
	}})
}

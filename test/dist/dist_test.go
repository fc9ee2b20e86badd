// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dist tests the files that users apply by URL: together they have the objects of all
// components, and each works with the operator that dist/install.yaml installs.
package dist

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// prefix is in front of each name in dist. New objects of Grafana and Argo CD's own ConfigMap
// come from a generator, and are tested with their component.
const prefix = "verticalscaler-"

// Components that change other objects, or that are bound in namespaces of the user's choice,
// have no file of their own.
var withoutFile = []string{"aggregated-roles", "high-availability", "namespaced-roles", "own-namespace", "watch-namespaces"}

// objectsIn returns the objects in the files, without lists of a kustomization.
func objectsIn(t *testing.T, paths ...string) (objects []unstructured.Unstructured) {
	t.Helper()
	for _, path := range paths {
		text, err := os.ReadFile(path)
		must.Succeed(t, err)
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
		for {
			var o unstructured.Unstructured
			if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			objects = append(objects, o)
		}
	}
	return objects
}

func filesOf(t *testing.T, pattern ...string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(append([]string{"..", ".."}, pattern...)...))
	if err != nil || len(found) == 0 {
		t.Fatalf("%v: %d files, %v", pattern, len(found), err)
	}
	return found
}

// The content is not compared here: "make verify" renders dist again.
func TestEveryComponentIsInAFile(t *testing.T) {
	published := map[string]bool{}
	for _, o := range objectsIn(t, filesOf(t, "dist", "*.yaml")...) {
		published[o.GetKind()+" "+o.GetName()] = true
	}
	for _, folder := range filesOf(t, "config", "components", "*") {
		component := filepath.Base(folder)
		objects := objectsOf(t, folder)
		for _, o := range objects {
			if name := o.GetKind() + " " + prefix + o.GetName(); !published[name] {
				t.Errorf("no file of dist has %s of the component %s: add it to make dist", name, component)
			}
		}
		if len(objects) == 0 && !slices.Contains(withoutFile, component) {
			if _, err := os.Stat(filepath.Join("..", "..", "dist", component+".yaml")); err != nil {
				t.Errorf("the component %s: %v", component, err)
			}
		}
	}
}

// objectsOf returns the objects that a component adds: the files in its list of resources.
func objectsOf(t *testing.T, folder string) []unstructured.Unstructured {
	t.Helper()
	if slices.Contains(withoutFile, filepath.Base(folder)) {
		return nil
	}
	kustomization := objectsIn(t, filepath.Join(folder, "kustomization.yaml"))[0]
	resources, _, err := unstructured.NestedStringSlice(kustomization.Object, "resources")
	must.Succeed(t, err)
	var paths []string
	for _, resource := range resources {
		paths = append(paths, filepath.Join(folder, resource))
	}
	return objectsIn(t, paths...)
}

// A binding for an account that does not exist grants nothing, and causes no error.
func TestEveryBindingNamesAnAccountThatExists(t *testing.T) {
	var accounts []string
	objects := objectsIn(t, filesOf(t, "dist", "*.yaml")...)
	for _, o := range objects {
		if o.GetKind() == "ServiceAccount" {
			accounts = append(accounts, o.GetNamespace()+"/"+o.GetName())
		}
	}
	bindings := 0
	for _, o := range objects {
		subjects, _, err := unstructured.NestedSlice(o.Object, "subjects")
		must.Succeed(t, err)
		for _, subject := range subjects {
			s, _ := subject.(map[string]any)
			account, _ := s["name"].(string)
			namespace, _ := s["namespace"].(string)
			if account = namespace + "/" + account; s["kind"] != "ServiceAccount" || !slices.Contains(accounts, account) {
				t.Errorf("%s %s grants its rights to %v, but the accounts are %q", o.GetKind(), o.GetName(), s, accounts)
			}
			bindings++
		}
	}
	if bindings < 8 {
		t.Errorf("dist holds only %d bindings", bindings)
	}
}

// Prometheus must not send a token to a server that cannot show a certificate for the Service, and must never send its own.
func TestPrometheusChecksTheServerThatItSendsATokenTo(t *testing.T) {
	objects := objectsIn(t, filesOf(t, "dist", "monitoring.yaml")...)
	monitor := objects[slices.IndexFunc(objects, func(o unstructured.Unstructured) bool { return o.GetKind() == "ServiceMonitor" })]
	endpoints, _, err := unstructured.NestedSlice(monitor.Object, "spec", "endpoints")
	must.Succeed(t, err)
	want := []any{map[string]any{
		"port": "metrics", "path": "/metrics", "scheme": "https",
		"authorization": map[string]any{"credentials": map[string]any{"name": "verticalscaler-metrics-scraper", "key": "token"}},
		"tlsConfig": map[string]any{
			"serverName": "verticalscaler-metrics.verticalscaler-system.svc",
			"ca":         map[string]any{"secret": map[string]any{"name": "verticalscaler-metrics-tls", "key": "ca.crt"}},
		},
	}}
	assert.Equal(t, "endpoints", want, endpoints)
}

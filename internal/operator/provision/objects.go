// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"embed"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

//go:embed objects/*.yaml
var files embed.FS

// object is one object as we want it.
type object struct {
	want *unstructured.Unstructured
	// on says whether the object should exist.
	on bool
}

// wanted returns the objects that the Deployment should own.
func wanted(o Options, owner types.UID) ([]object, error) {
	var out []object
	for _, f := range []struct {
		name string
		on   bool
	}{
		{"service_monitor.yaml", o.Monitoring},
		{"prometheus_rule.yaml", o.Monitoring},
		{"network_policy.yaml", o.NetworkPolicy},
	} {
		want, err := read(f.name, o.Namespace)
		if err != nil {
			return nil, err
		}
		if want.GetKind() == "ServiceMonitor" && !o.SecureMetrics {
			if err := scrapePlainly(want); err != nil {
				return nil, err
			}
		}
		want.SetNamespace(o.Namespace)
		want.SetLabels(map[string]string{
			"app.kubernetes.io/name":       "verticalscaler-operator",
			"app.kubernetes.io/managed-by": Manager,
		})
		// Without blockOwnerDeletion, which would take the right to update the
		// finalizers of Deployments where the API server guards owner references.
		want.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: o.Deployment, UID: owner}})
		out = append(out, object{want: want, on: f.on})
	}
	return out, nil
}

// read reads an object from its file.
func read(name, namespace string) (*unstructured.Unstructured, error) {
	text, err := files.ReadFile("objects/" + name)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	// By way of JSON, which the API server's answers come in too: numbers are of the
	// same type then.
	document, err := yaml.YAMLToJSONStrict([]byte(strings.ReplaceAll(string(text), "${NAMESPACE}", namespace)))
	if err != nil {
		return nil, fmt.Errorf("decoding %s: %w", name, err)
	}
	want := &unstructured.Unstructured{}
	if err := want.UnmarshalJSON(document); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", name, err)
	}
	return want, nil
}

// scrapePlainly asks for metrics that are served without TLS, to everybody.
func scrapePlainly(monitor *unstructured.Unstructured) error {
	endpoints, _, err := unstructured.NestedSlice(monitor.Object, "spec", "endpoints")
	if err != nil {
		return fmt.Errorf("reading the endpoints of the ServiceMonitor: %w", err)
	}
	for _, e := range endpoints {
		if endpoint, ok := e.(map[string]any); ok {
			endpoint["scheme"] = "http"
			delete(endpoint, "bearerTokenFile")
			delete(endpoint, "tlsConfig")
		}
	}
	return unstructured.SetNestedSlice(monitor.Object, endpoints, "spec", "endpoints")
}

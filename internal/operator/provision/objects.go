// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
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
		if want.GetKind() == "ServiceMonitor" {
			if err := scrape(want, o); err != nil {
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

// scrape adapts the ServiceMonitor to how the metrics are served.
func scrape(monitor *unstructured.Unstructured, o Options) error {
	endpoints, _, err := unstructured.NestedSlice(monitor.Object, "spec", "endpoints")
	if err != nil {
		return fmt.Errorf("reading the endpoints of the ServiceMonitor: %w", err)
	}
	for _, e := range endpoints {
		endpoint, ok := e.(map[string]any)
		switch {
		case !ok:
		case !o.SecureMetrics: // no TLS, and everybody may read
			endpoint["scheme"] = "http"
			delete(endpoint, "authorization")
			delete(endpoint, "tlsConfig")
		case isSignedByOpenShift(o.CertDir):
			ca := map[string]any{"configMap": map[string]any{"name": "openshift-service-ca.crt", "key": openShiftCAFile}}
			if err := unstructured.SetNestedMap(endpoint, ca, "tlsConfig", "ca"); err != nil {
				return fmt.Errorf("setting the CA of the ServiceMonitor: %w", err)
			}
		}
	}
	return unstructured.SetNestedSlice(monitor.Object, endpoints, "spec", "endpoints")
}

const (
	// certFile and caFile are the certificate and its CA in a Secret, as cert-manager writes them.
	certFile = "tls.crt"
	caFile   = "ca.crt"
	// openShiftCAFile is the CA of OpenShift's certificates for Services. OpenShift writes it to a
	// ConfigMap in each namespace, and no ca.crt to the Secret.
	openShiftCAFile = "service-ca.crt"
)

// isSignedByOpenShift says whether OpenShift has created the certificate in the folder.
func isSignedByOpenShift(certDir string) bool {
	return exists(certDir, openShiftCAFile) && !exists(certDir, caFile)
}

// exists says whether the folder has the file. It is false without a folder.
func exists(folder, file string) bool {
	if folder == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(folder, file))
	return err == nil
}

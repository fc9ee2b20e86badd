// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const (
	csvFile     = "manifests/verticalscaler-operator.clusterserviceversion.yaml"
	scalerCRD   = "manifests/autoscaling.verticalscaler.io_verticalscalers.yaml"
	viewerRole  = "manifests/verticalscaler-viewer_rbac.authorization.k8s.io_v1_clusterrole.yaml"
	editorRole  = "manifests/verticalscaler-editor_rbac.authorization.k8s.io_v1_clusterrole.yaml"
	resizerRole = "manifests/verticalscaler-resizer_rbac.authorization.k8s.io_v1_clusterrole.yaml"
	annotations = "metadata/annotations.yaml"
)

// breakages are ways to break a bundle, with the expected complaint. Tests with the tag
// "sdk" check what the SDK reports; empty means that it does not notice.
var breakages = map[string]struct {
	how func(*broken)
	// rule is the name of the rule that complains, or empty if the bundle cannot be read;
	// words are a part of the complaint.
	rule, words string
	// sdk is a part of the output of "operator-sdk bundle validate".
	sdk string
}{
	"a CRD is missing": {
		how:  func(b *broken) { b.remove(scalerCRD) },
		rule: "CRDs", words: "verticalscalers.autoscaling.verticalscaler.io v1beta1 is owned, but not in the bundle",
		sdk: `owned CRD "autoscaling.verticalscaler.io/v1beta1, Kind=VerticalScaler" not found in bundle`,
	},
	"an owned CRD is missing from the CSV": {
		how:  func(b *broken) { b.editOwned(func(owned []any) []any { return owned[:1] }) },
		rule: "BundleValidator", words: "is present in bundle", sdk: "is present in bundle",
	},
	"a CRD is in the bundle twice": {
		how:  func(b *broken) { b.write("manifests/again.yaml", b.read(scalerCRD)) },
		rule: "BundleValidator", words: "duplicate", sdk: "duplicate",
	},
	"a rule of a CRD is not CEL": {
		how:  func(b *broken) { b.replace(scalerCRD, "rule: self == '*' ||", "rule: self === '*' ||") },
		rule: "CRDs", words: "compilation failed",
	},
	"the examples are not JSON": {
		how:  func(b *broken) { b.annotate("alm-examples", "[{]") },
		rule: "ClusterServiceVersionValidator", words: "invalid", sdk: "invalid example",
	},
	"an example has a value that is refused": {
		how: func(b *broken) {
			b.replace(csvFile, `"updateMode": "Recommend"`, `"updateMode": "Now"`)
		},
		rule: "examples", words: `Unsupported value: "Now"`,
	},
	"an example breaks a rule of CEL": {
		how:  func(b *broken) { b.replace(csvFile, `"cpu": "50m"`, `"cpu": "50"`) },
		rule: "examples", words: "minAllowed.cpu must be at most maxAllowed.cpu",
	},
	"an example has a field that does not exist": {
		how: func(b *broken) {
			b.replace(csvFile, `"deploymentName": "web"`, `"deploymentName": "web", "deployment": "web"`)
		},
		rule: "examples", words: `unknown field "spec.deployment"`,
	},
	"an example has no status": {
		how: func(b *broken) {
			b.editExamples(func(e map[string]any) { delete(e, "status") })
		},
		rule: "examples", words: "has no status",
	},
	"a kind has no example": {
		how:  func(b *broken) { b.annotate("alm-examples", "[]") },
		rule: "ClusterServiceVersionValidator", words: "provided API should have an example annotation",
		sdk: "provided API should have an example annotation",
	},
	"the category is unknown": {
		how:  func(b *broken) { b.annotate("categories", "Autoscaling") },
		rule: "StandardCategoriesValidator", words: "Autoscaling", sdk: "Autoscaling",
	},
	"the capability level is misspelt": {
		how:  func(b *broken) { b.annotate("capabilities", "Autopilot") },
		rule: "StandardCapabilitiesValidator", words: "Autopilot", sdk: "Autopilot",
	},
	"minKubeVersion is not a full version": {
		how:  func(b *broken) { b.replace(csvFile, "minKubeVersion: 1.34.0", "minKubeVersion: v1.34") },
		rule: "ClusterServiceVersionValidator", words: "MinKubeVersion has an invalid value: v1.34",
		sdk: "MinKubeVersion has an invalid value: v1.34",
	},
	"minKubeVersion and OpenShift's version contradict each other": {
		how:  func(b *broken) { b.replace(csvFile, "minKubeVersion: 1.34.0", "minKubeVersion: 1.35.0") },
		rule: "OpenShift and Kubernetes versions", words: "OpenShift from 4.21 has Kubernetes 1.34",
	},
	"there is no version of OpenShift": {
		how: func(b *broken) {
			b.replace(annotations, "com.redhat.openshift.versions", "com.redhat.openshift.version")
		},
		rule: "OpenShift and Kubernetes versions", words: "minKubeVersion asks for the annotation",
	},
	"there is no icon": {
		how: func(b *broken) {
			b.edit(csvFile, func(csv map[string]any) { delete(csv["spec"].(map[string]any), "icon") })
		},
		rule: "what OpenShift's catalog requires", words: "there are 0 icons", sdk: "csv.Spec.Icon not specified",
	},
	"a maintainer has no address": {
		how:  func(b *broken) { b.replace(csvFile, "email: maintainers@verticalscaler.io", "email: nobody") },
		rule: "what OpenShift's catalog requires", words: "has no name or no address", sdk: "nobody",
	},
	"a link is not an address": {
		how: func(b *broken) {
			b.replace(csvFile, "url: https://github.com/verticalscaler/verticalscaler-operator\n", "url: docs\n")
		},
		rule: "OperatorHubV2Validator", words: "docs", sdk: "docs",
	},
	"the description does not say what is managed": {
		how:  func(b *broken) { b.replace(csvFile, "## What it manages", "## About") },
		rule: "description", words: "What it manages",
	},
	"a feature annotation is missing": {
		how:  func(b *broken) { b.annotate("features.operators.openshift.io/fips-compliant", nil) },
		rule: "feature annotations", words: "fips-compliant is \"\"",
	},
	"a feature annotation claims too much": {
		how:  func(b *broken) { b.annotate("features.operators.openshift.io/disconnected", "true") },
		rule: "feature annotations", words: "disconnected needs digests",
	},
	"a feature annotation has a name that OpenShift does not know": {
		how: func(b *broken) {
			b.replace(csvFile, "features.operators.openshift.io/csi", "features.operators.openshift.io/csv")
		},
		rule: "feature annotations", words: "csv: \"false\" is not an answer that OpenShift knows",
	},
	"a bundle with digests denies that it can be mirrored": {
		how: func(b *broken) {
			tagged := regexp.MustCompile(`(ghcr.io/verticalscaler/verticalscaler-operator):v[0-9.]+`)
			b.write(csvFile, tagged.ReplaceAllString(b.read(csvFile), "$1@sha256:"+strings.Repeat("0123abcd", 8)))
		},
		rule: "feature annotations", words: "all images have digests, but disconnected is false",
	},
	"the suggested namespace is not restricted": {
		how: func(b *broken) {
			b.annotate("operatorframework.io/suggested-namespace-template", `{"metadata":{"name":"verticalscaler-system"}}`)
		},
		rule: "suggested namespace", words: "want restricted",
	},
	"the range of updates is another version's": {
		how:  func(b *broken) { b.annotate("olm.skipRange", "<0.0.9") },
		rule: "names and versions", words: "olm.skipRange is \"<0.0.9\"",
	},
	"a channel has another name": {
		how:  func(b *broken) { b.replace(annotations, "candidate,fast,stable", "alpha") },
		rule: "GoodPracticesValidator", words: "alpha",
	},
	"the Dockerfile differs": {
		how:  func(b *broken) { b.replace("../bundle.Dockerfile", "default.v1=stable", "default.v1=fast") },
		rule: "Dockerfile", words: `label operators.operatorframework.io.bundle.channel.default.v1 is "fast"`,
	},
	"a media type is unknown": {
		how:  func(b *broken) { b.replace(annotations, "registry+v1", "registry+v2") },
		rule: "Dockerfile", words: "registry+v2", sdk: "registry+v2",
	},
	"a Deployment is beside the CSV": {
		how: func(b *broken) {
			b.write("manifests/more.yaml", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: more}}")
		},
		rule: "kinds", words: "Deployment more is of a kind that OLM does not install",
		sdk: "unsupported media type registry+v1 for bundle object",
	},
	"a ServiceMonitor is in the bundle": {
		how: func(b *broken) {
			b.write("manifests/more.yaml", "{apiVersion: monitoring.coreos.com/v1, kind: ServiceMonitor, metadata: {name: more}}")
		},
		rule: "what a cluster may not have", words: "ServiceMonitor more must not be in the bundle",
	},
	"a NetworkPolicy is in the bundle": {
		how: func(b *broken) {
			b.write("manifests/more.yaml", "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: more}}")
		},
		rule: "what a cluster may not have", words: "NetworkPolicy more must not be in the bundle",
	},
	"an install mode is missing": {
		how: func(b *broken) {
			b.replace(csvFile, "- supported: true\n    type: AllNamespaces", "- supported: false\n    type: AllNamespaces")
		},
		rule: "install modes", words: "AllNamespaces is not supported",
	},
	"another package is required": {
		how: func(b *broken) {
			b.write("metadata/dependencies.yaml",
				"dependencies:\n- type: olm.package\n  value: {packageName: other, version: \">1.0.0\"}\n")
		},
		rule: "dependencies", words: "there is metadata/dependencies.yaml",
	},
	"a dependency cannot be read": {
		how: func(b *broken) {
			b.write("metadata/dependencies.yaml",
				"dependencies:\n- type: olm.package\n  value: {packageName: other, version: newest}\n")
		},
		rule: "dependencies", words: "there is metadata/dependencies.yaml", sdk: "Invalid semver format version",
	},
	"the name of the OperatorCondition is not left to OLM": {
		how: func(b *broken) {
			b.editContainer(func(c map[string]any) {
				c["env"] = append(c["env"].([]any), map[string]any{"name": "OPERATOR_CONDITION_NAME", "value": "verticalscaler"})
			})
		},
		rule: "operator conditions", words: "sets OPERATOR_CONDITION_NAME",
	},
	"the namespaces are not OLM's": {
		how: func(b *broken) {
			b.replace(csvFile, "fieldPath: metadata.annotations['olm.targetNamespaces']", "fieldPath: metadata.namespace")
		},
		rule: "watched namespaces", words: "does not get WATCH_NAMESPACE from OLM",
	},
	"a right is granted with an asterisk": {
		how:  func(b *broken) { b.replace(viewerRole, "  - watch\n", "  - '*'\n") },
		rule: "rights", words: "ClusterRole verticalscaler-viewer",
	},
	"the operator may read Secrets": {
		how:  func(b *broken) { b.replace(csvFile, "          - limitranges\n", "          - secrets\n") },
		rule: "rights", words: "list secrets is too powerful",
	},
	"the operator may patch pods": {
		how:  func(b *broken) { b.replace(csvFile, "          - pods/resize\n", "          - pods\n") },
		rule: "rights", words: "patch pods is too powerful",
	},
	"the operator may create Deployments wherever it is installed": {
		how: func(b *broken) {
			b.replace(csvFile, "          - nodes\n          verbs:\n", "          - deployments\n          verbs:\n          - create\n")
			b.replace(csvFile, "        - apiGroups:\n          - \"\"\n          resources:\n          - deployments\n", "        - apiGroups:\n          - apps\n          resources:\n          - deployments\n")
		},
		rule: "rights", words: "clusterPermissions of verticalscaler-operator: create deployments is too powerful",
	},
	"a role for users grants creating Deployments": {
		how: func(b *broken) {
			b.replace(editorRole, "rules:\n", "rules:\n- apiGroups: [apps]\n  resources: [deployments]\n  verbs: [create]\n")
		},
		rule: "rights", words: "ClusterRole verticalscaler-editor: create deployments is too powerful",
	},
	"the role of editors grants resizing pods": {
		how: func(b *broken) {
			b.replace(editorRole, "rules:\n", "rules:\n- apiGroups: [\"\"]\n  resources: [pods/resize]\n  verbs: [patch]\n")
		},
		rule: "rights", words: "ClusterRole verticalscaler-editor: patch pods/resize is too powerful",
	},
	"the role for resizing pods grants nothing": {
		how:  func(b *broken) { b.replace(resizerRole, "  - patch\n", "  - get\n") },
		rule: "roles for people", words: "ClusterRole verticalscaler-resizer does not grant patch pods/resize",
	},
	"a role for users grants writing scalers, and no ScaledDeployments": {
		how:  func(b *broken) { b.replace(editorRole, "  - scaleddeployments\n", "") },
		rule: "roles for people", words: "ClusterRole verticalscaler-editor does not grant create scaleddeployments",
	},
	"a role for users grants writing policies of the whole cluster": {
		how: func(b *broken) {
			b.replace(editorRole, "  - scalingpolicies\n", "  - scalingpolicies\n  - clusterscalingpolicies\n")
		},
		rule: "rights", words: "ClusterRole verticalscaler-editor: create clusterscalingpolicies is too powerful",
	},
	"no role may write policies of a namespace": {
		how:  func(b *broken) { b.replace(editorRole, "  - scalingpolicies\n", "") },
		rule: "roles for people", words: "ClusterRole verticalscaler-editor does not grant create scalingpolicies",
	},
	"no role may read policies of the whole cluster": {
		how:  func(b *broken) { b.replace(viewerRole, "  - clusterscalingpolicies\n", "") },
		rule: "roles for people", words: "ClusterRole verticalscaler-viewer does not grant list clusterscalingpolicies",
	},
	"the operator may update scalers without dist/policies.yaml": {
		how: func(b *broken) {
			b.replace(csvFile, "          - verticalscalers\n          verbs:\n          - create\n", "          - verticalscalers\n          verbs:\n          - update\n")
		},
		rule: "rights for policies", words: "permissions of verticalscaler-operator: update verticalscalers is for policies",
	},
	"the operator may read namespaces without dist/policies.yaml": {
		how:  func(b *broken) { b.replace(csvFile, "          - nodes\n", "          - namespaces\n") },
		rule: "rights for policies", words: "clusterPermissions of verticalscaler-operator: watch namespaces is for policies",
	},
	"no role may write scalers": {
		how: func(b *broken) {
			b.remove(editorRole)
		},
		rule: "roles for people", words: "there is no ClusterRole verticalscaler-editor",
	},
	"the image is not among the related ones": {
		how: func(b *broken) {
			b.editContainer(func(c map[string]any) { c["image"] = "ghcr.io/verticalscaler/verticalscaler-operator:v9.9.9" })
		},
		rule: "images", words: "v9.9.9, which is not among the relatedImages",
	},
	"the related image is not an image": {
		how: func(b *broken) {
			b.edit(csvFile, func(csv map[string]any) {
				related := csv["spec"].(map[string]any)["relatedImages"].([]any)
				related[0].(map[string]any)["image"] = "Not An Image"
			})
		},
		rule: "BundleValidator", words: "Not An Image",
	},
	"a platform is labelled that pods are not scheduled to": {
		how: func(b *broken) {
			b.replace(csvFile, "operatorframework.io/arch.arm64", "operatorframework.io/arch.s390x")
		},
		rule: "platforms", words: "s390x", sdk: "s390x",
	},
	"a container requests nothing": {
		how: func(b *broken) {
			b.editContainer(func(c map[string]any) { delete(c["resources"].(map[string]any), "requests") })
		},
		rule: "GoodPracticesValidator", words: "resource", sdk: "requests",
	},
	"a container has no probe": {
		how:  func(b *broken) { b.editContainer(func(c map[string]any) { delete(c, "readinessProbe") }) },
		rule: "requests, limits and probes", words: "not both a liveness and a readiness probe",
	},
	"a container may gain privileges": {
		how: func(b *broken) {
			b.replace(csvFile, "allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true")
		},
		rule: "pod security", words: "may gain privileges",
	},
	"a field of the status has no descriptor": {
		how:  func(b *broken) { b.editOwned(withoutLastStatusDescriptor) },
		rule: "descriptors", words: "has no descriptor",
	},
	"a kind names no resources": {
		how: func(b *broken) {
			b.editOwned(func(owned []any) []any {
				delete(owned[0].(map[string]any), "resources")
				return owned
			})
		},
		rule: "descriptors", words: "names no resources",
	},
	"the hidden kind is another one": {
		how: func(b *broken) {
			b.annotate("operators.operatorframework.io/internal-objects", `["others.example.com"]`)
		},
		rule: "internal objects", words: "others.example.com is internal, but not in the bundle",
	},
	"the name of the CSV is not a DNS name": {
		how: func(b *broken) {
			b.replace(csvFile, "  name: verticalscaler-operator.v", "  name: VerticalScaler.v")
		},
		rule: "ClusterServiceVersionValidator", words: "VerticalScaler.v", sdk: "VerticalScaler.v",
	},
	"there is no CSV": {
		how:   func(b *broken) { b.remove(csvFile) },
		words: "unable to find a csv", sdk: "csv",
	},
}

func TestEveryBrokenBundleIsRefused(t *testing.T) {
	rules := map[string]Rule{}
	for _, rule := range Rules() {
		rules[rule.Name] = rule
	}
	for name, tc := range breakages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := breakBundle(t, tc.how)
			var complaints []string
			if b, err := Read(dir); err != nil {
				complaints = []string{err.Error()}
			} else if rule, ok := rules[tc.rule]; ok {
				complaints = rule.Check(b)
			}
			if !contains(complaints, tc.words) {
				t.Errorf("want %q of %q; all rules together have %s", tc.words, tc.rule, listed(Complaints(dir)))
			}
		})
	}
}

// broken is a copy of the bundle to break.
type broken struct {
	t   testing.TB
	dir string
}

// breakBundle creates a copy of the bundle to break.
func breakBundle(t testing.TB, how func(*broken)) (dir string) {
	t.Helper()
	b := &broken{t, copyBundle(t)}
	how(b)
	return b.dir
}

func (b *broken) path(file string) string { return filepath.Join(b.dir, filepath.FromSlash(file)) }

func (b *broken) read(file string) string {
	b.t.Helper()
	data, err := os.ReadFile(b.path(file))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(data)
}

func (b *broken) write(file, text string) {
	b.t.Helper()
	if err := os.WriteFile(b.path(file), []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *broken) remove(file string) {
	b.t.Helper()
	if err := os.Remove(b.path(file)); err != nil {
		b.t.Fatal(err)
	}
}

// replace replaces the first occurrence of a text, which must exist.
func (b *broken) replace(file, from, to string) {
	b.t.Helper()
	text := b.read(file)
	if !strings.Contains(text, from) {
		b.t.Fatalf("there is no %q in %s", from, file)
	}
	b.write(file, strings.Replace(text, from, to, 1))
}

// edit changes the object in a file.
func (b *broken) edit(file string, change func(map[string]any)) {
	b.t.Helper()
	o := readObject(b.t, b.path(file))
	change(o.Object)
	b.write(file, asYAML(b.t, o.Object))
}

// annotate sets an annotation of the CSV; nil removes it.
func (b *broken) annotate(key string, value any) {
	b.t.Helper()
	b.edit(csvFile, func(csv map[string]any) {
		annotations := csv["metadata"].(map[string]any)["annotations"].(map[string]any)
		if _, ok := annotations[key]; !ok {
			b.t.Fatalf("there is no annotation %s", key)
		}
		if delete(annotations, key); value != nil {
			annotations[key] = value
		}
	})
}

// editContainer changes the manager's container.
func (b *broken) editContainer(change func(map[string]any)) {
	b.t.Helper()
	b.edit(csvFile, func(csv map[string]any) {
		deployments, _, err := unstructured.NestedFieldNoCopy(csv, "spec", "install", "spec", "deployments")
		if err != nil {
			b.t.Fatal(err)
		}
		deployment := deployments.([]any)[0].(map[string]any)
		containers, found, err := unstructured.NestedFieldNoCopy(deployment, "spec", "template", "spec", "containers")
		if err != nil || !found {
			b.t.Fatalf("there is no container: %v", err)
		}
		change(containers.([]any)[0].(map[string]any))
	})
}

// editOwned changes the CRD descriptions in the CSV.
func (b *broken) editOwned(change func([]any) []any) {
	b.t.Helper()
	b.edit(csvFile, func(csv map[string]any) {
		definitions := csv["spec"].(map[string]any)["customresourcedefinitions"].(map[string]any)
		definitions["owned"] = change(definitions["owned"].([]any))
	})
}

func withoutLastStatusDescriptor(owned []any) []any {
	for _, o := range owned {
		if d, ok := o.(map[string]any)["statusDescriptors"].([]any); ok {
			o.(map[string]any)["statusDescriptors"] = d[:len(d)-1]
		}
	}
	return owned
}

// editExamples changes each example.
func (b *broken) editExamples(change func(map[string]any)) {
	b.t.Helper()
	var examples []map[string]any
	csv := readObject(b.t, b.path(csvFile)).Object
	text, _, err := unstructured.NestedString(csv, "metadata", "annotations", "alm-examples")
	if err != nil {
		b.t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text), &examples); err != nil {
		b.t.Fatal(err)
	}
	for _, e := range examples {
		change(e)
	}
	changed, err := json.Marshal(examples)
	if err != nil {
		b.t.Fatal(err)
	}
	b.annotate("alm-examples", string(changed))
}

// Reading and writing an object must not change the file. Otherwise, a broken copy might
// differ from the bundle although nothing was broken.
func TestWritingAnObjectChangesNothingElse(t *testing.T) {
	b := &broken{t, copyBundle(t)}
	b.edit(csvFile, func(map[string]any) {})
	var before, after map[string]any
	if err := yaml.Unmarshal([]byte(b.read(csvFile)), &after); err != nil {
		t.Fatal(err)
	}
	before = readObject(t, inTree("bundle", filepath.FromSlash(csvFile))).Object
	if asYAML(t, before) != asYAML(t, after) {
		t.Error("a file that was read and written is another one")
	}
}

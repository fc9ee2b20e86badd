// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/manifests"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/crdschema"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// inTree returns a path in the source tree. Tests run in the folder of their package.
func inTree(path ...string) string {
	return filepath.Join(append([]string{"..", ".."}, path...)...)
}

func bundleOf(t *testing.T) *manifests.Bundle {
	t.Helper()
	b, err := manifests.GetBundleFromDir(inTree("bundle"))
	must.Succeed(t, err)
	return b
}

// Consoles offer the examples as templates: an API server accepts each of them, and each kind has one.
func TestTheExamplesAreValid(t *testing.T) {
	b := bundleOf(t)
	var examples []map[string]any
	// As the API server decodes: integers stay integers.
	must.Succeed(t, utiljson.Unmarshal([]byte(b.CSV.Annotations["alm-examples"]), &examples))
	schemas := map[string]*crdschema.Schema{}
	for _, crd := range b.V1CRDs {
		schema, err := crdschema.Of(crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
		must.Succeed(t, err)
		schemas[crd.Spec.Names.Kind] = schema
	}
	shown := map[string]bool{}
	for _, object := range examples {
		example := &unstructured.Unstructured{Object: object}
		shown[example.GetKind()] = true
		schema := schemas[example.GetKind()]
		if schema == nil {
			t.Errorf("there is no CRD of example %s %s", example.GetKind(), example.GetName())
			continue
		}
		for _, problem := range schema.Refusals(example) {
			t.Errorf("example %s %s: %s", example.GetKind(), example.GetName(), problem)
		}
	}
	for kind := range schemas {
		if !shown[kind] {
			t.Errorf("%s has no example", kind)
		}
	}
}

// OLM grants these rights in all watched namespaces, without a question.
func TestTheBundleGrantsNothingPowerful(t *testing.T) {
	never := []string{
		"secrets", "pods/exec", "pods/attach", "pods/portforward", "pods/ephemeralcontainers", "pods/eviction", "serviceaccounts/token", "nodes/proxy",
		"customresourcedefinitions", "roles", "rolebindings", "clusterroles", "certificatesigningrequests", "*",
	}
	readOnly := []string{"pods", "nodes", "namespaces", "replicasets", "configmaps", "clusterrolebindings"}
	bindings := []string{"verticalscaler-manager-policies", "verticalscaler-manager-recreate"}
	reads := []string{"get", "list", "watch"}
	csv := bundleOf(t).CSV
	spec := csv.Spec.InstallStrategy.StrategySpec
	rules := []rbacv1.PolicyRule{}
	for _, p := range append(spec.Permissions, spec.ClusterPermissions...) {
		rules = append(rules, p.Rules...)
	}
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			isWriting := slices.ContainsFunc(rule.Verbs, func(verb string) bool { return !slices.Contains(reads, verb) })
			if slices.Contains(never, resource) || slices.Contains(rule.Verbs, "*") || slices.Contains(readOnly, resource) && isWriting || resource == "clusterrolebindings" && !slices.Equal(rule.ResourceNames, bindings) {
				t.Errorf("the bundle grants %v", rule)
			}
		}
	}
	if len(rules) < 10 {
		t.Errorf("there are only %d rules", len(rules))
	}
}

// The links of the description lead to files of this repository.
func TestLinksLeadToExistingFiles(t *testing.T) {
	const files = "https://github.com/verticalscaler/verticalscaler-operator/blob/main/"
	count := 0
	for _, link := range bundleOf(t).CSV.Spec.Links {
		if path, ok := strings.CutPrefix(link.URL, files); ok {
			count++
			if _, err := os.Stat(inTree(filepath.FromSlash(path))); err != nil {
				t.Errorf("link %q: %v", link.Name, err)
			}
		}
	}
	if count < 3 {
		t.Errorf("only %d links lead to files", count)
	}
}

// Without its CRD, all ScaledDeployments are deleted, and their Deployments with them. So no tool prunes a CRD.
func TestToolsDoNotPruneCRDs(t *testing.T) {
	want := map[string]string{
		"argocd.argoproj.io/sync-options": "Prune=false,Delete=false", "kustomize.toolkit.fluxcd.io/prune": "disabled", "helm.sh/resource-policy": "keep",
	}
	for _, crd := range bundleOf(t).V1CRDs {
		for name, value := range want {
			if got := crd.Annotations[name]; got != value {
				t.Errorf("the bundle's CRD %s: annotation %s is %q", crd.Name, name, got)
			}
		}
	}
	data, err := os.ReadFile(inTree("dist", "install.yaml"))
	must.Succeed(t, err)
	crds := strings.Count(string(data), "\nkind: CustomResourceDefinition\n")
	for name, value := range want {
		if got := strings.Count(string(data), "\n    "+name+": "+value+"\n"); got != crds || crds == 0 {
			t.Errorf("%d of %d CRDs of dist/install.yaml have the annotation %s", got, crds, name)
		}
	}
}

// A scaler is limited to its own namespace, so it has no field for another one.
func TestAScalerNamesNoNamespace(t *testing.T) {
	data, err := os.ReadFile(inTree("config", "crd", "bases", "autoscaling.verticalscaler.io_verticalscalers.yaml"))
	must.Succeed(t, err)
	if strings.Contains(strings.ToLower(string(data)), " namespace:\n") {
		t.Error("a field of the CRD is a namespace")
	}
}

// Consoles show a sentence about each example that users may create.
func TestTheExamplesAreDescribed(t *testing.T) {
	annotations := bundleOf(t).CSV.Annotations
	var examples []unstructured.Unstructured
	var hidden []string
	about := map[string]struct {
		Description string `json:"description"`
	}{}
	for name, into := range map[string]any{"alm-examples": &examples, "operators.operatorframework.io/internal-objects": &hidden, "alm-examples-metadata": &about} {
		if err := utiljson.Unmarshal([]byte(annotations[name]), into); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	names := map[string]bool{}
	for _, e := range examples {
		if slices.ContainsFunc(hidden, func(resource string) bool {
			name, _, _ := strings.Cut(resource, ".")
			return strings.TrimSuffix(name, "s") == strings.TrimSuffix(strings.ToLower(e.GetKind()), "s")
		}) {
			continue
		}
		names[e.GetName()] = true
		if about[e.GetName()].Description == "" {
			t.Errorf("%s %s is not described", e.GetKind(), e.GetName())
		}
	}
	for name := range about {
		if !names[name] {
			t.Errorf("%s is described, and no example", name)
		}
	}
}

// The image is built for the architectures that the bundle promises, and pods run on no other.
func TestTheArchitectures(t *testing.T) {
	csv := bundleOf(t).CSV
	var promised []string
	for label := range csv.Labels {
		if arch, ok := strings.CutPrefix(label, "operatorframework.io/arch."); ok {
			promised = append(promised, arch)
		}
	}
	slices.Sort(promised)
	docs, err := os.ReadFile(inTree("docs", "release.md"))
	must.Succeed(t, err)
	if command := "PLATFORMS=linux/" + strings.Join(promised, ",linux/") + "\n"; !strings.Contains(string(docs), command) {
		t.Errorf("docs/release.md has no %q", command)
	}
	terms := csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs[0].Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for _, want := range terms[0].MatchExpressions {
		if want.Key == "kubernetes.io/arch" && !slices.Equal(want.Values, promised) {
			t.Errorf("pods run on %q, and %q are promised", want.Values, promised)
		}
	}
}

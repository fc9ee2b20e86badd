// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"fmt"
	"slices"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// What both versions of OLM can install. Version 1 installs in all namespaces, and supports
// no dependencies and no OperatorConditions.
var contentRules = []Rule{
	{"kinds", supportedKinds},
	{"what a cluster may not have", nothingOptional},
	{"install modes", installModes},
	{"dependencies", noDependencies},
	{"operator conditions", noOperatorCondition},
	{"webhooks", noWebhooks},
	{"object names", objectNames},
	{"size", compressedSize},
}

// supportedKinds are the kinds that both versions of OLM create.
func supportedKinds(b *Bundle) (out []string) {
	supported := []string{
		"ClusterServiceVersion", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Service",
		"ServiceAccount", "Secret", "ConfigMap", "PodDisruptionBudget", "PriorityClass", "VerticalPodAutoscaler",
		"ConsoleYAMLSample", "ConsoleQuickStart", "ConsoleCLIDownload", "ConsoleLink", "ConsolePlugin",
		"ServiceMonitor", "PrometheusRule", "PodMonitor", "NetworkPolicy",
	}
	for _, o := range b.Objects {
		if !slices.Contains(supported, o.GetKind()) {
			out = append(out, fmt.Sprintf("%s %s is of a kind that OLM does not install", o.GetKind(), o.GetName()))
		}
	}
	return out
}

// nothingOptional rejects objects that OLM cannot install in every cluster. Without the
// CRDs of monitoring, the whole installation fails, and OpenShift's catalog rejects network
// policies. The operator creates these objects itself. A Secret does not belong in a public
// image.
func nothingOptional(b *Bundle) (out []string) {
	for _, o := range b.Objects {
		switch o.GetKind() {
		case "ServiceMonitor", "PodMonitor", "PrometheusRule", "VerticalPodAutoscaler", "NetworkPolicy", "Secret",
			"ConsoleYAMLSample", "ConsoleQuickStart", "ConsoleCLIDownload", "ConsoleLink", "ConsolePlugin":
			out = append(out, fmt.Sprintf("%s %s must not be in the bundle", o.GetKind(), o.GetName()))
		}
	}
	return out
}

func installModes(b *Bundle) (out []string) {
	supported := map[v1alpha1.InstallModeType]bool{}
	for _, m := range b.CSV.Spec.InstallModes {
		supported[m.Type] = m.Supported
	}
	for _, mode := range []v1alpha1.InstallModeType{"OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"} {
		if !supported[mode] {
			out = append(out, fmt.Sprintf("%s is not supported", mode))
		}
	}
	return out
}

func noDependencies(b *Bundle) (out []string) {
	for _, name := range []string{"dependencies.yaml", "properties.yaml"} {
		if b.exists("metadata", name) {
			out = append(out, fmt.Sprintf("there is metadata/%s", name))
		}
	}
	types, err := properties(b)
	if err != nil {
		out = append(out, err.Error())
	}
	for _, t := range types {
		out = append(out, fmt.Sprintf("there is property %s", t))
	}
	for _, crd := range b.CSV.Spec.CustomResourceDefinitions.Required {
		out = append(out, fmt.Sprintf("CRD %s is required", crd.Name))
	}
	for _, api := range b.CSV.Spec.APIServiceDefinitions.Required {
		out = append(out, fmt.Sprintf("API %s is required", api.Name))
	}
	for _, api := range b.CSV.Spec.NativeAPIs {
		out = append(out, fmt.Sprintf("native API %s is required", api))
	}
	return out
}

// noOperatorCondition leaves the name of the OperatorCondition to OLM, which sets it if
// there is one.
func noOperatorCondition(b *Bundle) (out []string) {
	for _, d := range b.deployments() {
		for _, c := range d.Spec.Template.Spec.Containers {
			for _, e := range c.Env {
				if e.Name == "OPERATOR_CONDITION_NAME" {
					out = append(out, fmt.Sprintf("container %s sets %s", c.Name, e.Name))
				}
			}
		}
	}
	return out
}

func noWebhooks(b *Bundle) (out []string) {
	for _, w := range b.CSV.Spec.WebhookDefinitions {
		out = append(out, fmt.Sprintf("there is webhook %s", w.GenerateName))
	}
	for _, crd := range b.V1CRDs {
		if c := crd.Spec.Conversion; c != nil && c.Strategy != "None" {
			out = append(out, fmt.Sprintf("CRD %s is converted by %s", crd.Name, c.Strategy))
		}
	}
	return out
}

// objectNames requires DNS names, and unique names per kind.
func objectNames(b *Bundle) (out []string) {
	seen := map[string]bool{}
	once := func(kind, name string) {
		if seen[kind+"/"+name] {
			out = append(out, fmt.Sprintf("there are two of %s %s", kind, name))
		}
		seen[kind+"/"+name] = true
		for _, problem := range validation.IsDNS1123Subdomain(name) {
			out = append(out, fmt.Sprintf("%s %q: %s", kind, name, problem))
		}
	}
	for _, o := range b.Objects {
		once(o.GetKind(), o.GetName())
	}
	for _, d := range b.deployments() {
		once("Deployment", d.Name)
		for _, problem := range validation.IsDNS1123Label(d.Name) {
			out = append(out, fmt.Sprintf("Deployment %q: %s", d.Name, problem))
		}
	}
	if len(b.deployments()) != 1 {
		out = append(out, fmt.Sprintf("there are %d Deployments, want one", len(b.deployments())))
	}
	accounts := map[string]bool{}
	strategy := b.CSV.Spec.InstallStrategy.StrategySpec
	for _, p := range append(slices.Clone(strategy.Permissions), strategy.ClusterPermissions...) {
		accounts[p.ServiceAccountName] = true
	}
	for _, d := range b.deployments() {
		if name := d.Spec.Template.Spec.ServiceAccountName; !accounts[name] {
			out = append(out, fmt.Sprintf("Deployment %s runs as %q, which has no rights", d.Name, name))
		}
	}
	return out
}

// mostBytes is the maximum size of a ConfigMap, into which OLM unpacks a bundle.
const mostBytes = 1 << 20

func compressedSize(b *Bundle) []string {
	if b.CompressedSize > mostBytes/2 {
		return []string{fmt.Sprintf("it takes %d bytes, more than half of the %d that OLM can unpack", b.CompressedSize, mostBytes)}
	}
	return nil
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/operator-framework/operator-controller/internal/operator-controller/rukpak/bundle/source"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// right is one verb on one resource, in all namespaces if namespace is empty, and on all objects if name is empty.
type right struct{ namespace, group, resource, verb, name string }

// printRights prints what OLM v1 up to 1.10 needs to install a bundle: the namespace, and the service account with the least
// rights. The roles are named after the bundle, so that the rights for two versions can exist side by side during an upgrade.
func printRights(flags *flag.FlagSet, args []string, out io.Writer) error {
	files, extension, err := inputs(flags, args)
	if err != nil {
		return err
	}
	objects, err := rendered(files, extension)
	if err != nil {
		return err
	}
	needed, err := needs(objects, extension.Name)
	if err != nil {
		return err
	}
	bundle, err := source.FromFS(files).GetBundle()
	if err != nil {
		return fmt.Errorf("reading the bundle: %w", err)
	}
	namespace, account := extension.Spec.Namespace, extension.Spec.ServiceAccount.Name
	role := strings.Replace(bundle.CSV.Name, bundle.PackageName, account, 1)

	fmt.Fprintf(out, "# The namespace, and the service account with which OLM v1 up to 1.10 installs %s.\n", bundle.CSV.Name)
	fmt.Fprintf(out, "# Generated from the bundle by \"make dist\". Do not edit.\n")
	documents := []map[string]any{
		manifest("v1", "Namespace", "", namespace, map[string]any{}),
		manifest("v1", "ServiceAccount", namespace, account, map[string]any{}),
	}
	labels := map[string]any{"pod-security.kubernetes.io/enforce": "restricted"}
	if err := unstructured.SetNestedMap(documents[0], labels, "metadata", "labels"); err != nil {
		return err
	}
	for _, in := range []string{"", namespace} {
		prefix := "Cluster"
		if in != "" {
			prefix = ""
		}
		subject := map[string]any{"kind": "ServiceAccount", "namespace": namespace, "name": account}
		documents = append(documents,
			manifest(rbacv1.SchemeGroupVersion.String(), prefix+"Role", in, role, map[string]any{"rules": rules(needed, in)}),
			manifest(rbacv1.SchemeGroupVersion.String(), prefix+"RoleBinding", in, role, map[string]any{
				"roleRef":  map[string]any{"apiGroup": rbacv1.GroupName, "kind": prefix + "Role", "name": role},
				"subjects": []any{subject},
			}))
	}
	for _, d := range documents {
		if err := document(out, d); err != nil {
			return err
		}
	}
	return nil
}

func manifest(apiVersion, kind, namespace, name string, content map[string]any) map[string]any {
	metadata := map[string]any{"name": name}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	content["apiVersion"], content["kind"], content["metadata"] = apiVersion, kind, metadata
	return content
}

// needs are the rights to install, watch, upgrade and replace the objects, without those that others include.
func needs(objects []unstructured.Unstructured, extension string) ([]right, error) {
	all := map[right]bool{
		// For the admission plugin OwnerReferencesPermissionEnforcement: the objects block the deletion of their owner.
		{group: "olm.operatorframework.io", resource: "clusterextensions/finalizers", verb: "update", name: extension}: true,
	}
	for _, object := range objects {
		plural, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
		on := right{namespace: object.GetNamespace(), group: plural.Group, resource: plural.Resource}
		add := func(namespace, name string, verbs ...string) {
			for _, verb := range verbs {
				all[right{namespace, on.group, on.resource, verb, name}] = true
			}
		}
		add(on.namespace, "", "create")
		add(on.namespace, object.GetName(), "get", "patch", "delete")
		// OLM watches each kind in all namespaces.
		add("", "", "list", "watch")
		// Kubernetes lets a user grant only rights that the user has.
		if kind := object.GetKind(); kind == "Role" || kind == "ClusterRole" {
			granted, err := grants(object)
			if err != nil {
				return nil, err
			}
			maps.Copy(all, granted)
		}
	}
	return slices.DeleteFunc(slices.Collect(maps.Keys(all)), func(r right) bool { return isIncluded(r, all) }), nil
}

// grants are the rights in a role.
func grants(role unstructured.Unstructured) (map[right]bool, error) {
	var content rbacv1.ClusterRole // a Role has the same rules
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(role.Object, &content); err != nil {
		return nil, fmt.Errorf("decoding role %s: %w", role.GetName(), err)
	}
	out := map[right]bool{}
	for _, rule := range content.Rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, verb := range rule.Verbs {
			for _, path := range rule.NonResourceURLs {
				out[right{resource: path, verb: verb}] = true
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, name := range names {
						out[right{role.GetNamespace(), group, resource, verb, name}] = true
					}
				}
			}
		}
	}
	return out, nil
}

// isIncluded reports whether a wider right includes this one.
func isIncluded(r right, all map[right]bool) bool {
	for _, namespace := range []string{r.namespace, ""} {
		for _, name := range []string{r.name, ""} {
			if wider := (right{namespace, r.group, r.resource, r.verb, name}); wider != r && all[wider] {
				return true
			}
		}
	}
	return false
}

// rules are the rights in a namespace as rules. The verbs of one resource and name are joined first, then names with the
// same verbs, then resources with the same verbs and names.
func rules(needed []right, namespace string) (out []any) {
	verbs := map[right][]string{}
	for _, r := range needed {
		if r.namespace == namespace {
			key := right{group: r.group, resource: r.resource, name: r.name}
			verbs[key] = append(verbs[key], r.verb)
		}
	}
	names := map[right][]string{}
	for key, list := range verbs {
		slices.Sort(list)
		joined := right{group: key.group, resource: key.resource, verb: strings.Join(list, ",")}
		if key.name == "" {
			joined.name = "*"
		}
		names[joined] = append(names[joined], key.name)
	}
	resources := map[right][]string{}
	for key, list := range names {
		slices.Sort(list)
		joined := right{group: key.group, verb: key.verb, name: strings.Join(list, ",")}
		resources[joined] = append(resources[joined], key.resource)
	}
	keys := slices.SortedFunc(maps.Keys(resources), func(a, b right) int {
		slices.Sort(resources[a])
		slices.Sort(resources[b])
		return cmp.Or(cmp.Compare(a.group, b.group), slices.Compare(resources[a], resources[b]), cmp.Compare(a.name, b.name), cmp.Compare(a.verb, b.verb))
	})
	for _, key := range keys {
		rule := map[string]any{"verbs": list(key.verb)}
		if path := resources[key]; strings.HasPrefix(path[0], "/") {
			rule["nonResourceURLs"] = list(strings.Join(path, ","))
		} else {
			rule["apiGroups"], rule["resources"] = []any{key.group}, list(strings.Join(path, ","))
		}
		if key.name != "" {
			rule["resourceNames"] = list(key.name)
		}
		out = append(out, rule)
	}
	return out
}

// list splits a text at its commas.
func list(text string) (out []any) {
	for part := range strings.SplitSeq(text, ",") {
		out = append(out, part)
	}
	return out
}

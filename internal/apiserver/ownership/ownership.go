// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ownership reads from the managed fields of an object which field manager owns which
// fields.
package ownership

import (
	"bytes"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

const (
	// Scalers is the field manager of scalers. In a Deployment, it owns container resources
	// in the pod template.
	Scalers = "verticalscaler"
	// Owners is the field manager of ScaledDeployments.
	Owners = "scaleddeployment"
	// Policies is the field manager of ScalingPolicies and ClusterScalingPolicies.
	Policies = "scalingpolicy"
)

// Of returns the fields that a manager owns by any operation, without subresources. It returns
// an error for fields that it cannot decode.
func Of(entries []metav1.ManagedFieldsEntry, manager string) (*fieldpath.Set, error) {
	owned := &fieldpath.Set{}
	for _, entry := range entries {
		if entry.Manager != manager || entry.FieldsV1 == nil || entry.Subresource != "" {
			continue
		}
		set := &fieldpath.Set{}
		if err := set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
			return nil, err
		}
		owned = owned.Union(set)
	}
	return owned, nil
}

// HasResource reports whether the set contains an entry, such as "cpu", of the list "requests" or
// "limits" in a Deployment's pod template. The entry belongs to a container or an init container:
// their names differ. A nil set is empty.
func HasResource(set *fieldpath.Set, container, list, resource string) bool {
	leaf := Leaf{Container: container, List: list, Resource: resource}
	sidecar := leaf
	sidecar.IsSidecar = true
	return set != nil && (set.Has(leaf.path(InTemplate)) || set.Has(sidecar.path(InTemplate)))
}

// Leaf is one entry of a container's resources, such as "cpu" in "requests".
type Leaf struct {
	Container, List, Resource string
	// IsSidecar is true if the container is an init container.
	IsSidecar bool
}

// The path to the spec of the pods of a Deployment, and of a pod.
var (
	InTemplate = []string{"spec", "template", "spec"}
	InPod      = []string{"spec"}
)

// WithTemplate returns the entries with all fields of a manager of Deployments replaced by
// these leaves of the pod template. The manager does not own the containers that the leaves
// are in, so another manager can still remove these.
func WithTemplate(entries []metav1.ManagedFieldsEntry, manager string, leaves []Leaf) ([]metav1.ManagedFieldsEntry, error) {
	out := slices.DeleteFunc(slices.Clone(entries), func(entry metav1.ManagedFieldsEntry) bool { return entry.Manager == manager })
	set := &fieldpath.Set{}
	for _, leaf := range leaves {
		set.Insert(leaf.path(InTemplate))
	}
	fields, err := set.ToJSON()
	if err != nil {
		return nil, fmt.Errorf("encoding the fields of manager %s: %w", manager, err)
	}
	return append(out, metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: appsv1.SchemeGroupVersion.String(),
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(fields)),
	}), nil
}

// WritersOf names the managers that own at least one of the leaves, and their operations:
// "helm (Update)", "kubectl-edit (Update, resize)". It leaves out one manager. The names are
// sorted.
func WritersOf(entries []metav1.ManagedFieldsEntry, spec []string, leaves []Leaf, except string) (names []string, err error) {
	for _, entry := range entries {
		if entry.Manager == except || entry.FieldsV1 == nil {
			continue
		}
		set := &fieldpath.Set{}
		if err := set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
			return nil, fmt.Errorf("decoding the fields of manager %s: %w", entry.Manager, err)
		}
		if !slices.ContainsFunc(leaves, func(leaf Leaf) bool { return set.Has(leaf.path(spec)) }) {
			continue
		}
		operation := string(entry.Operation)
		if entry.Subresource != "" {
			operation += ", " + entry.Subresource
		}
		names = append(names, fmt.Sprintf("%s (%s)", entry.Manager, operation))
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (l Leaf) path(spec []string) fieldpath.Path {
	var parts []any
	for _, part := range spec {
		parts = append(parts, part)
	}
	list := "containers"
	if l.IsSidecar {
		list = "initContainers"
	}
	return fieldpath.MakePathOrDie(append(parts, list, fieldpath.KeyByFields("name", l.Container), "resources", l.List, l.Resource)...)
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ownership reads from an object's managed fields which of them are whose.
package ownership

import (
	"bytes"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

const (
	// Scalers is the field manager of all that scalers write: in a Deployment, the
	// resources of containers in the pod template.
	Scalers = "verticalscaler"
	// Owners is the field manager of all that ScaledDeployments apply.
	Owners = "scaleddeployment"
)

// Of is the set of fields that a manager owns, by whichever operation, but not those
// of subresources. Fields that cannot be read are an error.
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

// HasContainer says whether the set has something of a container of a Deployment's pod
// template. A nil set has nothing.
func HasContainer(set *fieldpath.Set, container string) bool {
	return set != nil && !set.WithPrefix(fieldpath.PathElement{FieldName: ptr.To("spec")}).
		WithPrefix(fieldpath.PathElement{FieldName: ptr.To("template")}).
		WithPrefix(fieldpath.PathElement{FieldName: ptr.To("spec")}).
		WithPrefix(fieldpath.PathElement{FieldName: ptr.To("containers")}).
		WithPrefix(fieldpath.PathElement{Key: fieldpath.KeyByFields("name", container)}).Empty()
}

// HasResource says whether the set has an entry, such as "cpu", in the list "requests"
// or "limits" of a container of a Deployment's pod template. A nil set has nothing.
func HasResource(set *fieldpath.Set, container, list, resource string) bool {
	return set != nil && set.Has(fieldpath.MakePathOrDie("spec", "template", "spec", "containers",
		fieldpath.KeyByFields("name", container), "resources", list, resource))
}

// Leaf is one entry in the lists of a container's resources, such as "cpu" in "requests".
type Leaf struct{ Container, List, Resource string }

// Where containers are, in a Deployment and in a pod.
var (
	InTemplate = []string{"spec", "template", "spec", "containers"}
	InPod      = []string{"spec", "containers"}
)

// WritersOf names the managers, but for the one left out, that own at least one of the
// leaves, and how they write: "helm (Update)", "kubectl-edit (Update, resize)". The
// names are sorted.
func WritersOf(entries []metav1.ManagedFieldsEntry, containers []string, leaves []Leaf, but string) (names []string, err error) {
	for _, entry := range entries {
		if entry.Manager == but || entry.FieldsV1 == nil {
			continue
		}
		set := &fieldpath.Set{}
		if err := set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
			return nil, fmt.Errorf("reading what %s manages: %w", entry.Manager, err)
		}
		if !slices.ContainsFunc(leaves, func(leaf Leaf) bool { return set.Has(leaf.path(containers)) }) {
			continue
		}
		how := string(entry.Operation)
		if entry.Subresource != "" {
			how += ", " + entry.Subresource
		}
		names = append(names, fmt.Sprintf("%s (%s)", entry.Manager, how))
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (l Leaf) path(containers []string) fieldpath.Path {
	var parts []any
	for _, part := range containers {
		parts = append(parts, part)
	}
	return fieldpath.MakePathOrDie(append(parts, fieldpath.KeyByFields("name", l.Container), "resources", l.List, l.Resource)...)
}

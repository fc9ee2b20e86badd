// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ownership reads from an object's managed fields which of them are whose.
package ownership

import (
	"bytes"

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

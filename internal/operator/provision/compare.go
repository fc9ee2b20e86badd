// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// differs says whether the object has to be applied: something that we want is not
// there, or something is there that we once wanted. What others have added to it, such
// as labels by which a Prometheus selects, does not count.
func differs(want, have *unstructured.Unstructured) bool {
	return !contains(withoutOwners(want.Object), have.Object) || !owns(have, want) || !claimsNoMore(want, have)
}

// contains says whether all that we want is there. Maps may have more keys. Lists have
// as many items, in the same order: an item too many would be another rule.
func contains(want, have any) bool {
	switch want := want.(type) {
	case map[string]any:
		have, ok := have.(map[string]any)
		if !ok {
			return false
		}
		for key, w := range want {
			h, ok := have[key]
			if !ok || !contains(w, h) {
				return false
			}
		}
		return true
	case []any:
		have, ok := have.([]any)
		if !ok || len(have) != len(want) {
			return false
		}
		for i := range want {
			if !contains(want[i], have[i]) {
				return false
			}
		}
		return true
	default:
		return equality.Semantic.DeepEqual(want, have)
	}
}

// withoutOwners leaves out the owner references. That list may have others in it.
func withoutOwners(object map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range object {
		metadata, ok := value.(map[string]any)
		if key != "metadata" || !ok {
			out[key] = value
			continue
		}
		rest := map[string]any{}
		for key, value := range metadata {
			if key != "ownerReferences" {
				rest[key] = value
			}
		}
		out[key] = rest
	}
	return out
}

// owns says whether what we want to own the object does.
func owns(have, want *unstructured.Unstructured) bool {
	for _, owner := range want.GetOwnerReferences() {
		if !ownedBy(have, owner.UID) {
			return false
		}
	}
	return true
}

// ownedBy says whether the object is collected with the owner of this UID.
func ownedBy(have *unstructured.Unstructured, owner types.UID) bool {
	for _, reference := range have.GetOwnerReferences() {
		if reference.UID == owner {
			return true
		}
	}
	return false
}

// claimsNoMore says whether all that we have applied before is still wanted. What is
// not, a version before this one wanted; applying gives it up.
func claimsNoMore(want, have *unstructured.Unstructured) bool {
	for _, entry := range have.GetManagedFields() {
		if entry.Manager != Manager || entry.Operation != metav1.ManagedFieldsOperationApply || entry.FieldsV1 == nil {
			continue
		}
		var fields map[string]any
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil || !named(fields, want.Object) {
			return false
		}
	}
	return true
}

// named says whether every field of a set of managed fields is in the object. Items of
// lists are not looked at: contains compares them.
func named(fields map[string]any, object map[string]any) bool {
	for key, inner := range fields {
		name, ok := strings.CutPrefix(key, "f:")
		if !ok {
			continue
		}
		value, ok := object[name]
		if !ok {
			return false
		}
		deeper, isSet := inner.(map[string]any)
		if below, isMap := value.(map[string]any); isSet && isMap && !named(deeper, below) {
			return false
		}
	}
	return true
}

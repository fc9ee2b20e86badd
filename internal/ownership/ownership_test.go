// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// managed is an entry of managedFields with resources of container app.
func managed(manager, subresource, resources string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Subresource: subresource, Operation: "Apply",
		FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{".":{},"f:name":{},"f:resources":` + resources + `}}}}}}`),
	}
}

const (
	allOfApp   = `{"f:requests":{"f:cpu":{},"f:memory":{}},"f:limits":{"f:cpu":{},"f:memory":{}}}`
	cpuRequest = `{"f:requests":{"f:cpu":{}}}`
	cpuLimit   = `{"f:limits":{"f:cpu":{}}}`
)

func TestOf(t *testing.T) {
	cases := map[string]struct {
		entries []metav1.ManagedFieldsEntry
		want    string
	}{
		"nothing": {nil, ""},
		"what we applied": {
			[]metav1.ManagedFieldsEntry{managed("verticalscaler", "", cpuRequest)}, "requests.cpu",
		},
		"what we applied and what we updated": {
			[]metav1.ManagedFieldsEntry{managed("verticalscaler", "", cpuRequest), managed("verticalscaler", "", cpuLimit)}, "requests.cpu limits.cpu",
		},
		"what others applied is not ours": {
			[]metav1.ManagedFieldsEntry{managed("argocd", "", allOfApp), managed("verticalscaler", "", cpuRequest)}, "requests.cpu",
		},
		"what is of a subresource is not of the spec": {
			[]metav1.ManagedFieldsEntry{managed("verticalscaler", "status", allOfApp)}, "",
		},
		"an entry without fields": {
			[]metav1.ManagedFieldsEntry{{Manager: "verticalscaler"}, managed("verticalscaler", "", cpuRequest)}, "requests.cpu",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			owned, err := Of(tc.entries, Scalers)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, list := range []string{"requests", "limits"} {
				for _, name := range []string{"cpu", "memory"} {
					if HasResource(owned, "app", list, name) {
						got += " " + list + "." + name
					}
				}
			}
			if want := tc.want; got != want && got != " "+want {
				t.Errorf("owned are%s, want %s", got, want)
			}
			if HasResource(owned, "other", "requests", "cpu") {
				t.Error("another container's field is owned")
			}
		})
	}
	if HasResource(nil, "app", "requests", "cpu") {
		t.Error("no set has a field")
	}
	if _, err := Of([]metav1.ManagedFieldsEntry{{Manager: Scalers, FieldsV1: metav1.NewFieldsV1(`{"f:spec":[]}`)}}, Scalers); err == nil {
		t.Error("fields that cannot be read are no error")
	}
}

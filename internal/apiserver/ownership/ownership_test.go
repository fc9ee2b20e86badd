// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// managed is a managedFields entry with resources of container app.
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
		"no entries": {nil, ""},
		"one apply": {
			[]metav1.ManagedFieldsEntry{managed("verticalscaler", "", cpuRequest)}, "requests.cpu",
		},
		"two entries of one manager": {
			[]metav1.ManagedFieldsEntry{managed("verticalscaler", "", cpuRequest), managed("verticalscaler", "", cpuLimit)}, "requests.cpu limits.cpu",
		},
		"other managers are left out": {
			[]metav1.ManagedFieldsEntry{managed("argocd", "", allOfApp), managed("verticalscaler", "", cpuRequest)}, "requests.cpu",
		},
		"subresources are left out": {
			[]metav1.ManagedFieldsEntry{managed("verticalscaler", "status", allOfApp)}, "",
		},
		"an entry without fields": {
			[]metav1.ManagedFieldsEntry{{Manager: "verticalscaler"}, managed("verticalscaler", "", cpuRequest)}, "requests.cpu",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			owned, err := Of(tc.entries, Scalers)
			must.Succeed(t, err)
			got := ""
			for _, list := range []string{"requests", "limits"} {
				for _, name := range []string{"cpu", "memory"} {
					if HasResource(owned, "app", list, name) {
						got += " " + list + "." + name
					}
				}
			}
			if want := tc.want; got != want && got != " "+want {
				t.Errorf("owned:%s, want %s", got, want)
			}
			if HasResource(owned, "other", "requests", "cpu") {
				t.Error("another container's field is owned")
			}
		})
	}
	if HasResource(nil, "app", "requests", "cpu") {
		t.Error("a nil set has a field")
	}
	if _, err := Of([]metav1.ManagedFieldsEntry{{Manager: Scalers, FieldsV1: metav1.NewFieldsV1(`{"f:spec":[]}`)}}, Scalers); err == nil {
		t.Error("no error for invalid fields")
	}
}

func TestWritersOf(t *testing.T) {
	requests := []Leaf{{"app", "requests", "cpu", false}, {"app", "requests", "memory", false}}
	pod := metav1.ManagedFieldsEntry{Manager: "updater", Subresource: "resize", Operation: "Update", FieldsV1: metav1.NewFieldsV1(
		`{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:resources":{"f:requests":{"f:cpu":{}}}}}}}`)}
	helm := managed("helm", "", allOfApp)
	helm.Operation = "Update"
	cases := map[string]struct {
		entries []metav1.ManagedFieldsEntry
		where   []string
		leaves  []Leaf
		want    string
	}{
		"no entries":                     {nil, InTemplate, requests, "[]"},
		"a manager of one leaf":          {[]metav1.ManagedFieldsEntry{managed("argocd", "", cpuRequest)}, InTemplate, requests, "[argocd (Apply)]"},
		"not a manager of other fields":  {[]metav1.ManagedFieldsEntry{managed("argocd", "", cpuLimit)}, InTemplate, requests, "[]"},
		"all managers, sorted":           {[]metav1.ManagedFieldsEntry{helm, managed("argocd", "", cpuRequest)}, InTemplate, requests, "[argocd (Apply) helm (Update)]"},
		"not the excepted manager":       {[]metav1.ManagedFieldsEntry{managed(Scalers, "", allOfApp), helm}, InTemplate, requests, "[helm (Update)]"},
		"through a subresource":          {[]metav1.ManagedFieldsEntry{pod}, InPod, requests, "[updater (Update, resize)]"},
		"not for another kind of object": {[]metav1.ManagedFieldsEntry{pod, helm}, InPod, requests[1:], "[]"},
		"not without fields":             {[]metav1.ManagedFieldsEntry{{Manager: "helm"}}, InTemplate, requests, "[]"},
		"no leaves":                      {[]metav1.ManagedFieldsEntry{helm}, InTemplate, nil, "[]"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := WritersOf(tc.entries, tc.where, tc.leaves, Scalers)
			if err != nil || fmt.Sprint(got) != tc.want {
				t.Errorf("WritersOf() = %v, %v, want %s", got, err, tc.want)
			}
		})
	}
	if _, err := WritersOf([]metav1.ManagedFieldsEntry{{Manager: "helm", FieldsV1: metav1.NewFieldsV1("{")}}, InTemplate, requests, Scalers); err == nil {
		t.Error("no error for invalid fields")
	}
}

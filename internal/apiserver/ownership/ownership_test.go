// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"fmt"
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

func TestWritersOf(t *testing.T) {
	requests := []Leaf{{"app", "requests", "cpu"}, {"app", "requests", "memory"}}
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
		"nobody":                        {nil, InTemplate, requests, "[]"},
		"who has one of them":           {[]metav1.ManagedFieldsEntry{managed("argocd", "", cpuRequest)}, InTemplate, requests, "[argocd (Apply)]"},
		"not who has something else":    {[]metav1.ManagedFieldsEntry{managed("argocd", "", cpuLimit)}, InTemplate, requests, "[]"},
		"all of them, in order":         {[]metav1.ManagedFieldsEntry{helm, managed("argocd", "", cpuRequest)}, InTemplate, requests, "[argocd (Apply) helm (Update)]"},
		"not the one that is left out":  {[]metav1.ManagedFieldsEntry{managed(Scalers, "", allOfApp), helm}, InTemplate, requests, "[helm (Update)]"},
		"by a subresource":              {[]metav1.ManagedFieldsEntry{pod}, InPod, requests, "[updater (Update, resize)]"},
		"not of another kind of object": {[]metav1.ManagedFieldsEntry{pod, helm}, InPod, requests[1:], "[]"},
		"not without fields":            {[]metav1.ManagedFieldsEntry{{Manager: "helm"}}, InTemplate, requests, "[]"},
		"of no leaves":                  {[]metav1.ManagedFieldsEntry{helm}, InTemplate, nil, "[]"},
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
		t.Error("fields that cannot be read are an error")
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestKeysOfANamespace(t *testing.T) {
	c := collection{objects: map[types.NamespacedName]client.Object{}}
	for _, key := range []types.NamespacedName{{Namespace: "b", Name: "2"}, {Namespace: "b", Name: "1"}, {Namespace: "a", Name: "3"}, {Namespace: "b-c", Name: "0"}} {
		c.objects[key] = nil
	}
	for namespace, want := range map[string][]string{"": {"3", "1", "2", "0"}, "a": {"3"}, "b": {"1", "2"}, "b-c": {"0"}, "c": nil} {
		var got []string
		for _, key := range c.keys(namespace) {
			got = append(got, key.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("namespace %q has %v, want %v", namespace, got, want)
		}
	}
}

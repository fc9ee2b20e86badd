// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gitops says how GitOps tools see our objects.
package gitops

import (
	"testing"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// StatusOf is what the library of kstatus that Flux uses says about the scaler.
func StatusOf(t testing.TB, vs *v1beta1.VerticalScaler) kstatus.Status {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(vs)
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{Object: fields}
	object.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("VerticalScaler"))
	result, err := kstatus.Compute(object)
	if err != nil {
		t.Fatal(err)
	}
	return result.Status
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kstatus asks Flux's library what the conditions of scalers mean.
package kstatus

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// The test of the reconciler writes each state of a scaler, and what it must mean, into this file.
var statuses = filepath.Join("..", "..", "..", "controllers", "verticalscaler", "testdata", "kstatus.txt")

func TestKStatus(t *testing.T) {
	text, err := os.ReadFile(statuses)
	must.Succeed(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) < 50 {
		t.Fatalf("there are only %d states", len(lines))
	}
	for _, line := range lines {
		fields := strings.Split(line, "|")
		name, meaning := strings.TrimSpace(fields[0]), strings.TrimSpace(fields[1])
		t.Run(name, func(t *testing.T) {
			result, err := status.Compute(scaler(t, fields[2], fields[3]))
			must.Succeed(t, err)
			if got := result.Status.String(); got != meaning {
				t.Errorf("it is %s, want %s: %s", got, meaning, line)
			}
		})
	}
}

// scaler has these generations, "1 1", and conditions, "Ready=True=Applied".
func scaler(t *testing.T, generations, conditions string) *unstructured.Unstructured {
	t.Helper()
	s := &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	_, err := fmt.Sscan(generations, &s.Generation, &s.Status.ObservedGeneration)
	must.Succeed(t, err)
	for c := range strings.FieldsSeq(conditions) {
		parts := strings.Split(c, "=")
		s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{Type: parts[0], Status: metav1.ConditionStatus(parts[1]), Reason: parts[2]})
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
	must.Succeed(t, err)
	object := &unstructured.Unstructured{Object: fields}
	object.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("VerticalScaler"))
	return object
}

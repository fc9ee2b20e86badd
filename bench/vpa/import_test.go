// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package vpa

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	vpatypes "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/scaler/fromvpa"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// Each field of VPA's own API is known to the import, and mentioned by it.
func TestTheImportKnowsAllFields(t *testing.T) {
	var spec vpatypes.VerticalPodAutoscalerSpec
	var names []string
	fill(reflect.ValueOf(&spec).Elem(), &names)
	spec.TargetRef.Kind, spec.TargetRef.APIVersion = "Deployment", "apps/v1"
	text, err := json.Marshal(spec)
	must.Succeed(t, err)
	var object map[string]any
	must.Succeed(t, json.Unmarshal(text, &object))
	imported := fromvpa.Of("shop", "web", object)
	all := ""
	for _, note := range imported.Notes {
		all += note.Field + " " + note.Value + "\n"
		if strings.Contains(note.Result, "not a known field") {
			t.Errorf("%s %s", note.Field, note.Result)
		}
	}
	if len(names) < 25 {
		t.Fatalf("only %d fields: %q", len(names), names)
	}
	for _, name := range names {
		if !strings.Contains(all, name) {
			t.Errorf("nothing is said about %s:\n%s", name, all)
		}
	}
}

// fill sets all fields, and notes their names.
func fill(v reflect.Value, names *[]string) {
	switch {
	case v.Type() == reflect.TypeFor[resource.Quantity]():
		v.Set(reflect.ValueOf(resource.MustParse("1")))
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), names)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			*names = append(*names, name)
			fill(v.Field(i), names)
		}
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), names)
	case v.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		key.SetString("cpu")
		fill(value, names)
		v.SetMapIndex(key, value)
	case v.Kind() == reflect.String:
		v.SetString("x")
	case v.CanInt():
		v.SetInt(1)
	}
}

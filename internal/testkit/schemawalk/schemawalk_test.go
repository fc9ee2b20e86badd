// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package schemawalk

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

func toy(t *testing.T) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	var schema apiextensionsv1.JSONSchemaProps
	if err := yaml.UnmarshalStrict([]byte(`
type: object
properties:
  spec:
    type: object
    properties:
      absent: {type: object, required: [least], properties: {least: {type: integer, minimum: 3}, more: {type: string}}}
      labels: {type: object, additionalProperties: {type: string}}
      live: {type: boolean}
      mode: {type: string, enum: [A, B, C]}
      names: {type: array, maxItems: 3, items: {type: string, maxLength: 4, minLength: 2}}
      percent: {type: integer, format: int32, minimum: 0, maximum: 100}
      size: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}
`), &schema); err != nil {
		t.Fatal(err)
	}
	return &schema
}

func valid() map[string]any {
	return map[string]any{"spec": map[string]any{
		"labels": map[string]any{"a": "b"}, "live": true, "mode": "B", "names": []any{"one", "two"}, "percent": int64(30), "size": "512Mi",
	}}
}

func TestChanges(t *testing.T) {
	want := strings.TrimSpace(`
spec delete
spec null null
spec other type "x"
spec empty {}
spec.absent empty {}
spec.absent add {"least":3}
spec.labels delete
spec.labels null null
spec.labels other type "x"
spec.labels empty {}
spec.labels.a delete
spec.labels.a null null
spec.labels.a other type []
spec.labels.a empty ""
spec.live delete
spec.live null null
spec.live other type []
spec.live flip false
spec.mode delete
spec.mode null null
spec.mode other type []
spec.mode enum "A"
spec.mode enum "C"
spec.mode unknown enum "Unknown"
spec.mode unknown enum ""
spec.mode unknown enum "A\n"
spec.names delete
spec.names null null
spec.names other type "x"
spec.names empty []
spec.names duplicate ["one","two","one"]
spec.names reverse ["two","one"]
spec.names too many ["one","two","one","one"]
spec.names[0] delete
spec.names[0] null null
spec.names[0] other type []
spec.names[0] empty ""
spec.names[0] maximum "aaaa"
spec.names[0] above maximum "aaaaa"
spec.names[0] minimum "aa"
spec.names[0] below minimum "a"
spec.names[1] delete
spec.names[1] null null
spec.names[1] other type []
spec.names[1] empty ""
spec.names[1] maximum "aaaa"
spec.names[1] above maximum "aaaaa"
spec.names[1] minimum "aa"
spec.names[1] below minimum "a"
spec.percent delete
spec.percent null null
spec.percent other type []
spec.percent half 15
spec.percent double 60
spec.percent minimum 0
spec.percent below minimum -1
spec.percent maximum 100
spec.percent above maximum 101
spec.size delete
spec.size null null
spec.size other type []
spec.size half "256Mi"
spec.size double "1Gi"`)
	var got []string
	hostile := map[string]int{}
	for _, c := range Changes(toy(t), valid(), "spec") {
		if c.Kind == Hostile {
			hostile[c.Field]++
		} else {
			got = append(got, c.String())
		}
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), got); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	strings, quantities := len(hostileStrings), len(hostileQuantities)
	if diff := cmp.Diff(map[string]int{
		"spec.labels": strings, "spec.labels.a": strings, "spec.names[0]": strings, "spec.names[1]": strings, "spec.size": quantities,
	}, hostile); diff != "" {
		t.Errorf("hostile values (-want +got):\n%s", diff)
	}
}

func TestAChangeAltersACopy(t *testing.T) {
	object := valid()
	seen := map[string]bool{}
	for _, c := range Changes(toy(t), object, "spec") {
		changed := c.Apply(object)
		if diff := cmp.Diff(valid(), object); diff != "" {
			t.Fatalf("%s alters the original (-want +got):\n%s", c, diff)
		}
		if reflect.DeepEqual(changed, object) {
			t.Errorf("%s changes nothing", c)
		}
		if seen[c.String()] {
			t.Errorf("%s is generated twice", c)
		}
		seen[c.String()] = true
	}
	deleted := Change{Kind: Delete, path: []any{"spec", "names", 0}}.Apply(object)
	want := valid()
	want["spec"].(map[string]any)["names"] = []any{"two"}
	if diff := cmp.Diff(want, deleted); diff != "" {
		t.Errorf("without the first name (-want +got):\n%s", diff)
	}
}

// The schemas of Kubernetes use more than our own fields do: a pod template is one of them.
func TestTheSchemaOfAPodTemplate(t *testing.T) {
	data, err := os.ReadFile("../../../config/crd/bases/autoscaling.verticalscaler.io_scaleddeployments.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(data, &crd); err != nil {
		t.Fatal(err)
	}
	object := map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "app"}}}}}}
	before := runtime.DeepCopyJSON(object)
	changes := Changes(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, object, "spec")
	fields := map[string]bool{}
	for _, c := range changes {
		fields[c.Field] = true
		c.Apply(object)
	}
	if diff := cmp.Diff(before, object); diff != "" {
		t.Errorf("the object is altered (-want +got):\n%s", diff)
	}
	for _, field := range []string{"spec.replicas", "spec.scaling", "spec.template.spec.volumes", "spec.template.spec.containers[0].resources"} {
		if !fields[field] {
			t.Errorf("no change of %s", field)
		}
	}
	if !slices.ContainsFunc(changes, func(c Change) bool { return c.Field == "spec.template.spec.containers" && c.Kind == Duplicate }) {
		t.Error("no duplicate container")
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// values maps types to the value before and after a change. Types that are not listed are
// walked, down to strings, numbers and booleans.
var values = map[reflect.Type][2]any{
	reflect.TypeFor[metav1.Time]():        {metav1.NewTime(time.Unix(1, 0)), metav1.NewTime(time.Unix(2, 0))},
	reflect.TypeFor[metav1.MicroTime]():   {metav1.NewMicroTime(time.Unix(1, 0)), metav1.NewMicroTime(time.Unix(2, 0))},
	reflect.TypeFor[resource.Quantity]():  {resource.MustParse("1"), resource.MustParse("2")},
	reflect.TypeFor[intstr.IntOrString](): {intstr.FromInt32(1), intstr.FromString("b")},
	reflect.TypeFor[metav1.FieldsV1]():    {*metav1.NewFieldsV1(`{"f:a":{}}`), *metav1.NewFieldsV1(`{"f:b":{}}`)},
	reflect.TypeFor[[]byte]():             {[]byte("a"), []byte("b")},
}

// resources are in every resource list: two that the operator sizes, and one that it does
// not.
var resources = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, "example.com/device"}

// fill sets every field of v, which must be settable. Such an object could never be stored,
// but the policies accept it.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	if pair, ok := values[v.Type()]; ok {
		v.Set(reflect.ValueOf(pair[0]))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for _, key := range keysOf(v.Type()) {
			value := reflect.New(v.Type().Elem()).Elem()
			fill(t, value)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		v.SetString("a")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	default:
		t.Fatalf("there is no value to fill %s with", v.Type())
	}
}

func keysOf(kind reflect.Type) (keys []reflect.Value) {
	names := []corev1.ResourceName{"a"}
	if kind == reflect.TypeFor[corev1.ResourceList]() {
		names = resources
	}
	for _, name := range names {
		keys = append(keys, reflect.ValueOf(name).Convert(kind.Key()))
	}
	return keys
}

// walk changes every field of v, one at a time: to another value, to none, and lists and
// maps to one entry more. After each change, it calls visit with the field's path and a
// description, and then undoes the change.
func walk(t *testing.T, v reflect.Value, path string, visit func(path, done string)) {
	t.Helper()
	try := func(done string, value reflect.Value) {
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		v.Set(value)
		visit(path, done)
		v.Set(old)
	}
	if pair, ok := values[v.Type()]; ok {
		try("changed", reflect.ValueOf(pair[1]))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch {
			case name == "-":
				t.Fatalf("%s has a field %s that is on no wire", path, field.Name)
			case name != "":
				walk(t, v.Field(i), path+"."+name, visit)
			case field.Anonymous: // inline
				walk(t, v.Field(i), path, visit)
			default:
				t.Fatalf("%s has a field %s without a name", path, field.Name)
			}
		}
	case reflect.Pointer:
		try("removed", reflect.Zero(v.Type()))
		walk(t, v.Elem(), path, visit)
	case reflect.Slice:
		try("removed", reflect.Zero(v.Type()))
		try("extended", reflect.Append(v, v.Index(0)))
		walk(t, v.Index(0), path+"[]", visit)
	case reflect.Map:
		try("removed", reflect.Zero(v.Type()))
		for _, key := range append(keysOf(v.Type()), reflect.ValueOf("new").Convert(v.Type().Key())) {
			entry := fmt.Sprintf("%s[%s]", path, key)
			old := v.MapIndex(key)
			changed := reflect.New(v.Type().Elem()).Elem()
			fill(t, changed)
			if !old.IsValid() {
				v.SetMapIndex(key, changed)
				visit(entry, "added")
				v.SetMapIndex(key, reflect.Value{})
				continue
			}
			v.SetMapIndex(key, reflect.Value{})
			visit(entry, "removed")
			walk(t, changed, entry, func(path, done string) {
				v.SetMapIndex(key, changed)
				visit(path, done)
			})
			v.SetMapIndex(key, old)
		}
	case reflect.String:
		try("changed", reflect.ValueOf("b").Convert(v.Type()))
		try("removed", reflect.Zero(v.Type()))
	case reflect.Bool:
		try("changed", reflect.Zero(v.Type()))
	case reflect.Int, reflect.Int32, reflect.Int64:
		try("changed", reflect.ValueOf(2).Convert(v.Type()))
		try("removed", reflect.Zero(v.Type()))
	default:
		t.Fatalf("there is no value to change %s to", v.Type())
	}
}

// isSkipped reports whether a test of every field leaves out the nth case: with -short, it has one in twenty.
func isSkipped(n int) bool { return testing.Short() && n%20 != 0 }

// object is an object with a Go type.
type object[T any] interface {
	*T
	runtime.Object
	DeepCopyObject() runtime.Object
}

// everyField changes each field of a type as the operator. It fails unless the policy
// rejects each change, except for fields whose paths begin with a free one. Every free path
// must exist. Every validation, except those about other requests, must be the only one to
// reject some change.
func everyField[T any, P object[T]](t *testing.T, p *policy, r request, free []string, others ...int) {
	t.Helper()
	everyFieldOf[T, P](t, filled[T, P](t), p, r, free, others...)
}

// filled is an object in which every field is set.
func filled[T any, P object[T]](t *testing.T) P {
	t.Helper()
	out := P(new(T))
	fill(t, reflect.ValueOf(out).Elem())
	return out
}

// everyFieldOf is everyField with an object in which every field is set.
func everyFieldOf[T any, P object[T]](t *testing.T, before P, p *policy, r request, free []string, others ...int) {
	t.Helper()
	after, _ := before.DeepCopyObject().(P)
	maps := mapsOf(t, before)
	found, alone, fields := map[string]bool{}, map[int]bool{}, 0
	walk(t, reflect.ValueOf(after).Elem(), "", func(path, done string) {
		fields++
		at := slices.IndexFunc(free, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
		if at >= 0 {
			found[free[at]] = true
		}
		if isSkipped(fields) {
			return
		}
		// Newer API servers evaluate Go values, older ones maps. All evaluate our kinds as maps.
		forms := map[string][2]runtime.Object{"as Go": {before, after}}
		if done == "changed" {
			forms["as maps"] = [2]runtime.Object{maps, mapsOf(t, after)}
		}
		for form, objects := range forms {
			r.before, r.after = objects[0], objects[1]
			looks, refuses := p.asks(t, r)
			if !looks {
				t.Fatal("the policy does not look at what the operator does")
			}
			if len(refuses) == 1 {
				alone[refuses[0]] = true
			}
			if passes := len(refuses) == 0; passes != (at >= 0) {
				t.Errorf("%s %s passes (%s): %t", path, done, form, passes)
			}
		}
	})
	for _, prefix := range free {
		if !found[prefix] {
			t.Errorf("there is no field %s", prefix)
		}
	}
	for i := range p.spec.Validations {
		if !alone[i] && !slices.Contains(others, i) && !testing.Short() {
			t.Errorf("validation %d is not needed: %s", i, p.spec.Validations[i].Message)
		}
	}
	t.Logf("%d changes", fields)
}

// everyNewField fails unless the policy rejects unknown fields at every place.
func everyNewField[T any, P object[T]](t *testing.T, p *policy, r request, free ...string) {
	t.Helper()
	before := P(new(T))
	fill(t, reflect.ValueOf(before).Elem())
	after := mapsOf(t, before)
	r.before = mapsOf(t, before)
	r.after = after
	places := 0
	var visit func(path string, value any)
	visit = func(path string, value any) {
		switch value := value.(type) {
		case []any:
			for _, entry := range value {
				visit(path+"[]", entry)
			}
		case map[string]any:
			if places++; !isSkipped(places) {
				value["fieldOfTheFuture"] = "x"
				_, refuses := p.asks(t, r)
				isFree := slices.ContainsFunc(free, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
				if passes := len(refuses) == 0; passes != isFree {
					t.Errorf("a new field in %s passes: %t", path, passes)
				}
				delete(value, "fieldOfTheFuture")
			}
			for key, entry := range value {
				visit(path+"."+key, entry)
			}
		}
	}
	visit("", after.Object)
	t.Logf("%d places", places)
}

func mapsOf(t *testing.T, obj runtime.Object) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	must.Succeed(t, err)
	return &unstructured.Unstructured{Object: content}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package schemawalk derives changes of an object from the schema of its CRD: values at and beyond
// each boundary, missing and duplicate values, other types, hostile strings and quantities. It
// generates them mechanically, so that a new field of the API is covered without a new test.
//
// A change alters one field of a valid object. The method is that of Acto ("Automatic End-to-End
// Testing for Operation Correctness of Cloud System Management", SOSP 2023), which finds errors by
// comparing the states before, during and after such a change.
package schemawalk

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
)

// Kind says how a change alters a field.
type Kind string

// The kinds of changes.
const (
	Delete       Kind = "delete"
	Null         Kind = "null"
	Empty        Kind = "empty"         // an object, list or string without content
	OtherType    Kind = "other type"    // a value of a type that the schema does not allow
	Add          Kind = "add"           // the smallest value of a field that the object does not have
	Minimum      Kind = "minimum"       // the smallest number, or the shortest string
	BelowMinimum Kind = "below minimum" // one less
	Maximum      Kind = "maximum"       // the largest number, or the longest string
	AboveMaximum Kind = "above maximum" // one more
	Half         Kind = "half"
	Double       Kind = "double"
	Enum         Kind = "enum"         // another value of the enum; all of them are generated
	UnknownEnum  Kind = "unknown enum" // a value that is not in the enum
	Flip         Kind = "flip"         // the other boolean
	Duplicate    Kind = "duplicate"    // the first item of a list a second time
	Reverse      Kind = "reverse"      // a list in the opposite order
	TooMany      Kind = "too many"     // one item more than maxItems
	Hostile      Kind = "hostile"      // a string or quantity that often breaks programs
)

// Change is one change of one field.
type Change struct {
	// Field is the path of the field, as the API server writes it:
	// spec.updatePolicy.windows[0].schedule.
	Field string
	Kind  Kind
	// Value is the new value as in decoded JSON. It is meaningless if Kind is Delete.
	Value any

	path []any // names of fields and indexes of items
}

// String is the change in one line. It is unique among the changes of an object.
func (c Change) String() string {
	if c.Kind == Delete {
		return c.Field + " " + string(c.Kind)
	}
	value, err := json.Marshal(c.Value)
	if err != nil {
		value = []byte(err.Error())
	}
	const most = 60
	if len(value) > most {
		return fmt.Sprintf("%s %s %s... (%d bytes)", c.Field, c.Kind, value[:most], len(value))
	}
	return fmt.Sprintf("%s %s %s", c.Field, c.Kind, value)
}

// Apply returns a copy of the object with the change.
func (c Change) Apply(object map[string]any) map[string]any {
	return c.apply(runtime.DeepCopyJSONValue(object), c.path).(map[string]any)
}

func (c Change) apply(value any, path []any) any {
	if len(path) == 0 {
		return runtime.DeepCopyJSONValue(c.Value)
	}
	last := c.Kind == Delete && len(path) == 1
	switch step := path[0].(type) {
	case int:
		items := value.([]any)
		if last {
			return slices.Delete(items, step, step+1)
		}
		items[step] = c.apply(items[step], path[1:])
		return items
	case string:
		fields := value.(map[string]any)
		if last {
			delete(fields, step)
		} else {
			fields[step] = c.apply(fields[step], path[1:])
		}
		return fields
	}
	panic(fmt.Sprintf("a step of the type %T", path[0]))
}

// Changes returns all changes of the field with that name, and of all fields below it, in a stable
// order. The object must be valid, and decoded as unstructured objects are. Changes that leave the
// object as it is are left out. Of a field that the object does not have, only the boundaries are
// generated, and nothing below it.
func Changes(schema *apiextensionsv1.JSONSchemaProps, object map[string]any, field string) []Change {
	w := walk{}
	property := schema.Properties[field]
	w.field(&property, object, []any{field})
	return w.changes
}

// walk collects changes.
type walk struct{ changes []Change }

// field adds the changes of the field at the path. Its owner is the object or list that has it.
func (w *walk) field(schema *apiextensionsv1.JSONSchemaProps, owner any, path []any) {
	value, found := valueAt(owner, path[len(path)-1])
	add := func(kind Kind, changed any) {
		c := Change{Field: pathOf(path), Kind: kind, Value: changed, path: slices.Clone(path)}
		isRepeated := slices.ContainsFunc(w.changes, func(other Change) bool {
			return other.Field == c.Field && (other.Kind == Delete) == (kind == Delete) && reflect.DeepEqual(other.Value, changed)
		})
		if !isRepeated && (kind == Delete || !found || !reflect.DeepEqual(value, changed)) {
			w.changes = append(w.changes, c)
		}
	}
	if found {
		add(Delete, nil)
		add(Null, nil)
		add(OtherType, otherType(schema))
	}
	switch {
	case schema.XIntOrString:
		quantityChanges(value, found, add)
	case schema.Type == "object":
		w.object(schema, value, found, path, add)
	case schema.Type == "array":
		w.array(schema, value, found, path, add)
	case schema.Type == "boolean":
		on, _ := value.(bool)
		add(Flip, !on)
	case schema.Type == "integer":
		integerChanges(schema, value, found, add)
	case len(schema.Enum) > 0:
		enumChanges(schema, add)
	case schema.Type == "string":
		stringChanges(schema, found, add)
	}
}

func (w *walk) object(schema *apiextensionsv1.JSONSchemaProps, value any, found bool, path []any, add func(Kind, any)) {
	add(Empty, map[string]any{})
	if !found {
		add(Add, least(schema))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		property := schema.Properties[name]
		w.field(&property, value, append(slices.Clone(path), name))
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		fields, _ := value.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			w.field(schema.AdditionalProperties.Schema, value, append(slices.Clone(path), name))
		}
		for _, name := range hostileStrings {
			more := maps.Clone(fields)
			more[name] = least(schema.AdditionalProperties.Schema)
			add(Hostile, more)
		}
	}
}

func (w *walk) array(schema *apiextensionsv1.JSONSchemaProps, value any, found bool, path []any, add func(Kind, any)) {
	add(Empty, []any{})
	item := schema.Items.Schema
	if !found {
		add(Add, []any{least(item)})
		return
	}
	items, _ := value.([]any)
	if len(items) == 0 {
		return
	}
	add(Duplicate, append(slices.Clone(items), items[0]))
	reversed := slices.Clone(items)
	slices.Reverse(reversed)
	add(Reverse, reversed)
	if schema.MaxItems != nil {
		more := slices.Clone(items)
		for len(more) <= int(*schema.MaxItems) {
			more = append(more, items[0])
		}
		add(TooMany, more)
	}
	for i := range items {
		w.field(item, value, append(slices.Clone(path), i))
	}
}

func integerChanges(schema *apiextensionsv1.JSONSchemaProps, value any, found bool, add func(Kind, any)) {
	least, most := int64(math.MinInt32), int64(math.MaxInt32)
	if schema.Format == "int64" {
		least, most = math.MinInt64+1, math.MaxInt64-1
	}
	if schema.Minimum != nil {
		least = int64(*schema.Minimum)
	}
	if schema.Maximum != nil {
		most = int64(*schema.Maximum)
	}
	if n, ok := value.(int64); ok && found {
		add(Half, n/2)
		add(Double, n*2)
	}
	add(Minimum, least)
	add(BelowMinimum, least-1)
	add(Maximum, most)
	add(AboveMaximum, most+1)
}

func enumChanges(schema *apiextensionsv1.JSONSchemaProps, add func(Kind, any)) {
	for _, raw := range schema.Enum {
		add(Enum, decoded(raw))
	}
	add(UnknownEnum, "Unknown")
	add(UnknownEnum, "")
	if first, ok := decoded(schema.Enum[0]).(string); ok {
		add(UnknownEnum, strings.ToUpper(first)+"\n")
	}
}

// hostileStrings have broken programs that write logs, paths, templates, queries or labels.
var hostileStrings = []string{
	"Ünï→\u202e\U0001F600", // not ASCII, from right to left, four bytes
	"a\nb",
	"../x",
	"{{.Namespace}}",
	`%s"'$(id)`,
	"-Not_A_Label-",
	strings.Repeat("long", 25_000),
}

func stringChanges(schema *apiextensionsv1.JSONSchemaProps, found bool, add func(Kind, any)) {
	if !found {
		add(Add, "x")
		return
	}
	add(Empty, "")
	if schema.MaxLength != nil {
		add(Maximum, strings.Repeat("a", int(*schema.MaxLength)))
		add(AboveMaximum, strings.Repeat("a", int(*schema.MaxLength)+1))
	}
	if schema.MinLength != nil && *schema.MinLength > 1 {
		add(Minimum, strings.Repeat("a", int(*schema.MinLength)))
		add(BelowMinimum, strings.Repeat("a", int(*schema.MinLength)-1))
	}
	for _, s := range hostileStrings {
		add(Hostile, s)
	}
}

// hostileQuantities are at the limits of what quantities can express, take long to parse, or are
// none.
var hostileQuantities = []any{
	"", "0", "-1", "1n", "1.5", "1m", "10k", "10001", "1Ki", "1Pi", "2Pi", "100Ei", "9E18", "1e18", "1e-99999999", "1e99999999",
	"NaN", " 1", "1e3", "0x10", int64(1), 1.5, int64(-1), int64(math.MaxInt64),
}

func quantityChanges(value any, found bool, add func(Kind, any)) {
	if !found {
		add(Add, "1")
		return
	}
	if q, err := resource.ParseQuantity(fmt.Sprint(value)); err == nil {
		add(Half, resource.NewMilliQuantity(q.MilliValue()/2, q.Format).String())
		add(Double, resource.NewMilliQuantity(q.MilliValue()*2, q.Format).String())
	}
	for _, hostile := range hostileQuantities {
		add(Hostile, hostile)
	}
}

// least is the smallest value that the types of the schema allow: required fields only. Rules and
// patterns may still reject it.
func least(schema *apiextensionsv1.JSONSchemaProps) any {
	switch {
	case schema.Default != nil:
		return decoded(*schema.Default)
	case len(schema.Enum) > 0:
		return decoded(schema.Enum[0])
	case schema.XIntOrString:
		return "1"
	}
	switch schema.Type {
	case "object":
		fields := map[string]any{}
		for _, name := range schema.Required {
			property := schema.Properties[name]
			fields[name] = least(&property)
		}
		return fields
	case "array":
		return []any{}
	case "boolean":
		return true
	case "integer":
		if schema.Minimum != nil {
			return int64(*schema.Minimum)
		}
		return int64(1)
	case "string":
		return "x"
	}
	return nil
}

// otherType is a value of a type that the schema does not allow.
func otherType(schema *apiextensionsv1.JSONSchemaProps) any {
	if schema.Type == "array" || schema.Type == "object" {
		return "x"
	}
	return []any{}
}

func decoded(raw apiextensionsv1.JSON) any {
	var value any
	if err := json.Unmarshal(raw.Raw, &value); err != nil {
		panic(fmt.Sprintf("the schema has a value that is not JSON: %s", raw.Raw))
	}
	if number, ok := value.(float64); ok && number == math.Trunc(number) {
		return int64(number)
	}
	return value
}

func valueAt(owner, step any) (value any, found bool) {
	switch step := step.(type) {
	case int:
		items, _ := owner.([]any)
		if step < len(items) {
			return items[step], true
		}
	case string:
		fields, _ := owner.(map[string]any)
		value, found = fields[step]
	}
	return value, found
}

func pathOf(path []any) string {
	var b strings.Builder
	for _, step := range path {
		switch step := step.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", step)
		case string:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(step)
		}
	}
	return b.String()
}

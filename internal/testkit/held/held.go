// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package held measures the memory of the operator's types.
package held

import (
	"reflect"
	"strings"
	"sync"
)

// Elements counts the elements of all maps and slices that can be reached from the roots, by field. It looks only into types
// of the operator and B-trees. Empty ones are left out.
func Elements(roots ...any) map[string]int {
	c := counter{counts: map[string]int{}, seen: map[[2]any]bool{}}
	for _, root := range roots {
		c.look(reflect.ValueOf(root), "")
	}
	return c.counts
}

type counter struct {
	counts map[string]int
	seen   map[[2]any]bool // pointers and their types
}

func (c *counter) look(v reflect.Value, field string) {
	switch v.Kind() {
	case reflect.Interface:
		c.look(v.Elem(), field)
	case reflect.Pointer:
		if key := [2]any{v.UnsafePointer(), v.Type()}; !c.seen[key] {
			c.seen[key] = true
			c.look(v.Elem(), field)
		}
	case reflect.Map:
		for each := v.MapRange(); each.Next(); {
			c.counts[field]++
			c.look(each.Value(), field+"[]")
		}
	case reflect.Slice:
		for i := range v.Len() {
			c.counts[field]++
			c.look(v.Index(i), field+"[]")
		}
	case reflect.Struct:
		c.lookInto(v, field)
	}
}

func (c *counter) lookInto(v reflect.Value, field string) {
	t := v.Type()
	if t == reflect.TypeFor[sync.Map]() {
		(*sync.Map)(v.Addr().UnsafePointer()).Range(func(_, value any) bool {
			c.counts[field]++
			c.look(reflect.ValueOf(value), field+"[]")
			return true
		})
		return
	}
	isOurs := strings.HasPrefix(t.PkgPath(), "github.com/verticalscaler/") && !strings.Contains(t.PkgPath(), "/test")
	if isOurs || strings.HasSuffix(t.PkgPath(), "/btree") {
		for i := range t.NumField() {
			c.look(v.Field(i), t.String()+"."+t.Field(i).Name)
		}
	}
}

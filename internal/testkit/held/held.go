// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package held measures what the operator's types hold in memory.
package held

import (
	"reflect"
	"strings"
	"sync"
	"unsafe"
)

const module = "github.com/verticalscaler/verticalscaler-operator/"

// Elements is how many elements all maps and slices have that can be reached from the roots, by the field that has them. Only
// types of the operator are looked into, and B-trees. What holds nothing is left out.
func Elements(roots ...any) map[string]int {
	c := counter{counts: map[string]int{}, seen: map[seen]bool{}}
	for _, root := range roots {
		c.count(reflect.ValueOf(root), "")
	}
	return c.counts
}

type seen struct {
	at   unsafe.Pointer
	kind reflect.Type
}

type counter struct {
	counts map[string]int
	seen   map[seen]bool
}

func (c *counter) count(v reflect.Value, field string) {
	switch v.Kind() {
	case reflect.Pointer:
		key := seen{v.UnsafePointer(), v.Type()}
		if !v.IsNil() && !c.seen[key] {
			c.seen[key] = true
			c.count(v.Elem(), field)
		}
	case reflect.Interface:
		c.count(v.Elem(), field)
	case reflect.Map:
		c.add(field, v.Len())
		for _, key := range v.MapKeys() {
			c.count(v.MapIndex(key), field+"[]")
		}
	case reflect.Slice:
		c.add(field, v.Len())
		for i := range v.Len() {
			c.count(v.Index(i), field+"[]")
		}
	case reflect.Struct:
		c.countStruct(v, field)
	}
}

func (c *counter) countStruct(v reflect.Value, field string) {
	t := v.Type()
	if m, ok := syncMap(v); ok {
		m.Range(func(_, value any) bool {
			c.add(field, 1)
			c.count(reflect.ValueOf(value), field+"[]")
			return true
		})
		return
	}
	isOurs := strings.HasPrefix(t.PkgPath(), module) && !strings.Contains(t.PkgPath(), "/test")
	if t.PkgPath() != "" && !isOurs && !strings.HasSuffix(t.PkgPath(), "/btree") {
		return
	}
	for i := range t.NumField() {
		c.count(v.Field(i), t.String()+"."+t.Field(i).Name)
	}
}

func (c *counter) add(field string, n int) {
	if n > 0 {
		c.counts[field] += n
	}
}

// syncMap is the map at a field, exported or not.
func syncMap(v reflect.Value) (*sync.Map, bool) {
	if v.Type() != reflect.TypeFor[sync.Map]() || !v.CanAddr() {
		return nil, false
	}
	return (*sync.Map)(unsafe.Pointer(v.UnsafeAddr())), true
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaler

import (
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// EqualStatus reports whether two statuses mean the same. An empty list is the same as none.
//
// Each reconcile compares, and equality.Semantic takes several times as long. Any client may have written one of the
// two, so quantities are compared without converting them: a forged exponent costs no time.
func EqualStatus(a, b v1beta1.VerticalScalerStatus) bool { return meansTheSame(&a, &b) }

func meansTheSame[T any](a, b *T) bool {
	return equalValues(reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem())
}

// equalValues compares addressable values of the same type.
func equalValues(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() == b.IsNil()
		}
		return equalValues(a.Elem(), b.Elem())
	case reflect.Slice:
		return a.Len() == b.Len() && equalEach(a.Len(), a.Index, b.Index)
	case reflect.Map, reflect.Struct:
		switch x := a.Addr().Interface().(type) {
		case *map[string]string:
			y, ok := b.Addr().Interface().(*map[string]string)
			return ok && maps.Equal(*x, *y)
		case *resource.Quantity:
			y, ok := b.Addr().Interface().(*resource.Quantity)
			return ok && quantity.Equal(*x, *y)
		case *metav1.Time:
			y, ok := b.Addr().Interface().(*metav1.Time)
			return ok && x.Equal(y)
		}
		return equalEach(a.NumField(), a.Field, b.Field)
	}
	return a.Equal(b)
}

// equalEach compares the elements of two slices, or the fields of two structs.
func equalEach(n int, a, b func(i int) reflect.Value) bool {
	for i := range n {
		if !equalValues(a(i), b(i)) {
			return false
		}
	}
	return true
}

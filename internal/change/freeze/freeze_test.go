// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package freeze

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

var name = types.NamespacedName{Namespace: "system", Name: "stop"}

func TestRead(t *testing.T) {
	for what, c := range map[string]struct {
		data map[string]string
		want State
	}{
		"no data":                     {nil, State{Active: true}},
		"some namespaces":             {map[string]string{"namespaces": "b, a\nc b"}, State{Active: true, Namespaces: []string{"a", "b", "c"}}},
		"an empty list means all":     {map[string]string{"namespaces": " , "}, State{Active: true}},
		"so does a star":              {map[string]string{"namespaces": "*"}, State{Active: true}},
		"so does an invalid name":     {map[string]string{"namespaces": "a Bee"}, State{Active: true}},
		"a reason in one line":        {map[string]string{"reason": " incident\n  42 "}, State{Active: true, Reason: "incident 42"}},
		"unknown keys":                {map[string]string{"until": "noon"}, State{Active: true}},
		"a reason with invalid UTF-8": {map[string]string{"reason": "a\xff"}, State{Active: true, Reason: "a"}},
	} {
		if diff := cmp.Diff(c.want, Read(&corev1.ConfigMap{Data: c.data})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	if got := Read(nil); got.Active || got.Freezes("a") {
		t.Errorf("no ConfigMap: %+v", got)
	}
	if got := Read(&corev1.ConfigMap{Data: map[string]string{"reason": strings.Repeat("ü", 1000)}}).Reason; len(got) > 256+3 || !utf8.ValidString(got) {
		t.Errorf("a long reason: %d bytes", len(got))
	}
}

func TestSwitch(t *testing.T) {
	s := New(name)
	if why, frozen := s.Frozen("a"); !frozen || !strings.Contains(why, "ConfigMap system/stop could not be read yet") {
		t.Errorf("before the first read: %v, %q", frozen, why)
	}
	if why, frozen := s.Announced("a"); frozen {
		t.Errorf("announced before the first read: %q", why)
	}
	if !s.setAbsent() || s.setAbsent() {
		t.Error("a missing ConfigMap is new exactly once")
	}
	if why, frozen := s.Frozen("a"); frozen {
		t.Errorf("without a ConfigMap: %q", why)
	}
	state := State{Active: true, Namespaces: []string{"a"}, Reason: "incident 42"}
	if !s.Set(state) || s.Set(state) {
		t.Error("a state is new exactly once")
	}
	if s.setAbsent() {
		t.Error("the first read must not undo a newer event")
	}
	if why, frozen := s.Frozen("a"); !frozen || why != "ConfigMap system/stop freezes changes: incident 42" {
		t.Errorf("during a freeze: %v, %q", frozen, why)
	}
	if why, frozen := s.Announced("a"); !frozen || why != "ConfigMap system/stop freezes changes: incident 42" {
		t.Errorf("announced during a freeze: %v, %q", frozen, why)
	}
	if _, frozen := s.Frozen("b"); frozen {
		t.Error("another namespace is frozen")
	}
	s.Set(State{})
	if _, frozen := s.Frozen("a"); frozen {
		t.Error("still frozen")
	}
	_, frozen := (*Switch)(nil).Frozen("a")
	if _, announced := (*Switch)(nil).Announced("a"); frozen || announced {
		t.Error("a nil switch freezes")
	}
}

func TestGuard(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "a", Name: "x"}
	pod, deployment, scaler := &corev1.Pod{ObjectMeta: meta}, &appsv1.Deployment{ObjectMeta: meta}, &v1beta1.VerticalScaler{ObjectMeta: meta}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	inner, s := fake.NewClientBuilder().WithScheme(scheme).Build(), New(name)
	c := Guard(inner, s)
	writes := func(obj client.Object) []error {
		ctx := t.Context()
		return []error{
			c.Create(ctx, obj), c.Update(ctx, obj), c.Patch(ctx, obj, client.Merge), c.Delete(ctx, obj), c.DeleteAllOf(ctx, obj),
			c.SubResource("status").Create(ctx, obj, obj), c.SubResource("status").Update(ctx, obj), c.SubResource("status").Patch(ctx, obj, client.Merge),
		}
	}
	s.Set(State{Active: true, Namespaces: []string{"a"}})
	held := slices.Concat(writes(pod), writes(deployment), []error{c.Apply(t.Context(), appsv1ac.Deployment("x", "a"))})
	passes := append(writes(scaler), c.Apply(t.Context(), appsv1ac.Deployment("x", "b")), c.Apply(t.Context(), corev1ac.ConfigMap("x", "a")))
	s.Set(State{})
	passes = slices.Concat(passes, writes(pod), writes(deployment))
	for what, errs := range map[bool][]error{true: held, false: passes} {
		for i, err := range errs {
			if frozen := new(Error); errors.As(err, &frozen) != what {
				t.Errorf("write %d: held is %t: %v", i, !what, err)
			}
		}
	}
	if Guard(inner, nil) != client.Client(inner) {
		t.Error("no switch needs no guard")
	}
}

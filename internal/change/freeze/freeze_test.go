// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package freeze

import (
	"context"
	"errors"
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
	if _, frozen := s.Frozen("b"); frozen {
		t.Error("another namespace is frozen")
	}
	s.Set(State{})
	if _, frozen := s.Frozen("a"); frozen {
		t.Error("still frozen")
	}
	if _, frozen := (*Switch)(nil).Frozen("a"); frozen {
		t.Error("a nil switch freezes")
	}
}

// counted counts the writes that pass.
type counted struct {
	client.Client
	writes int
}

func (c *counted) Create(context.Context, client.Object, ...client.CreateOption) error {
	c.writes++
	return nil
}

func (c *counted) Update(context.Context, client.Object, ...client.UpdateOption) error {
	c.writes++
	return nil
}

func (c *counted) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	c.writes++
	return nil
}

func (c *counted) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	c.writes++
	return nil
}

func (c *counted) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	c.writes++
	return nil
}

func (c *counted) DeleteAllOf(context.Context, client.Object, ...client.DeleteAllOfOption) error {
	c.writes++
	return nil
}

func (c *counted) SubResource(string) client.SubResourceClient { return &countedSubResource{c: c} }

type countedSubResource struct {
	client.SubResourceClient
	c *counted
}

func (s *countedSubResource) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	s.c.writes++
	return nil
}

func (s *countedSubResource) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	s.c.writes++
	return nil
}

func (s *countedSubResource) Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
	s.c.writes++
	return nil
}

// A switch whose state is unknown freezes, but does not say that an administrator has frozen.
func TestAnnounced(t *testing.T) {
	s := New(types.NamespacedName{Namespace: "system", Name: "freeze"})
	is := func(namespace, want string) {
		t.Helper()
		if why, frozen := s.Announced(namespace); why != want || frozen != (want != "") {
			t.Errorf("Announced(%q) = %q, %t; want %q", namespace, why, frozen, want)
		}
	}
	if _, frozen := s.Frozen("shop"); !frozen {
		t.Error("an unknown state does not freeze")
	}
	is("shop", "")
	s.Set(State{Active: true, Namespaces: []string{"shop"}, Reason: "incident 42"})
	is("shop", "ConfigMap system/freeze freezes changes: incident 42")
	is("other", "")
	s.Set(State{})
	is("shop", "")
	if why, frozen := (*Switch)(nil).Announced("shop"); frozen {
		t.Error("no switch freezes: " + why)
	}
}

func TestGuard(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "a", Name: "x"}
	pod, deployment, scaler := &corev1.Pod{ObjectMeta: meta}, &appsv1.Deployment{ObjectMeta: meta}, &v1beta1.VerticalScaler{ObjectMeta: meta}
	inner, s := &counted{}, New(name)
	c := Guard(inner, s)
	writes := func(obj client.Object) []error {
		ctx := t.Context()
		return []error{
			c.Create(ctx, obj), c.Update(ctx, obj), c.Patch(ctx, obj, nil), c.Delete(ctx, obj), c.DeleteAllOf(ctx, obj),
			c.SubResource("resize").Create(ctx, obj, nil), c.SubResource("resize").Update(ctx, obj), c.SubResource("resize").Patch(ctx, obj, nil),
		}
	}
	s.Set(State{Active: true, Namespaces: []string{"a"}})
	held := append(writes(pod), writes(deployment)...)
	held = append(held, c.Apply(t.Context(), appsv1ac.Deployment("x", "a")))
	for i, err := range held {
		var frozen *Error
		if !errors.As(err, &frozen) {
			t.Errorf("write %d is not held: %v", i, err)
		}
	}
	if inner.writes != 0 {
		t.Errorf("%d writes got through", inner.writes)
	}
	passes := append(writes(scaler), c.Apply(t.Context(), appsv1ac.Deployment("x", "b")), c.Apply(t.Context(), corev1ac.ConfigMap("x", "a")))
	s.Set(State{})
	passes = append(passes, append(writes(pod), writes(deployment)...)...)
	for i, err := range passes {
		if err != nil {
			t.Errorf("write %d is held: %v", i, err)
		}
	}
	if inner.writes != len(passes) {
		t.Errorf("%d of %d writes got through", inner.writes, len(passes))
	}
	if Guard(inner, nil) != client.Client(inner) {
		t.Error("no switch needs no guard")
	}
}

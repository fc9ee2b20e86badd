// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package freeze

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
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
		assert.Equal(t, what, c.want, Read(&corev1.ConfigMap{Data: c.data}))
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
	if frozen := new(Error); !errors.As(s.Check("a"), &frozen) || frozen.Why != "ConfigMap system/stop freezes changes: incident 42" {
		t.Errorf("Check() = %v", s.Check("a"))
	}
	if _, frozen := s.Frozen("b"); frozen {
		t.Error("another namespace is frozen")
	}
	s.Set(State{})
	if _, frozen := s.Frozen("a"); frozen {
		t.Error("still frozen")
	}
	if err := s.Check("a"); err != nil {
		t.Errorf("Check() = %v", err)
	}
	_, frozen := (*Switch)(nil).Frozen("a")
	if _, announced := (*Switch)(nil).Announced("a"); frozen || announced {
		t.Error("a nil switch freezes")
	}
}

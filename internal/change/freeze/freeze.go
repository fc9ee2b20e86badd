// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package freeze is the switch that stops all changes: a ConfigMap in the operator's own namespace.
// While it exists, no pod is resized and no pod template is written. Recommendations continue.
//
// The ConfigMap needs no data. "namespaces" limits the freeze to a list of namespaces, separated by
// commas or spaces. "reason" is shown to users. A list that cannot be parsed freezes all
// namespaces, because a user wanted a freeze.
//
// The ConfigMap is watched (watch.go) and checked right before each write (Switch.Check). While
// the watch fails, the last known state stays. Until the first read, everything is frozen.
package freeze

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/conditions"
)

// The keys of the ConfigMap.
const (
	KeyNamespaces = "namespaces"
	KeyReason     = "reason"
	// KeyUser is the user who has created it, as "kubectl vscaler freeze" notes it. The operator ignores it.
	KeyUser = "user"
)

// State is the content of the ConfigMap.
type State struct {
	// Active is true if the ConfigMap exists.
	Active bool
	// Namespaces are the frozen namespaces, sorted; an empty list means all.
	Namespaces []string
	// Reason is shown to users; it may be empty.
	Reason string
}

// Read parses the ConfigMap, or nil if it does not exist.
func Read(c *corev1.ConfigMap) State {
	if c == nil {
		return State{}
	}
	s := State{Active: true, Reason: conditions.OneLine(c.Data[KeyReason])}
	for _, name := range strings.FieldsFunc(c.Data[KeyNamespaces], func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' }) {
		if len(validation.IsDNS1123Label(name)) > 0 {
			s.Namespaces = nil
			return s
		}
		s.Namespaces = append(s.Namespaces, name)
	}
	slices.Sort(s.Namespaces)
	s.Namespaces = slices.Compact(s.Namespaces)
	return s
}

// Freezes reports whether the namespace is frozen.
func (s State) Freezes(namespace string) bool {
	return s.Active && (len(s.Namespaces) == 0 || slices.Contains(s.Namespaces, namespace))
}

// Switch reports whether changes are frozen. It is safe for concurrent use. A nil Switch freezes nothing.
type Switch struct {
	// ConfigMap is the name of the watched ConfigMap.
	ConfigMap types.NamespacedName

	mu     sync.Mutex
	known  bool
	state  State
	synced chan struct{} // closed after the first read
}

// New returns a switch of unknown state.
func New(configMap types.NamespacedName) *Switch {
	return &Switch{ConfigMap: configMap, synced: make(chan struct{})}
}

// Frozen reports whether changes in the namespace are frozen, and why. The message stays the same
// during a freeze.
func (s *Switch) Frozen(namespace string) (why string, frozen bool) {
	if s == nil {
		return "", false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.known:
		return fmt.Sprintf("ConfigMap %s could not be read yet: all changes are frozen until the operator knows whether it exists", s.ConfigMap), true
	case !s.state.Freezes(namespace):
		return "", false
	case s.state.Reason == "":
		return fmt.Sprintf("ConfigMap %s freezes changes", s.ConfigMap), true
	}
	return fmt.Sprintf("ConfigMap %s freezes changes: %s", s.ConfigMap, s.state.Reason), true
}

// Check returns an *Error if changes in the namespace are frozen. It is called right before each write to a pod or a pod
// template.
func (s *Switch) Check(namespace string) error {
	if why, frozen := s.Frozen(namespace); frozen {
		return &Error{why}
	}
	return nil
}

// Announced reports whether an administrator has frozen the namespace, and why. Unlike Frozen, it is
// false while it is unknown whether the ConfigMap exists: every restart would look like a freeze.
func (s *Switch) Announced(namespace string) (why string, frozen bool) {
	if s == nil {
		return "", false
	}
	select {
	case <-s.synced:
		return s.Frozen(namespace)
	default:
		return "", false
	}
}

// Set stores the state of the ConfigMap, and reports whether it is new.
func (s *Switch) Set(state State) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set(state)
}

// setAbsent stores that the ConfigMap does not exist, unless a state is already known.
func (s *Switch) setAbsent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.known && s.set(State{})
}

func (s *Switch) set(state State) bool {
	isNew := !s.known || s.state.Active != state.Active || s.state.Reason != state.Reason || !slices.Equal(s.state.Namespaces, state.Namespaces)
	if !s.known {
		s.known = true
		close(s.synced)
	}
	s.state = state
	return isNew
}

// Known is closed after the first read of the ConfigMap.
func (s *Switch) Known() <-chan struct{} { return s.synced }

// Error is returned for a write that is frozen.
type Error struct{ Why string }

func (e *Error) Error() string { return e.Why }

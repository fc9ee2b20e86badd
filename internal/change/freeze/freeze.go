// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package freeze is the switch that stops all changes: a ConfigMap in the operator's own
// namespace. While it exists, no pod is resized and no pod template is written;
// recommendations go on.
//
// Its data need nothing. "namespaces" confines it to some, separated by commas or spaces.
// "reason" is shown to users. What cannot be read as a list of namespaces holds all of
// them: somebody meant to stop something.
//
// The ConfigMap is watched (watch.go), and looked at right before each write (guard.go).
// Where the watch is broken, what was seen last stands. Until it has been seen for the
// first time, everything is held.
package freeze

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The keys of the ConfigMap.
const (
	keyNamespaces = "namespaces"
	keyReason     = "reason"
)

// longest is how much of a reason is shown, in bytes.
const maxReason = 256

// State is what the ConfigMap says.
type State struct {
	// Active says that it exists.
	Active bool
	// Namespaces are those that are held, sorted; none means all.
	Namespaces []string
	// Reason is what users are told; it may be empty.
	Reason string
}

// Read reads the ConfigMap; nil where there is none.
func Read(c *corev1.ConfigMap) State {
	if c == nil {
		return State{}
	}
	s := State{Active: true, Reason: oneLine(c.Data[keyReason])}
	for _, name := range strings.FieldsFunc(c.Data[keyNamespaces], func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' }) {
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

// tidy makes one short line of a text.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "")), " ")
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + "..."
	}
	return text
}

// Holds says whether nothing may be changed in the namespace.
func (s State) Freezes(namespace string) bool {
	return s.Active && (len(s.Namespaces) == 0 || slices.Contains(s.Namespaces, namespace))
}

// Switch tells whether changes are frozen. It is safe for concurrent use. Nil never is.
type Switch struct {
	// ConfigMap is the one that is watched.
	ConfigMap types.NamespacedName

	mu     sync.Mutex
	known  bool
	state  State
	synced chan struct{} // closed once it is known
}

// New makes a switch of which nothing is known yet.
func New(configMap types.NamespacedName) *Switch {
	return &Switch{ConfigMap: configMap, synced: make(chan struct{})}
}

// Over says whether changes in the namespace are frozen, and why, in words that stay the
// same as long as it is.
func (s *Switch) Frozen(namespace string) (why string, frozen bool) {
	if s == nil {
		return "", false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.known:
		return fmt.Sprintf("ConfigMap %s could not be read yet, which would freeze all changes: nothing is changed until it is known not to exist", s.ConfigMap), true
	case !s.state.Freezes(namespace):
		return "", false
	case s.state.Reason == "":
		return fmt.Sprintf("ConfigMap %s freezes changes", s.ConfigMap), true
	}
	return fmt.Sprintf("ConfigMap %s freezes changes: %s", s.ConfigMap, s.state.Reason), true
}

// Set is told what the ConfigMap says now, and says whether that is new.
func (s *Switch) Set(state State) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set(state)
}

// missing is Set for no ConfigMap, unless one is known.
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

// Known is closed once the ConfigMap has been looked for.
func (s *Switch) Known() <-chan struct{} { return s.synced }

// Error says that a write was held.
type Error struct{ Why string }

func (e *Error) Error() string { return e.Why }

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package ownwrites

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestMemory(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(version string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", ResourceVersion: version}}
	}
	for name, tc := range map[string]struct {
		read  string
		after time.Duration
		want  bool
	}{
		"older than our write":           {"9", time.Second, true}, // as numbers, 9 is before 10
		"our write":                      {"10", time.Second, false},
		"newer than our write":           {"11", time.Second, false},
		"older for longer than StaleFor": {"9", StaleFor, false},
		"a version that is not a number": {"x", time.Second, false},
		"no version":                     {"", time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			var m Memory
			m.Remember(at("10"), noon)
			clone := m.Clone()
			if got := m.IsNewerThan(at(tc.read), noon.Add(tc.after)); got != tc.want {
				t.Errorf("IsNewerThan(%s) = %t", tc.read, got)
			}
			if got := m.IsNewerThan(at("9"), noon.Add(tc.after)); got != tc.want {
				t.Errorf("then IsNewerThan(9) = %t", got) // A version that the cache has reached is forgotten.
			}
			if !clone.IsNewerThan(at("9"), noon) {
				t.Error("the clone has forgotten the write, too")
			}
			clone.Forget(types.NamespacedName{Namespace: "shop", Name: "web"})
			if clone.IsNewerThan(at("9"), noon) {
				t.Error("a forgotten write is remembered")
			}
		})
	}
}

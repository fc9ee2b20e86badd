// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

const (
	// beat is the time between two rounds of work of a live world.
	beat = 200 * time.Millisecond
	// latest is how long a live world waits for anything, on a busy machine.
	latest = 4 * time.Minute
)

// Live is a world in real time, whose operator is a process of its own. Controllers and kubelets work while something is
// awaited.
type Live struct {
	*World

	mu sync.Mutex // guards the world from the process, which asks for usage
}

// NewLive returns a live world in an existing namespace.
func NewLive(t testing.TB, api client.WithWatch, namespace string) *Live {
	t.Helper()
	l := &Live{World: New(t, api, namespace)}
	l.Stop()
	l.User = NewUser(t.Context(), t, api, namespace, l)
	return l
}

// SetUp creates what a scenario begins with.
func (l *Live) SetUp(s Scenario) {
	l.prepare()
	s.Setup(l.User)
}

// Await implements Surroundings.
func (l *Live) Await(what string, f func() string) {
	l.Helper()
	for deadline := time.Now().Add(latest); ; time.Sleep(beat) {
		wrong := l.round(f)
		if wrong == "" {
			return
		}
		if time.Now().After(deadline) {
			l.Fatalf("after %s, awaiting %s: %s", latest, what, wrong)
		}
	}
}

// round lets everybody work once, and returns what f answers.
func (l *Live) round(f func() string) string {
	l.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Clock.SetTime(time.Now())
	l.cache.forget()
	l.Kubelet.lookAgain()
	l.work()
	return f()
}

// AwaitUsage implements Surroundings.
func (l *Live) AwaitUsage(rounds int) {
	l.Helper()
	until := l.Usage.Rounds + rounds
	l.Await("usage to be read", func() string {
		if l.Usage.Rounds < until {
			return "not yet"
		}
		return ""
	})
}

// Samples are the usage at this moment, as a podmetrics.Handler returns it.
func (l *Live) Samples(namespace string) ([]usage.Sample, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cache.forgetKind(&corev1.Pod{})
	now := time.Now()
	samples, _, err := l.Usage.List(l.ctx, namespace, now)
	for i := range samples {
		samples[i].Time, samples[i].Window = now, time.Second
	}
	return samples, err
}

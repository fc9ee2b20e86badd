// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// Round lets everybody in a world in real time work once, and returns what f answers.
func (w *World) Round(f func() string) string {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Clock.SetTime(time.Now())
	w.cache.forget()
	w.work()
	return f()
}

// Samples are the usage in a world in real time at this moment, as a podmetrics.Handler returns it.
func (w *World) Samples(namespace string) ([]usage.Sample, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cache.forgetKind(&corev1.Pod{})
	now := time.Now()
	samples, _, err := w.Usage.List(w.ctx, namespace, now)
	for i := range samples {
		samples[i].Time, samples[i].Window = now, time.Second
	}
	return samples, err
}

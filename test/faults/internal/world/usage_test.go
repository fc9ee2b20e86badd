// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/monitor"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/metricsapi"
)

// The operator's reader accepts exactly those samples of a distorted answer that the
// monitor is told about, and each distortion costs something.
func TestDistortedUsageIsReadAsTheMonitorIsTold(t *testing.T) {
	w := &World{namespace: "shop", monitor: monitor.New(), node: newNode(nil, nil)}
	w.source, w.recorder = newSource(w), newRecorder(w.node, w.monitor)
	w.AlwaysHeard()
	for _, name := range []string{"a", "b", "c"} {
		pod := somePod(name, small)
		pod.Namespace, pod.Spec.NodeName = w.namespace, "scripted-ahead"
		w.recorder.saw(watch.Added, pod)
	}
	server := httptest.NewServer(w.Metrics())
	defer server.Close()
	source, err := metricsapi.New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	const all = 9 // two containers and a native sidecar in each of three pods
	for _, d := range append(Distortions(), Undistorted) {
		t.Run("distortion "+string(d), func(t *testing.T) {
			w.Distort(d)
			round := w.source.rounds()
			samples, refused, err := source.List(context.Background(), w.namespace, time.Now())
			got, want := namesOf(samples), namesOf(told(w, d, round))
			if !slices.Equal(got, want) {
				t.Errorf("read %q, and the monitor is told %q", got, want)
			}
			isHarmless := err == nil && len(samples) == all && len(refused) == 0
			// This reader does not know the limits of containers.
			if isHarmless != (d == Undistorted || d == Beyond) {
				t.Errorf("%d samples, refused %v, error %v", len(samples), refused, err)
			}
		})
	}
}

func told(w *World, d Distortion, round int) []usage.Sample {
	if d.code() != 0 || d == OtherKind {
		return nil
	}
	var items []podMetrics
	for _, pod := range w.recorder.runningPods() {
		items = append(items, usageOf(pod, w.node.ordinal(pod), time.Now()))
	}
	return usable(d, items, round)
}

func namesOf(samples []usage.Sample) (names []string) {
	for _, s := range samples {
		names = append(names, s.Pod+"/"+s.Container)
	}
	slices.Sort(names)
	return names
}

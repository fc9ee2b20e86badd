// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// metricsPath is where metrics.k8s.io is served.
const metricsPath = "/apis/metrics.k8s.io"

// source serves a constant usage that differs between replicas. One replica is silent in the
// second and the fifth answer; a third silence would be reported in the status.
type source struct {
	world *World

	mu      sync.Mutex
	answers int // requests for usage so far
	silence world.Silence
}

func newSource(w *World) *source { return &source{world: w} }

// isSilent reports whether an answer has no usage of a pod.
func (u *source) isSilent(ordinal, round int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.silence.Covers(ordinal, round)
}

// Silence implements world.Surroundings.
func (w *World) Silence(of world.Silence) {
	w.source.mu.Lock()
	defer w.source.mu.Unlock()
	w.source.silence = of
}

// Metrics serves metrics.k8s.io for the world's pods.
func (w *World) Metrics() http.Handler { return w.source }

// rounds is the number of requests for the usage of the namespace so far.
func (u *source) rounds() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.answers
}

// ServeHTTP implements http.Handler.
func (u *source) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	switch path := strings.TrimSuffix(request.URL.Path, "/"); path {
	case metricsPath:
		writeJSON(response, http.StatusOK, map[string]any{
			"kind": "APIGroup", "apiVersion": "v1", "name": "metrics.k8s.io",
			"versions": []any{map[string]any{"groupVersion": "metrics.k8s.io/v1beta1", "version": "v1beta1"}},
		})
	case metricsPath + "/v1beta1":
		writeJSON(response, http.StatusOK, map[string]any{
			"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "metrics.k8s.io/v1beta1",
			"resources": []any{map[string]any{"name": "pods", "namespaced": true, "kind": "PodMetrics", "verbs": []string{"get", "list"}}},
		})
	case metricsPath + "/v1beta1/namespaces/" + u.world.namespace + "/pods":
		u.list(response)
	default:
		refuse(response, http.StatusNotFound)
	}
}

// list answers a request for the usage of all pods.
func (u *source) list(response http.ResponseWriter) {
	u.mu.Lock()
	round := u.answers
	u.answers++
	u.mu.Unlock()
	now := time.Now()
	items, samples := []podMetrics{}, []usage.Sample{}
	for _, pod := range u.world.recorder.runningPods() {
		ordinal := u.world.node.ordinal(pod)
		if u.isSilent(ordinal, round) {
			continue
		}
		item := usageOf(pod, ordinal, now)
		items = append(items, item)
		for _, container := range item.Containers { // the monitor needs only their names
			samples = append(samples, usage.Sample{Namespace: pod.Namespace, Pod: pod.Name, Container: container.Name})
		}
	}
	u.world.monitor.Answered(u.world.namespace, samples, now)
	writeJSON(response, http.StatusOK, map[string]any{"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": items})
}

// podMetrics and containerMetrics are written as metrics-server writes them.
type podMetrics struct {
	Metadata   metav1.ObjectMeta  `json:"metadata"`
	Timestamp  string             `json:"timestamp"`
	Window     string             `json:"window"`
	Containers []containerMetrics `json:"containers"`
}

type containerMetrics struct {
	Name  string            `json:"name"`
	Usage map[string]string `json:"usage"`
}

// usageOf is the usage of a pod, with its native sidecars: well below each size, and different for each replica.
func usageOf(pod *corev1.Pod, ordinal int, now time.Time) podMetrics {
	percent := []int64{100, 60, 120}[ordinal%3]
	m := podMetrics{
		Metadata:  metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		Timestamp: now.UTC().Format(time.RFC3339Nano), Window: "1s",
	}
	sidecars := slices.DeleteFunc(slices.Clone(pod.Spec.InitContainers), func(c corev1.Container) bool { return c.RestartPolicy == nil })
	for i, c := range slices.Concat(pod.Spec.Containers, sidecars) {
		cpuMillis, memory := 40/int64(i+1)*percent/100, 50*mebi/int64(i+1)*percent/100
		m.Containers = append(m.Containers, containerMetrics{Name: c.Name, Usage: map[string]string{
			"cpu": fmt.Sprintf("%dm", cpuMillis), "memory": fmt.Sprint(memory),
		}})
	}
	return m
}

func refuse(response http.ResponseWriter, code int) {
	writeJSON(response, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code),
		Message: http.StatusText(code),
	})
}

func writeJSON(response http.ResponseWriter, code int, body any) {
	response.Header().Set("Content-Type", "application/json")
	response.WriteHeader(code)
	_ = json.NewEncoder(response).Encode(body) // a client that is gone asks again
}

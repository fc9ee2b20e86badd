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

// Distortion is something wrong with the usage that metrics.k8s.io serves.
type Distortion string

// The distortions. Those of one value apply to the first container of one pod in each
// answer, in turn, so that the other pods still have usage.
const (
	Undistorted Distortion = ""
	// Negative, Absurd, NotANumber, WrongUnit, Endless and Empty are quantities.
	Negative Distortion = "negative"
	Absurd   Distortion = "absurd"
	// Beyond is valid, and far above the container's limits.
	Beyond     Distortion = "beyond-limits"
	NotANumber Distortion = "nan"
	WrongUnit  Distortion = "wrong-unit"
	Endless    Distortion = "endless"
	Empty      Distortion = "empty"
	// Stale and FromTheFuture are timestamps; NoWindow is a window of 0.
	Stale         Distortion = "stale"
	FromTheFuture Distortion = "future"
	NoWindow      Distortion = "no-window"
	// Duplicate lists a pod twice, the second time with another usage.
	Duplicate Distortion = "duplicate"
	// OtherNamespace has a pod of another namespace in the list.
	OtherNamespace Distortion = "other-namespace"
	// MissingContainer and MissingPod leave parts out; NoPods leaves all out.
	MissingContainer Distortion = "missing-container"
	MissingPod       Distortion = "missing-pod"
	NoPods           Distortion = "no-pods"
	// Unavailable answers 503, Failing 500, NotFound 404, and Forbidden 403.
	Unavailable Distortion = "503"
	Failing     Distortion = "500"
	NotFound    Distortion = "404"
	Forbidden   Distortion = "403"
	// Cut ends in the middle of the answer; OtherKind is a valid document of another kind.
	Cut       Distortion = "cut"
	OtherKind Distortion = "other-kind"
)

// Distortions are all distortions.
func Distortions() []Distortion {
	return []Distortion{
		Negative, Absurd, Beyond, NotANumber, WrongUnit, Endless, Empty, Stale, FromTheFuture, NoWindow, Duplicate, OtherNamespace,
		MissingContainer, MissingPod, NoPods, Unavailable, Failing, NotFound, Forbidden, Cut, OtherKind,
	}
}

// source serves the usage of the world's pods. It is constant, and each replica has its own:
// one uses less than the others, and one more. One is silent in the second and the fifth
// answer. A third silence would be worth a word in the status, and the end of a run would
// depend on whether it has been seen yet.
type source struct {
	world *World

	mu        sync.Mutex
	distorted Distortion
	answers   int // requests for usage so far
	silence   world.Silence
}

func newSource(w *World) *source { return &source{world: w} }

// isSilent says whether an answer has no usage of a pod.
func (u *source) isSilent(ordinal, round int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.silence.Covers(ordinal, round)
}

// Distort distorts all answers from now on.
func (w *World) Distort(d Distortion) {
	w.source.mu.Lock()
	defer w.source.mu.Unlock()
	w.source.distorted = d
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
	round, distorted := u.answers, u.distorted
	u.answers++
	u.mu.Unlock()
	if code := distorted.code(); code != 0 {
		u.world.monitor.Answered(u.world.namespace, nil, time.Now())
		refuse(response, code)
		return
	}
	if distorted == OtherKind {
		u.world.monitor.Answered(u.world.namespace, nil, time.Now())
		writeJSON(response, http.StatusOK, map[string]any{"kind": "ConfigMapList", "apiVersion": "v1", "items": []any{}})
		return
	}
	now := time.Now()
	var items []podMetrics
	for _, pod := range u.world.recorder.runningPods() {
		ordinal := u.world.node.ordinal(pod)
		if u.isSilent(ordinal, round) {
			continue
		}
		items = append(items, usageOf(pod, ordinal, now))
	}
	u.world.monitor.Answered(u.world.namespace, usable(distorted, items, round), now)
	items = distort(distorted, items, round)
	content, err := json.Marshal(map[string]any{"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": orNone(items)})
	if err != nil {
		refuse(response, http.StatusInternalServerError)
		return
	}
	response.Header().Set("Content-Type", "application/json")
	if distorted == Cut {
		content = content[:len(content)*2/3]
	}
	_, _ = response.Write(content) // a client that is gone asks again
}

// code is the HTTP status with which usage is refused; 0 if it is not.
func (d Distortion) code() int {
	switch d {
	case Unavailable:
		return http.StatusServiceUnavailable
	case Failing:
		return http.StatusInternalServerError
	case NotFound:
		return http.StatusNotFound
	case Forbidden:
		return http.StatusForbidden
	}
	return 0
}

// podMetrics and containerMetrics are written as metrics-server writes them. Quantities are
// strings, since some of them are none.
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

// distort changes an answer. It returns the items to serve.
func distort(d Distortion, items []podMetrics, round int) []podMetrics {
	if len(items) == 0 || d == Undistorted {
		return items
	}
	victim := round % len(items)
	one := &items[victim]
	both := func(cpu, memory string) {
		one.Containers[0].Usage = map[string]string{"cpu": cpu, "memory": memory}
	}
	switch d {
	case Negative:
		both("-250m", "-1Gi")
	case Absurd:
		both("900000", "900Ti")
	case Beyond:
		both("900", "900Gi")
	case NotANumber:
		both("NaN", "+Inf")
	case WrongUnit:
		both("40 millicores", "50MB")
	case Endless:
		both("1e100000000", strings.Repeat("9", 500))
	case Empty:
		both("", "")
	case Stale:
		one.Timestamp = time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	case FromTheFuture:
		one.Timestamp = time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	case NoWindow:
		one.Window = "0s"
	case Duplicate:
		second := *one
		second.Containers = []containerMetrics{{Name: one.Containers[0].Name, Usage: map[string]string{"cpu": "3", "memory": "3Gi"}}}
		items = append(items, second)
	case OtherNamespace:
		second := *one
		second.Metadata.Namespace = "kube-system"
		items = append(items, second)
	case MissingContainer:
		one.Containers = one.Containers[1:]
	case MissingPod:
		items = append(items[:victim:victim], items[victim+1:]...)
	case NoPods:
		items = nil
	}
	return items
}

// usable are the samples that an answer has for a careful reader. The monitor needs only
// their pods and containers.
func usable(d Distortion, items []podMetrics, round int) (samples []usage.Sample) {
	if d == NoPods || d == Cut {
		return nil
	}
	for i, item := range items {
		isVictim := i == round%len(items)
		if isVictim && (d == Stale || d == FromTheFuture || d == NoWindow || d == MissingPod) {
			continue
		}
		for c, container := range item.Containers {
			if isVictim && c == 0 && (d == Negative || d == Absurd || d == NotANumber || d == WrongUnit || d == Endless || d == Empty || d == MissingContainer) {
				continue
			}
			samples = append(samples, usage.Sample{Namespace: item.Metadata.Namespace, Pod: item.Metadata.Name, Container: container.Name})
		}
	}
	return samples
}

func orNone(items []podMetrics) []podMetrics {
	if items == nil {
		return []podMetrics{}
	}
	return items
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

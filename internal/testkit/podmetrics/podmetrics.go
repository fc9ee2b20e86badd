// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podmetrics serves metrics.k8s.io in the place of metrics-server.
package podmetrics

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

const (
	// Path is the path of metrics.k8s.io.
	Path = "/apis/metrics.k8s.io"
	// version is the version of the API.
	version = "metrics.k8s.io/v1beta1"
)

// Handler serves the samples of a namespace, or of all namespaces if it is empty. Samples of one pod follow each other.
type Handler func(namespace string) ([]usage.Sample, error)

type pod struct {
	Metadata   metav1.ObjectMeta `json:"metadata"`
	Timestamp  string            `json:"timestamp"`
	Window     string            `json:"window"`
	Containers []container       `json:"containers"`
}

type container struct {
	Name  string            `json:"name"`
	Usage map[string]string `json:"usage"`
}

// ServeHTTP implements http.Handler.
func (h Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, Path), "/")
	var answer any
	switch words := strings.Split(path, "/"); {
	case path == "":
		answer = map[string]any{"kind": "APIGroup", "apiVersion": "v1", "name": "metrics.k8s.io", "versions": []any{
			map[string]any{"groupVersion": version, "version": "v1beta1"},
		}}
	case path == "/v1beta1":
		answer = metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version,
			APIResources: []metav1.APIResource{{Name: "pods", Kind: "PodMetrics", Namespaced: true, Verbs: metav1.Verbs{"get", "list"}}},
		}
	case path == "/v1beta1/pods":
		answer = h.list(w, "")
	case len(words) == 5 && words[2] == "namespaces" && words[4] == "pods":
		answer = h.list(w, words[3])
	default:
		http.NotFound(w, r)
		return
	}
	if answer == nil {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // fails only if the client has left
}

// list is the answer to a request for usage; nil after a failure.
func (h Handler) list(w http.ResponseWriter, namespace string) any {
	samples, err := h(namespace)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return nil
	}
	pods := []pod{}
	for _, s := range samples {
		if last := len(pods) - 1; last < 0 || pods[last].Metadata.Namespace != s.Namespace || pods[last].Metadata.Name != s.Pod {
			pods = append(pods, pod{
				Metadata:  metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Pod},
				Timestamp: s.Time.UTC().Format(time.RFC3339Nano), Window: s.Window.String(),
			})
		}
		last := &pods[len(pods)-1]
		last.Containers = append(last.Containers, container{s.Container, map[string]string{
			"cpu": fmt.Sprintf("%dm", s.CPUMillis), "memory": fmt.Sprint(s.MemoryBytes),
		}})
	}
	return map[string]any{"kind": "PodMetricsList", "apiVersion": version, "metadata": map[string]any{}, "items": pods}
}

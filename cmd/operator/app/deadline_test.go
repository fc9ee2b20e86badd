// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// podsFrom is a client of an API server that answers in this way.
func podsFrom(t *testing.T, deadline time.Duration, answer http.HandlerFunc) kubernetes.Interface {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &bounded{next: next, deadline: deadline}
	})
	client, err := kubernetes.NewForConfig(config)
	must.Succeed(t, err)
	return client
}

// hang ends when the client gives up. The server notices that only after it has read the body.
func hang(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// unansweredPuts is the value of the metric for PUTs.
func unansweredPuts(t *testing.T) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	must.Succeed(t, err)
	for _, family := range families {
		if family.GetName() != "verticalscaler_unanswered_requests_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			if metric.GetLabel()[0].GetValue() == http.MethodPut {
				return metric.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func TestARequestThatIsNotAnsweredEnds(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"no answer": func(_ http.ResponseWriter, r *http.Request) { hang(r) },
		"half an answer": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind":"Pod",`))
			w.(http.Flusher).Flush()
			hang(r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := unansweredPuts(t)
			pods := podsFrom(t, 50*time.Millisecond, answer).CoreV1().Pods("shop")
			_, err := pods.Update(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, metav1.UpdateOptions{})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the request ended with %v, want %v", err, context.DeadlineExceeded)
			}
			if counted := unansweredPuts(t) - before; counted != 1 {
				t.Errorf("%v requests are counted as unanswered, want 1", counted)
			}
		})
	}
}

// A watch has no end, and an answer in time is read to its end.
func TestWhatIsAnsweredIsNotCut(t *testing.T) {
	const event = `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web"}}}`
	const deadline = time.Second // enough for an answer on a busy machine
	client := podsFrom(t, deadline, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			_, _ = w.Write([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web"}}`))
			return
		}
		w.(http.Flusher).Flush()
		select {
		case <-time.After(2 * deadline):
		case <-r.Context().Done():
		}
		_, _ = w.Write([]byte(event))
	})
	watcher, err := client.CoreV1().Pods("shop").Watch(t.Context(), metav1.ListOptions{})
	must.Succeed(t, err)
	defer watcher.Stop()
	if got, open := <-watcher.ResultChan(); !open || got.Type != "ADDED" {
		t.Errorf("the watch delivered %v, want the event that came after the deadline", got)
	}
	pod, err := client.CoreV1().Pods("shop").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || pod.Name != "web" {
		t.Errorf("read %v with error %v, want pod web", pod, err)
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestWhatNoRightWouldAllowIsNotAMissingRight(t *testing.T) {
	events := schema.GroupResource{Group: "events.k8s.io", Resource: "events"}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := apierrors.NewForbidden(events, "", nil).Status()
		if r.URL.Path == "/ends" {
			answer.Details.Causes = append(answer.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
		}
		w.WriteHeader(http.StatusForbidden)
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	a := &Account{}
	c := http.Client{Transport: overheard{a, http.DefaultTransport}}
	for _, path := range []string{"/stays", "/ends", "/stays"} {
		response, err := c.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		var status metav1.Status
		if body, err := io.ReadAll(response.Body); err != nil || json.Unmarshal(body, &status) != nil || status.Reason != metav1.StatusReasonForbidden {
			t.Errorf("%s: read %q, %v", path, body, err)
		}
		if err := response.Body.Close(); err != nil {
			t.Error(err)
		}
	}
	if got, want := a.Forbidden(), []string{"GET /stays"}; !slices.Equal(got, want) {
		t.Errorf("Forbidden() = %q, want %q", got, want)
	}
}

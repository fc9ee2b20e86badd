// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestShareAddsUp(t *testing.T) {
	for _, millicores := range []int64{0, 1, 300, 1000, 1001, 2300} {
		sum := int64(0)
		for i := range int64(4) {
			sum += share(millicores, i)
		}
		if sum != millicores {
			t.Errorf("four workers share %d of %d millicores", sum, millicores)
		}
	}
}

func TestSet(t *testing.T) {
	s := &server{}
	// In this order: each starts from what the one before has left.
	cases := []struct {
		name   string
		query  string
		status int
		cpu    int64
		memory int64
	}{
		{"What is not mentioned stays", "memory=3", 200, 0, 3},
		{"Both can change", "cpu=1&memory=2", 200, 1, 2},
		{"Nothing changes on a bad number", "cpu=5&memory=-1", 400, 1, 2},
		{"Nothing changes on an absurd number", "cpu=1000000", 400, 1, 2},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			s.routes().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/set?"+tc.query, nil))
			if w.Code != tc.status {
				t.Fatalf("status %d, want %d: %s", w.Code, tc.status, w.Body)
			}
			w = httptest.NewRecorder()
			s.routes().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/stat", nil))
			var got struct{ CPUMillis, MemoryMiB int64 }
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if got.CPUMillis != tc.cpu || got.MemoryMiB != tc.memory {
				t.Errorf("now %+v, want %d millicores and %d MiB", got, tc.cpu, tc.memory)
			}
		})
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package benchmark

import (
	"maps"
	"net/http"
	"strings"
	"testing"
)

// What a new scaler names is in the cache before its first reconcile. So a start with new scalers costs few requests for each.
func TestAStartReadsNothingLiveButCheckpoints(t *testing.T) {
	const scalers = 30
	a := newAPI(t)
	serveFleet(a, scalers, true)
	settled(t, a, scalers, true)
	read := a.requests()
	maps.DeleteFunc(read, func(request string, n int) bool {
		return !strings.HasPrefix(request, http.MethodGet) || n < scalers // which does not grow with the scalers
	})
	if want := map[string]int{"GET verticalscalercheckpoints": scalers}; !maps.Equal(read, want) {
		t.Errorf("reads: %v, want %v", read, want)
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
)

// Time that passes is no change.
func TestWatchIsSilentWhileARequestWaits(t *testing.T) {
	before := explain.Overview{Scalers: []explain.Row{{Name: "web", State: explain.State{Reason: "WithinBounds", Advice: "Wait: app cpu is lowered in about 2h20m"}}}}
	after := explain.Overview{Scalers: []explain.Row{{Name: "web", State: explain.State{Reason: "WithinBounds", Advice: "Wait: app cpu is lowered in about 2h10m"}}}}
	if news := changed(before, after); len(news.Scalers) != 0 {
		t.Errorf("shown again: %+v", news)
	}
	after.Scalers[0].Reason = "Resizing"
	if news := changed(before, after); len(news.Scalers) != 1 || news.Scalers[0].Advice == "" {
		t.Errorf("a change is not shown: %+v", news)
	}
}

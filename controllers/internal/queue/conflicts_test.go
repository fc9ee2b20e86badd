// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A watch that is silent for hours costs a conflict at each resync, and is logged once until an object has no conflict anymore.
func TestConflictsInARowBackOffToTheResync(t *testing.T) {
	t.Parallel()
	var c Conflicts
	web, api := types.NamespacedName{Name: "web"}, types.NamespacedName{Name: "api"}
	for range 11 {
		c.Delay(web)
	}
	if c.silent.Load() {
		t.Error("51 seconds of conflicts count as a silent watch")
	}
	for range 5 {
		c.Delay(web)
	}
	if delay := c.Delay(web); delay != 10*time.Minute || !c.silent.Load() {
		t.Errorf("the watch is silent, %t, and the next attempt follows after %s", c.silent.Load(), delay)
	}
	if c.Forget(api); !c.silent.Load() {
		t.Error("an object without conflicts ends the silence")
	}
	if c.Forget(web); c.silent.Load() {
		t.Error("the end of the conflicts does not end the silence")
	}
	if delay := c.Delay(web); delay != 50*time.Millisecond {
		t.Errorf("the first conflict of a new row waits for %s", delay)
	}
}

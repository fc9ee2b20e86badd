// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/pages"
)

func TestRecordsAreLimited(t *testing.T) {
	source := &Source{records: map[recordKey]*record{}}
	at := time.Now()
	key := func(i int) recordKey {
		return recordKey{types.NamespacedName{Namespace: "shop", Name: fmt.Sprint(i)}, pages.Live}
	}
	first := source.recordOf(key(0), at)
	for i := range 3 * mostRecords {
		source.recordOf(key(i+1), at.Add(time.Duration(i)*time.Second))
		if source.recordOf(key(0), at.Add(time.Duration(i)*time.Second)) != first {
			t.Fatal("a record that is looked at was dropped")
		}
	}
	if n := len(source.records); n != mostRecords {
		t.Errorf("%d records", n)
	}
}

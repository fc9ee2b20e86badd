// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// The usage of idle scalers strays by 5 %. After 256 to 512 minutes, by its UID, each of them would write status and
// checkpoint, because the evidence in them has doubled. internal/recommend asks the same of many more, without writes.
func TestIdleScalersWriteNothingForHours(t *testing.T) {
	t.Parallel()
	const many = 5
	w := newFixture(t)
	random := rand.New(rand.NewPCG(1, 2))
	stray := func(v int64) int64 { return int64(float64(v) * (0.95 + 0.1*random.Float64())) }
	w.Usage.Change = func(samples []usage.Sample) []usage.Sample {
		for i := range samples {
			samples[i].CPUMillis, samples[i].MemoryBytes = stray(samples[i].CPUMillis), stray(samples[i].MemoryBytes)
		}
		return samples
	}
	name := func(i int) string { return fmt.Sprintf("d-%d", i) }
	for i := range many {
		d := testkit.Deployment(w.Namespace, name(i))
		d.Spec.Replicas = ptr.To(int32(1))
		w.Create(d, testkit.Scaler(w.Namespace, name(i), name(i)))
		w.Uses(name(i), "app", 150+40*int64(i), 100+20*int64(i))
	}
	w.Minutes(100)
	for i := range many {
		w.Says(name(i), "Applied", "True", "Applied")
	}

	mark := w.mark()
	w.Minutes(60)
	w.Restart() // a new operator must not write what it finds
	w.Minutes(60)
	if writes := w.writes(mark); len(writes) > 0 {
		t.Errorf("%d writes of idle scalers: %v", len(writes), writes)
	}
}

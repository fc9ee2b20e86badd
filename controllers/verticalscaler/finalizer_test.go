// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"testing"

	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

func withFinalizer(s *v1beta1.VerticalScaler) { s.Finalizers = []string{v1beta1.RestoreFinalizer} }

// A finalizer without original values goes when nothing will be recorded.
func TestAFinalizerWithoutOriginalValuesIsRemoved(t *testing.T) {
	for name, tc := range map[string]struct {
		cpuMillis int64
		mode      v1beta1.UpdateMode
	}{
		"Rollout, and nothing to change": {95, "Rollout"},
		"Recommend":                      {400, "Recommend"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlant(t, tc.cpuMillis, withMode(tc.mode), withFinalizer, func(s *v1beta1.VerticalScaler) {
				s.Spec.UpdatePolicy.TolerancePercent = ptr.To[int32](90)
			})
			for range 3 {
				p.mustReconcile()
			}
			if vs, _, err := p.reconcile(); err != nil || len(vs.Finalizers) > 0 || len(p.finalizers) != 1 {
				t.Errorf("finalizers %v after %d writes, %v, %v", vs.Finalizers, len(p.finalizers), err, condition(vs, "Applied"))
			}
		})
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// A quota that the cache has not seen yet is known in seconds; other rejections end without an event.
func TestALateQuotaIsTriedAgainSoon(t *testing.T) {
	r := &Reconciler{ResyncPeriod: 10 * time.Minute}
	for name, tc := range map[string]struct {
		reason       string
		judgesQuotas bool
		want         time.Duration
	}{
		"a late quota":                  {v1beta1.ReasonQuotaExceeded, true, lateQuota},
		"a quota that cannot be judged": {v1beta1.ReasonQuotaExceeded, false, r.retryPeriod("uid")},
		"another refusal":               {v1beta1.ReasonRejected, true, r.retryPeriod("uid")},
	} {
		s := &scope{scaler: &v1beta1.VerticalScaler{}}
		s.scaler.UID, s.observation.judgesQuotas = "uid", tc.judgesQuotas
		if got := r.rejectionPeriod(s, tc.reason); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

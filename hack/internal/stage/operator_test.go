// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheOperatorIsPointedAtNoOtherCluster(t *testing.T) {
	got := withoutCluster([]string{"A=1", "KUBECONFIG=x", "WATCH_NAMESPACE=y", "OPERATOR_CONDITION_NAME=z", "B="})
	if diff := cmp.Diff([]string{"A=1", "B="}, got); diff != "" {
		t.Errorf("withoutCluster() (-want +got):\n%s", diff)
	}
}

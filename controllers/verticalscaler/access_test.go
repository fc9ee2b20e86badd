// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

func TestClusterAccess(t *testing.T) {
	const rest = ". It reads no nodes, so a size that no node can hold is found only when it is refused; " +
		"admission policies are cluster-wide, and out of its reach"
	var many []string
	for i := range 60 {
		many = append(many, fmt.Sprintf("team-%02d-%s", i, strings.Repeat("x", 50)))
	}
	for name, tc := range map[string]struct {
		scope         scaler.ClusterAccess
		reason, wants string
	}{
		"the whole cluster": {},
		"its own namespace": {scaler.ClusterAccess{Namespaces: []string{"shop"}}, "NamespacedInstall", "The operator is installed only for the namespace shop" + rest},
		"two namespaces":    {scaler.ClusterAccess{Namespaces: []string{"bank", "shop"}}, "NamespacedInstall", "The operator is installed only for the namespaces bank, shop" + rest},
		"sixty namespaces": {
			scaler.ClusterAccess{Namespaces: many},
			"NamespacedInstall",
			"The operator is installed only for the namespaces " + strings.Join(many[:10], ", ") + " and 50 more" + rest,
		},
		"the whole cluster, but no nodes": {
			scaler.ClusterAccess{NodesForbidden: true},
			"NodesForbidden",
			"The operator may not list and watch nodes, so a size that no node can hold is found only when it is refused",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &scope{now: noon, access: tc.scope}
			vs := checkout()
			completeFor(vs, p)
			if ready := meta.FindStatusCondition(p.status.Conditions, "Ready"); ready == nil || ready.Status != metav1.ConditionTrue {
				t.Errorf("Ready is %+v", ready)
			}
			got := meta.FindStatusCondition(p.status.Conditions, "ClusterAccess")
			if tc.reason == "" {
				if got != nil {
					t.Errorf("ClusterAccess is %+v; nothing is lost", got)
				}
				return
			}
			if got == nil || got.Status != metav1.ConditionFalse || got.Reason != tc.reason || got.Message != tc.wants {
				t.Errorf("ClusterAccess is %+v\nwant %s: %s", got, tc.reason, tc.wants)
			}
		})
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/shards"
)

// The budget is divided by the replicas that work, and the histories of other replicas' namespaces are dropped.
func TestReplicasShareTheBudgetAndTheHistories(t *testing.T) {
	c := config.Default()
	c.Budget.ChangesPerMinute = 300
	kept := newKept(c)
	kept.histories.Client = fake.NewClientBuilder().WithScheme(Scheme()).Build()
	load := func(namespace string) {
		t.Helper()
		vs := &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", UID: "1"}}
		if err := kept.histories.Load(t.Context(), vs, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	shared := shards.View{Slot: 1, Slots: []int{0, 1, 2}}
	namespaces, own := []string{"a", "b", "c", "d", "e", "f"}, 0
	for _, namespace := range namespaces {
		load(namespace)
		if shared.Owns(namespace) {
			own++
		}
	}
	if own == 0 || own == len(namespaces) {
		t.Fatalf("the replica serves %d of %d namespaces", own, len(namespaces))
	}
	for _, tc := range []struct {
		when             string
		view             shards.View
		limit, histories int
	}{
		{"alone", shards.Alone(), 300, len(namespaces)},
		{"while it waits, nothing is known yet", shards.View{}, 300, len(namespaces)},
		{"one of three", shared, 100, own},
		{"alone again", shards.Alone(), 300, own},
	} {
		kept.share(tc.view)
		if limit, n := kept.changes.Limit(), kept.histories.Len(); limit != tc.limit || n != tc.histories {
			t.Errorf("%s: %d changes a minute, %d histories; want %d and %d", tc.when, limit, n, tc.limit, tc.histories)
		}
	}
}

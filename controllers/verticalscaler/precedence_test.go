// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler/precedence"
)

// crowded has a Deployment web that n scalers name, and has come to rest.
func crowded(tb testing.TB, n int) *world {
	tb.Helper()
	w := newWorld(tb, nil, false)
	w.indexer = toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, indexers())
	createDeployment("web").do(w)
	for i := range n {
		createScaler(fmt.Sprintf("s-%05d", i), "web").do(w)
	}
	w.rest()
	return w
}

// An event of a Deployment costs the same however many scalers name it, which its allocations show
// without a clock.
func TestADeploymentEventCostsTheSameHoweverManyScalersNameIt(t *testing.T) {
	cost := func(n int) float64 {
		w := crowded(t, n)
		if lost := w.lost(); lost != "" {
			t.Fatal(lost)
		}
		return testing.AllocsPerRun(20, func() { w.changes() })
	}
	if one, many := cost(1), cost(1000); many > 1.1*one {
		t.Errorf("%v allocations with a thousand scalers, %v with one", many, one)
	}
}

// changes changes the Deployment, and does all that follows.
func (w *world) changes() {
	changeDeployment("web").do(w)
	w.rest()
}

// What a scaler behind another one has still to restore may depend on events of the Deployment.
func TestAScalerThatStandsBackKeepsItsClaimUntilItHasRestored(t *testing.T) {
	original := &v1beta1.OriginalResources{DeploymentName: "web"}
	for name, tc := range map[string]struct {
		standing precedence.Standing
		original *v1beta1.OriginalResources
		want     string
	}{
		"first":                           {want: "ns/web"},
		"behind, nothing to restore":      {standing: precedence.Standing{Winner: "elder"}},
		"behind, with values to restore":  {precedence.Standing{Winner: "elder"}, original, "ns/web"},
		"refused, with values to restore": {precedence.Standing{Refused: true}, original, "ns/web"},
	} {
		t.Run(name, func(t *testing.T) {
			vs := &v1beta1.VerticalScaler{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}, Spec: v1beta1.VerticalScalerSpec{DeploymentName: "web"},
			}
			scaler.RecordClaim(&vs.Status, "ns/web")
			s := &scope{scaler: vs, standing: tc.standing, status: *vs.Status.DeepCopy()}
			s.status.OriginalResources = tc.original
			if _, err := (&Reconciler{}).claim(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if got := s.status.Annotations[v1beta1.ClaimAnnotation]; got != tc.want {
				t.Errorf("claims %q, want %q", got, tc.want)
			}
		})
	}
}

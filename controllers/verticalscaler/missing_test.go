// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/checkpoint"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// A Deployment that is missing for a moment costs nothing of what has been learned: all of it in the
// same process, and what was saved after a restart. Its next pods start from it.
func TestADeploymentThatIsMissingForAMomentCostsNoHistory(t *testing.T) {
	for name, restarts := range map[string]bool{"in the same process": false, "with a restart meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			p := newPlant(t, 80) // of 100m
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			learned := func() (encoded []byte) {
				p.Histories.With(p.key, func(histories history.Histories) { encoded = histories["app"].Encode() })
				return encoded
			}
			before, _, err := p.reconcile()
			must(err)
			want := learned()
			if before.Status.Recommendation == nil || len(want) == 0 {
				t.Fatalf("nothing is learned: %+v", before.Status)
			}
			if !restarts { // An hour is not worth saving.
				p.Histories.With(p.key, func(histories history.Histories) {
					for minute := range 60 {
						at := noon.Add(time.Duration(minute) * time.Minute)
						histories.Add(usage.Sample{Container: "app", Pod: "checkout-1-a", Time: at, CPUMillis: 80, MemoryBytes: 100 * mebi}, p.Params.History)
					}
				})
				want = learned()
			}

			var deployment appsv1.Deployment
			must(p.server.Get(t.Context(), p.key, &deployment))
			must(p.server.Delete(t.Context(), &deployment))
			if restarts {
				p.Histories = &checkpoint.Store{Client: p.server, Params: p.Params.History}
			}
			for range 3 {
				vs, _, err := p.reconcile()
				must(err)
				if c := condition(vs, v1beta1.ConditionTargetFound); c.Status != metav1.ConditionFalse {
					t.Fatalf("TargetFound is %s: %s", c.Status, c.Message)
				}
				if vs.Status.Decision != nil || vs.Status.Target != nil {
					t.Errorf("decided %+v for %+v, which is gone", vs.Status.Decision, vs.Status.Target)
				}
				if diff := cmp.Diff(before.Status.Recommendation, vs.Status.Recommendation); diff != "" {
					t.Errorf("while it is missing, the recommendation changes (-before +after):\n%s", diff)
				}
			}

			deployment.ResourceVersion = ""
			must(p.server.Create(t.Context(), &deployment))
			after, _, err := p.reconcile()
			must(err)
			if got, want := after.Status.Recommendation.ContainerRecommendations[0].Target, before.Status.Recommendation.ContainerRecommendations[0].Target; !cmp.Equal(want, got) {
				t.Errorf("once it is back, the target is %v, and was %v", got, want)
			}
			if diff := cmp.Diff(want, learned()); diff != "" {
				t.Errorf("the history is another one (-before +after):\n%s", diff)
			}
		})
	}
}

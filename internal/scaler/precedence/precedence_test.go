// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package precedence

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// The tree must give the same answers as a plain list that is sorted for each question, and must name
// exactly the scalers whose answer has changed.
func TestTheOrderAgreesWithASortedList(t *testing.T) {
	const most = 3
	random := rand.New(rand.NewPCG(1, 2))
	c := New(most)
	stored := map[types.NamespacedName]*v1beta1.VerticalScaler{}
	standings := func() map[types.NamespacedName]Standing {
		out := map[types.NamespacedName]Standing{}
		for key, vs := range stored {
			var before []*v1beta1.VerticalScaler
			for _, other := range stored {
				older := other.CreationTimestamp.Before(&vs.CreationTimestamp)
				sameAge := other.CreationTimestamp.Equal(&vs.CreationTimestamp)
				if other.Namespace == vs.Namespace && other.Spec.DeploymentName == vs.Spec.DeploymentName && (older || sameAge && other.Name < vs.Name) {
					before = append(before, other)
				}
			}
			slices.SortFunc(before, func(a, b *v1beta1.VerticalScaler) int {
				return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
			})
			switch {
			case len(before) >= most:
				out[key] = Standing{Refused: true}
			case len(before) > 0:
				out[key] = Standing{Winner: before[0].Name}
			default:
				out[key] = Standing{}
			}
		}
		return out
	}
	was := standings()
	for i := range 3000 {
		vs := &v1beta1.VerticalScaler{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: fmt.Sprintf("ns-%d", random.IntN(2)), Name: fmt.Sprintf("s-%d", random.IntN(10)),
				CreationTimestamp: metav1.Unix(int64(random.IntN(4)), 0),
			},
			Spec: v1beta1.VerticalScalerSpec{DeploymentName: fmt.Sprintf("d-%d", random.IntN(2))},
		}
		key := types.NamespacedName{Namespace: vs.Namespace, Name: vs.Name}
		var affected []types.NamespacedName
		if random.IntN(3) == 0 {
			delete(stored, key)
			affected = c.Forget(key)
		} else {
			stored[key] = vs
			affected = c.Note(vs)
		}
		now := standings()
		for other, stands := range now {
			if got := c.StandingOf(stored[other]); got != stands {
				t.Fatalf("change %d: %s stands %+v, want %+v", i, other, got, stands)
			}
			if changed := was[other] != stands; other != key && changed != slices.Contains(affected, other) {
				t.Fatalf("change %d of %s: %s stood %+v and stands %+v; affected: %v", i, key, other, was[other], stands, affected)
			}
		}
		was = now
	}
	for key := range stored {
		c.Forget(key)
	}
	if len(c.known)+len(c.ordered) > 0 {
		t.Errorf("%d and %d are left of what was forgotten", len(c.known), len(c.ordered))
	}
}

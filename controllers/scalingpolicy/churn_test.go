// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scalingpolicy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/held"
)

// Nothing in memory grows with policies, namespaces and Deployments that were deleted.
func TestWhatIsDeletedIsForgotten(t *testing.T) {
	rounds := 100
	if testing.Short() {
		rounds = 3
	}
	s := newFixture(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
		if strings.HasPrefix(o.GetName(), "refused") {
			return apierrors.NewForbidden(corev1.Resource("verticalscalers"), o.GetName(), errors.New("refused by the test"))
		}
		return c.Create(ctx, o, options...)
	}})
	s.recorder.Events = nil // its channel would fill up
	var before map[string]int
	for i := range rounds {
		namespace, policy := fmt.Sprintf("ns-%d", i), fmt.Sprintf("fleet-%d", i)
		objects := []client.Object{
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"env": "live"}}},
			aDeployment(namespace, "web"), aDeployment(namespace, "api"), aDeployment(namespace, "refused"),
			aDeployment("shop", fmt.Sprintf("web-%d", i)), aClusterPolicy(policy, graduated), aPolicy(fmt.Sprintf("p-%d", i)),
		}
		for _, o := range objects {
			s.must(s.api.Create(t.Context(), o))
		}
		s.settle()
		scalers := s.scalers()
		for _, name := range scalers {
			s.report(name, isReady)
		}
		s.sync()
		_, err := s.policy(policy)
		s.must(err)
		if len(scalers) != 3 || len(s.promoted()) != 1 {
			t.Fatalf("scalers %v, promoted %v", scalers, s.promoted())
		}
		for _, o := range objects[len(objects)-2:] {
			s.must(s.api.Delete(t.Context(), o))
		}
		s.settle() // which deletes the scalers
		for _, o := range objects[:len(objects)-2] {
			s.must(s.api.Delete(t.Context(), o))
		}
		s.sync()
		s.advance(time.Hour)
		for _, o := range objects[1:] { // The watches deliver deletions.
			name := strings.TrimPrefix(client.ObjectKeyFromObject(o).String(), "/")
			_, err := s.member(name)
			s.must(err)
			_, err = s.policy(name)
			s.must(err)
		}
		if i == 0 {
			before = held.Elements(s.reconciler)
		}
		s.wrote()
	}
	assert.Equal(t, fmt.Sprintf("after %d rounds", rounds), before, held.Elements(s.reconciler))
}

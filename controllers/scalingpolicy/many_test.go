// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scalingpolicy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/held"
)

// withManyPolicies has so many ScalingPolicies in namespace bank. The first by name is the youngest.
func withManyPolicies(t *testing.T, number int) *fixture {
	t.Helper()
	objects := []client.Object{aClusterPolicy("fleet"), aPolicy("p"), aDeployment("shop", "web"), aDeployment("bank", "ledger")}
	for i := range number {
		objects = append(objects, aPolicy(fmt.Sprintf("p-%04d", i), func(p *v1beta1.ScalingPolicy) {
			p.Namespace, p.CreationTimestamp = "bank", metav1.NewTime(noon.Add(-time.Duration(i)*time.Second))
		}))
	}
	return newFixture(t, interceptor.Funcs{}, objects...)
}

// 3,000 policies of one namespace cost those of the cluster and of other namespaces no more than 64 do. An event of the
// namespace is one request for them all.
func TestManyPoliciesOfANamespace(t *testing.T) {
	s := withManyPolicies(t, 3000)
	for name, want := range map[string][]string{"shop": {"/fleet", "shop/"}, "bank": {"/fleet", "bank/"}} {
		requested := s.listen(s.reconciler.startPolicies)
		s.reconciler.notify(name)
		if got := requested(); !slices.Equal(got, want) {
			t.Errorf("an event of namespace %s triggers %d requests, such as %q; want %q", name, len(got), got[0], want)
		}
	}
	all, err := s.reconciler.policies(t.Context(), "")
	s.must(err)
	for namespace, want := range map[string]int{"": 1, "shop": 1, "bank": fleet.MaxPolicies} {
		if got := len(all.valid[namespace]); got != want {
			t.Errorf("a Deployment is compared with %d policies of namespace %q, want %d", got, namespace, want)
		}
	}
	again, err := s.reconciler.policies(t.Context(), "")
	s.must(err)
	if got, want := held.Elements(&s.reconciler.parsed)[""], fleet.MaxPolicies+2; got != want || again.valid[""][0] != all.valid[""][0] {
		t.Errorf("%d policies are parsed, want %d, each once", got, want)
	}
}

// The newest policies of a namespace with too many report it, until older ones are deleted.
func TestOnePolicyTooMany(t *testing.T) {
	s := withManyPolicies(t, fleet.MaxPolicies)
	s.settle()
	if got := s.scaler("bank/ledger").Labels[v1beta1.PolicyLabel]; got != "p-0063" {
		t.Errorf("the policy %s sizes the Deployment, want the oldest", got)
	}
	s.must(s.api.Create(t.Context(), aPolicy("late", func(p *v1beta1.ScalingPolicy) {
		p.Namespace, p.Spec.Priority, p.CreationTimestamp = "bank", 9, metav1.NewTime(noon.Add(time.Second))
	})))
	s.settle()
	const want = "False TooManyPolicies: Namespace bank has more than 64 ScalingPolicies, and this one is not among the oldest"
	s.hasCondition("bank/late", "Ready", want)
	s.hasCondition("bank/p-0000", "Ready", "True ")
	if got := s.scaler("bank/ledger").Labels[v1beta1.PolicyLabel]; got != "p-0063" {
		t.Errorf("the policy %s sizes the Deployment", got)
	}
	s.must(s.api.Delete(t.Context(), get(s, "bank/p-0007", &v1beta1.ScalingPolicy{})))
	s.settle()
	if got := s.condition("bank/late", "Ready"); !strings.HasPrefix(got, "True ") || s.scaler("bank/ledger").Labels[v1beta1.PolicyLabel] != "late" {
		t.Errorf("after a deletion: Ready %s, and the policy %s", got, s.scaler("bank/ledger").Labels[v1beta1.PolicyLabel])
	}
}

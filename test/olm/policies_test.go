// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build olm

package olm

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// The commands of docs/olm.md that grant and withdraw the rights for policies.
const (
	withdrawPolicies = "kubectl delete --ignore-not-found -f " + downloads + "policies.yaml"
	grantPolicies    = "curl -sSL " + downloads + "policies.yaml | sed 's/namespace: .*/namespace: NAMESPACE/' | kubectl apply --server-side -f -"
)

// servesPolicies creates a policy of each kind. With the rights of the bundle alone, they report what is missing. With those of
// dist/policies.yaml, they create, update and delete scalers.
func (i *installation) servesPolicies(t *testing.T) {
	t.Helper()
	const at, name = "fleet", "web"
	namespaced(t, at, map[string]string{"sizing": "auto"})
	deploy(t, at, name, 1)
	policy := &v1beta1.ScalingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: at, Name: "team"}}
	policy.Spec.Rollout.Start = v1beta1.UpdateModeRecommend // An empty spec is not sent.
	fleet := &v1beta1.ClusterScalingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}}
	fleet.Spec.NamespaceSelector.MatchLabels = map[string]string{"sizing": "auto"}
	create(t, policy)
	create(t, fleet)
	ready := func(o client.Object, generation int64, conditions []metav1.Condition, reasons ...string) string {
		c := meta.FindStatusCondition(conditions, v1beta1.ConditionReady)
		if c != nil && c.ObservedGeneration == generation {
			for _, reason := range reasons {
				if c.Reason == reason {
					return ""
				}
			}
		}
		return fmt.Sprintf("Ready of %T %s is %+v, not %v", o, o.GetName(), c, reasons)
	}
	both := func(reasons ...string) {
		t.Helper()
		eventually(t, func() string {
			for _, o := range []client.Object{policy, fleet} {
				if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
					return err.Error()
				}
			}
			if message := ready(policy, policy.Generation, policy.Status.Conditions, reasons...); message != "" {
				return message
			}
			return ready(fleet, fleet.Generation, fleet.Status.Conditions, reasons...)
		})
	}
	both(v1beta1.ReasonForbidden)
	if left := missing(t, at, name, &v1beta1.VerticalScaler{}); left != "" {
		t.Errorf("with the rights of the bundle alone, %s", left)
	}
	t.Log("with the rights of the bundle alone, policies report that they are forbidden to create scalers")

	i.run(t, grantPolicies, "NAMESPACE", i.namespace)
	controlledBy := func(kind string) {
		t.Helper()
		eventually(t, func() string {
			var s v1beta1.VerticalScaler
			if err := env.Client.Get(t.Context(), key(at, name), &s); err != nil {
				return err.Error()
			}
			if owner := metav1.GetControllerOf(&s); owner == nil || owner.Kind != kind {
				return fmt.Sprintf("the scaler is controlled by %+v, not by a %s", owner, kind)
			}
			return ""
		})
	}
	controlledBy(v1beta1.ScalingPolicyKind)
	patch(t, policy, `{"spec":{"template":{"updatePolicy":{"tolerancePercent":%d}}}}`, 25)
	eventually(t, func() string {
		if got := scaler(t, at, name).Spec.UpdatePolicy.TolerancePercent; got == nil || *got != 25 {
			return "the scaler does not follow an edit of its policy"
		}
		return ""
	})
	if err := env.Client.Delete(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	controlledBy(v1beta1.ClusterScalingPolicyKind)
	patch(t, deployment(t, at, name), `{"metadata":{"annotations":{%q:%q}}}`, v1beta1.ExcludeAnnotation, "true")
	eventually(t, func() string { return missing(t, at, name, &v1beta1.VerticalScaler{}) })
	t.Log("with the rights of dist/policies.yaml, scalers are created, updated and deleted")

	i.run(t, deletePolicies)
	i.run(t, withdrawPolicies)
}

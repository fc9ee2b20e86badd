// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scorecard

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/release"
)

// tryPolicy creates a ScalingPolicy of the examples. The running operator must report that it selects nothing, or that it
// lacks the rights of policies.yaml, and follow a change. ClusterScalingPolicies are not tried: they might select
// Deployments of others.
func tryPolicy(ctx context.Context, c client.Client, s Setting, example *unstructured.Unstructured) (err error) {
	object := example.DeepCopy()
	object.SetNamespace(s.Namespace)
	unstructured.RemoveNestedField(object.Object, "status")
	policy := &v1beta1.ScalingPolicy{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, policy); err != nil {
		return fmt.Errorf("reading it: %w", err)
	}
	// The Deployments of the other examples are theirs, and do not have this label.
	if err := unstructured.SetNestedStringMap(object.Object, map[string]string{"app": madeBy}, "spec", "deploymentSelector", "matchLabels"); err != nil {
		return fmt.Errorf("setting the selector: %w", err)
	}
	if err := create(ctx, c, object); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove(ctx, c, s.Wait, object)) }()
	if err := awaitPolicy(ctx, c, s, client.ObjectKeyFromObject(object)); err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"spec":{"priority":%d}}`, policy.Spec.Priority+1)
	if err := c.Patch(ctx, object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("changing spec.priority: %w", err)
	}
	return awaitPolicy(ctx, c, s, client.ObjectKeyFromObject(object))
}

func awaitPolicy(ctx context.Context, c client.Client, s Setting, key client.ObjectKey) error {
	return await(ctx, s.Wait, func(ctx context.Context) ([]string, error) {
		var policy v1beta1.ScalingPolicy
		if err := c.Get(ctx, key, &policy); err != nil {
			return nil, fmt.Errorf("reading ScalingPolicy %s: %w", key, err)
		}
		return policyProblems(&policy), nil
	})
}

// policyConditions are the conditions of a policy from the first status on.
var policyConditions = []string{v1beta1.ConditionReady, v1beta1.ConditionReconciling, v1beta1.ConditionStalled}

// policyProblems checks the status of a policy that selects no Deployment.
func policyProblems(policy *v1beta1.ScalingPolicy) (problems []string) {
	say := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	status := policy.Status
	if status.ObservedGeneration <= 0 && len(status.Conditions) == 0 {
		return []string{fmt.Sprintf("no operator has written a status: is one running that watches namespace %s?", policy.Namespace)}
	}
	if status.ObservedGeneration != policy.Generation {
		say("status.observedGeneration is %d, the spec's generation %d", status.ObservedGeneration, policy.Generation)
	}
	problems = append(problems, conditionProblems(status.Conditions, policyConditions, policy.Generation)...)
	if status.Selected != 0 || status.Scaled != 0 {
		say("%d Deployments are selected and %d have a scaler, but the selector matches none", status.Selected, status.Scaled)
	}
	stalled := meta.IsStatusConditionTrue(status.Conditions, v1beta1.ConditionStalled)
	ready := meta.IsStatusConditionTrue(status.Conditions, v1beta1.ConditionReady)
	switch {
	case stalled && ready:
		say("Stalled stands beside Ready: whether to wait or to act must be clear")
	case stalled && lacksPolicyRights(policy):
		// This is expected: the rights are not part of the bundle.
	case stalled:
		say("%s", sayCondition(status.Conditions, v1beta1.ConditionStalled))
	case !ready:
		say("%s", sayCondition(status.Conditions, v1beta1.ConditionReady))
	}
	return problems
}

// lacksPolicyRights reports whether the policy waits for policies.yaml, and says so.
func lacksPolicyRights(policy *v1beta1.ScalingPolicy) bool {
	c := meta.FindStatusCondition(policy.Status.Conditions, v1beta1.ConditionStalled)
	return c.Reason == v1beta1.ReasonForbidden && strings.Contains(c.Message, "/"+release.Policies)
}

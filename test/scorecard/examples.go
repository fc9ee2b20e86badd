// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scorecard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// examplesReconcile tries each example of the bundle as a user would. A scaler gets a
// Deployment with the name in its spec. The running operator must find it, report that, and
// follow a change. Nothing may be left after the deletion. tryOwner describes the checks of
// a ScaledDeployment, and tryPolicy those of a ScalingPolicy.
func examplesReconcile(ctx context.Context, s Setting, log *Log) (problems []string, err error) {
	csv, err := readCSV(s.Bundle)
	if err != nil {
		return nil, err
	}
	tried := map[string]func(context.Context, client.Client, Setting, *unstructured.Unstructured) error{
		scalerKind: tryExample, ownerKind: tryOwner, policyKind: tryPolicy,
	}
	var examples []*unstructured.Unstructured
	for _, kind := range []string{scalerKind, ownerKind, policyKind} {
		more, err := examplesOf(csv, kind)
		if err != nil {
			return nil, err
		}
		examples = append(examples, more...)
	}
	c, err := connect(ctx, s)
	if err != nil {
		return nil, err
	}
	// They are independent: all have different names.
	outcomes := make([]error, len(examples))
	var tries sync.WaitGroup
	for i, example := range examples {
		tries.Go(func() { outcomes[i] = tried[example.GetKind()](ctx, c, s, example) })
	}
	tries.Wait()
	for i, err := range outcomes {
		example := examples[i]
		var missing *missingError
		switch {
		case errors.As(err, &missing):
			problems = append(problems, fmt.Sprintf("example %s: %v", example.GetName(), err))
		case err != nil:
			return problems, fmt.Errorf("example %s: %w", example.GetName(), err)
		case example.GetKind() == ownerKind:
			log.say("%s: its Deployment and its VerticalScaler were created and kept, and everything was deleted", example.GetName())
		case example.GetKind() == policyKind:
			log.say("%s: all conditions were written, and it was deleted", example.GetName())
		default:
			log.say("%s: its claim, TargetFound and all conditions were written, and everything was deleted", example.GetName())
		}
	}
	return problems, nil
}

func tryExample(ctx context.Context, c client.Client, s Setting, example *unstructured.Unstructured) (err error) {
	scaler := &v1beta1.VerticalScaler{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(example.Object, scaler); err != nil {
		return fmt.Errorf("reading it: %w", err)
	}
	deployment := deploymentFor(s, scaler.Spec.DeploymentName, containersOf(scaler))
	if err := create(ctx, c, deployment); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove(ctx, c, s.Wait, deployment)) }()

	// Exactly as in the bundle: a typed copy would drop unknown fields.
	object := example.DeepCopy()
	object.SetNamespace(s.Namespace)
	unstructured.RemoveNestedField(object.Object, "status")
	if err := create(ctx, c, object); err != nil {
		return err
	}
	// The garbage collector deletes its checkpoint, if there is one.
	checkpoint := &v1beta1.VerticalScalerCheckpoint{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: object.GetName()}}
	defer func() {
		err = errors.Join(err, remove(ctx, c, s.Wait, object))
		if gone := awaitGone(context.WithoutCancel(ctx), c, s.Wait, checkpoint); gone != nil {
			err = errors.Join(err, gone)
		}
	}()

	if err := awaitStatus(ctx, c, s, client.ObjectKeyFromObject(object)); err != nil {
		return err
	}
	// A change of the spec is followed as well.
	patch := fmt.Sprintf(`{"spec":{"suspend":%t}}`, !scaler.Spec.Suspend)
	if err := c.Patch(ctx, object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("changing spec.suspend: %w", err)
	}
	return awaitStatus(ctx, c, s, client.ObjectKeyFromObject(object))
}

// containersOf are the containers that a scaler's policies name, or one of any name.
func containersOf(scaler *v1beta1.VerticalScaler) (names []string) {
	if policy := scaler.Spec.ResourcePolicy; policy != nil {
		for _, p := range policy.ContainerPolicies {
			if p.ContainerName != v1beta1.AnyContainer {
				names = append(names, p.ContainerName)
			}
		}
	}
	if len(names) == 0 {
		names = []string{"app"}
	}
	return names
}

func awaitStatus(ctx context.Context, c client.Client, s Setting, key client.ObjectKey) error {
	return await(ctx, s.Wait, func(ctx context.Context) ([]string, error) {
		var scaler v1beta1.VerticalScaler
		if err := c.Get(ctx, key, &scaler); err != nil {
			return nil, fmt.Errorf("reading scaler %s: %w", key, err)
		}
		return statusProblems(&scaler), nil
	})
}

// conditionTypes are the conditions that are present from the first status on.
var conditionTypes = []string{
	v1beta1.ConditionReady, v1beta1.ConditionTargetFound, v1beta1.ConditionRecommendationProvided,
	v1beta1.ConditionApplied, v1beta1.ConditionChanging, v1beta1.ConditionReconciling, v1beta1.ConditionStalled,
}

// statusProblems checks the status of a scaler whose Deployment exists: it must be about
// the current spec, claim the Deployment and report it as found, and its conditions must
// follow kstatus.
func statusProblems(scaler *v1beta1.VerticalScaler) (problems []string) {
	say := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	status := scaler.Status
	if status.ObservedGeneration <= 0 && len(status.Conditions) == 0 {
		return []string{fmt.Sprintf("no operator has written a status: is one running that watches namespace %s?", scaler.Namespace)}
	}
	if status.ObservedGeneration != scaler.Generation {
		say("status.observedGeneration is %d, the spec's generation %d", status.ObservedGeneration, scaler.Generation)
	}
	want := scaler.Namespace + "/" + scaler.Spec.DeploymentName
	if claim := status.Annotations[v1beta1.ClaimAnnotation]; claim != want {
		say("the claim in the status is %q, not %q", claim, want)
	}
	if status.Target == nil || status.Target.UID == "" {
		say("status.target does not tell which Deployment was found")
	}
	problems = append(problems, conditionProblems(status.Conditions, conditionTypes, scaler.Generation)...)
	if !meta.IsStatusConditionTrue(status.Conditions, v1beta1.ConditionTargetFound) {
		say("%s", sayCondition(status.Conditions, v1beta1.ConditionTargetFound))
	}
	stalled := meta.IsStatusConditionTrue(status.Conditions, v1beta1.ConditionStalled)
	reconciling := meta.IsStatusConditionTrue(status.Conditions, v1beta1.ConditionReconciling)
	ready := meta.IsStatusConditionTrue(status.Conditions, v1beta1.ConditionReady)
	switch {
	case stalled && (reconciling || ready):
		say("Stalled stands beside Ready=%t and Reconciling=%t: whether to wait or to act must be clear", ready, reconciling)
	case stalled:
		say("%s", sayCondition(status.Conditions, v1beta1.ConditionStalled))
	case !ready:
		say("%s", sayCondition(status.Conditions, v1beta1.ConditionReady))
	}
	return problems
}

// conditionProblems returns which conditions are missing, incomplete, or about another
// generation.
func conditionProblems(conditions []metav1.Condition, kinds []string, generation int64) (problems []string) {
	say := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, kind := range kinds {
		c := meta.FindStatusCondition(conditions, kind)
		if c == nil {
			say("there is no condition %s", kind)
			continue
		}
		if c.ObservedGeneration != generation {
			say("condition %s is about generation %d, not %d", kind, c.ObservedGeneration, generation)
		}
		if c.Reason == "" || c.LastTransitionTime.IsZero() || !slices.Contains([]metav1.ConditionStatus{"True", "False", "Unknown"}, c.Status) {
			say("condition %s is incomplete: %+v", kind, *c)
		}
	}
	return problems
}

func sayCondition(conditions []metav1.Condition, kind string) string {
	c := meta.FindStatusCondition(conditions, kind)
	if c == nil {
		return kind + " is not known"
	}
	return fmt.Sprintf("%s is %s, %s: %s", kind, c.Status, c.Reason, c.Message)
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scorecard

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// tryOwner creates a ScaledDeployment of the examples. The running operator must create its
// objects, follow a change, and revert changes by others. All objects must be deleted with
// the owner. The pods need not run: they have the image of the test environment, and may
// need more resources than a test cluster has.
func tryOwner(ctx context.Context, c client.Client, s Setting, example *unstructured.Unstructured) (err error) {
	object := example.DeepCopy()
	object.SetNamespace(s.Namespace)
	unstructured.RemoveNestedField(object.Object, "status")
	if err := setImages(object, s.Image, "spec", "template", "spec", "containers"); err != nil {
		return err
	}
	// The deletion waits for the pods, which may get SIGTERM before they handle it.
	if err := unstructured.SetNestedField(object.Object, int64(1), "spec", "template", "spec", "terminationGracePeriodSeconds"); err != nil {
		return fmt.Errorf("setting the pods' grace: %w", err)
	}
	owner := &v1beta1.ScaledDeployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, owner); err != nil {
		return fmt.Errorf("reading it: %w", err)
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: deploymentOf(owner)}}
	scaler := &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: owner.Name}}
	for _, theirs := range []client.Object{deployment, scaler} {
		if err := isFree(ctx, c, theirs); err != nil {
			return err
		}
	}
	if err := create(ctx, c, object); err != nil {
		return err
	}
	key := client.ObjectKeyFromObject(object)
	defer func() {
		err = errors.Join(err, remove(ctx, c, s.Wait, object))
		for _, owned := range []client.Object{deployment, scaler} {
			if gone := awaitGone(context.WithoutCancel(ctx), c, s.Wait, owned); gone != nil {
				err = errors.Join(err, gone)
			}
		}
	}()
	if err := awaitOwned(ctx, c, s, key); err != nil {
		return err
	}
	for _, change := range []struct {
		what   string
		object client.Object
		patch  string
	}{
		{"changing spec.replicas", object.DeepCopy(), fmt.Sprintf(`{"spec":{"replicas":%d}}`, ptr.Deref(owner.Spec.Replicas, 1)+1)},
		{"changing the Deployment's replicas", deployment.DeepCopy(), `{"spec":{"replicas":0}}`},
	} {
		if err := c.Patch(ctx, change.object, client.RawPatch(types.MergePatchType, []byte(change.patch))); err != nil {
			return fmt.Errorf("%s: %w", change.what, err)
		}
		if err := awaitOwned(ctx, c, s, key); err != nil {
			return fmt.Errorf("after %s: %w", change.what, err)
		}
	}
	return nil
}

// deploymentOf is the name of the owner's Deployment.
func deploymentOf(owner *v1beta1.ScaledDeployment) string {
	if owner.Spec.DeploymentName != "" {
		return owner.Spec.DeploymentName
	}
	return owner.Name
}

// isFree returns an error if such an object exists: the test does not own it.
func isFree(ctx context.Context, c client.Client, object client.Object) error {
	found, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%T is no object", object)
	}
	err := c.Get(ctx, client.ObjectKeyFromObject(object), found)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("looking for %s: %w", said(object), err)
	}
	return fmt.Errorf("%s exists already: use another namespace, or delete it", said(object))
}

func awaitOwned(ctx context.Context, c client.Client, s Setting, key client.ObjectKey) error {
	return await(ctx, s.Wait, func(ctx context.Context) ([]string, error) {
		var owner v1beta1.ScaledDeployment
		if err := c.Get(ctx, key, &owner); err != nil {
			return nil, fmt.Errorf("reading ScaledDeployment %s: %w", key, err)
		}
		var deployment *appsv1.Deployment
		if found := new(appsv1.Deployment); c.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: deploymentOf(&owner)}, found) == nil {
			deployment = found
		}
		var scaler *v1beta1.VerticalScaler
		if found := new(v1beta1.VerticalScaler); c.Get(ctx, key, found) == nil {
			scaler = found
		}
		return ownedProblems(&owner, deployment, scaler), nil
	})
}

// ownerConditions are the conditions of a ScaledDeployment from the first status on.
var ownerConditions = []string{v1beta1.ConditionReady, v1beta1.ConditionReconciling, v1beta1.ConditionStalled}

// ownedProblems checks the status of a ScaledDeployment and its objects; nil stands for a
// missing object.
func ownedProblems(owner *v1beta1.ScaledDeployment, deployment *appsv1.Deployment, scaler *v1beta1.VerticalScaler) (problems []string) {
	say := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	status := owner.Status
	if status.ObservedGeneration <= 0 && len(status.Conditions) == 0 {
		return []string{fmt.Sprintf("no operator has written a status: is one running that watches namespace %s?", owner.Namespace)}
	}
	if status.ObservedGeneration != owner.Generation {
		say("status.observedGeneration is %d, the spec's generation %d", status.ObservedGeneration, owner.Generation)
	}
	kinds := ownerConditions
	if owner.Spec.Scaling != nil {
		kinds = append(kinds[:len(kinds):len(kinds)], v1beta1.ConditionSized)
	}
	problems = append(problems, conditionProblems(status.Conditions, kinds, owner.Generation)...)
	if meta.IsStatusConditionTrue(status.Conditions, v1beta1.ConditionStalled) {
		say("%s", sayCondition(status.Conditions, v1beta1.ConditionStalled))
	}
	if status.Selector == "" {
		say("status.selector does not tell which pods are meant")
	}
	switch {
	case deployment == nil:
		say("there is no Deployment %s", deploymentOf(owner))
	case !metav1.IsControlledBy(deployment, owner):
		say("Deployment %s is not the owner's", deployment.Name)
	default:
		if has, wants := ptr.Deref(deployment.Spec.Replicas, 1), ptr.Deref(owner.Spec.Replicas, 1); has != wants {
			say("Deployment %s has %d replicas, not %d", deployment.Name, has, wants)
		}
		if status.Replicas != deployment.Status.Replicas {
			say("status.replicas is %d, the Deployment's is %d", status.Replicas, deployment.Status.Replicas)
		}
	}
	switch {
	case owner.Spec.Scaling == nil && scaler != nil:
		say("VerticalScaler %s exists, which the ScaledDeployment does not ask for", scaler.Name)
	case owner.Spec.Scaling == nil:
	case scaler == nil:
		say("there is no VerticalScaler %s", owner.Name)
	case !metav1.IsControlledBy(scaler, owner):
		say("VerticalScaler %s is not the owner's", scaler.Name)
	case scaler.Spec.DeploymentName != deploymentOf(owner):
		say("VerticalScaler %s sizes %s", scaler.Name, scaler.Spec.DeploymentName)
	}
	return problems
}

// setImages sets the image of all containers in a list.
func setImages(object *unstructured.Unstructured, image string, list ...string) error {
	containers, found, err := unstructured.NestedSlice(object.Object, list...)
	if err != nil || !found {
		return fmt.Errorf("%s has no containers: %w", said(object), err)
	}
	for _, container := range containers {
		if container, ok := container.(map[string]any); ok {
			container["image"] = image
		}
	}
	if err := unstructured.SetNestedSlice(object.Object, containers, list...); err != nil {
		return fmt.Errorf("setting the image of %s: %w", said(object), err)
	}
	return nil
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// changes has the kinds of the tested examples, and a change that the operator must follow. ClusterScalingPolicies are not tested:
// they might select Deployments of others.
var changes = map[string]string{
	"VerticalScaler":             `{"spec":{"updatePolicy":{"tolerancePercent":17}}}`,
	v1beta1.ScaledDeploymentKind: `{"spec":{"template":{"metadata":{"annotations":{"changed":"yes"}}}}}`,
	v1beta1.ScalingPolicyKind:    `{"spec":{"priority":17}}`,
}

// mark is a label of the Deployments that a test creates.
const mark = "verticalscaler-scorecard"

// A tester creates objects in a namespace that the operator watches, and deletes them.
type tester struct {
	client.Client

	namespace string
	// wait is how long the operator may take to react to each change.
	wait time.Duration
}

// examplesReconcile creates each example of the bundle, as a user would. The running operator must report on it, and follow a
// change. Nothing may be left after the deletion.
func (t tester) examplesReconcile(ctx context.Context, bundle string) error {
	examples, err := examplesIn(bundle)
	if err != nil {
		return err
	}
	var errs []error
	tried := map[string]bool{}
	for _, example := range examples {
		kind := example.GetKind()
		if changes[kind] == "" {
			continue
		}
		tried[kind] = true
		if err := t.try(ctx, example); err != nil {
			errs = append(errs, fmt.Errorf("example %s %s: %w", kind, example.GetName(), err))
		}
	}
	if len(tried) < len(changes) {
		errs = append(errs, fmt.Errorf("the alm-examples have only the kinds %q", slices.Sorted(maps.Keys(tried))))
	}
	return errors.Join(errs...)
}

// examplesIn reads the examples in the ClusterServiceVersion of a bundle.
func examplesIn(bundle string) (examples []*unstructured.Unstructured, err error) {
	file := filepath.Join(bundle, "manifests", "verticalscaler-operator.clusterserviceversion.yaml")
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the bundle: %w", err)
	}
	var csv metav1.PartialObjectMetadata
	if err := yaml.Unmarshal(content, &csv); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", file, err)
	}
	var objects []map[string]any
	if err := json.Unmarshal([]byte(csv.Annotations["alm-examples"]), &objects); err != nil {
		return nil, fmt.Errorf("decoding the alm-examples: %w", err)
	}
	for _, object := range objects {
		examples = append(examples, &unstructured.Unstructured{Object: object})
	}
	return examples, nil
}

// try creates one example and what it needs, and deletes all of it.
func (t tester) try(ctx context.Context, example *unstructured.Unstructured) (err error) {
	object := example.DeepCopy()
	object.SetNamespace(t.namespace)
	unstructured.RemoveNestedField(object.Object, "status")
	created := []*unstructured.Unstructured{object}
	var owned []*unstructured.Unstructured
	switch object.GetKind() {
	case "VerticalScaler":
		name, _, _ := unstructured.NestedString(object.Object, "spec", "deploymentName")
		created = []*unstructured.Unstructured{deployment(t.namespace, name), object}
	case v1beta1.ScaledDeploymentKind:
		// Without pods: their image need not be there.
		err = unstructured.SetNestedField(object.Object, int64(0), "spec", "replicas")
		owned = append(owned, deployment(t.namespace, object.GetName()))
	case v1beta1.ScalingPolicyKind:
		// It selects none of the other examples' Deployments.
		err = unstructured.SetNestedStringMap(object.Object, map[string]string{"app": "none"}, "spec", "deploymentSelector", "matchLabels")
	}
	if err != nil {
		return err
	}
	for _, o := range created {
		if err := t.Create(ctx, o); err != nil {
			return fmt.Errorf("creating %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		defer func() { err = errors.Join(err, t.remove(context.WithoutCancel(ctx), o)) }()
	}
	if err := t.await(ctx, object, append(created, owned...)...); err != nil {
		return err
	}
	if err := t.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(changes[object.GetKind()]))); err != nil {
		return fmt.Errorf("changing it: %w", err)
	}
	return t.await(ctx, object)
}

// deployment is a Deployment without pods.
func deployment(namespace, name string) *unstructured.Unstructured {
	labels := map[string]any{"app": name, "app.kubernetes.io/managed-by": mark}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"namespace": namespace, "name": name, "labels": labels},
		"spec": map[string]any{
			"replicas": int64(0), "selector": map[string]any{"matchLabels": map[string]any{"app": name}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "app", "image": "example.com/app"}}},
			},
		},
	}}
}

// await waits until the operator has reported on the present spec, and all objects exist.
func (t tester) await(ctx context.Context, object *unstructured.Unstructured, exist ...*unstructured.Unstructured) error {
	return t.poll(ctx, func() error {
		for _, o := range append(exist, object) {
			if err := t.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
		}
		return reported(object)
	})
}

// reported checks the status of an object by the rules of kstatus. It must be about the current spec, and not need a user,
// except to grant the rights for policies, which are not part of the bundle.
func reported(object *unstructured.Unstructured) error {
	var o struct {
		Status struct {
			ObservedGeneration int64              `json:"observedGeneration"`
			Conditions         []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &o); err != nil {
		return err
	}
	generation := object.GetGeneration()
	if o.Status.ObservedGeneration != generation {
		return fmt.Errorf("status.observedGeneration is %d, and the spec's generation %d: does an operator run that watches namespace %s?",
			o.Status.ObservedGeneration, generation, object.GetNamespace())
	}
	for _, kind := range []string{v1beta1.ConditionReady, v1beta1.ConditionReconciling, v1beta1.ConditionStalled} {
		c := meta.FindStatusCondition(o.Status.Conditions, kind)
		switch {
		case c == nil || c.ObservedGeneration != generation:
			return fmt.Errorf("there is no condition %s of generation %d", kind, generation)
		case kind == v1beta1.ConditionStalled && c.Status == metav1.ConditionTrue && c.Reason != v1beta1.ReasonForbidden:
			return fmt.Errorf("it is stalled: %s: %s", c.Reason, c.Message)
		}
	}
	return nil
}

// remove deletes an object and waits until it is gone, with the objects that it owns.
func (t tester) remove(ctx context.Context, object *unstructured.Unstructured) error {
	err := t.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationForeground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return t.poll(ctx, func() error {
		if err := t.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return client.IgnoreNotFound(err)
		}
		return fmt.Errorf("%s %s still exists, with the finalizers %s", object.GetKind(), object.GetName(), strings.Join(object.GetFinalizers(), ", "))
	})
}

// poll looks until there is no error, and returns the last one when the time is over.
func (t tester) poll(ctx context.Context, look func() error) error {
	for end := time.Now().Add(t.wait); ; {
		err := look()
		if err == nil || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

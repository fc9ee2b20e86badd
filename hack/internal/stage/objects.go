// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// owner is the field manager of what is applied here.
const owner = "stage"

// Decode reads a stream of YAML documents.
func Decode(stream []byte) (objects []*unstructured.Unstructured, err error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(stream), 4096)
	for {
		object := &unstructured.Unstructured{}
		switch err := decoder.Decode(&object.Object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("decoding: %w", err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// Apply applies objects, and returns once those of new kinds can be written.
func Apply(ctx context.Context, admin client.Client, objects ...*unstructured.Unstructured) error {
	var crds []*unstructured.Unstructured
	for _, object := range objects {
		config := client.ApplyConfigurationFromUnstructured(object.DeepCopy())
		if err := admin.Apply(ctx, config, client.FieldOwner(owner), client.ForceOwnership); err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		if object.GetKind() == "CustomResourceDefinition" {
			crds = append(crds, object)
		}
	}
	for _, crd := range crds {
		if err := awaitEstablished(ctx, admin, crd); err != nil {
			return err
		}
	}
	return nil
}

// awaitEstablished returns once objects of the new kind can be written.
func awaitEstablished(ctx context.Context, admin client.Client, crd *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(crd.GroupVersionKind())
		err := admin.Get(ctx, client.ObjectKeyFromObject(crd), live)
		if err == nil && isEstablished(live) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s to be served: %w", crd.GetName(), errors.Join(ctx.Err(), err))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func isEstablished(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
			return true
		}
	}
	return false
}

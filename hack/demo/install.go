// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/hack/internal/stage"
)

// install puts config/default into the cluster, as far as it is not the operator's
// own pod, which is a process here, or one of the roles to do without.
func install(ctx context.Context, c *stage.Cluster, admin client.Client, root string, without []string) error {
	rendered, err := c.Kustomize(ctx, filepath.Join(root, "config", "default"))
	if err != nil {
		return err
	}
	objects, err := stage.Decode(rendered)
	if err != nil {
		return fmt.Errorf("config/default: %w", err)
	}
	return stage.Apply(ctx, admin, slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return !installed(o, without) })...)
}

// installed says what of config/default is wanted: all but the operator's pod and
// what belongs to it, and the roles to do without.
func installed(object *unstructured.Unstructured, without []string) bool {
	switch object.GetKind() {
	case "Deployment", "ConfigMap", "Service":
		return false
	}
	return !slices.ContainsFunc(without, func(role string) bool { return strings.HasSuffix(object.GetName(), "-"+role) })
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Sidecar is the name of the native sidecar that the policies inject.
const Sidecar = "mesh-proxy"

// policies are the admission policies of an untidy world. They act in the namespaces that have the
// labels of such a world.
//
//go:embed testdata/untidy.yaml
var policies string

// installPolicies installs the policies, and waits until the API server applies them.
func (e *Env) installPolicies(ctx context.Context, w World) error {
	text := strings.NewReplacer("${ahead}", w.ClockAhead.String(), "${behind}", w.ClockBehind.String()).Replace(policies)
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(text)), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("decoding the policies of the untidy world: %w", err)
		}
		if err := e.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("testkit"), client.ForceOwnership); err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	if !w.Sidecar {
		return nil
	}
	return e.awaitSidecars(ctx)
}

// awaitSidecars waits until new pods get the sidecar. The policies are installed together.
func (e *Env) awaitSidecars(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "policies-", Labels: map[string]string{sidecarLabel: "true"}}}
	if err := e.Client.Create(ctx, namespace); err != nil {
		return fmt.Errorf("creating a namespace to wait for the policies: %w", err)
	}
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "probe"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{Container("app")}},
		}
		last = e.Client.Create(ctx, pod, client.DryRunAll)
		return last == nil && len(pod.Spec.InitContainers) > 0, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for new pods to get a sidecar: %w: %w", err, last)
	}
	if err := e.Client.Delete(ctx, namespace); err != nil {
		return fmt.Errorf("deleting the namespace of the policies' test: %w", err)
	}
	return nil
}

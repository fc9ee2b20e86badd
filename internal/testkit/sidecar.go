// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Sidecar is the name of the native sidecar that InjectSidecars injects.
const Sidecar = "mesh-proxy"

// sidecarLabel is the label of namespaces whose pods get the sidecar.
const sidecarLabel = "testkit.verticalscaler.io/sidecar"

// sidecarPolicy injects a native sidecar, with requests and limits of its own, into new pods, as a service mesh does.
//
//go:embed testdata/sidecar.yaml
var sidecarPolicy []byte

// InjectSidecars adds a sidecar to all new pods in namespaces of tests. In a user's own cluster, whose nodes could not run
// it, it does nothing.
func (e *Env) InjectSidecars(ctx context.Context) error {
	if e.kubectl == "" {
		return nil // VERTICALSCALER_TEST_KUBECONFIG names the cluster.
	}
	e.sidecars = true
	objects, err := Decoded(sidecarPolicy)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := e.apply(ctx, object); err != nil {
			return err
		}
	}
	return e.awaitSidecars(ctx)
}

// awaitSidecars waits until new pods get the sidecar.
func (e *Env) awaitSidecars(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "sidecar-", Labels: map[string]string{sidecarLabel: "true"}}}
	if err := e.Client.Create(ctx, namespace); err != nil {
		return fmt.Errorf("creating a namespace to wait for the policy: %w", err)
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
		return fmt.Errorf("deleting the namespace of the policy's test: %w", err)
	}
	return nil
}

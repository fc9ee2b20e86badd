// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// api is the cluster as its administrator sees it.
type api struct {
	typed   kubernetes.Interface
	dynamic dynamic.Interface
}

func newAPI(kubeconfig string) (*api, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	// The defaults would make many nodes a matter of minutes.
	config.QPS, config.Burst = 1000, 1000
	a := &api{}
	if a.typed, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if a.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *api) createNodes(ctx context.Context, nodes []*corev1.Node) error {
	for _, node := range nodes {
		if _, err := a.typed.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating node %s: %w", node.Name, err)
		}
	}
	return nil
}

// awaitNodes returns once so many nodes are ready. A new node is tainted by the API server, and a controller takes the
// taint away a moment after the node is ready; where there are controllers this waits for that too.
func (a *api) awaitNodes(ctx context.Context, count int, untainted bool) error {
	return until(ctx, "ready nodes", func() (bool, error) {
		nodes, err := a.typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, err
		}
		ready := 0
		for _, node := range nodes.Items {
			if isReady(node) && (!untainted || len(node.Spec.Taints) == 0) {
				ready++
			}
		}
		return ready >= count, nil
	})
}

func isReady(node corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// awaitServiceAccount returns once pods can be created: before, the API server refuses them for want of an account.
func (a *api) awaitServiceAccount(ctx context.Context) error {
	return until(ctx, "the service account default", func() (bool, error) {
		_, err := a.typed.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, err
	})
}

// apply creates the objects, or makes existing ones look like them.
func (a *api) apply(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		// An object without a namespace has the namespace "", which stands for none.
		client := a.dynamic.Resource(resourceOf(object.GroupVersionKind())).Namespace(object.GetNamespace())
		// The namespace kube-system appears a moment after the API server is ready.
		if err := until(ctx, fmt.Sprintf("%s %s", object.GetKind(), object.GetName()), func() (bool, error) {
			_, err := client.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: "localcluster", Force: true})
			return err == nil, err
		}); err != nil {
			return err
		}
	}
	return nil
}

// resourceOf knows the two kinds that we apply.
func resourceOf(kind schema.GroupVersionKind) schema.GroupVersionResource {
	resource := map[string]string{"Service": "services", "APIService": "apiservices"}[kind.Kind]
	return kind.GroupVersion().WithResource(resource)
}

// until asks again and again, and reports the last error when the time is over.
func until(ctx context.Context, what string, done func() (bool, error)) error {
	for {
		ok, err := done()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); err == nil || !errors.Is(cause, context.DeadlineExceeded) {
				err = cause
			}
			return fmt.Errorf("waiting for %s: %w", what, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

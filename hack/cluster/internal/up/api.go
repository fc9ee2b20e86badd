// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// api is the cluster as its administrator sees it.
type api struct {
	client kubernetes.Interface
}

func newAPI(kubeconfig string) (*api, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	// With the defaults, many nodes would take minutes.
	config.QPS, config.Burst = 1000, 1000
	client, err := kubernetes.NewForConfig(config)
	return &api{client: client}, err
}

func (a *api) createNodes(ctx context.Context, nodes []*corev1.Node) error {
	for _, node := range nodes {
		if _, err := a.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating node %s: %w", node.Name, err)
		}
	}
	return nil
}

// awaitNodes returns once so many nodes are ready. The API server taints a new node, and a controller removes the taint a moment
// after the node is ready. With untainted, awaitNodes waits for that too.
func (a *api) awaitNodes(ctx context.Context, count int, untainted bool) error {
	return until(ctx, "ready nodes", func() (bool, error) {
		nodes, err := a.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
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
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// awaitServiceAccount returns once pods can be created: the API server refuses pods without a service account.
func (a *api) awaitServiceAccount(ctx context.Context) error {
	return until(ctx, "the service account default", func() (bool, error) {
		_, err := a.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, err
	})
}

// metricsObjects are created at these paths. They make the API server forward requests for metrics to a process that is not a
// pod, through a Service that is another name for this machine.
var metricsObjects = map[string]string{
	"/api/v1/namespaces/kube-system/services": `{
  "apiVersion": "v1", "kind": "Service", "metadata": {"name": "metrics-server"},
  "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": %[1]d}]}
}`,
	"/apis/apiregistration.k8s.io/v1/apiservices": `{
  "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1beta1.metrics.k8s.io"},
  "spec": {
    "group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
    "service": {"name": "metrics-server", "namespace": "kube-system", "port": %[1]d}, "caBundle": %[2]q
  }
}`,
}

func (a *api) forwardMetrics(ctx context.Context, port int, ca []byte) error {
	for path, object := range metricsObjects {
		body := fmt.Appendf(nil, object, port, base64.StdEncoding.EncodeToString(ca))
		// The namespace kube-system appears a moment after the API server is ready.
		if err := until(ctx, "creating an object at "+path, func() (bool, error) {
			err := a.client.Discovery().RESTClient().Post().AbsPath(path).SetHeader("Content-Type", "application/json").
				Body(body).Do(ctx).Error()
			return err == nil || apierrors.IsAlreadyExists(err), err
		}); err != nil {
			return err
		}
	}
	return nil
}

// until repeats a check until it is done, and reports the last error when the time is over.
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

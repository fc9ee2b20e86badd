// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/podmetrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// resolution is the time between two measurements of usage, as in metrics-server.
const resolution = 15 * time.Second

// fleetUsage is the usage of the fleet.
type fleetUsage struct {
	deployments int

	mu sync.Mutex
	// isRaised reports which Deployments use more than usually; nil for none.
	isRaised func(deployment int) bool
}

// Raised usage is far above the requests of the fleet, and below its limits.
const raisedCPU, raisedMemory = 840, 702 << 20

func (u *fleetUsage) raise(isRaised func(deployment int) bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.isRaised = isRaised
}

func (u *fleetUsage) list(namespace string) ([]usage.Sample, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return UsageOf(namespace, u.deployments, Pods, func(deployment, _ int, s *usage.Sample) {
		s.CPUMillis, s.MemoryBytes = CPUMillis, MemoryBytes
		if u.isRaised != nil && u.isRaised(deployment) {
			s.CPUMillis, s.MemoryBytes = raisedCPU, raisedMemory
		}
	}), nil
}

// UsageOf is the usage of all pods of a namespace, or of all namespaces, in a fleet of so many Deployments and of pods of each.
// set sets the usage of each container of a pod.
func UsageOf(namespace string, deployments, pods int, set func(deployment, pod int, s *usage.Sample)) (out []usage.Sample) {
	sample := usage.Sample{Time: time.Now().Truncate(resolution), Window: resolution}
	first, end := 0, deployments
	if namespace != "" {
		if _, err := fmt.Sscanf(namespace, "team-%d", &first); err != nil {
			return nil // a namespace without the fleet
		}
		first *= PerNamespace
		end = min(end, first+PerNamespace)
	}
	for i := first; i < end; i++ {
		sample.Namespace = Namespace(i)
		for j := range pods {
			sample.Pod = PodName(i, j)
			set(i, j, &sample)
			for c := range Containers {
				sample.Container = ContainerName(c)
				out = append(out, sample)
			}
		}
	}
	return out
}

const usageService = "usage"

// serveUsage makes the API server forward requests for metrics.k8s.io to this process, until stop is called.
func serveUsage(ctx context.Context, c client.Client, u *fleetUsage) (stop func(), err error) {
	authority, key, err := cert.GenerateSelfSignedCertKey(usageService+".kube-system.svc", nil, nil)
	if err != nil {
		return nil, fmt.Errorf("making the certificate of metrics.k8s.io: %w", err)
	}
	pair, err := tls.X509KeyPair(authority, key)
	if err != nil {
		return nil, fmt.Errorf("making the certificate of metrics.k8s.io: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for metrics.k8s.io: %w", err)
	}
	server := &http.Server{
		Handler: podmetrics.Handler(u.list), ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	port := int64(listener.Addr().(*net.TCPAddr).Port)
	for _, object := range []map[string]any{
		{
			"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"namespace": "kube-system", "name": usageService},
			"spec": map[string]any{"type": "ExternalName", "externalName": "localhost", "ports": []any{map[string]any{"port": port}}},
		},
		{
			"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1beta1.metrics.k8s.io"},
			"spec": map[string]any{
				"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
				"caBundle": base64.StdEncoding.EncodeToString(authority),
				"service":  map[string]any{"namespace": "kube-system", "name": usageService, "port": port},
			},
		},
	} {
		if err := c.Create(ctx, &unstructured.Unstructured{Object: object}); err != nil {
			_ = server.Close()
			return nil, fmt.Errorf("creating the %s of metrics.k8s.io: %w", object["kind"], err)
		}
	}
	return func() { _ = server.Close() }, nil
}

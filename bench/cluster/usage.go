// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/bench/internal/fleet"
)

// resolution is the time between two measurements of usage, as in metrics-server.
const resolution = 15 * time.Second

// usage serves metrics.k8s.io for the fleet, in the place of metrics-server: real kubelets would say what
// the bench sets anyway.
type usage struct {
	deployments int

	mu sync.Mutex
	// isRaised says which Deployments use more than usually; nil for none.
	isRaised func(deployment int) bool
}

// Raised usage is far above the requests of the fleet, and below its limits.
const raisedCPU, raisedMemory = 840, 702 << 20

func (u *usage) raise(isRaised func(deployment int) bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.isRaised = isRaised
}

// ServeHTTP implements http.Handler.
func (u *usage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const root = "/apis/metrics.k8s.io/v1beta1"
	path := strings.Trim(strings.TrimPrefix(r.URL.Path, root), "/")
	w.Header().Set("Content-Type", "application/json")
	var answer any
	switch words := strings.Split(path, "/"); {
	case !strings.HasPrefix(r.URL.Path, root):
		http.NotFound(w, r)
		return
	case path == "":
		answer = metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "metrics.k8s.io/v1beta1",
			APIResources: []metav1.APIResource{{Name: "pods", Kind: "PodMetrics", Namespaced: true, Verbs: metav1.Verbs{"get", "list"}}},
		}
	case path == "pods":
		answer = u.list("")
	case len(words) == 3 && words[0] == "namespaces" && words[2] == "pods":
		answer = u.list(words[1])
	default:
		http.NotFound(w, r)
		return
	}
	_ = json.NewEncoder(w).Encode(answer) // fails only if the client has left
}

type podMetricsList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []podMetrics `json:"items"`
}

type podMetrics struct {
	Metadata   metav1.ObjectMeta  `json:"metadata"`
	Timestamp  metav1.Time        `json:"timestamp"`
	Window     metav1.Duration    `json:"window"`
	Containers []containerMetrics `json:"containers"`
}

type containerMetrics struct {
	Name  string              `json:"name"`
	Usage corev1.ResourceList `json:"usage"`
}

// list is the usage of all pods of a namespace, or of all namespaces.
func (u *usage) list(namespace string) podMetricsList {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := metav1.NewTime(time.Now().Truncate(resolution))
	out := podMetricsList{TypeMeta: metav1.TypeMeta{Kind: "PodMetricsList", APIVersion: "metrics.k8s.io/v1beta1"}, Items: []podMetrics{}}
	first, end := 0, u.deployments
	if namespace != "" {
		if _, err := fmt.Sscanf(namespace, "team-%d", &first); err != nil {
			first = u.deployments // a namespace with none
		}
		first *= fleet.PerNamespace
		end = min(end, first+fleet.PerNamespace)
	}
	for i := first; i < end; i++ {
		cpu, memory := int64(fleet.CPUMillis), int64(fleet.MemoryBytes)
		if u.isRaised != nil && u.isRaised(i) {
			cpu, memory = raisedCPU, raisedMemory
		}
		used := corev1.ResourceList{
			corev1.ResourceCPU: *resource.NewMilliQuantity(cpu, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(memory, resource.BinarySI),
		}
		for j := range fleet.Pods {
			pod := podMetrics{Metadata: metav1.ObjectMeta{Namespace: fleet.Namespace(i), Name: fleet.PodName(i, j)}, Timestamp: now, Window: metav1.Duration{Duration: resolution}}
			for c := range fleet.Containers {
				pod.Containers = append(pod.Containers, containerMetrics{fleet.ContainerName(c), used})
			}
			out.Items = append(out.Items, pod)
		}
	}
	return out
}

// serveUsage makes the API server forward requests for metrics.k8s.io to usage, until stop is called.
func serveUsage(ctx context.Context, c client.Client, u *usage) (stop func(), err error) {
	certificate, authority, err := selfSigned()
	if err != nil {
		return nil, fmt.Errorf("making the certificate of metrics.k8s.io: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for metrics.k8s.io: %w", err)
	}
	server := &http.Server{
		Handler: u, ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
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
				"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": int64(100), "versionPriority": int64(100), "caBundle": base64.StdEncoding.EncodeToString(authority),
				"service": map[string]any{"namespace": "kube-system", "name": usageService, "port": port},
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

const usageService = "usage"

// selfSigned is a certificate for the service, and the same as a caBundle.
func selfSigned() (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: []string{usageService + ".kube-system.svc"}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

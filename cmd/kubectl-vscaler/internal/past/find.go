// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package past

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// Auto is the address for which Find looks in the cluster.
const Auto = "auto"

// servers have the labels that common charts and operators put on the Services of servers that answer queries of Prometheus.
var servers = []struct{ name, selector, path string }{
	{"Prometheus", "app=kube-prometheus-stack-prometheus", ""},
	{"Prometheus", "app.kubernetes.io/name=prometheus,app.kubernetes.io/component=server", ""},
	{"Prometheus", "app.kubernetes.io/name=prometheus,app.kubernetes.io/component=prometheus", ""},
	{"Prometheus", "app=prometheus,component=server", ""},
	{"Prometheus", "app=rancher-monitoring-prometheus", ""},
	{"Prometheus", "operated-prometheus=true", ""},
	{"Thanos", "app.kubernetes.io/name=thanos,app.kubernetes.io/component=query-frontend", ""},
	{"Thanos", "app.kubernetes.io/name=thanos,app.kubernetes.io/component=query", ""},
	{"Thanos", "app.kubernetes.io/name=thanos-query", ""},
	{"VictoriaMetrics", "app.kubernetes.io/name=vmsingle", ""},
	{"VictoriaMetrics", "app.kubernetes.io/name=victoria-metrics-single", ""},
	{"VictoriaMetrics", "app.kubernetes.io/name=vmselect", "/select/0/prometheus"},
	{"Mimir", "app.kubernetes.io/name=mimir,app.kubernetes.io/component=query-frontend", "/prometheus"},
}

// portNames are the names of ports for queries. Sidecars and gRPC have others.
var portNames = []string{"http-web", "web", "http", "http-query", "http-metrics"}

var errNoServer = errors.New("no Service has the labels of Prometheus, Thanos, VictoriaMetrics or Mimir: set --prometheus to a URL")

// Find looks for a server if the address is Auto, and says which one it takes. The queries go through the API server, with the
// user's right to get services/proxy.
func (o *Options) Find(ctx context.Context, config func() (*rest.Config, error), out io.Writer) error {
	if o.Address != Auto {
		return nil
	}
	if o.TokenFile != "" || o.CAFile != "" {
		return errors.New("--prometheus=auto asks through the API server, and needs no token and no CA file")
	}
	cluster, err := config()
	if err != nil {
		return err
	}
	api, err := corev1client.NewForConfig(cluster)
	if err != nil {
		return fmt.Errorf("looking for Prometheus: %w", err)
	}
	for _, server := range servers {
		found, err := api.Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: server.selector})
		if err != nil {
			return fmt.Errorf("looking for Prometheus by the labels of Services: %w", err)
		}
		if len(found.Items) == 0 {
			continue
		}
		service := &found.Items[0]
		port := portOf(service)
		name := service.Name + ":" + cmp.Or(port.Name, fmt.Sprint(port.Port))
		proxy := api.RESTClient().Get().Namespace(service.Namespace).Resource("services").Name(name).SubResource("proxy").URL()
		if o.Transport, err = rest.TransportFor(cluster); err != nil {
			return fmt.Errorf("connecting to %s: %w", server.name, err)
		}
		o.InCluster = fmt.Sprintf("http://%s.%s.svc:%d%s", service.Name, service.Namespace, port.Port, server.path)
		o.Address = (&url.URL{Scheme: proxy.Scheme, Host: proxy.Host, Path: proxy.Path + server.path}).String()
		fmt.Fprintf(out, "%s: Service %s/%s, through the API server\n", server.name, service.Namespace, service.Name)
		return nil
	}
	return errNoServer
}

// portOf is the port for queries: one with a usual name, or else the first one.
func portOf(service *corev1.Service) corev1.ServicePort {
	ports := service.Spec.Ports
	for _, name := range portNames {
		if i := slices.IndexFunc(ports, func(p corev1.ServicePort) bool { return p.Name == name }); i >= 0 {
			return ports[i]
		}
	}
	if len(ports) == 0 {
		return corev1.ServicePort{}
	}
	return ports[0]
}

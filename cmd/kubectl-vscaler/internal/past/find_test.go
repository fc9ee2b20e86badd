// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package past

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

func TestThePrometheusOfTheClusterIsFound(t *testing.T) {
	service := func(name, labelled string, ports ...corev1.ServicePort) corev1.Service {
		set, err := labels.ConvertSelectorToLabelsMap(labelled)
		must.Succeed(t, err)
		return corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: name, Labels: set}, Spec: corev1.ServiceSpec{Ports: ports}}
	}
	web, grpc := corev1.ServicePort{Name: "http-web", Port: 9090}, corev1.ServicePort{Name: "grpc", Port: 10901}
	for name, tc := range map[string]struct {
		services              []corev1.Service
		path, says, inCluster string
	}{
		"of the usual chart":     {[]corev1.Service{service("prom", "app=kube-prometheus-stack-prometheus", grpc, web)}, "/prom:http-web/proxy", "Prometheus: Service monitoring/prom, through", "http://prom.monitoring.svc:9090"},
		"of the operator":        {[]corev1.Service{service("prometheus-operated", "operated-prometheus=true", web)}, "/prometheus-operated:http-web/proxy", "Prometheus: ", "http://prometheus-operated.monitoring.svc:9090"},
		"before Thanos":          {[]corev1.Service{service("query", "app.kubernetes.io/name=thanos-query", web), service("prom", "app=prometheus,component=server", corev1.ServicePort{Port: 80})}, "/prom:80/proxy", "Prometheus: ", "http://prom.monitoring.svc:80"},
		"VictoriaMetrics, other": {[]corev1.Service{service("vm", "app.kubernetes.io/name=vmselect", corev1.ServicePort{Port: 8481})}, "/vm:8481/proxy/select/0/prometheus", "VictoriaMetrics: ", "http://vm.monitoring.svc:8481/select/0/prometheus"},
		"Mimir":                  {[]corev1.Service{service("mimir", "app.kubernetes.io/name=mimir,app.kubernetes.io/component=query-frontend", web)}, "/mimir:http-web/proxy/prometheus", "Mimir: ", "http://mimir.monitoring.svc:9090/prometheus"},
		"none":                   {[]corev1.Service{service("web", "app=web", web)}, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer ours" {
					t.Errorf("%s has no credentials", r.URL)
				}
				var found corev1.ServiceList
				selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
				must.Succeed(t, err)
				for _, s := range tc.services {
					if selector.Matches(labels.Set(s.Labels)) {
						found.Items = append(found.Items, s)
					}
				}
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(found)
			}))
			defer server.Close()
			o, out := &Options{Address: Auto}, &strings.Builder{}
			err := o.Find(t.Context(), func() (*rest.Config, error) { return &rest.Config{Host: server.URL, BearerToken: "ours", QPS: -1}, nil }, out)
			if tc.path == "" {
				if err == nil || !strings.Contains(err.Error(), "set --prometheus to a URL") {
					t.Errorf("found %s: %v", o.Address, err)
				}
				return
			}
			must.Succeed(t, err)
			if want := server.URL + "/api/v1/namespaces/monitoring/services" + tc.path; o.Address != want || !strings.HasPrefix(out.String(), tc.says) || o.InCluster != tc.inCluster {
				t.Errorf("found %s, %q, %s; want %s, %s", o.Address, out, o.InCluster, want, tc.inCluster)
			}
			answer, err := (&http.Client{Transport: o.Transport}).Get(o.Address)
			must.Succeed(t, err)
			must.Succeed(t, answer.Body.Close())
		})
	}
}

func TestAnAddressIsNotLookedFor(t *testing.T) {
	for _, address := range []string{"", "http://prometheus:9090"} {
		o := &Options{Address: address}
		if err := o.Find(t.Context(), nil, nil); err != nil || o.Address != address {
			t.Errorf("%q became %q: %v", address, o.Address, err)
		}
	}
	if err := (&Options{Address: Auto, TokenFile: "token"}).Find(t.Context(), nil, nil); err == nil {
		t.Error("a token is taken for the proxy of the API server")
	}
}

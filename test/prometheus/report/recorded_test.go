// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build prometheus

package report

import (
	"fmt"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/traces"
	"github.com/verticalscaler/verticalscaler-operator/test/prometheus/internal/live"
	"github.com/verticalscaler/verticalscaler-operator/test/prometheus/internal/remote"
)

const (
	// perNamespace is the number of containers in a namespace.
	perNamespace = 100
	// kinds is the number of different traces, of which containers use multiples.
	kinds = 500
	// suffix is that of the names of all pods.
	suffix = "-5d4f8b9c4-bcdfg"
)

// until is the end of the usage of all fleets. Prometheus accepts nothing from the future.
var until = time.Now().UTC().Truncate(time.Hour)

// start starts a Prometheus with the usage of a number of Deployments of one pod with one container, a sample a minute
// for some days, and with what kube-state-metrics reports about them at the end. It returns its address.
func start(t testing.TB, deployments, days int) string {
	t.Helper()
	p, err := live.Run(t.TempDir(), map[string]any{}, "--web.enable-remote-write-receiver")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(10 * time.Second) })
	if err := remote.Write(p.Address, until.AddDate(0, 0, -days), days*24*60+1, seriesOf(deployments, days)); err != nil {
		t.Fatal(err)
	}
	return p.Address
}

// seriesOf are the series of all Deployments. Most request twice to five times what they use.
func seriesOf(deployments, days int) (all []remote.Series) {
	made := traces.Make(min(kinds, deployments), time.Duration(days)*24*time.Hour+time.Minute, time.Minute)
	last := days * 24 * 60
	for i := range deployments {
		trace, multiple := made[i%len(made)], 0.5+float64(i*7919%100)/100
		namespace, name := namespaceOf(i), nameOf(i)
		labels := func(metric string, more ...string) map[string]string {
			labels := map[string]string{"__name__": metric, "namespace": namespace, "pod": name + suffix, "container": "app"}
			for i := 0; i < len(more); i += 2 {
				labels[more[i]] = more[i+1]
			}
			return labels
		}
		cadvisor := []string{
			"job", "kubelet", "metrics_path", "/metrics/cadvisor", "node", fmt.Sprintf("node-%03d", i%97), "image", "registry.example.com/" + name + ":1",
			"id", fmt.Sprintf("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod%032d.slice", i),
		}
		seconds := 0.0
		all = append(all, remote.Series{
			Labels: labels("container_cpu_usage_seconds_total", cadvisor...),
			Value: func(minute int) (float64, bool) {
				seconds += trace.Samples[minute].CPUMillis * multiple * 60 / 1000
				return seconds, true
			},
		}, remote.Series{
			Labels: labels("container_memory_working_set_bytes", cadvisor...),
			Value:  func(minute int) (float64, bool) { return float64(trace.Samples[minute].MemoryBytes) * multiple, true },
		})
		atEnd := func(value float64) func(int) (float64, bool) {
			return func(minute int) (float64, bool) { return value, minute > last-60 }
		}
		replicas := map[string]string{"__name__": "kube_deployment_spec_replicas", "namespace": namespace, "deployment": name}
		all = append(all, remote.Series{Labels: replicas, Value: atEnd(1)},
			remote.Series{Labels: labels("kube_pod_container_info"), Value: atEnd(1)},
			remote.Series{Labels: labels("kube_pod_container_resource_requests", "resource", "cpu"), Value: atEnd(requestsOf(trace).cpu)},
			remote.Series{Labels: labels("kube_pod_container_resource_requests", "resource", "memory"), Value: atEnd(requestsOf(trace).memory)})
	}
	return all
}

func requestsOf(trace backtest.Trace) (r struct{ cpu, memory float64 }) {
	r.cpu, r.memory = float64(trace.Requests.CPUMillis)/1000, float64(trace.Requests.MemoryBytes)
	return r
}

func namespaceOf(i int) string { return fmt.Sprintf("team-%03d", i/perNamespace) }
func nameOf(i int) string      { return fmt.Sprintf("web-%05d", i) }

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/prometheus/common/model"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// FleetSize is the size that the pods of a container declare, from kube-state-metrics: the most of any pod.
// Zero means unset.
type FleetSize struct {
	FleetContainer
	// Replicas is the desired number of pods of the Deployment.
	Replicas         int
	Requests, Limits quantity.Amounts
}

// The metrics that a report needs, from the kubelets' cAdvisor and from kube-state-metrics.
const (
	CPUMetric        = "container_cpu_usage_seconds_total"
	MemoryMetric     = "container_memory_working_set_bytes"
	OOMMetric        = "container_oom_events_total"
	DeploymentMetric = "kube_deployment_spec_replicas"
	ContainerMetric  = "kube_pod_container_info"
)

// OOMEvents reads the number of OOM-killed processes in each container since it started, and calls each for at least one. The
// kubelet counts entries of the kernel log, so it may count too few. An error is an *Error.
func (s *Source) OOMEvents(ctx context.Context, namespaces []string, at time.Time, each func(of usage.Container, kills int)) error {
	of, err := inNamespaces(namespaces)
	if err != nil {
		return &Error{Words: "the namespaces are not valid", Err: err}
	}
	query := fmt.Sprintf(`max by (namespace,pod,container) (%s{%s,container!="",container!="POD"%s}) > 0`, OOMMetric, of, s.labels())
	return s.instant(ctx, query, at, func(m model.Metric, value float64) {
		each(usage.Container{Namespace: string(m["namespace"]), Pod: string(m["pod"]), Name: string(m["container"])}, int(min(value, math.MaxInt32)))
	})
}

// Inventory reads the Deployments of some namespaces, or of all, and the sizes of their containers at a time from
// kube-state-metrics, sorted. Native sidecars are not included: they look like other init containers. An error is
// an *Error.
func (s *Source) Inventory(ctx context.Context, namespaces []string, at time.Time) ([]FleetSize, error) {
	of, err := inNamespaces(namespaces)
	if err != nil {
		return nil, &Error{Words: "the namespaces are not valid", Err: err}
	}
	of += s.labels()
	running := fmt.Sprintf(`unless on (namespace,pod) (kube_pod_status_phase{%s,phase=~"Succeeded|Failed"} == 1)`, of)
	sizes := make(map[FleetContainer]*FleetSize)
	replicas := map[[2]string]int{}
	err = s.instant(ctx, fmt.Sprintf("max by (namespace,deployment) (%s{%s})", DeploymentMetric, of), at, func(m model.Metric, value float64) {
		replicas[[2]string{string(m["namespace"]), string(m["deployment"])}] = int(min(max(value, 0), math.MaxInt32))
	})
	if err != nil {
		return nil, err
	}
	err = s.instant(ctx, fmt.Sprintf("max by (namespace,pod,container) (%s{%s} %s)", ContainerMetric, of, running), at, func(m model.Metric, _ float64) {
		if c, ok := containerOf(m, Deployment); ok {
			if n, isKnown := replicas[[2]string{c.Namespace, c.Workload}]; isKnown {
				sizes[c] = &FleetSize{FleetContainer: c, Replicas: n}
			}
		}
	})
	if err != nil {
		return nil, err
	}
	for _, kind := range []string{"requests", "limits"} {
		query := fmt.Sprintf(`max by (namespace,pod,container,resource) (kube_pod_container_resource_%s{%s,resource=~"cpu|memory"} %s)`, kind, of, running)
		err := s.instant(ctx, query, at, func(m model.Metric, value float64) {
			c, _ := containerOf(m, Deployment)
			if size := sizes[c]; size != nil && kind == "limits" {
				raise(&size.Limits, m["resource"], value)
			} else if size != nil {
				raise(&size.Requests, m["resource"], value)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	out := make([]FleetSize, 0, len(sizes))
	for _, size := range sizes {
		out = append(out, *size)
	}
	slices.SortFunc(out, func(a, b FleetSize) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Workload, b.Workload), cmp.Compare(a.Container, b.Container))
	})
	return out, nil
}

// raise raises the amount of a resource to a value of kube-state-metrics, in cores or bytes.
func raise(to *quantity.Amounts, resource model.LabelValue, value float64) {
	switch resource {
	case cpu:
		to.CPUMillis = max(to.CPUMillis, int64(math.Round(min(value*1000, quantity.MaxCPUMillis))))
	case memory:
		to.MemoryBytes = max(to.MemoryBytes, int64(math.Round(min(value, quantity.MaxMemoryBytes))))
	}
}

// Prices are OpenCost's prices of a core and a GiB of memory for an hour.
type Prices struct{ CPUCoreHour, MemoryGiBHour float64 }

// Prices are the means of all nodes at a time. They are 0 where Prometheus has no metrics of OpenCost. An error is an *Error.
func (s *Source) Prices(ctx context.Context, at time.Time) (p Prices, err error) {
	for metric, price := range map[string]*float64{"node_cpu_hourly_cost": &p.CPUCoreHour, "node_ram_hourly_cost": &p.MemoryGiBHour} {
		query := fmt.Sprintf("avg(last_over_time({__name__=%q%s}[1h]))", metric, s.labels())
		if err := s.instant(ctx, query, at, func(_ model.Metric, value float64) { *price = value }); err != nil {
			return Prices{}, err
		}
	}
	return p, nil
}

// Has reports whether Prometheus has any series of a metric within the last hour before a time, with any
// additional labels. An error is an *Error.
func (s *Source) Has(ctx context.Context, metric string, at time.Time) (has bool, err error) {
	err = s.instant(ctx, fmt.Sprintf("count(last_over_time(%s[1h]))", metric), at, func(_ model.Metric, value float64) { has = value > 0 })
	return has, err
}

// HasOurs is Has of series with the additional labels.
func (s *Source) HasOurs(ctx context.Context, metric string, at time.Time) (bool, error) {
	return s.Has(ctx, fmt.Sprintf("{__name__=%q%s}", metric, s.labels()), at)
}

// instant sends a query for one moment. It calls each with each series that has a valid value.
func (s *Source) instant(ctx context.Context, query string, at time.Time, each func(model.Metric, float64)) error {
	c, err := s.open()
	if err != nil {
		return err
	}
	defer c.close()
	vector, err := c.vector(ctx, query, at)
	if err != nil {
		return c.explain(err)
	}
	for _, sample := range vector {
		if sample == nil {
			continue
		}
		if v := float64(sample.Value); v >= 0 && !math.IsInf(v, 0) { // NaN is neither
			each(sample.Metric, v)
		}
	}
	return nil
}

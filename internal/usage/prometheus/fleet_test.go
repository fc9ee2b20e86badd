// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// streamIn is a series of a namespace.
func streamIn(namespace, pod, container string, points ...string) string {
	return strings.Replace(stream(pod, container, points...), `"metric":{`, fmt.Sprintf(`"metric":{"namespace":%q,`, namespace), 1)
}

// The pod that uses most counts, for CPU and memory separately, with any other series of the server.
func TestFleetUsage(t *testing.T) {
	const a, b = "web-5d4f8b9c4-bcdfg", "web-7c9b5d8f44-x2z9k"
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if isCPU(r) {
			answer(w,
				streamIn("shop", a, "app", at(0), "0.1", at(1), "0.3"), streamIn("shop", a, "app", at(0), "0.2", at(1), "0.15"), // of two servers
				streamIn("shop", b, "app", at(0), "0.25", at(1), "0.2"),
				streamIn("bank", a, "app", at(1), "1"), streamIn("shop", a, "unknown", at(0), "9"),
				streamIn("shop", "web-x2z9k", "app", at(0), "9"), streamIn("shop", "agent-bcdfg", "app", at(0), "9"), `null`,
				streamIn("shop", a, "proxy", at(0), "NaN", at(1), "-1", at(2), "1e9", at(-5), "1", at(99), "1"),
			)
			return
		}
		answer(w, streamIn("shop", a, "app", at(0), "10", at(1), "30.5"), streamIn("shop", b, "app", at(1), "5", at(2), "70"))
	})
	wanted := []FleetContainer{{"shop", Deployment, "web", "app"}, {"shop", Deployment, "web", "proxy"}, {"bank", Deployment, "web", "app"}}
	var progress []time.Time
	got, err := source(t, server.URL).Fleet(context.Background(), []string{"shop", "bank"}, []string{Deployment}, noon.Add(-30*time.Second), noon.Add(2*time.Minute+time.Second),
		func(c FleetContainer) bool { return slices.Contains(wanted, c) }, func(until time.Time) { progress = append(progress, until.UTC()) })
	must.Succeed(t, err)
	unknown := []int64{-1, -1, -1}
	want := map[FleetContainer]*ContainerUsage{
		wanted[0]: {noon, []int32{250, 300, -1}, []int64{10, 31, 70}},
		wanted[1]: {noon, []int32{-1, -1, -1}, unknown},
		wanted[2]: {noon, []int32{-1, 1000, -1}, unknown},
	}
	assert.Equal(t, "usage", want, got.Usage)
	refused := map[usage.Refusal]int{usage.Malformed: 1, usage.NotANumber: 1, usage.Negative: 1, usage.TooLarge: 1, usage.Stale: 1, usage.FromTheFuture: 1}
	assert.Equal(t, "refused", refused, got.Refused)
	assert.Equal(t, "progress", []time.Time{noon.Add(2 * time.Minute)}, progress)
}

// vector is a response to a query for one moment.
func vector(w io.Writer, samples ...string) {
	fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[%s]}}`, strings.Join(samples, ","))
}

func sample(value string, labels ...string) string {
	var pairs []string
	for i := 0; i < len(labels); i += 2 {
		pairs = append(pairs, fmt.Sprintf("%q:%q", labels[i], labels[i+1]))
	}
	return fmt.Sprintf(`{"metric":{%s},"value":[%d,%q]}`, strings.Join(pairs, ","), noon.Unix(), value)
}

func TestInventory(t *testing.T) {
	const a, b = "web-5d4f8b9c4-bcdfg", "web-5d4f8b9c4-x2z9k"
	of := func(pod, container string, more ...string) []string {
		return append([]string{"namespace", "shop", "pod", pod, "container", container}, more...)
	}
	var queries []string
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		query := r.FormValue("query")
		queries = append(queries, query)
		if at := moment(t, r.FormValue("time")); !at.Equal(noon) {
			t.Errorf("asked for %s", at)
		}
		switch {
		case strings.Contains(query, "kube_deployment_spec_replicas"):
			vector(w, sample("3", "namespace", "shop", "deployment", "web"), sample("NaN", "namespace", "shop", "deployment", "odd"),
				sample("1", "namespace", "shop", "deployment", "x/../../home/web"), sample("1", "namespace", "../shop", "deployment", "web"), "null")
		case strings.Contains(query, "kube_pod_container_info"):
			vector(w, sample("1", of(a, "app")...), sample("1", of(b, "app")...), sample("1", of(a, "proxy")...),
				sample("1", of("agent-bcdfg", "app")...), sample("1", of("odd-5d4f8b9c4-bcdfg", "app")...),
				sample("1", of("x/../../home/"+a, "app")...), sample("1", of(a, "../app")...),
				sample("1", "namespace", "../shop", "pod", a, "container", "app")) // names of no objects, but of files
		case strings.Contains(query, "kube_pod_container_resource_requests"):
			vector(w, sample("0.25", of(a, "app", "resource", "cpu")...), sample("0.5", of(b, "app", "resource", "cpu")...),
				sample("1048576", of(a, "app", "resource", "memory")...), sample("7", of(a, "unknown", "resource", "cpu")...), sample("1e300", of(a, "proxy", "resource", "cpu")...))
		default:
			vector(w, sample("2097152", of(a, "app", "resource", "memory")...))
		}
	})
	got, err := source(t, server.URL).Inventory(context.Background(), []string{"shop"}, noon)
	must.Succeed(t, err)
	want := []FleetSize{
		{FleetContainer{"shop", Deployment, "web", "app"}, 3, quantity.Amounts{CPUMillis: 500, MemoryBytes: 1 << 20}, quantity.Amounts{MemoryBytes: 2 << 20}},
		{FleetContainer{"shop", Deployment, "web", "proxy"}, 3, quantity.Amounts{CPUMillis: quantity.MaxCPUMillis}, quantity.Amounts{}},
	}
	assert.Equal(t, "Inventory()", want, got)
	if want := `max by (namespace,deployment) (kube_deployment_spec_replicas{namespace="shop"})`; len(queries) != 4 || queries[0] != want {
		t.Errorf("asked %q", queries)
	}
	if _, err := source(t, server.URL).Inventory(context.Background(), []string{`x"`}, noon); err == nil {
		t.Error("the name of a namespace changes the query")
	}
}

func TestOOMEvents(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		const want = `max by (namespace,pod,container) (container_oom_events_total{namespace=~"shop|bank",container!="",container!="POD"}) > 0`
		if got := r.FormValue("query"); got != want {
			t.Errorf("asked %s", got)
		}
		vector(w, sample("3", "namespace", "shop", "pod", pod, "container", "app"), sample("NaN", "namespace", "shop", "pod", pod, "container", "proxy"))
	})
	got := map[usage.Container]int{}
	err := source(t, server.URL).OOMEvents(t.Context(), []string{"shop", "bank"}, noon, func(of usage.Container, kills int) { got[of] = kills })
	if diff := cmp.Diff(map[usage.Container]int{{Namespace: "shop", Pod: pod, Name: "app"}: 3}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if err := source(t, server.URL).OOMEvents(t.Context(), []string{`x"`}, noon, nil); err == nil {
		t.Error("the name of a namespace changes the query")
	}
}

func TestHas(t *testing.T) {
	for body, want := range map[string]bool{`{"status":"success","data":{"resultType":"vector","result":[]}}`: false, "3": true} {
		server := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if got := r.FormValue("query"); got != "count(last_over_time(kube_pod_container_info[1h]))" {
				t.Errorf("asked %s", got)
			}
			if want {
				vector(w, sample(body))
				return
			}
			fmt.Fprint(w, body)
		})
		if got, err := source(t, server.URL).Has(context.Background(), ContainerMetric, noon); got != want || err != nil {
			t.Errorf("%t, %v; want %t", got, err, want)
		}
	}
	for name, handler := range map[string]http.HandlerFunc{"no vector": func(w http.ResponseWriter, _ *http.Request) { answer(w) }, "unauthorized": status(http.StatusUnauthorized, "no")} {
		if _, err := source(t, serve(t, handler).URL).Has(context.Background(), ContainerMetric, noon); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The pods of each kind are found by their names, and only those of workloads that are wanted.
func TestFleetUsageOfOtherKinds(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if want := "-[0-9]{1,6}|-["; !strings.Contains(r.FormValue("query"), want) {
			t.Errorf("asked %s", r.FormValue("query"))
		}
		var all []string
		for _, pod := range []string{"db-10", "agent-bcdfg", "report-29384760-bcdfg", "web-5d4f8b9c4-bcdfg", "db-x", "other-1"} {
			all = append(all, streamIn("shop", pod, "app", at(0), "1"))
		}
		answer(w, all...)
	})
	kinds := []string{Rollout, StatefulSet, DaemonSet, CronJob}
	wanted := []FleetContainer{{"shop", Rollout, "web", "app"}, {"shop", StatefulSet, "db", "app"}, {"shop", DaemonSet, "agent", "app"}, {"shop", CronJob, "report", "app"}}
	got, err := source(t, server.URL).Fleet(context.Background(), []string{"shop"}, kinds, noon, noon,
		func(c FleetContainer) bool { return slices.Contains(wanted, c) }, func(time.Time) {})
	must.Succeed(t, err)
	for _, c := range wanted {
		if u := got.Usage[c]; u == nil || u.MemoryBytes[0] != 1 {
			t.Errorf("the usage of %+v is %+v", c, u)
		}
	}
	if len(got.Usage) != len(wanted) {
		t.Errorf("usage %+v", got.Usage)
	}
}

// OpenCost's prices are the means of all nodes, and 0 where there are none.
func TestPrices(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.FormValue("query") {
		case `avg(last_over_time({__name__="node_cpu_hourly_cost"}[1h]))`:
			vector(w, sample("0.03"))
		case `avg(last_over_time({__name__="node_ram_hourly_cost"}[1h]))`:
			vector(w)
		default:
			t.Errorf("asked %s", r.FormValue("query"))
		}
	})
	if got, err := source(t, server.URL).Prices(context.Background(), noon); err != nil || got != (Prices{CPUCoreHour: 0.03}) {
		t.Errorf("%+v, %v", got, err)
	}
}

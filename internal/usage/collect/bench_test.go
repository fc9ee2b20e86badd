// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/checkpoint"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/bench"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/cached"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/metricsapi"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// BenchmarkRound is a round of 200 scalers with 3 pods of 2 containers each, whose usage has moved: from one
// list for each namespace and from one list of all, beside pods of other namespaces. Wire is what the lists take, with
// the requests as isAllFewer counts them.
func BenchmarkRound(b *testing.B) {
	for _, tc := range []struct{ perNamespace, foreign int }{{1, 0}, {1, 2000}, {20, 0}, {20, 2000}} {
		for how, isAll := range map[string]bool{"each": false, "all": true} {
			b.Run(fmt.Sprintf("scalers=%d/foreign=%d/list=%s", tc.perNamespace, tc.foreign, how), func(b *testing.B) {
				f := newFleet(b, 200, tc.perNamespace, tc.foreign)
				f.collector.reach = reach{isAll: isAll, reviewed: f.clock.Now().AddDate(1, 0, 0)}
				f.round()
				f.wire = 0
				b.ReportAllocs()
				began := bench.CPUTime(b)
				for b.Loop() {
					f.round()
				}
				b.ReportMetric(float64(bench.CPUTime(b)-began)/float64(b.N), "cpu-ns/op")
				b.ReportMetric(float64(f.wire)/float64(b.N), "wire-B/op")
			})
		}
	}
}

// fleet is a collector that reads a real cache, and lists of metrics-server.
type fleet struct {
	b         *testing.B
	collector *Collector
	clock     *clocktesting.FakeClock
	lists     map[string][]byte // by path
	wire      int
}

func newFleet(b *testing.B, scalers, perNamespace, foreign int) *fleet {
	b.Helper()
	f := &fleet{b: b, clock: clocktesting.NewFakeClock(noon), lists: map[string][]byte{}}
	objects := f.objects(scalers, perNamespace, foreign)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			b.Fatal(err)
		}
	}
	source, err := metricsapi.New(&rest.Config{Host: "http://metrics.test", Transport: f, QPS: -1})
	if err != nil {
		b.Fatal(err)
	}
	wake := make(chan event.GenericEvent, 2*scalers)
	c := cached.Cache(b, scheme, inventory.Trim, func(c cache.Cache) error {
		if _, err := c.GetInformer(b.Context(), &v1beta1.VerticalScaler{}, cache.BlockUntilSynced(false)); err != nil {
			return err
		}
		return inventory.Index(b.Context(), c)
	}, objects...)
	f.collector = &Collector{
		Cached: c, Pods: c.Pods,
		Source: source, Clock: f.clock, Params: recommend.DefaultParams(), Wake: wake, Interval: interval,
		Histories: &checkpoint.Store{Client: fake.NewClientBuilder().WithScheme(scheme).Build(), Params: recommend.DefaultParams().History},
	}
	for _, object := range objects {
		if vs, ok := object.(*v1beta1.VerticalScaler); ok {
			if err := f.collector.Histories.Load(b.Context(), vs, noon); err != nil {
				b.Fatal(err)
			}
		}
	}
	go func() {
		for {
			select {
			case <-wake:
			case <-b.Context().Done():
				return
			}
		}
	}()
	return f
}

const stamp = "2026-03-01T12:00:00Z"

// objects are the scalers and what they name. It fills the lists, too.
func (f *fleet) objects(scalers, perNamespace, foreign int) (objects []client.Object) {
	items := map[string][]string{}
	add := func(namespace, pod string) {
		items[namespace] = append(items[namespace], fmt.Sprintf(
			`{"metadata":{"name":%q,"namespace":%q,"creationTimestamp":%q,"labels":{"app":"web","pod-template-hash":"5d4f8b6c9","tier":"backend"}},`+
				`"timestamp":%q,"window":"15.034s","containers":[{"name":"app","usage":{"cpu":"123456789n","memory":"223456Ki"}},{"name":"log","usage":{"cpu":"2345678n","memory":"23456Ki"}}]}`,
			pod, namespace, stamp, stamp))
	}
	for i := range scalers {
		namespace, name := fmt.Sprintf("shop-%d", i/perNamespace), fmt.Sprintf("web-%d", i)
		vs := &v1beta1.VerticalScaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("scaler-" + name)},
			Spec:       v1beta1.VerticalScalerSpec{DeploymentName: name},
		}
		scaler.RecordClaim(&vs.Status, scaler.Claim(vs))
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)}}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app"}, {Name: "log"}}
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name + "-5d4f8b6c9", UID: types.UID(name + "-5d4f8b6c9"),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		}}
		objects = append(objects, vs, d, set)
		for j := range 3 {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: namespace, Name: fmt.Sprintf("%s-%d", set.Name, j), UID: types.UID(fmt.Sprintf("%s-%d", set.Name, j)),
					OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
				},
				Spec:   d.Spec.Template.Spec,
				Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: ptr.To(metav1.NewTime(noon.Add(-time.Hour)))},
			}
			objects = append(objects, pod)
			add(namespace, pod.Name)
		}
	}
	for i := range foreign {
		add(fmt.Sprintf("foreign-%d", i/100), fmt.Sprintf("other-5d4f8b6c9-%d", i))
	}
	var all []string
	for namespace, list := range items {
		f.lists["/apis/metrics.k8s.io/v1beta1/namespaces/"+namespace+"/pods"] = listOf(list)
		all = append(all, list...)
	}
	f.lists["/apis/metrics.k8s.io/v1beta1/pods"] = listOf(all)
	return objects
}

func listOf(items []string) []byte {
	return []byte(`{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":[` + strings.Join(items, ",") + `]}`)
}

// RoundTrip answers with the usage of now.
func (f *fleet) RoundTrip(request *http.Request) (*http.Response, error) {
	f.collector.mu.Lock()
	list := f.lists[request.URL.Path]
	f.wire += requestBytes + len(list)
	f.collector.mu.Unlock()
	now := bytes.ReplaceAll(list, []byte(stamp), []byte(f.clock.Now().UTC().Format(time.RFC3339)))
	return &http.Response{
		StatusCode: http.StatusOK, Request: request,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(now)),
	}, nil
}

func (f *fleet) round() {
	f.clock.Step(interval)
	f.collector.Collect(context.Background())
}

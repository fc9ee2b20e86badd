// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/checkpoint"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// BenchmarkFleet measures the live memory of the cache for whole fleets, and the usage histories of all containers. Each
// scaler's Deployment has three pods of two containers. All objects arrive in a watch, encoded as the API server sends them.
func BenchmarkFleet(b *testing.B) {
	for _, scalers := range []int{1_000, 5_000, 16_667} {
		b.Run(fmt.Sprintf("scalers=%d", scalers), func(b *testing.B) {
			var live float64
			for range b.N {
				cluster := newEncodedCluster(b, scalers)
				before := heap()
				ctx, stop := context.WithCancel(b.Context())
				cached, histories := cluster.ours(ctx), cluster.histories()
				live += float64(heap()) - float64(before)
				runtime.KeepAlive(cached)
				runtime.KeepAlive(histories)
				stop()
			}
			live /= float64(b.N)
			b.ReportMetric(live/(1<<20), "MiB/live")
			b.ReportMetric(live/float64(scalers), "B/scaler")
			b.ReportMetric(float64(6*scalers), "containers")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// The operator's manifest has a memory limit that holds 5,000 scalers with 30,000 containers. Go may use 90 % of it
// (app.LimitMemory), and the alert VerticalScalerMemoryNearLimit fires at 70 % of that. A quarter more than
// measured here, and 100 MiB for the program and for a wave of changes, must fit in without the alert.
func TestTheShippedMemoryLimitHolds5000Scalers(t *testing.T) {
	limit := shippedMemoryLimit(t)
	const scalers = 500
	cluster := newEncodedCluster(t, scalers)
	before := heap()
	cached, histories := cluster.ours(t.Context()), cluster.histories()
	each := (heap() - before) / scalers
	runtime.KeepAlive(cached)
	runtime.KeepAlive(histories)
	if each < 1_000 || each > 20_000 {
		t.Errorf("a scaler with three pods of two containers takes %d bytes of live heap, more than 20,000", each)
	}
	if needs, has := 5000*int64(each)*5/4+100<<20, limit*9/10*7/10; needs > has {
		t.Errorf("5,000 scalers need %d MiB, and the limit of %d MiB leaves %d MiB", needs>>20, limit>>20, has>>20)
	}
}

// shippedMemoryLimit is the memory limit of the operator's manifest.
func shippedMemoryLimit(tb testing.TB) int64 {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "config", "manager", "manager.yaml"))
	must.Succeed(tb, err)
	var manager appsv1.Deployment
	must.Succeed(tb, yaml.Unmarshal(text, &manager))
	return manager.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().Value()
}

// histories are the histories of two containers of each scaler, after two hours of usage. They do not grow with age.
func (c *encodedCluster) histories() *checkpoint.Store {
	store := &checkpoint.Store{Client: c, Params: recommend.DefaultParams().History}
	for i := range c.scalers {
		vs := c.scalerObject(fmt.Sprintf("web-%d", i))
		vs.UID = uidOf(4, i, 0)
		must.Succeed(c.tb, store.Load(context.Background(), vs, time.Unix(1_700_000_000, 0)))
		for minute := range 120 {
			var round []usage.Sample
			for _, container := range []string{"app-0", "app-1"} {
				round = append(round, usage.Sample{
					Container: container, Time: time.Unix(int64(1_700_000_000+60*minute), 0),
					CPUMillis: int64(100 + 7*minute%90), MemoryBytes: int64(300+minute%40) << 20,
				})
			}
			store.Feed(vs, round, func(history.Histories) {})
		}
	}
	return store
}

// Get implements client.Reader: there are no checkpoints.
func (c *encodedCluster) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// A pod takes at most 2.5 kB, with its part of its ReplicaSet.
func TestMemoryOfAPod(t *testing.T) {
	cluster := newEncodedCluster(t, 500)
	before := heap()
	pods := NewPods(cluster)
	go func() { _ = pods.Start(t.Context()) }()
	must.Succeed(t, pods.WaitForSync(t.Context()))
	each := (heap() - before) / (3 * 500)
	if found, err := pods.Of(t.Context(), cluster.deploymentObject(7, "web-7")); err != nil || len(found) != 3 {
		t.Errorf("web-7 has %d pods, %v", len(found), err)
	}
	t.Logf("%d bytes", each)
	if each < 500 || each > 2_500 {
		t.Errorf("a pod takes %d bytes of live heap", each)
	}
}

// encodedCluster is the encoded objects of an API server.
type encodedCluster struct {
	client.WithWatch // no other requests

	tb                   testing.TB
	scaler               []byte
	deployment, set, pod []byte
	scalers              int
	indexer              toolscache.Indexer
}

func newEncodedCluster(tb testing.TB, scalers int) *encodedCluster {
	tb.Helper()
	c := &encodedCluster{tb: tb, scalers: scalers}
	text, err := os.ReadFile(filepath.Join("testdata", "scaler.yaml"))
	must.Succeed(c.tb, err)
	c.scaler, err = yaml.YAMLToJSON(text)
	must.Succeed(c.tb, err)
	deployment := richDeployment(2)
	c.deployment, err = deployment.Marshal()
	must.Succeed(c.tb, err)
	set := &metav1.PartialObjectMetadata{ObjectMeta: *deployment.ObjectMeta.DeepCopy()}
	set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(deployment, deploymentKind)}
	set.Annotations[revisionAnnotation] = "7"
	c.set, err = set.Marshal()
	must.Succeed(c.tb, err)
	pod := richPod()
	pod.Spec = *deployment.Spec.Template.Spec.DeepCopy()
	pod.Status.ContainerStatuses = nil
	for _, container := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Ready: true, Resources: container.Resources.DeepCopy(), AllocatedResources: container.Resources.Requests,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Unix(1_700_000_000, 0))}},
		})
	}
	c.pod, err = pod.Marshal()
	must.Succeed(c.tb, err)
	return c
}

// each calls back with the name of each Deployment and its number of pods.
func (c *encodedCluster) each(do func(i int, name string, pods int)) {
	for i := range c.scalers {
		do(i, fmt.Sprintf("web-%d", i), 3)
	}
}

func uidOf(kind, i, j int) types.UID {
	return types.UID(fmt.Sprintf("4e8b9a52-%04d-4a77-%04d-%012d", kind, j, i))
}

func (c *encodedCluster) deploymentObject(i int, name string) *appsv1.Deployment {
	var d appsv1.Deployment
	must.Succeed(c.tb, d.Unmarshal(c.deployment))
	d.Namespace, d.Name, d.UID = "shop", name, uidOf(1, i, 0)
	return &d
}

func (c *encodedCluster) setObject(i int, name string) *metav1.PartialObjectMetadata {
	var s metav1.PartialObjectMetadata
	must.Succeed(c.tb, s.Unmarshal(c.set))
	s.Namespace, s.Name, s.UID = "shop", name+"-5d4f8c", uidOf(2, i, 0)
	s.OwnerReferences[0].Name, s.OwnerReferences[0].UID = name, uidOf(1, i, 0)
	return &s
}

func (c *encodedCluster) podObject(i, j int, name string) *corev1.Pod {
	var p corev1.Pod
	must.Succeed(c.tb, p.Unmarshal(c.pod))
	p.Namespace, p.Name, p.UID = "shop", fmt.Sprintf("%s-5d4f8c-%05d", name, j), uidOf(3, i, j)
	p.OwnerReferences[0].Name, p.OwnerReferences[0].UID = name+"-5d4f8c", uidOf(2, i, 0)
	return &p
}

func (c *encodedCluster) scalerObject(name string) *v1beta1.VerticalScaler {
	var s v1beta1.VerticalScaler
	must.Succeed(c.tb, json.Unmarshal(c.scaler, &s))
	s.Namespace, s.Name, s.Spec.DeploymentName = "shop", name, name
	s.Status.Annotations = map[string]string{v1beta1.ClaimAnnotation: "shop/" + name}
	return &s
}

func claimsOf(obj any) ([]string, error) {
	return []string{obj.(*v1beta1.VerticalScaler).Status.Annotations[v1beta1.ClaimAnnotation]}, nil
}

// ours stores all objects as the operator does.
func (c *encodedCluster) ours(ctx context.Context) *Cache {
	c.indexer = toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{namespaceIndex: toolscache.MetaNamespaceIndexFunc, "claim": claimsOf})
	c.each(func(i int, name string, _ int) {
		if i < c.scalers {
			trimmed, err := Trim(c.scalerObject(name))
			must.Succeed(c.tb, err)
			must.Succeed(c.tb, c.indexer.Add(trimmed))
		}
	})
	cached := Over(nil, c)
	go func() { _ = cached.Deployments.Start(ctx) }()
	go func() { _ = cached.Pods.Start(ctx) }()
	must.Succeed(c.tb, cached.Deployments.WaitForSync(ctx))
	must.Succeed(c.tb, cached.Pods.WaitForSync(ctx))
	return cached
}

// Watch implements client.WithWatch. It streams a list, and then no events.
func (c *encodedCluster) Watch(ctx context.Context, list client.ObjectList, _ ...client.ListOption) (watch.Interface, error) {
	stream := make(chan watch.Event)
	send := func(kind watch.EventType, object client.Object) {
		object.SetResourceVersion("1")
		select {
		case stream <- watch.Event{Type: kind, Object: object}:
		case <-ctx.Done():
		}
	}
	end := metav1.ObjectMeta{ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
	go func() {
		c.each(func(i int, name string, pods int) {
			switch list.(type) {
			case *appsv1.DeploymentList:
				send(watch.Added, c.deploymentObject(i, name))
			case *corev1.PodList:
				for j := range pods {
					send(watch.Added, c.podObject(i, j, name))
				}
			default:
				send(watch.Added, c.setObject(i, name))
			}
		})
		switch list.(type) {
		case *appsv1.DeploymentList:
			send(watch.Bookmark, &appsv1.Deployment{ObjectMeta: end})
		case *corev1.PodList:
			send(watch.Bookmark, &corev1.Pod{ObjectMeta: end})
		default:
			send(watch.Bookmark, &metav1.PartialObjectMetadata{ObjectMeta: end})
		}
	}()
	return watch.NewProxyWatcher(stream), nil
}

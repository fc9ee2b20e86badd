// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scalingpolicy

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/objects"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

var noon = time.Date(2026, 11, 25, 12, 0, 0, 123456789, time.UTC)

// fixture is a Reconciler with an API server from memory, which has no garbage collector and no defaults. The
// reconciler's cache is as old as the last call of sync.
type fixture struct {
	*testing.T

	api        client.WithWatch
	reconciler *Reconciler
	clock      *clocktesting.FakePassiveClock
	recorder   *events.FakeRecorder

	writes []string // "create shop/web", in order
	tried  int      // writes, with those that failed
	live   int      // reads from the API server
	uids   int
	stop   context.CancelFunc
}

// cached is the reconciler's cache.
type cached struct {
	client.Reader
	cache.Informers
}

// plainAPI cannot stream a list.
type plainAPI struct{ client.WithWatch }

func (plainAPI) IsWatchListSemanticsUnSupported() bool { return true }

// indexer adds indexes to a fake client before it is built.
type indexer struct {
	cache.Cache
	builder *fake.ClientBuilder
}

func (i indexer) IndexField(_ context.Context, object client.Object, field string, value client.IndexerFunc) error {
	i.builder.WithIndex(object, field, value)
	return nil
}

// newFixture has the objects, and namespaces shop and bank. The functions intercept the requests of the reconciler.
func newFixture(t *testing.T, funcs interceptor.Funcs, given ...client.Object) *fixture {
	t.Helper()
	s := &fixture{T: t, clock: clocktesting.NewFakePassiveClock(noon), recorder: events.NewFakeRecorder(50)}
	for _, name := range []string{"shop", "bank"} {
		given = append(given, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"env": "live"}}})
	}
	byName := func(o client.Object) []string { return []string{o.GetName()} }
	s.api = fake.NewClientBuilder().WithScheme(objects.Scheme()).WithObjects(given...).
		WithStatusSubresource(&v1beta1.ScalingPolicy{}, &v1beta1.ClusterScalingPolicy{}, &v1beta1.VerticalScaler{}).
		WithIndex(&v1beta1.ScalingPolicy{}, metav1.ObjectNameField, byName).WithIndex(&v1beta1.ClusterScalingPolicy{}, metav1.ObjectNameField, byName).
		WithIndex(&v1beta1.VerticalScaler{}, metav1.ObjectNameField, byName).Build()
	create, update, remove, status := funcs.Create, funcs.Update, funcs.Delete, funcs.SubResourceUpdate
	wrote := func(verb string, o client.Object, err error) error {
		s.tried++
		if err == nil {
			s.writes = append(s.writes, verb+" "+strings.TrimPrefix(client.ObjectKeyFromObject(o).String(), "/"))
		}
		return err
	}
	funcs.Create = func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
		s.uids++
		o.SetUID(types.UID(fmt.Sprint("scaler-", s.uids)))
		if create != nil {
			return wrote("create", o, create(ctx, c, o, options...))
		}
		return wrote("create", o, c.Create(ctx, o, options...))
	}
	funcs.Update = func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
		if update != nil {
			return wrote("update", o, update(ctx, c, o, options...))
		}
		return wrote("update", o, c.Update(ctx, o, options...))
	}
	funcs.Delete = func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
		if remove != nil {
			return wrote("delete", o, remove(ctx, c, o, options...))
		}
		return wrote("delete", o, s.delete(ctx, c, o, options...))
	}
	funcs.SubResourceUpdate = func(ctx context.Context, c client.Client, subresource string, o client.Object, options ...client.SubResourceUpdateOption) error {
		if status != nil {
			return wrote(subresource, o, status(ctx, c, subresource, o, options...))
		}
		return wrote(subresource, o, c.SubResource(subresource).Update(ctx, o, options...))
	}
	s.reconciler = &Reconciler{
		Client: interceptor.NewClient(s.api, funcs), Recorder: s.recorder, Clock: s.clock, ResyncPeriod: 10 * time.Minute, OwnNamespace: "sizing",
		ServesCluster: true,
		Live: interceptor.NewClient(s.api, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, isScaler := list.(*v1beta1.VerticalScalerList); !isScaler {
				s.live++
			}
			return c.List(ctx, list, options...)
		}}),
	}
	s.sync()
	t.Cleanup(func() { s.stop() })
	return s
}

// delete checks the precondition that the fake client does not know.
func (s *fixture) delete(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
	var how client.DeleteOptions
	how.ApplyOptions(options)
	if how.Preconditions == nil || how.Preconditions.UID == nil || how.Preconditions.ResourceVersion == nil {
		s.Error("a scaler is deleted without preconditions")
		return nil
	}
	var now v1beta1.VerticalScaler
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), &now); err == nil && now.UID != *how.Preconditions.UID {
		return apierrors.NewConflict(v1beta1.GroupVersion.WithResource("verticalscalers").GroupResource(), o.GetName(), fmt.Errorf("it is another one"))
	}
	return c.Delete(ctx, o, options...)
}

// kinds are the kinds that the reconciler has cached.
func kinds() []client.ObjectList {
	return []client.ObjectList{&v1beta1.ScalingPolicyList{}, &v1beta1.ClusterScalingPolicyList{}, &v1beta1.VerticalScalerList{}, &corev1.NamespaceList{}}
}

// sync brings the cache up to date, except for kinds that stay as they were.
func (s *fixture) sync(except ...client.ObjectList) {
	s.Helper()
	builder := fake.NewClientBuilder().WithScheme(s.api.Scheme())
	for _, list := range kinds() {
		var from client.Reader = s.api
		if slices.ContainsFunc(except, func(e client.ObjectList) bool { return reflect.TypeOf(e) == reflect.TypeOf(list) }) {
			from = s.reconciler.Cached
		}
		s.must(from.List(s.Context(), list))
		items, err := meta.ExtractList(list)
		s.must(err)
		for _, item := range items {
			if _, isNamespace := item.(*corev1.Namespace); !isNamespace { // Only their metadata is cached.
				_, err := inventory.Trim(item)
				s.must(err)
				if o, ok := item.(client.Object); ok && o.GetDeletionTimestamp() != nil {
					o.SetFinalizers([]string{"of-others"}) // The fake client requires one.
				}
			}
		}
		builder.WithRuntimeObjects(items...)
	}
	s.must((&Reconciler{Cached: indexer{builder: builder}}).Watch(s.Context()))
	s.reconciler.Cached = cached{Reader: builder.Build()}
	if s.stop != nil {
		s.stop()
	}
	ctx, cancel := context.WithCancel(s.Context())
	s.stop = cancel
	s.reconciler.Deployments = inventory.NewDeployments(plainAPI{s.api})
	go func() { _ = s.reconciler.Deployments.Start(ctx) }()
	s.must(s.reconciler.Deployments.WaitForSync(ctx))
}

func (s *fixture) must(err error) {
	s.Helper()
	must.Succeed(s, err)
}

func keyOf(name string) types.NamespacedName {
	if namespace, name, ok := strings.Cut(name, "/"); ok {
		return types.NamespacedName{Namespace: namespace, Name: name}
	}
	return types.NamespacedName{Name: name}
}

// member reconciles a Deployment such as "shop/web" from the cache.
func (s *fixture) member(deployment string) (time.Duration, error) {
	result, err := members{s.reconciler}.Reconcile(s.Context(), reconcile.Request{NamespacedName: keyOf(deployment)})
	return result.RequeueAfter, err
}

// policy reconciles a policy such as "fleet", or those of the namespace of "shop/p", from the cache.
func (s *fixture) policy(name string) (time.Duration, error) {
	key := keyOf(name)
	if key.Namespace != "" {
		key.Name = ""
	}
	result, err := s.reconciler.Reconcile(s.Context(), reconcile.Request{NamespacedName: key})
	return result.RequeueAfter, err
}

// settle reconciles everything with a fresh cache until nothing is written, as the events of all watches do.
func (s *fixture) settle() {
	s.Helper()
	for range 10 {
		s.sync()
		before := len(s.writes)
		all, err := s.reconciler.policies(s.Context(), "")
		s.must(err)
		for _, d := range s.reconciler.Deployments.All("") {
			_, err := s.member(d.Key().String())
			s.must(err)
		}
		for _, name := range s.scalers() {
			_, err := s.member(name)
			s.must(err)
		}
		s.sync()
		done := map[types.NamespacedName]bool{}
		for _, key := range all.keys {
			if key.Namespace != "" {
				key.Name = ""
			}
			if !done[key] {
				_, err := s.policy(strings.TrimPrefix(key.String(), "/"))
				s.must(err)
			}
			done[key] = true
		}
		if len(s.writes) == before {
			return
		}
	}
	s.Fatalf("writes without end: %v", s.writes)
}

// scalers are the names of all scalers.
func (s *fixture) scalers() (names []string) {
	s.Helper()
	var list v1beta1.VerticalScalerList
	s.must(s.api.List(s.Context(), &list))
	for i := range list.Items {
		names = append(names, client.ObjectKeyFromObject(&list.Items[i]).String())
	}
	return names
}

// wrote takes the writes since the last call, in order of their names.
func (s *fixture) wrote() []string {
	out := slices.Sorted(slices.Values(s.writes))
	s.writes = nil
	return out
}

// expectWrites fails unless these are the writes since the last call.
func (s *fixture) expectWrites(what string, want ...string) {
	s.Helper()
	if got := s.wrote(); !slices.Equal(got, want) {
		s.Errorf("%s: wrote %q, want %q", what, got, want)
	}
}

// recording is a queue that records added requests.
type recording struct {
	requests
	names []string
}

func (q *recording) Add(request reconcile.Request) { q.names = append(q.names, request.String()) }

func (q *recording) AddAfter(request reconcile.Request, _ time.Duration) { q.Add(request) }

// listen records the requests that a source adds. The result takes those since the last call, each once.
func (s *fixture) listen(start func(context.Context, requests) error) (requested func() []string) {
	s.Helper()
	q := &recording{}
	s.must(start(s.Context(), q))
	return func() []string {
		names := slices.Compact(slices.Sorted(slices.Values(q.names)))
		q.names = nil
		return names
	}
}

func get[T client.Object](s *fixture, name string, into T) T {
	s.Helper()
	s.must(s.api.Get(s.Context(), keyOf(name), into))
	return into
}

func (s *fixture) scaler(name string) *v1beta1.VerticalScaler {
	return get(s, name, &v1beta1.VerticalScaler{})
}

// edit changes an object as a user does.
func edit[T client.Object](s *fixture, name string, object T, change func(T)) {
	s.Helper()
	object = get(s, name, object)
	change(object)
	object.SetGeneration(object.GetGeneration() + 1)
	s.must(s.api.Update(s.Context(), object))
}

// report changes the status of a scaler as its controller does.
func (s *fixture) report(name string, change func(*v1beta1.VerticalScalerStatus)) {
	s.Helper()
	scaler := s.scaler(name)
	change(&scaler.Status)
	s.must(s.api.Status().Update(s.Context(), scaler))
}

// condition is "status reason: message" of a condition of a policy.
func (s *fixture) condition(policy, kind string) string {
	s.Helper()
	var status v1beta1.ScalingPolicyStatus
	if keyOf(policy).Namespace == "" {
		status = get(s, policy, &v1beta1.ClusterScalingPolicy{}).Status
	} else {
		status = get(s, policy, &v1beta1.ScalingPolicy{}).Status
	}
	c := meta.FindStatusCondition(status.Conditions, kind)
	if c == nil {
		return "none"
	}
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

// hasCondition fails unless a condition of a policy begins with these words.
func (s *fixture) hasCondition(policy, kind, want string) {
	s.Helper()
	if got := s.condition(policy, kind); !strings.HasPrefix(got, want) {
		s.Errorf("%s of %s is %s, want %s", kind, policy, got, want)
	}
}

func aDeployment(namespace, name string, changes ...func(*appsv1.Deployment)) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To(int32(2))}, Status: appsv1.DeploymentStatus{Replicas: 2}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("512Mi")},
	}}}
	for _, change := range changes {
		change(d)
	}
	return d
}

// aPolicy is a ScalingPolicy of namespace shop for all Deployments, without graduated trust.
func aPolicy(name string, changes ...func(*v1beta1.ScalingPolicy)) *v1beta1.ScalingPolicy {
	p := &v1beta1.ScalingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-of-shop-" + name), Generation: 1, CreationTimestamp: metav1.NewTime(noon)}}
	p.Spec.Rollout.Start, p.Spec.Template.UpdatePolicy.UpdateMode = v1beta1.UpdateModeRecommend, v1beta1.UpdateModeRecommend
	for _, change := range changes {
		change(p)
	}
	return p
}

// aClusterPolicy is a ClusterScalingPolicy for the namespaces with env: live, without graduated trust.
func aClusterPolicy(name string, changes ...func(*v1beta1.ClusterScalingPolicy)) *v1beta1.ClusterScalingPolicy {
	p := &v1beta1.ClusterScalingPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name), Generation: 1, CreationTimestamp: metav1.NewTime(noon)}}
	p.Spec.NamespaceSelector.MatchLabels = map[string]string{"env": "live"}
	p.Spec.Rollout.Start, p.Spec.Template.UpdatePolicy.UpdateMode = v1beta1.UpdateModeRecommend, v1beta1.UpdateModeRecommend
	for _, change := range changes {
		change(p)
	}
	return p
}

func annotated[T client.Object](key, value string) func(T) {
	return func(o T) { o.SetAnnotations(map[string]string{key: value}) }
}

func byHand(namespace, name, deployment string) *v1beta1.VerticalScaler {
	return &v1beta1.VerticalScaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("hand-" + name)}, Spec: v1beta1.VerticalScalerSpec{DeploymentName: deployment},
	}
}

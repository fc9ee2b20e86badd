// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaleddeployment

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/objects"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// fixture is a Reconciler on a fake client, which has no controllers and no defaults.
type fixture struct {
	*testing.T
	client.Client
	reconciler *Reconciler
	recorder   *events.FakeRecorder
	applied    []string // the kinds, in order
	deleted    int
}

// newFixture has an owner shop/web and the given objects. The functions intercept the
// requests of the reconciler.
func newFixture(t *testing.T, owner *v1beta1.ScaledDeployment, funcs interceptor.Funcs, given ...client.Object) *fixture {
	t.Helper()
	s := &fixture{T: t, recorder: events.NewFakeRecorder(20)}
	builder := fake.NewClientBuilder().WithScheme(objects.Scheme()).WithReturnManagedFields().
		WithObjects(append(given, owner)...).WithStatusSubresource(owner, &v1beta1.VerticalScaler{}, &appsv1.Deployment{})
	for _, kind := range []client.Object{&appsv1.Deployment{}, &v1beta1.VerticalScaler{}, &v1beta1.ScaledDeployment{}} {
		builder.WithIndex(kind, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} })
	}
	must.Succeed(t, inventory.Index(t.Context(), indexer{builder}))
	s.Client = builder.Build()
	apply, remove := funcs.Apply, funcs.Delete
	funcs.Apply = func(ctx context.Context, c client.WithWatch, document runtime.ApplyConfiguration, options ...client.ApplyOption) error {
		var how client.ApplyOptions
		if len(how.ApplyOptions(options).DryRun) > 0 {
			return nil // The fake client ignores dry runs.
		}
		if o, ok := document.(interface{ GetKind() string }); ok {
			s.applied = append(s.applied, o.GetKind())
		}
		if apply != nil {
			return apply(ctx, c, document, options...)
		}
		return c.Apply(ctx, document, options...)
	}
	funcs.Delete = func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
		s.deleted++
		if remove != nil {
			return remove(ctx, c, object, options...)
		}
		return c.Delete(ctx, object, options...)
	}
	withWatch, ok := s.Client.(client.WithWatch)
	if !ok {
		t.Fatal("the fake client cannot watch")
	}
	s.reconciler = &Reconciler{
		Client: interceptor.NewClient(withWatch, funcs), Live: s.Client, Recorder: s.recorder,
		Clock: clocktesting.NewFakePassiveClock(noon), ResyncPeriod: 10 * time.Minute,
	}
	return s
}

// indexer adds indexes to a fake client before it is built.
type indexer struct{ builder *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, object client.Object, field string, value client.IndexerFunc) error {
	i.builder.WithIndex(object, field, value)
	return nil
}

// reconcile reconciles once, and returns the owner after it.
func (s *fixture) reconcile() (*v1beta1.ScaledDeployment, reconcile.Result, error) {
	s.Helper()
	key := client.ObjectKey{Namespace: "shop", Name: "web"}
	result, err := s.reconciler.Reconcile(s.Context(), reconcile.Request{NamespacedName: key})
	var owner v1beta1.ScaledDeployment
	must.Succeed(s, s.Get(s.Context(), key, &owner))
	return &owner, result, err
}

func withScaling(o *v1beta1.ScaledDeployment) { o.Spec.Scaling = &v1beta1.Scaling{} }

func TestTheFirstReconcileCreatesBothObjectsAndTheNextWritesNothing(t *testing.T) {
	s := newFixture(t, anOwner(withScaling), interceptor.Funcs{})
	owner, result, err := s.reconcile()
	if err != nil || result.RequeueAfter < 10*time.Minute || result.RequeueAfter > 12*time.Minute {
		t.Fatalf("Reconcile() = %+v, %v", result, err)
	}
	if len(s.applied) != 3 || len(s.recorder.Events) != 2 {
		t.Errorf("applied %v, %d events", s.applied, len(s.recorder.Events))
	}
	version := owner.ResourceVersion
	for range 3 {
		if owner, _, err = s.reconcile(); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.applied) != 3 || owner.ResourceVersion != version || s.deleted > 0 {
		t.Errorf("applied %v, deleted %d, status %+v", s.applied, s.deleted, owner.Status)
	}
}

// A webhook may modify each object that it admits. The same document is then applied
// only once.
func TestAnObjectThatAWebhookModifiesIsAppliedOnce(t *testing.T) {
	mutate := func(ctx context.Context, c client.WithWatch, document runtime.ApplyConfiguration, options ...client.ApplyOption) error {
		if err := c.Apply(ctx, document, options...); err != nil {
			return err
		}
		d := &appsv1.Deployment{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "web"}, d); err != nil {
			return err
		}
		d.Spec.Template.Spec.Containers[0].Image = "mirror.example.com/app:1"
		if err := c.Update(ctx, d); err != nil {
			return err
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
		if err != nil {
			return err
		}
		if into, ok := document.(interface{ SetUnstructuredContent(map[string]any) }); ok {
			content["apiVersion"], content["kind"] = "apps/v1", "Deployment"
			into.SetUnstructuredContent(content)
		}
		return nil
	}
	s := newFixture(t, anOwner(), interceptor.Funcs{Apply: mutate})
	for range 5 {
		if _, _, err := s.reconcile(); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.applied) != 2 {
		t.Errorf("applied %d times", len(s.applied))
	}
	// A new document is applied.
	var owner v1beta1.ScaledDeployment
	must.Succeed(t, s.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, &owner))
	owner.Spec.Template.Spec.Containers[0].Image = "example.com/app:2"
	must.Succeed(t, s.Update(t.Context(), &owner))
	for range 5 {
		if _, _, err := s.reconcile(); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.applied) != 4 { // each with the label, and without it
		t.Errorf("applied %d times", len(s.applied))
	}
}

// The label that the admission policies require does not stay, also if the operator stops before its second request.
func TestTheLabelOfAWriteIsRemoved(t *testing.T) {
	var labels []string
	s := newFixture(t, anOwner(), interceptor.Funcs{Apply: func(ctx context.Context, c client.WithWatch, document runtime.ApplyConfiguration, options ...client.ApplyOption) error {
		if o, ok := document.(interface{ GetLabels() map[string]string }); ok {
			labels = append(labels, o.GetLabels()[v1beta1.ApplyingLabel])
		}
		if len(labels) == 2 {
			return errors.New("the operator stops")
		}
		return c.Apply(ctx, document, options...)
	}})
	stored := func() (label, hash string) {
		var d appsv1.Deployment
		must.Succeed(t, s.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, &d))
		return d.Labels[v1beta1.ApplyingLabel], appliedHash(&d)
	}
	if _, _, err := s.reconcile(); err == nil {
		t.Error("the reconcile does not fail")
	}
	if label, hash := stored(); label != "true" || hash != "" {
		t.Errorf("before the second request, the label is %q and the hash %q", label, hash)
	}
	for range 3 {
		if _, _, err := s.reconcile(); err != nil {
			t.Fatal(err)
		}
	}
	if label, hash := stored(); label != "" || hash == "" || !slices.Equal(labels, []string{"true", "", "true", ""}) {
		t.Errorf("the label is %q, the hash %q, and the requests had %q", label, hash, labels)
	}
}

func TestErrorsAreClassified(t *testing.T) {
	deployments := schema.GroupResource{Group: "apps", Resource: "deployments"}
	invalid := apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "Deployment"}, "web", nil)
	refuse := func(err error) interceptor.Funcs {
		return interceptor.Funcs{Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			return err
		}}
	}
	failGet := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
		if _, ok := into.(*appsv1.Deployment); ok {
			return errors.New("no cache")
		}
		return c.Get(ctx, key, into, options...)
	}}
	failList := interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return errors.New("no cache")
	}}
	for name, tc := range map[string]struct {
		funcs   interceptor.Funcs
		stalled string // the reason; "" if not stalled
		ready   string
		fails   bool
		after   time.Duration // at most
	}{
		"a rejection":          {refuse(invalid), "Rejected", "Rejected", false, time.Minute},
		"a missing permission": {refuse(apierrors.NewForbidden(deployments, "web", errors.New(`User "x" cannot patch resource "deployments"`))), "Forbidden", "Forbidden", false, time.Minute},
		"a lost connection":    {refuse(errors.New("connection refused")), "", "Unknown", true, 0},
		"an internal error":    {refuse(apierrors.NewInternalError(errors.New("etcd"))), "", "Unknown", true, 0},
		"a stale cache":        {refuse(apierrors.NewConflict(deployments, "web", errors.New("changed"))), "", "", false, time.Second},
		"a failed read":        {failGet, "", "Unknown", true, 0},
		"a failed list":        {failList, "", "Unknown", true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t, anOwner(), tc.funcs)
			owner, result, err := s.reconcile()
			if (err != nil) != tc.fails || result.RequeueAfter > tc.after {
				t.Errorf("Reconcile() = %+v, %v", result, err)
			}
			var stalled, ready string
			if c := meta.FindStatusCondition(owner.Status.Conditions, "Stalled"); c != nil && c.Status == metav1.ConditionTrue {
				stalled = c.Reason
			}
			if c := meta.FindStatusCondition(owner.Status.Conditions, "Ready"); c != nil {
				ready = c.Reason
			}
			if stalled != tc.stalled || ready != tc.ready {
				t.Errorf("reason of Stalled %q, of Ready %q; want %q, %q", stalled, ready, tc.stalled, tc.ready)
			}
		})
	}
}

// The admission policy may know an older version of the owner than the operator does.
func TestARejectionByThePolicyIsReportedOnceThePolicyKnowsTheOwner(t *testing.T) {
	denied := apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "deployments"}, "web",
		errors.New("ValidatingAdmissionPolicy 'verticalscaler-operator-owned' with binding 'verticalscaler-operator-owned' denied request: no"))
	s := newFixture(t, anOwner(), interceptor.Funcs{
		Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			return denied
		},
	})
	expect := func(reported bool) {
		t.Helper()
		owner, result, err := s.reconcile()
		c := meta.FindStatusCondition(owner.Status.Conditions, "Stalled")
		if got := c != nil && c.Status == metav1.ConditionTrue && c.Reason == "Rejected" && c.ObservedGeneration == owner.Generation; err != nil || got != reported {
			t.Errorf("Reconcile() = %+v, %v; condition %+v, reported: want %t", result, err, c, reported)
		}
		if soon := result.RequeueAfter <= 5*time.Second; soon == reported {
			t.Errorf("retried in %s", result.RequeueAfter)
		}
	}
	after := func(d time.Duration) {
		s.reconciler.Clock = clocktesting.NewFakePassiveClock(noon.Add(d))
	}
	expect(false)
	after(39 * time.Second)
	expect(false)
	after(41 * time.Second)
	expect(true)
	after(time.Minute)
	expect(true)

	// A change of the owner is another chance.
	var owner v1beta1.ScaledDeployment
	must.Succeed(t, s.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, &owner))
	owner.Generation++
	must.Succeed(t, s.Update(t.Context(), &owner))
	expect(false)
}

// Another client keeps writing the object. The operator retries conflicts in a row less and less often,
// whether they are about the Deployment or the status.
func TestConflictsBackOff(t *testing.T) {
	changed := apierrors.NewConflict(schema.GroupResource{Resource: "any"}, "web", errors.New("changed"))
	conflicts := true
	s := newFixture(t, anOwner(), interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, subresource string, o client.Object, options ...client.SubResourceUpdateOption) error {
			if conflicts {
				return changed
			}
			return c.SubResource(subresource).Update(ctx, o, options...)
		},
	})
	for _, want := range []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond} {
		if _, result, err := s.reconcile(); err != nil || result.RequeueAfter != want {
			t.Errorf("Reconcile() = %+v, %v, want a retry in %s", result, err, want)
		}
	}
	conflicts = false
	if _, result, err := s.reconcile(); err != nil || result.RequeueAfter < time.Minute {
		t.Errorf("Reconcile() = %+v, %v, want the resync", result, err)
	}
	conflicts = true
	owner := &v1beta1.ScaledDeployment{}
	must.Succeed(t, s.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, owner))
	owner.Status = v1beta1.ScaledDeploymentStatus{}
	must.Succeed(t, s.Status().Update(t.Context(), owner))
	if _, result, err := s.reconcile(); err != nil || result.RequeueAfter != 50*time.Millisecond {
		t.Errorf("the first conflict after a success: %+v, %v, want a retry in 50ms", result, err)
	}
}

// The cache is stale: the API server has a Deployment that the cache lacks.
func TestADeploymentMissingFromTheCacheIsNotAdopted(t *testing.T) {
	// Equal to the owner's spec, but without a controller.
	document, err := deploymentFor(anOwner(), nil)
	must.Succeed(t, err)
	foreign := typed(t, document)
	foreign.OwnerReferences, foreign.Labels, foreign.Annotations = nil, nil, nil
	foreign.ManagedFields = nil
	stale := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
		if _, ok := into.(*appsv1.Deployment); ok {
			return apierrors.NewNotFound(schema.GroupResource{Group: "apps", Resource: "deployments"}, key.Name)
		}
		return c.Get(ctx, key, into, options...)
	}}
	s := newFixture(t, anOwner(), stale, foreign)
	if _, _, err := s.reconcile(); err != nil {
		t.Fatal(err)
	}
	var now appsv1.Deployment
	must.Succeed(t, s.Get(t.Context(), client.ObjectKeyFromObject(foreign), &now))
	if len(now.OwnerReferences)+len(now.Labels) > 0 {
		t.Errorf("it was adopted: %v, %v", now.OwnerReferences, now.Labels)
	}
}

func TestADeletedOwnerIsLeftToTheGarbageCollector(t *testing.T) {
	owner := anOwner(withScaling, func(o *v1beta1.ScaledDeployment) {
		o.DeletionTimestamp, o.Finalizers = &metav1.Time{Time: noon}, []string{"foregroundDeletion"}
	})
	s := newFixture(t, owner, interceptor.Funcs{})
	after, result, err := s.reconcile()
	if err != nil || result.RequeueAfter != 0 || len(s.applied)+s.deleted > 0 || len(after.Status.Conditions) > 0 {
		t.Errorf("Reconcile() = %+v, %v; applied %v, deleted %d", result, err, s.applied, s.deleted)
	}
}

// cacheWithout is a cache that has not seen an object yet.
func cacheWithout(kind client.Object, name string) interceptor.Funcs {
	return interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
		if reflect.TypeOf(into) == reflect.TypeOf(kind) && key.Name == name {
			return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
		}
		return c.Get(ctx, key, into, options...)
	}}
}

// ownedDeployment is the Deployment that the owner asks for, with another name.
func ownedDeployment(t *testing.T, owner *v1beta1.ScaledDeployment, name string) *appsv1.Deployment {
	t.Helper()
	document, err := deploymentFor(owner, nil)
	must.Succeed(t, err)
	d := typed(t, document)
	d.Name = name
	return d
}

// names are the names of all Deployments.
func (s *fixture) names() (names []string) {
	s.Helper()
	var list appsv1.DeploymentList
	must.Succeed(s, s.List(s.Context(), &list))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

func withOtherName(o *v1beta1.ScaledDeployment) { o.Spec.DeploymentName = "web-v2" }

// The label may have been removed. Only the owner reference counts.
func TestAPreviousDeploymentIsFoundWithoutItsLabel(t *testing.T) {
	previous := ownedDeployment(t, anOwner(), "web")
	previous.Labels = nil
	s := newFixture(t, anOwner(withOtherName), interceptor.Funcs{Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
		return nil // The deletion takes time.
	}}, previous)
	for range 2 {
		owner, _, err := s.reconcile()
		must.Succeed(t, err)
		if c := meta.FindStatusCondition(owner.Status.Conditions, "Ready"); c.Reason != "Replacing" {
			t.Errorf("Ready is %+v", c)
		}
	}
	if got := s.names(); len(got) != 1 || s.deleted == 0 {
		t.Errorf("Deployments %v, %d deletions", got, s.deleted)
	}
}

func TestAPreviousDeploymentIsKeptWhenTheNewNameIsTakenButNotYetCached(t *testing.T) {
	taken := ownedDeployment(t, anOwner(withOtherName), "web-v2")
	taken.OwnerReferences, taken.Labels, taken.Annotations = nil, nil, nil
	s := newFixture(t, anOwner(withOtherName), cacheWithout(&appsv1.Deployment{}, "web-v2"), ownedDeployment(t, anOwner(), "web"), taken)
	_, result, err := s.reconcile()
	if err != nil || result.RequeueAfter > time.Second || s.deleted > 0 || len(s.names()) != 2 {
		t.Errorf("Reconcile() = %+v, %v; %d deletions, Deployments %v", result, err, s.deleted, s.names())
	}
}

func TestNothingIsCreatedForADeletedOwnerInAStaleCache(t *testing.T) {
	deleted := anOwner(withScaling, func(o *v1beta1.ScaledDeployment) {
		o.DeletionTimestamp, o.Finalizers = &metav1.Time{Time: noon}, []string{"foregroundDeletion"}
	})
	s := newFixture(t, deleted, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
		err := c.Get(ctx, key, into, options...)
		if owner, ok := into.(*v1beta1.ScaledDeployment); ok {
			owner.DeletionTimestamp = nil
		}
		return err
	}})
	_, result, err := s.reconcile()
	if err != nil || result.RequeueAfter > time.Second || len(s.applied) > 0 {
		t.Errorf("Reconcile() = %+v, %v; applied %v", result, err, s.applied)
	}
}

func TestChangesAreRecordedWhenALaterPhaseFails(t *testing.T) {
	s := newFixture(t, anOwner(withScaling), interceptor.Funcs{Apply: func(ctx context.Context, c client.WithWatch, document runtime.ApplyConfiguration, options ...client.ApplyOption) error {
		if o, ok := document.(interface{ GetKind() string }); ok && o.GetKind() == "VerticalScaler" {
			return apierrors.NewConflict(schema.GroupResource{}, "web", errors.New("changed"))
		}
		return c.Apply(ctx, document, options...)
	}})
	for range 3 {
		if _, _, err := s.reconcile(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.recorder.Events); n != 1 {
		t.Fatalf("%d events", n)
	}
	if got := <-s.recorder.Events; !strings.Contains(got, "Created Deployment web") {
		t.Errorf("event: %s", got)
	}
}

func TestSizedIsReportedWhileTheDeploymentIsRejected(t *testing.T) {
	scaler := &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", OwnerReferences: ownedDeployment(t, anOwner(), "web").OwnerReferences}}
	scaler.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True", Reason: "OperatingNormally", Message: "Operating normally"}}
	taken := ownedDeployment(t, anOwner(withOtherName), "web-v2")
	taken.OwnerReferences = nil
	s := newFixture(t, anOwner(withScaling, withOtherName), interceptor.Funcs{}, ownedDeployment(t, anOwner(), "web"), taken, scaler)
	owner, _, err := s.reconcile()
	must.Succeed(t, err)
	if c := meta.FindStatusCondition(owner.Status.Conditions, "Sized"); c == nil || c.Status != "True" || c.Reason != "OperatingNormally" {
		t.Errorf("Sized is %+v", c)
	}
	if c := meta.FindStatusCondition(owner.Status.Conditions, "Stalled"); c == nil || c.Reason != "NotControlled" {
		t.Errorf("Stalled is %+v", c)
	}
}

// A deletion must not hit an object that has replaced the one that was read.
func TestADeletionHasPreconditions(t *testing.T) {
	var preconditions metav1.Preconditions
	s := newFixture(t, anOwner(withOtherName), interceptor.Funcs{Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, options ...client.DeleteOption) error {
		var o client.DeleteOptions
		preconditions = *o.ApplyOptions(options).Preconditions
		return nil
	}}, ownedDeployment(t, anOwner(), "web"))
	if _, _, err := s.reconcile(); err != nil {
		t.Fatal(err)
	}
	if preconditions.UID == nil || preconditions.ResourceVersion == nil || *preconditions.ResourceVersion == "" {
		t.Errorf("preconditions %+v", preconditions)
	}
}

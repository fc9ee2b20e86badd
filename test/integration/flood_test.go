// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

const (
	// floodOfKind is the number of large objects of each kind. Each has about 1.2 MiB, so those of one kind exceed mostKept.
	floodOfKind = 8
	// mostKept limits the heap that an operator keeps of all objects. mostLive includes the buffers of the watches: each is as large as
	// the largest object of its kind.
	mostKept, mostLive = 8 << 20, 64 << 20
	// mostRounds is the number of rounds of changes until an OOM kill is answered. The rounds are the clock of the test: on a slow
	// machine, they are slow as well.
	mostRounds = 8
)

// Two users fill their namespaces with the largest objects that the API server accepts, and change and replace them. Meanwhile, the
// operator answers an OOM kill in another namespace, and its heap stays small. So does the next operator, which starts with all of them.
func TestAFloodOfLargeObjectsDelaysNoOtherNamespace(t *testing.T) {
	ownServer(t)
	shop := env.Namespace(t)
	for _, name := range []string{"web", "api"} {
		must.Succeed(t, scaled(t.Context(), shop, name, v1beta1.UpdateModeInPlace))
	}
	watches, f := breakable(t), newFlood(t)
	var operator *testkit.Operator
	var before int64
	start := func() {
		t.Helper()
		before = liveHeap()
		operator = env.StartOperator(t, testkit.OperatorConfig(), testkit.NewUsage())
	}
	stop := func() {
		t.Helper()
		operator.Settle(t)
		live := liveHeap() - before
		watches.begin(t) // During an outage, the watches have no buffers.
		watches.isComplete(t)
		kept := liveHeap() - before
		operator.Stop(t)
		watches.end(t)
		t.Logf("after %d MiB in all versions, %.1f MiB are kept, and %.1f MiB with buffers", f.written.Load()>>20, float64(kept)/(1<<20), float64(live)/(1<<20))
		if kept > mostKept || live > mostLive {
			t.Errorf("more than %d MiB, or %d MiB with buffers", mostKept>>20, mostLive>>20)
		}
	}

	start()
	sees(t, shop, "web", present)
	sees(t, shop, "api", present)
	stop() // The next operators find the caches of all libraries filled.

	start()
	for i := range floodOfKind {
		f.each(t, func(ctx context.Context, k floodedKind) error { return f.create(ctx, k, i) })
	}
	kill(t, shop, "web")
	f.changesUntilRaised(t, shop, "web")
	stop()

	kill(t, shop, "api")
	start()
	f.changesUntilRaised(t, shop, "api")
	stop()
}

// ownServer runs the test with an API server of its own, which ends with its large objects.
func ownServer(t *testing.T) {
	t.Helper()
	shared := env
	own, err := testkit.Start()
	must.Succeed(t, err)
	env = own
	t.Cleanup(func() {
		env = shared
		must.Succeed(t, own.Stop())
	})
}

// kill records an OOM kill of the only pod of a Deployment.
func kill(t *testing.T, namespace, deployment string) {
	t.Helper()
	killed := pod(t, namespace, deployment)
	world.OOMKill(killed, "app", metav1.Now())
	must.Succeed(t, env.Client.Status().Update(t.Context(), killed))
}

// isRaised reports whether the only pod of a Deployment requests more memory than its template.
func isRaised(t *testing.T, namespace, deployment string) bool {
	t.Helper()
	of := testkit.Container("app").Resources.Requests
	return pod(t, namespace, deployment).Spec.Containers[0].Resources.Requests.Memory().Cmp(*of.Memory()) > 0
}

// liveHeap is the live heap of the process: that of the operator, because the test keeps no large object.
func liveHeap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // empties the pools, too
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// flood is the objects of two users in their namespaces.
type flood struct {
	kinds   [][]floodedKind // of each user
	rounds  int
	written atomic.Int64 // bytes of all versions
}

// floodedKind is the objects of a kind in the namespace of a user.
type floodedKind struct {
	user      client.Client
	namespace string
	// controller is the kind of the objects' controller.
	controller metav1.OwnerReference
	build      func(meta metav1.ObjectMeta, i int) client.Object
	// spec is a change of the spec in each round, if any.
	spec string
}

func newFlood(t *testing.T) *flood {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Root(), "config", "rbac", "editor.yaml"))
	must.Succeed(t, err)
	roles, err := testkit.Decoded(text)
	must.Succeed(t, err)
	env.Create(t, roles[0])
	// No controller aggregates the role edit here: this is its own part.
	user, namespace := tenantOf(t, "system:aggregate-to-edit")
	editor, edited := tenantOf(t, roles[0].GetName())
	apps := func(kind string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "apps/v1", Kind: kind}
	}
	owner, other := metav1.OwnerReference{APIVersion: v1beta1.GroupVersion.String(), Kind: "ScaledDeployment"}, apps("StatefulSet")
	return &flood{kinds: [][]floodedKind{{
		{user, namespace, owner, largeDeployment, `{"minReadySeconds":%d}`},
		{user, namespace, apps("Deployment"), largeSet, `{"minReadySeconds":%d}`},
		{user, namespace, apps("ReplicaSet"), largePod, ""},
		{user, namespace, other, largeHPA, `{"maxReplicas":%d}`},
		{user, namespace, other, largeEvent, ""},
	}, {
		{editor, edited, other, largeScaler, `{"updatePolicy":{"cooldownSeconds":%d}}`},
		{editor, edited, other, largePolicy, `{"priority":%d}`},
		{editor, edited, other, largeOwner, `{"replicas":%d}`},
		{env.Client, edited, other, largeSizes, ""}, // Only the operator has the right.
	}}}
}

// tenantOf is a user who has a role in a namespace, and no other rights.
func tenantOf(t *testing.T, role string) (user client.Client, namespace string) {
	t.Helper()
	namespace = env.Namespace(t)
	name := "user-of-" + namespace
	env.Create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "user"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	})
	config := rest.CopyConfig(env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:authenticated"}}
	user, err := client.New(config, client.Options{Scheme: env.Client.Scheme(), Mapper: env.Client.RESTMapper()})
	must.Succeed(t, err)
	return user, namespace
}

// each calls a function with each kind, for both users at once.
func (f *flood) each(t *testing.T, do func(context.Context, floodedKind) error) {
	t.Helper()
	testkit.InParallel(t, len(f.kinds), func(user int) error {
		for _, kind := range f.kinds[user] {
			if err := do(t.Context(), kind); err != nil {
				return err
			}
		}
		return nil
	})
}

// changesUntilRaised makes rounds of changes until the only pod of a Deployment has more memory.
func (f *flood) changesUntilRaised(t *testing.T, namespace, deployment string) {
	t.Helper()
	for rounds := range mostRounds {
		if isRaised(t, namespace, deployment) {
			t.Logf("the OOM kill was answered within %d rounds", rounds)
			return
		}
		f.rounds++
		f.each(t, f.change)
	}
	t.Fatalf("%d rounds of changes have passed, and the OOM kill was not answered: %+v", mostRounds, scaler(t, namespace, deployment).Status)
}

func (f *flood) create(ctx context.Context, k floodedKind, i int) error {
	o := k.object(i)
	if err := k.user.Create(ctx, o); err != nil {
		return fmt.Errorf("creating %T: %w", o, err)
	}
	return f.note(o)
}

// change changes one object, or replaces it in every third round.
func (f *flood) change(ctx context.Context, k floodedKind) error {
	i := f.rounds % floodOfKind
	o := k.object(i)
	if f.rounds%3 == 0 {
		if err := k.user.Delete(ctx, o, client.GracePeriodSeconds(0)); err != nil {
			return fmt.Errorf("deleting %T: %w", o, err)
		}
		return f.create(ctx, k, i)
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{"round":"%d"}}}`, f.rounds)
	if k.spec != "" {
		patch = fmt.Sprintf(`{"metadata":{"labels":{"round":"%d"}},"spec":%s}`, f.rounds, fmt.Sprintf(k.spec, f.rounds))
	}
	if err := k.user.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("changing %T: %w", o, err)
	}
	return f.note(o)
}

// note adds the size of a version of an object.
func (f *flood) note(o client.Object) error {
	text, err := json.Marshal(o)
	f.written.Add(int64(len(text)))
	return err
}

// object is one of the objects, whose metadata has 600 KiB.
func (k floodedKind) object(i int) client.Object {
	controller := k.controller
	controller.Name, controller.UID, controller.Controller = nameOf(i), types.UID(nameOf(i)), ptr.To(true)
	meta := metav1.ObjectMeta{
		Namespace: k.namespace, Name: nameOf(i), Labels: map[string]string{}, Annotations: map[string]string{v1beta1.PausedAnnotation: large(i, 200)},
		OwnerReferences: []metav1.OwnerReference{controller, {APIVersion: "v1", Kind: "ConfigMap", UID: "another", Name: large(i, 350)}},
	}
	for n := range 300 {
		meta.Labels[fmt.Sprintf("tenant.example.com/label-%d-of-object-%d", n, i)] = strings.Repeat("v", 63)
	}
	return k.build(meta, i)
}

// large is a text of some KiB that differs in each object.
func large(i, kib int) string { return strings.Repeat(fmt.Sprintf("%08d", i), kib<<7) }

// largeTemplate has a variable of 600 KiB. Odd ones have many containers.
func largeTemplate(i int) corev1.PodTemplateSpec {
	containers := []corev1.Container{testkit.Container("app")}
	containers[0].Env = []corev1.EnvVar{{Name: "X", Value: large(i, 600)}}
	for n := range i % 2 * 100 {
		containers = append(containers, testkit.Container(fmt.Sprintf("container-%d-of-object-%d", n, i)))
	}
	labels := map[string]string{"app": nameOf(i)}
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: containers}}
}

// largeScaling is the largest specification of a scaler for odd objects.
func largeScaling(i int) (s v1beta1.Scaling) {
	if i%2 == 0 {
		return s
	}
	bounds := func() *v1beta1.ResourceBounds {
		return &v1beta1.ResourceBounds{CPU: ptr.To(resource.MustParse("100m")), Memory: ptr.To(resource.MustParse("100Mi"))}
	}
	s.ResourcePolicy = &v1beta1.ResourcePolicy{}
	for n := range 32 {
		s.ResourcePolicy.ContainerPolicies = append(s.ResourcePolicy.ContainerPolicies, v1beta1.ContainerPolicy{
			ContainerName: fmt.Sprintf("%s-%d", strings.Repeat("c", 60), n), MinAllowed: bounds(), MaxAllowed: bounds(),
			Limits: &v1beta1.LimitPolicy{MinAllowed: bounds(), MaxAllowed: bounds()},
		})
	}
	for range 16 {
		s.UpdatePolicy.Windows = append(s.UpdatePolicy.Windows, v1beta1.UpdateWindow{Schedule: "0 2 * * SAT", TimeZone: "Europe/Berlin", DurationMinutes: 60})
	}
	return s
}

func largeDeployment(meta metav1.ObjectMeta, i int) client.Object {
	template := largeTemplate(i)
	return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template}}
}

func largeSet(meta metav1.ObjectMeta, i int) client.Object {
	template := largeTemplate(i)
	return &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template}}
}

func largePod(meta metav1.ObjectMeta, i int) client.Object {
	pod := &corev1.Pod{ObjectMeta: meta, Spec: largeTemplate(i).Spec}
	pod.Spec.NodeName = testkit.NodeName
	for n := range pod.Spec.Containers {
		pod.Spec.Containers[n].Resources = corev1.ResourceRequirements{} // The node stays free.
	}
	return pod
}

func largeHPA(meta metav1.ObjectMeta, _ int) client.Object {
	h := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta}
	h.Spec.MaxReplicas, h.Spec.ScaleTargetRef = 100, autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: meta.Name}
	for range 5_000 {
		h.Spec.Metrics = append(h.Spec.Metrics, autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
			Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To[int32](50)},
		}})
	}
	return h
}

func largeEvent(meta metav1.ObjectMeta, i int) client.Object {
	return &corev1.Event{
		ObjectMeta: meta, InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: meta.Namespace, Name: meta.Name},
		Type: corev1.EventTypeWarning, Reason: "OOMKilling", Message: large(i, 600),
	}
}

func largeScaler(meta metav1.ObjectMeta, i int) client.Object {
	meta.OwnerReferences[1].Name += large(i, 500)
	return &v1beta1.VerticalScaler{ObjectMeta: meta, Spec: v1beta1.VerticalScalerSpec{DeploymentName: meta.Name, Scaling: largeScaling(i)}}
}

func largePolicy(meta metav1.ObjectMeta, i int) client.Object {
	meta.OwnerReferences[1].Name += large(i, 300)
	p := &v1beta1.ScalingPolicy{ObjectMeta: meta}
	p.Spec.Template, p.Spec.Exclude = largeScaling(i), &v1beta1.DeploymentExclusions{}
	for n := range 256 {
		p.Spec.Exclude.Deployments = append(p.Spec.Exclude.Deployments, fmt.Sprintf("%s-%d", strings.Repeat("d", 249), n))
	}
	selector := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpNotIn}}}
	for n := range 3_000 {
		selector.MatchExpressions[0].Values = append(selector.MatchExpressions[0].Values, fmt.Sprintf("%s-%d", strings.Repeat("v", 55), n))
	}
	if i%2 == 0 {
		p.Spec.DeploymentSelector = selector
	} else {
		p.Spec.Exclude.DeploymentSelector = selector
	}
	return p
}

func largeOwner(meta metav1.ObjectMeta, i int) client.Object {
	return &v1beta1.ScaledDeployment{ObjectMeta: meta, Spec: v1beta1.ScaledDeploymentSpec{Template: largeTemplate(i), Scaling: &v1beta1.Scaling{}}}
}

func largeSizes(meta metav1.ObjectMeta, i int) client.Object {
	meta.OwnerReferences[1].Name += large(i, 600)
	return &v1beta1.NewPodSizes{ObjectMeta: meta, Spec: v1beta1.NewPodSizesSpec{Deployments: "\n"}}
}

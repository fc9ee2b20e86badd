// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

func TestWhatAFleetKnowsOfADeployment(t *testing.T) {
	d := richDeployment(2)
	d.Labels = map[string]string{"app": "web"}
	d.Annotations = map[string]string{v1beta1.ExcludeAnnotation: "ask team web"}
	controlledBy(d, v1beta1.GroupVersion.String(), v1beta1.ScaledDeploymentKind, "owner")
	requests := map[string]quantity.Amounts{}
	for _, c := range d.Spec.Template.Spec.Containers {
		requests[c.Name] = quantity.Amounts{CPUMillis: c.Resources.Requests.Cpu().MilliValue(), MemoryBytes: c.Resources.Requests.Memory().Value()}
	}
	want := &fleet.Deployment{Namespace: "shop", Name: "web", Labels: d.Labels, Excluded: true, IsOwned: true, Replicas: 3, Requests: requests}
	assert.Equal(t, "ReadForFleet()", want, ReadForFleet(d))
	bare := ReadForFleet(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "bare"}})
	assert.Equal(t, "a bare Deployment", &fleet.Deployment{Namespace: "shop", Name: "bare", Requests: map[string]quantity.Amounts{}}, bare)
	stopped := richDeployment(1)
	stopped.Spec.Replicas = ptr.To(int32(0))
	if got := ReadForFleet(stopped); got.Replicas != 0 || got.IsOwned || got.Excluded {
		t.Errorf("a stopped Deployment: %+v", got)
	}
}

func TestWhichChangesOfDeploymentsAreReported(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*appsv1.Deployment)
		want   bool
	}{
		"nothing":                   {func(*appsv1.Deployment) {}, false},
		"the status":                {func(d *appsv1.Deployment) { d.Status = appsv1.DeploymentStatus{Replicas: d.Status.Replicas} }, false},
		"the resource version":      {func(d *appsv1.Deployment) { d.ResourceVersion, d.Generation = "9", 8 }, false},
		"the image":                 {func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "example.com/app:2" }, false},
		"another annotation":        {func(d *appsv1.Deployment) { d.Annotations["x"] = "y" }, false},
		"labels of the pods":        {func(d *appsv1.Deployment) { d.Spec.Template.Labels["x"] = "y" }, false},
		"an annotation that is off": {func(d *appsv1.Deployment) { d.Annotations[v1beta1.ExcludeAnnotation] = "false" }, false},
		"an owner that does not control": {func(d *appsv1.Deployment) {
			d.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1beta1.GroupVersion.String(), Kind: v1beta1.ScaledDeploymentKind, Name: "web", UID: "a"}}
		}, false},
		"a label":              {func(d *appsv1.Deployment) { d.Labels["x"] = "y" }, true},
		"the value of a label": {func(d *appsv1.Deployment) { d.Labels["app.kubernetes.io/name"] = "other" }, true},
		"no labels":            {func(d *appsv1.Deployment) { d.Labels = nil }, true},
		"an exclusion":         {func(d *appsv1.Deployment) { d.Annotations[v1beta1.ExcludeAnnotation] = "" }, true},
		"the replicas":         {func(d *appsv1.Deployment) { d.Spec.Replicas = nil }, true},
		"the pods that exist":  {func(d *appsv1.Deployment) { d.Status.Replicas = 2 }, true},
		"a request": {func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[1].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("777m")
		}, true},
		"a container": {func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers = d.Spec.Template.Spec.Containers[:1] }, true},
		"a controller": {func(d *appsv1.Deployment) {
			controlledBy(d, v1beta1.GroupVersion.String(), v1beta1.ScaledDeploymentKind, "a")
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			before, changed := richDeployment(2), richDeployment(2)
			tc.change(changed)
			want := ReadForFleet(changed.DeepCopy())
			known, after := newDeploymentRecord(before), newDeploymentRecord(changed)
			if got := !isSameDeployment(known.seen, after.seen); got != tc.want {
				t.Errorf("it has changed: %t, want %t", got, tc.want)
			}
			assert.Equal(t, "the record", want, after.seen)
		})
	}
}

// plainAPI cannot stream a list.
type plainAPI struct{ client.WithWatch }

func (plainAPI) IsWatchListSemanticsUnSupported() bool { return true }

// The watch is a real one: a Deployments of two namespaces does not know the Deployments of others.
func TestAFleetWatchesItsNamespaces(t *testing.T) {
	in := func(namespace, name string) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	api := apiOf(t, interceptor.Funcs{}, in("shop", "web"), in("bank", "ledger"), in("other", "hidden"))
	f := NewDeployments(plainAPI{api}, "shop", "bank")
	var mu sync.Mutex
	reported := map[string]bool{}
	news := make(chan struct{}, 100)
	f.OnChange(func(key types.NamespacedName) {
		mu.Lock()
		reported[key.String()] = true
		mu.Unlock()
		news <- struct{}{}
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	if err := f.WaitForSync(canceled(ctx)); err == nil {
		t.Error("synced before the start")
	}
	go func() { ended <- f.Start(ctx) }()
	must.Succeed(t, f.WaitForSync(ctx))
	if f.Get(types.NamespacedName{Namespace: "shop", Name: "web"}) == nil || len(f.All("")) != 2 || f.Get(types.NamespacedName{Namespace: "other", Name: "hidden"}) != nil {
		t.Errorf("known: %v", f.All(""))
	}
	must.Succeed(t, api.Create(ctx, in("bank", "later")))
	must.Succeed(t, api.Create(ctx, in("other", "later")))
	<-news
	mu.Lock()
	assert.Equal(t, "reported", []string{"bank/later"}, slices.Sorted(maps.Keys(reported)))
	mu.Unlock()
	cancel()
	must.Succeed(t, <-ended)
}

// canceled is a context that has ended.
func canceled(parent context.Context) context.Context {
	ctx, cancel := context.WithCancel(parent)
	cancel()
	return ctx
}

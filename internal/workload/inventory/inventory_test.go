// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/objects"
)

var (
	deploymentKind = appsv1.SchemeGroupVersion.WithKind("Deployment")
	replicaSetKind = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
)

func TestPodsOf(t *testing.T) {
	web := webDeployment()
	former := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "former-web"}}
	other := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other", UID: "other"}}
	rollout := &metav1.OwnerReference{APIVersion: "argoproj.io/v1alpha1", Kind: "Rollout", Name: "web", UID: "rollout", Controller: ptr.To(true)}

	numbered := func(name, revision string) client.Object {
		s := set(name, 0, ownedBy(web))
		s.Annotations = map[string]string{revisionAnnotation: revision}
		return s
	}

	cases := map[string]struct {
		objects []client.Object
		want    []string // names; "*" marks the latest template
	}{
		"no ReplicaSet, no pods": {},
		"the pods of its ReplicaSets": {
			objects: []client.Object{
				set("web-1", 1, ownedBy(web)), pod("web-1-a", ownedBySet("web-1")),
				set("web-2", 2, ownedBy(web)), pod("web-2-a", ownedBySet("web-2")), pod("web-2-b", ownedBySet("web-2")),
			},
			want: []string{"web-1-a", "web-2-a*", "web-2-b*"},
		},
		"revisions are numbers: 10 is newer than 9": {
			objects: []client.Object{
				set("web-10", 10, ownedBy(web)), pod("new", ownedBySet("web-10")),
				set("web-9", 9, ownedBy(web)), pod("old", ownedBySet("web-9")),
			},
			want: []string{"new*", "old"},
		},
		"after a rollback the old ReplicaSet has the newest revision": {
			objects: []client.Object{
				set("web-a", 3, ownedBy(web)), pod("back", ownedBySet("web-a")),
				set("web-b", 2, ownedBy(web)), pod("bad", ownedBySet("web-b")),
			},
			want: []string{"back*", "bad"},
		},
		"a ReplicaSet without a revision is older than any with one": {
			objects: []client.Object{
				set("web-none", 0, ownedBy(web)), pod("a", ownedBySet("web-none")),
				set("web-1", 1, ownedBy(web)), pod("b", ownedBySet("web-1")),
			},
			want: []string{"a", "b*"},
		},
		"a revision that is no positive number counts as none": {
			objects: []client.Object{
				numbered("web-a", "-5"), pod("a", ownedBySet("web-a")), numbered("web-b", "0x10"), pod("b", ownedBySet("web-b")),
				set("web-1", 1, ownedBy(web)), pod("c", ownedBySet("web-1")),
			},
			want: []string{"a", "b", "c*"},
		},
		"the only ReplicaSet is the newest, numbered or not": {
			objects: []client.Object{set("web-none", 0, ownedBy(web)), pod("a", ownedBySet("web-none"))},
			want:    []string{"a*"},
		},
		"a pod that only has the same labels is left out": {
			objects: []client.Object{
				set("web-1", 1, ownedBy(web)), pod("web-1-a", ownedBySet("web-1")),
				pod("lonely", nil),
				set("other-1", 7, ownedBy(other)), pod("other-1-a", ownedBySet("other-1")),
				set("bare", 8, nil), pod("bare-a", ownedBySet("bare")),
				set("argo", 9, rollout), pod("argo-a", ownedBySet("argo")),
				pod("direct", ownedBy(web)),
			},
			want: []string{"web-1-a*"},
		},
		"a Deployment with the same name and another UID is left out": {
			objects: []client.Object{set("web-1", 1, ownedBy(former)), pod("orphan", ownedBySet("web-1"))},
		},
		"an owner that is not the controller is ignored": {
			objects: []client.Object{
				set("web-1", 1, notController(ownedBy(web))), pod("a", ownedBySet("web-1")),
				set("web-2", 2, ownedBy(web)), pod("b", notController(ownedBySet("web-2"))),
			},
		},
		"another namespace is ignored": {
			objects: []client.Object{
				in("bank", set("web-1", 1, ownedBy(web))), in("bank", pod("a", ownedBySet("web-1"))),
				set("web-2", 2, ownedBy(web)), in("bank", pod("b", ownedBySet("web-2"))),
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var sets []metav1.PartialObjectMetadata
			var pods []corev1.Pod
			for _, object := range tc.objects {
				switch o := object.(type) {
				case *appsv1.ReplicaSet:
					sets = append(sets, metav1.PartialObjectMetadata{ObjectMeta: o.ObjectMeta})
				case *corev1.Pod:
					pods = append(pods, *o)
				}
			}
			var got []string
			for _, p := range PodsAmong(web, sets, pods) {
				name := p.Name
				if p.Current {
					name += "*"
				}
				got = append(got, name)
			}
			assert.Equal(t, "PodsAmong()", tc.want, got)
		})
	}
}

// Only the HorizontalPodAutoscalers of the Deployment are read, with any number of others.
func TestHPAsOf(t *testing.T) {
	hpa := func(namespace, name, apiVersion, kind, target string) client.Object {
		return &autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: apiVersion, Kind: kind, Name: target},
			},
		}
	}
	cached := apiOf(t, interceptor.Funcs{},
		hpa("shop", "direct", "apps/v1", "Deployment", "web"), hpa("shop", "second", "", "Deployment", "web"),
		hpa("shop", "through-owner", "autoscaling.verticalscaler.io/v1beta1", "ScaledDeployment", "friend"),
		hpa("shop", "of-a-foreign-kind", "apps/v1", "StatefulSet", "web"), hpa("shop", "of-another", "apps/v1", "Deployment", "api"),
		hpa("other", "elsewhere", "apps/v1", "Deployment", "web"), hpa("shop", "of-the-namesake", "autoscaling.verticalscaler.io/v1beta1", "ScaledDeployment", "web"),
	)
	alone := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	owned := alone.DeepCopy()
	owned.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "autoscaling.verticalscaler.io/v1beta1", Kind: "ScaledDeployment", Name: "friend", Controller: ptr.To(true)},
	}
	for want, d := range map[string]*appsv1.Deployment{"[direct second]": alone, "[direct second through-owner]": owned} {
		hpas, err := HPAsOf(t.Context(), cached, d)
		var names []string
		for _, found := range hpas {
			names = append(names, found.Name)
		}
		if got := fmt.Sprint(names); err != nil || got != want {
			t.Errorf("HPAsOf() = %s, %v, want %s", got, err, want)
		}
	}
}

// webDeployment selects the pods that all tests have.
func webDeployment() *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web"},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
}

// apiOf is an API server with our index.
func apiOf(t *testing.T, funcs interceptor.Funcs, given ...client.Object) client.WithWatch {
	t.Helper()
	builder := fake.NewClientBuilder().WithScheme(objects.Scheme()).WithObjects(given...).WithInterceptorFuncs(funcs)
	must.Succeed(t, Index(t.Context(), indexer{builder}))
	return builder.Build()
}

// indexer adds the indexes of a cache to the fake client.
type indexer struct{ builder *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	i.builder.WithIndex(obj, field, extract)
	return nil
}

func set(name string, revision int, owner *metav1.OwnerReference) *appsv1.ReplicaSet {
	s := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"}}}
	if revision > 0 {
		s.Annotations = map[string]string{"deployment.kubernetes.io/revision": strconv.Itoa(revision)}
	}
	if owner != nil {
		s.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return s
}

// pod is a pod with the labels that all pods in these tests have.
func pod(name string, owner *metav1.OwnerReference) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"}}}
	if owner != nil {
		p.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return p
}

func in[T client.Object](namespace string, obj T) T {
	obj.SetNamespace(namespace)
	return obj
}

func ownedBy(d *appsv1.Deployment) *metav1.OwnerReference {
	return metav1.NewControllerRef(d, deploymentKind)
}

func ownedBySet(name string) *metav1.OwnerReference {
	return metav1.NewControllerRef(set(name, 0, nil), replicaSetKind)
}

func notController(owner *metav1.OwnerReference) *metav1.OwnerReference {
	owner.Controller = nil
	return owner
}

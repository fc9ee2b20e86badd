// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// BenchmarkNewPods measures the time that the policy for new pods adds to the creation of a pod, in ms. It is the median of
// the differences to a pod that the policy does not select. Pods of all kinds are created in turn, as a dry run: the API
// server does all but store them. A namespace has the sizes of 1,000 Deployments of two containers.
//
//	make test-integration PKG=./test/integration ARGS="-run XXX -bench NewPods -benchtime 600x"
func BenchmarkNewPods(b *testing.B) {
	ctx := b.Context()
	must.Succeed(b, env.InstallComponents(ctx, "new-pods"))
	empty, full := env.Namespace(b), env.Namespace(b)
	amounts := v1beta1.Amounts{CPU: ptr.To(resource.MustParse("250m")), Memory: ptr.To(resource.MustParse("300Mi"))}
	var text string
	for i := range 1000 {
		text += "\n" + admission.Line(fmt.Sprintf("deployment-%d", i), []v1beta1.NewPodContainer{{ContainerName: "app", Requests: amounts}, {ContainerName: "proxy", Requests: amounts}})
	}
	must.Succeed(b, env.Client.Create(ctx, &v1beta1.NewPodSizes{
		ObjectMeta: metav1.ObjectMeta{Namespace: full, Name: v1beta1.NewPodSizesName}, Spec: v1beta1.NewPodSizesSpec{Deployments: text + "\n"},
	}))
	pod := func(namespace, deployment string) *corev1.Pod {
		set := deployment + "-5d4f8c"
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: set + "-x", Labels: map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: "5d4f8c"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: set, UID: "1", Controller: new(true)}},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}, {Name: "proxy", Image: "proxy"}}},
		}
	}
	unselected := pod(full, "deployment-500")
	unselected.Labels = nil
	kinds := map[string]*corev1.Pod{
		"unselected": unselected, "without-sizes": pod(empty, "deployment-500"), "another-of-1000": pod(full, "other"), "sized-of-1000": pod(full, "deployment-500"),
	}
	create := func(kind string) (took float64, isSized bool) {
		created, start := kinds[kind].DeepCopy(), time.Now()
		must.Succeed(b, env.Client.Create(ctx, created, client.DryRunAll))
		return time.Since(start).Seconds() * 1000, created.Spec.Containers[0].Resources.Requests != nil
	}
	testkit.Eventually(b, time.Minute, func() string {
		if _, isSized := create("sized-of-1000"); !isSized {
			return "the API server does not know the policy and the sizes yet"
		}
		return ""
	})
	names, added := slices.Sorted(maps.Keys(kinds)), map[string][]float64{}
	for b.Loop() {
		took := map[string]float64{}
		for _, i := range rand.Perm(len(names)) {
			var isSized bool
			if took[names[i]], isSized = create(names[i]); isSized != (names[i] == "sized-of-1000") {
				b.Fatalf("%s: sized: %t", names[i], isSized)
			}
		}
		for name, of := range took {
			added[name] = append(added[name], of-took["unselected"])
		}
	}
	b.ReportMetric(0, "ns/op") // It would be the time of all.
	delete(added, "unselected")
	for name, of := range added {
		slices.Sort(of)
		b.ReportMetric(of[len(of)/2], "ms-"+name)
	}
}

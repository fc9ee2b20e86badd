// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package onestep

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/held"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// Nothing in memory grows with scalers, ScaledDeployments, pods and namespaces that were deleted, whatever has happened to
// them: kills, refused and conflicting writes, a webhook that modifies what is applied.
func TestWhatIsDeletedIsForgotten(t *testing.T) {
	t.Parallel()
	rounds := 450 // with 45 objects each
	if testing.Short() {
		rounds = 4
	}
	api := world.NewAPI(admission.Policy(), admission.Binding())
	webhook := interceptor.NewClient(api, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			err := c.Apply(ctx, o, options...)
			if answer, ok := o.(interface{ UnstructuredContent() map[string]any }); ok && err == nil {
				return unstructured.SetNestedField(answer.UnstructuredContent(), int64(7), "spec", "replicas")
			}
			return err
		},
	})
	w := world.New(t, api, "ns-0", world.Options{
		ActsAs: webhook, StartingAt: time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC),
		Configure: func(c *operatorconfig.Operator) {
			world.Compress(c, time.Minute)
			c.Metrics.Scalers = metrics.Aggregated
		},
	})
	w.Operator.Scalers.Budget = budget.New(budget.Limits{Changes: 1000, PerNamespace: 1000, Window: time.Minute})
	w.Fault = func(write world.Write, n int, send func() error) error {
		codes := map[int]int{0: http.StatusConflict, 1: http.StatusForbidden, 2: http.StatusInternalServerError}
		if code, ok := codes[n%7]; ok {
			return world.Refuse(code)(write, send)
		}
		return send()
	}
	app := corev1.Container{Name: "app", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("100Mi")},
		Limits:   corev1.ResourceList{"cpu": resource.MustParse("200m"), "memory": resource.MustParse("200Mi")},
	}}
	labels := func(name string) map[string]string { return map[string]string{world.AppLabel: name} }
	template := func(name string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels(name)}, Spec: corev1.PodSpec{Containers: []corev1.Container{app}}}
	}
	var before map[string]int
	for i := range rounds {
		w.Enter(fmt.Sprintf("ns-%d", i))
		var created []client.Object
		for j, policy := range []v1beta1.UpdatePolicy{
			{UpdateMode: v1beta1.UpdateModeInPlace},
			{UpdateMode: v1beta1.UpdateModeInPlace, Fallback: v1beta1.FallbackRecreate},
			{UpdateMode: v1beta1.UpdateModeRollout},
			{UpdateMode: v1beta1.UpdateModeInitial},
			{UpdateMode: v1beta1.UpdateModeRecommend},
		} {
			name := fmt.Sprintf("web-%d-%d", i, j)
			w.Uses(name, "app", 300, 300)
			w.Kubelet.Script(name, 0, world.Infeasible)
			here := metav1.ObjectMeta{Namespace: w.Namespace, Name: name}
			deployment := &appsv1.Deployment{ObjectMeta: here, Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels(name)}, Template: template(name),
			}}
			scaling := v1beta1.Scaling{UpdatePolicy: policy}
			created = append(created, deployment, &v1beta1.VerticalScaler{ObjectMeta: here, Spec: v1beta1.VerticalScalerSpec{DeploymentName: name, Scaling: scaling}})
		}
		owned := fmt.Sprintf("owned-%d", i)
		created = append(created, &v1beta1.ScaledDeployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: owned},
			Spec:       v1beta1.ScaledDeploymentSpec{DeploymentName: owned + "-d", Replicas: ptr.To[int32](2), Template: template(owned), Scaling: &v1beta1.Scaling{}},
		})
		w.Create(created...)
		w.Minutes(2)
		for _, pod := range w.Pods(created[0].GetName()) {
			w.Kill(&pod, "app")
		}
		w.Minutes(2)
		for j := range created {
			if i%2 == 0 { // scalers before their Deployments, or the other way round
				j = len(created) - 1 - j
			}
			w.Remove(created[j])
		}
		w.Minutes(3)
		w.Pass(2 * time.Hour) // longer than the time of a sample is remembered
		w.Minutes(1)
		w.Operator.Scalers.Budget.Next(w.Clock.Now())
		if i < 2 { // in both orders
			before = held.Elements(w.Operator.Scalers, w.Operator.Owners, w.Operator.Sizes, w.Operator.Collector)
		}
	}
	after := held.Elements(w.Operator.Scalers, w.Operator.Owners, w.Operator.Sizes, w.Operator.Collector)
	assert.Equal(t, fmt.Sprintf("after %d rounds", rounds), before, after)
}

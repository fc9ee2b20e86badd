// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/applyconfiguration"
	applyv1beta1 "github.com/verticalscaler/verticalscaler-operator/api/applyconfiguration/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

func TestEveryKindHasAnApplyConfiguration(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	ours := reflect.TypeFor[v1beta1.VerticalScaler]().PkgPath()
	kinds := 0
	for kind, is := range scheme.KnownTypes(v1beta1.GroupVersion) {
		if is.PkgPath() != ours || strings.HasSuffix(kind, "List") {
			continue
		}
		kinds++
		if _, ok := applyconfiguration.ForKind(v1beta1.GroupVersion.WithKind(kind)).(runtime.ApplyConfiguration); !ok {
			t.Errorf("%s has no apply configuration: add the marker +kubebuilder:resource, and run make generate", kind)
		}
	}
	if kinds < 5 {
		t.Errorf("the scheme has only %d kinds", kinds)
	}
}

// What is applied has the fields that were set, and no zero values: those would be owned.
func TestAnApplyConfigurationHasOnlyWhatIsSet(t *testing.T) {
	for want, applied := range map[string]runtime.ApplyConfiguration{
		`{"kind":"VerticalScaler","apiVersion":"autoscaling.verticalscaler.io/v1beta1","metadata":{"name":"web","namespace":"shop"},"spec":{"deploymentName":"web","suspend":true}}`: applyv1beta1.
			VerticalScaler("web", "shop").WithSpec(applyv1beta1.VerticalScalerSpec().WithDeploymentName("web").WithSuspend(true)),
		`{"kind":"ScaledDeployment","apiVersion":"autoscaling.verticalscaler.io/v1beta1","metadata":{"name":"web","namespace":"shop"},"spec":{"template":{"spec":{"containers":[{"name":"app","image":"nginx"}]}}}}`: applyv1beta1.
			ScaledDeployment("web", "shop").WithSpec(applyv1beta1.ScaledDeploymentSpec().WithTemplate(applycorev1.PodTemplateSpec().
			WithSpec(applycorev1.PodSpec().WithContainers(applycorev1.Container().WithName("app").WithImage("nginx"))))),
		`{"kind":"ClusterScalingPolicy","apiVersion":"autoscaling.verticalscaler.io/v1beta1","metadata":{"name":"all"}}`: applyv1beta1.ClusterScalingPolicy("all"),
	} {
		if got, err := json.Marshal(applied); err != nil || string(got) != want {
			t.Errorf("%v\n got %s\nwant %s", err, got, want)
		}
	}
}

// A program changes what it has applied, and leaves what others have set.
func TestExtractReturnsWhatAManagerHasApplied(t *testing.T) {
	owner := &v1beta1.ScaledDeployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "ours", Operation: metav1.ManagedFieldsOperationApply, APIVersion: v1beta1.GroupVersion.String(), FieldsType: "FieldsV1",
			FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{".":{},"f:image":{},"f:name":{}}}}}}}`)},
		}}},
		Spec: v1beta1.ScaledDeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "app", Image: "nginx", TerminationMessagePath: "/dev/termination-log"}, {Name: "sidecar", Image: "proxy"},
		}}}},
	}
	extracted, err := applyv1beta1.ExtractScaledDeployment(owner, "ours")
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(extracted.Spec)
	if want := `{"template":{"spec":{"containers":[{"name":"app","image":"nginx"}]}}}`; err != nil || string(got) != want {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
}

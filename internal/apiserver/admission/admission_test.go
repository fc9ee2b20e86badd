// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
)

func TestPolicyEqualsTheInstalledManifest(t *testing.T) {
	text, err := os.ReadFile("../../../config/components/new-pods/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var installed admissionv1.MutatingAdmissionPolicy
	if err := yaml.UnmarshalStrict(text, &installed); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(admission.Policy().Spec, installed.Spec); diff != "" {
		t.Errorf("the spec of the policy (-code +config):\n%s", diff)
	}
	// config/default adds its prefix.
	if name := "verticalscaler-" + installed.Name; name != admission.PolicyName {
		t.Errorf("installed as %s, bound as %s", name, admission.PolicyName)
	}
	role, err := os.ReadFile("../../../config/components/new-pods/manager_new_pods.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(role), "resourceNames: ["+admission.PolicyName+"]") {
		t.Errorf("the role does not name %s", admission.PolicyName)
	}
}

func TestBindingNamesAreUnique(t *testing.T) {
	long := strings.Repeat("a", 63)
	seen := map[string]types.NamespacedName{}
	for _, scaler := range []types.NamespacedName{
		{Namespace: "shop", Name: "web"},
		{Namespace: "shop.web", Name: "x"},
		{Namespace: "shop", Name: "web.x"},
		{Namespace: "shop-web", Name: "x"},
		{Namespace: long, Name: long},
		{Namespace: long, Name: long[:62] + "b"},
	} {
		binding := admission.Binding(scaler, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}})
		if other, ok := seen[binding.Name]; ok {
			t.Errorf("%s and %s share the name %s", scaler, other, binding.Name)
		}
		seen[binding.Name] = scaler
		if wrong := validation.IsDNS1123Subdomain(binding.Name); len(wrong) > 0 {
			t.Errorf("%s: %v", binding.Name, wrong)
		}
		if got, ours := admission.ScalerOf(binding); !ours || got != scaler {
			t.Errorf("ScalerOf() = %s, %t, want %s", got, ours, scaler)
		}
	}
}

func TestForeignBindingsAreIgnored(t *testing.T) {
	for name, change := range map[string]func(*admissionv1.MutatingAdmissionPolicyBinding){
		"without our label":  func(b *admissionv1.MutatingAdmissionPolicyBinding) { b.Labels = nil },
		"with another name":  func(b *admissionv1.MutatingAdmissionPolicyBinding) { b.Name = "mine" },
		"without a scaler":   func(b *admissionv1.MutatingAdmissionPolicyBinding) { b.Spec.ParamRef = nil },
		"for another scaler": func(b *admissionv1.MutatingAdmissionPolicyBinding) { b.Spec.ParamRef.Name = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			binding := admission.Binding(types.NamespacedName{Namespace: "shop", Name: "web"}, &metav1.LabelSelector{})
			change(binding)
			if scaler, ours := admission.ScalerOf(binding); ours {
				t.Errorf("recognized as the binding of %s", scaler)
			}
		})
	}
}

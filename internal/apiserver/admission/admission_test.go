// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"os"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

func TestPolicyEqualsTheInstalledManifest(t *testing.T) {
	text, err := os.ReadFile("../../../config/components/new-pods/policy.yaml")
	must.Succeed(t, err)
	var policy admissionv1.MutatingAdmissionPolicy
	var binding admissionv1.MutatingAdmissionPolicyBinding
	first, second, _ := strings.Cut(string(text), "\n---\n")
	must.Succeed(t, yaml.UnmarshalStrict([]byte(first), &policy))
	must.Succeed(t, yaml.UnmarshalStrict([]byte(second), &binding))
	assert.Equal(t, "the spec of the policy in config", admission.Policy().Spec, policy.Spec)
	want := admission.Binding().Spec
	binding.Spec.PolicyName = prefix + binding.Spec.PolicyName
	assert.Equal(t, "the spec of the binding in config", want, binding.Spec)
	for _, name := range []string{policy.Name, binding.Name} {
		if prefix+name != admission.PolicyName {
			t.Errorf("installed as %s, looked for as %s", prefix+name, admission.PolicyName)
		}
	}
	role, err := os.ReadFile("../../../config/rbac/manager_new_pods.yaml")
	must.Succeed(t, err)
	if !strings.Contains(string(role), "resourceNames: ["+admission.PolicyName+"]") {
		t.Errorf("the role does not name %s", admission.PolicyName)
	}
}

// prefix is the name prefix of config/default and config/new-pods.
const prefix = "verticalscaler-"

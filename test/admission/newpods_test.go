// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiadmission "k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	ours "github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// acts reports whether a policy for new pods changes a pod without sizes of the ReplicaSet web-1, with these sizes.
func acts(t *testing.T, p *admissionv1.MutatingAdmissionPolicy, sizes string) bool {
	t.Helper()
	var conditions []plugincel.ExpressionAccessor
	for _, c := range p.Spec.MatchConditions {
		conditions = append(conditions, expression{c.Name, c.Expression, cel.BoolType})
	}
	evaluator := plugincel.NewConditionCompiler(environment.MustBaseEnvSet(oldest)).
		CompileCondition(conditions, plugincel.OptionalVariableDeclarations{HasParams: true}, environment.NewExpressions)
	pod := mapsOf(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1-a", Labels: map[string]string{"pod-template-hash": "1"}, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-1", UID: "set", Controller: new(true)},
		}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}},
	})
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	attributes := apiadmission.NewAttributesRecord(pod, nil, schema.GroupVersionKind{}, "shop", "web-1-a", pods, "", apiadmission.Create, nil, false, &user.DefaultInfo{Name: "replicaset-controller"})
	results, _, err := evaluator.ForInput(t.Context(), &apiadmission.VersionedAttributes{Attributes: attributes, VersionedObject: apiadmission.NewLazyObject(pod)},
		plugincel.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(pods), metav1.GroupVersionKind{}),
		plugincel.OptionalVariableBindings{VersionedParams: paramOf(t, p, sizes)}, nil, celconfig.RuntimeCELCostBudget)
	must.Succeed(t, err)
	for _, result := range results {
		if result.Error != nil {
			t.Errorf("%s: %v", p.Name, result.Error)
		}
		if result.EvalResult != types.True {
			return false
		}
	}
	return true
}

// paramOf is the object that the policy reads.
func paramOf(t *testing.T, p *admissionv1.MutatingAdmissionPolicy, sizes string) runtime.Object {
	t.Helper()
	if p.Spec.ParamKind.Kind != "NewPodSizes" {
		t.Fatalf("policy %s reads a %s", p.Name, p.Spec.ParamKind.Kind)
	}
	return mapsOf(t, &v1beta1.NewPodSizes{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "verticalscaler"}, Spec: v1beta1.NewPodSizesSpec{Deployments: sizes}})
}

// An upgrade applies the policy of the new version beside that of an older one. The older one finds nothing in the sizes that
// the operator writes now.
func TestPoliciesOfOlderVersionsSizeNoPods(t *testing.T) {
	now := ours.Texts(map[string]string{"web": ours.Line("web", []v1beta1.NewPodContainer{
		{ContainerName: "app", Requests: v1beta1.Amounts{CPU: new(resource.MustParse("100m"))}},
	})}, ours.MaxText)[0]
	if !acts(t, ours.Policy(), now) {
		t.Errorf("policy %s does not size pods by %q", ours.PolicyName, now)
	}
	for file, then := range map[string]string{"new-pods-3.yaml": "\nweb app,100m,,,\n", "new-pods-4.yaml": "\nweb @set;app,100m,,,\n"} {
		text, err := os.ReadFile(filepath.Join("testdata", file))
		must.Succeed(t, err)
		var old admissionv1.MutatingAdmissionPolicy
		must.Succeed(t, yaml.UnmarshalStrict(text, &old))
		if !acts(t, &old, then) {
			t.Errorf("policy %s does not size pods by %q", old.Name, then)
		}
		if acts(t, &old, now) {
			t.Errorf("policy %s sizes pods by %q", old.Name, now)
		}
		if acts(t, ours.Policy(), then) {
			t.Errorf("policy %s sizes pods by %q", ours.PolicyName, then)
		}
	}
}

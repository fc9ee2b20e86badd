// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission evaluates the admission policies with the API server's own code, but
// without a server. It covers every existing field, and unknown fields. test/cluster tests
// the answers of a real API server.
package admission

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// operator is the operator's user name in one of its possible namespaces.
const operator = "system:serviceaccount:somewhere:verticalscaler-operator"

// oldest is the version that the policies' expressions are compiled for. An API server
// accepts in a new policy only what the previous version knew, too. The oldest supported
// version is 1.34.
var oldest = version.MajorMinor(1, 33)

// policy is a compiled policy.
type policy struct {
	spec        admissionregistrationv1.ValidatingAdmissionPolicySpec
	conditions  plugincel.ConditionEvaluator
	validations plugincel.ConditionEvaluator
}

// expression is a CEL expression of a policy: a condition, or a named variable.
type expression struct {
	name, text string
	gives      *cel.Type
}

func (e expression) GetExpression() string    { return e.text }
func (e expression) GetName() string          { return e.name }
func (e expression) ReturnTypes() []*cel.Type { return []*cel.Type{e.gives} }

// folder contains the policies' files.
func folder() string {
	return filepath.Join(testkit.Root(), "config", "components", "admission-policies")
}

// read reads the policy in a file of the component, and its binding.
func read(t *testing.T, file string) (admissionregistrationv1.ValidatingAdmissionPolicy, admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(folder(), file))
	if err != nil {
		t.Fatal(err)
	}
	first, second, _ := strings.Cut(string(content), "\n---\n")
	var p admissionregistrationv1.ValidatingAdmissionPolicy
	var b admissionregistrationv1.ValidatingAdmissionPolicyBinding
	if err := yaml.UnmarshalStrict([]byte(first), &p); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if err := yaml.UnmarshalStrict([]byte(second), &b); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return p, b
}

// compiled compiles the policy in a file, as the oldest API server would.
func compiled(t *testing.T, file string) *policy {
	t.Helper()
	read, _ := read(t, file)
	p := &policy{spec: read.Spec}
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(oldest))
	if err != nil {
		t.Fatal(err)
	}
	declared := plugincel.OptionalVariableDeclarations{HasAuthorizer: true}
	for _, v := range p.spec.Variables {
		result := compiler.CompileAndStoreVariable(expression{v.Name, v.Expression, cel.AnyType}, declared, environment.NewExpressions)
		if result.Error != nil {
			t.Fatalf("%s: variable %s: %v", file, v.Name, result.Error)
		}
	}
	var conditions, validations []plugincel.ExpressionAccessor
	for _, c := range p.spec.MatchConditions {
		conditions = append(conditions, expression{c.Name, c.Expression, cel.BoolType})
	}
	for _, v := range p.spec.Validations {
		validations = append(validations, expression{text: v.Expression, gives: cel.BoolType})
	}
	p.conditions = plugincel.NewConditionCompiler(environment.MustBaseEnvSet(oldest)).CompileCondition(conditions, declared, environment.NewExpressions)
	p.validations = compiler.CompileCondition(validations, declared, environment.NewExpressions)
	for _, e := range []plugincel.ConditionEvaluator{p.conditions, p.validations} {
		for _, err := range e.CompilationErrors() {
			t.Fatalf("%s: %v", file, err)
		}
	}
	return p
}

// request is a request to evaluate.
type request struct {
	user, resource, subresource string
	before, after               runtime.Object // nil for none
	may                         may
}

// may lists the rights of the user: "patch deployments/web", or "create deployments".
type may []string

// Authorize implements authorizer.UnconditionalAuthorizer.
func (m may) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	right := a.GetVerb() + " " + a.GetResource()
	if a.GetName() != "" {
		right += "/" + a.GetName()
	}
	if a.GetAPIGroup() == "apps" && a.GetNamespace() == "shop" && slices.Contains(m, right) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// asks evaluates the policy: whether it applies to the request, and the numbers of the
// validations that reject it. An evaluation error counts as a rejection, as on the server.
func (p *policy) asks(t *testing.T, r request) (looks bool, refuses []int) {
	t.Helper()
	operation := admission.Update
	switch {
	case r.before == nil:
		operation = admission.Create
	case r.after == nil:
		operation = admission.Delete
	}
	who := r.user
	if who == "" {
		who = operator
	}
	rule := p.spec.MatchConstraints.ResourceRules[0]
	resource := schema.GroupVersionResource{Group: rule.APIGroups[0], Version: rule.APIVersions[0], Resource: r.resource}
	attributes := admission.NewAttributesRecord(r.after, r.before, schema.GroupVersionKind{}, "shop", "web", resource, r.subresource,
		operation, nil, false, &user.DefaultInfo{Name: who})
	versioned := &admission.VersionedAttributes{Attributes: attributes}
	if r.before != nil {
		versioned.VersionedOldObject = admission.NewLazyObject(r.before)
	}
	if r.after != nil {
		versioned.VersionedObject = admission.NewLazyObject(r.after)
	}
	asked := plugincel.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(resource), metav1.GroupVersionKind{})
	bindings := plugincel.OptionalVariableBindings{Authorizer: r.may}
	evaluate := func(e plugincel.ConditionEvaluator) (refuses []int) {
		results, _, err := e.ForInput(t.Context(), versioned, asked, bindings, nil, celconfig.RuntimeCELCostBudget)
		if err != nil {
			t.Fatal(err)
		}
		for i, result := range results {
			if result.Error != nil || result.EvalResult != types.True {
				refuses = append(refuses, i)
			}
		}
		return refuses
	}
	if len(evaluate(p.conditions)) > 0 {
		return false, nil
	}
	return true, evaluate(p.validations)
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission evaluates the admission policies with the API server's own code, but
// without a server. It covers every existing field, and unknown fields. test/stepped shows that
// a real API server enforces each policy.
package admission

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
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

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
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
	messages    plugincel.ConditionEvaluator
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
	return filepath.Join("..", "..", "config", "components", "admission-policies")
}

// read reads the policy in a file of the component, and its bindings.
func read(t testing.TB, file string) (p admissionregistrationv1.ValidatingAdmissionPolicy, bindings []admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(folder(), file))
	must.Succeed(t, err)
	for i, document := range strings.Split(string(content), "\n---\n") {
		var err error
		if i == 0 {
			err = yaml.UnmarshalStrict([]byte(document), &p)
		} else {
			var b admissionregistrationv1.ValidatingAdmissionPolicyBinding
			err = yaml.UnmarshalStrict([]byte(document), &b)
			bindings = append(bindings, b)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	return p, bindings
}

// policies are the compiled policies by their files: to compile one takes longer than to evaluate it.
var policies = struct {
	sync.Mutex
	of map[string]*policy
}{of: map[string]*policy{}}

// compiled is the policy in a file, compiled as the oldest API server would.
func compiled(t testing.TB, file string) *policy {
	t.Helper()
	policies.Lock()
	defer policies.Unlock()
	if policies.of[file] == nil {
		policies.of[file] = compile(t, file)
	}
	return policies.of[file]
}

func compile(t testing.TB, file string) *policy {
	t.Helper()
	read, _ := read(t, file)
	p := &policy{spec: read.Spec}
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(oldest))
	must.Succeed(t, err)
	declared := plugincel.OptionalVariableDeclarations{HasAuthorizer: true, HasParams: p.spec.ParamKind != nil}
	for _, v := range p.spec.Variables {
		result := compiler.CompileAndStoreVariable(expression{v.Name, v.Expression, cel.AnyType}, declared, environment.NewExpressions)
		if result.Error != nil {
			t.Fatalf("%s: variable %s: %v", file, v.Name, result.Error)
		}
	}
	var conditions, validations, messages []plugincel.ExpressionAccessor
	for _, c := range p.spec.MatchConditions {
		conditions = append(conditions, expression{c.Name, c.Expression, cel.BoolType})
	}
	for _, v := range p.spec.Validations {
		validations = append(validations, expression{text: v.Expression, gives: cel.BoolType})
		message := v.MessageExpression
		if message == "" {
			message = strconv.Quote(v.Message)
		}
		messages = append(messages, expression{text: message, gives: cel.StringType})
	}
	p.conditions = plugincel.NewConditionCompiler(environment.MustBaseEnvSet(oldest)).CompileCondition(conditions, declared, environment.NewExpressions)
	p.validations = compiler.CompileCondition(validations, declared, environment.NewExpressions)
	withoutAuthorizer := plugincel.OptionalVariableDeclarations{HasParams: declared.HasParams}
	p.messages = compiler.CompileCondition(messages, withoutAuthorizer, environment.NewExpressions)
	for _, e := range []plugincel.ConditionEvaluator{p.conditions, p.validations, p.messages} {
		for _, err := range e.CompilationErrors() {
			t.Fatalf("%s: %v", file, err)
		}
	}
	return p
}

// request is a request to evaluate.
type request struct {
	user, resource, subresource string
	before, after               runtime.Object    // nil for none
	isDeletion                  bool              // also without an object, as the deletion of a collection begins
	params                      runtime.Object    // the policy's parameter; nil for none
	namespace                   string            // "shop" if empty, and none for ClusterScalingPolicies
	labels                      map[string]string // of the namespace
	may                         may
}

// may lists the rights of the user in the namespace shop: "patch deployments/web", "create
// deployments", or "patch pods/resize". "patch deployments everywhere" is a right in all namespaces.
type may []string

// Authorize implements authorizer.UnconditionalAuthorizer.
func (m may) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	right := a.GetVerb() + " " + path.Join(a.GetResource(), a.GetSubresource(), a.GetName())
	const policies = "admissionregistration.k8s.io"
	group := map[string]string{
		"deployments": "apps", "pods": "", "verticalscalers": "autoscaling.verticalscaler.io", "validatingadmissionpolicies": policies,
	}[a.GetResource()]
	if a.GetNamespace() == "" && group != policies {
		right += " everywhere"
	}
	if a.GetAPIGroup() == group && slices.Contains([]string{"", "shop"}, a.GetNamespace()) && slices.Contains(m, right) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// asks evaluates the policy: whether it applies to the request, and the numbers of the
// validations that reject it. An evaluation error counts as a rejection, as on the server.
func (p *policy) asks(t testing.TB, r request) (looks bool, refuses []int) {
	t.Helper()
	looks, refuses, _ = p.answers(t, r)
	return looks, refuses
}

// answers evaluates the policy, as asks does. It also returns the message of each
// validation that rejects the request.
func (p *policy) answers(t testing.TB, r request) (looks bool, refuses []int, says []string) {
	t.Helper()
	looks, refuses, says, _ = p.evaluates(t, r)
	return looks, refuses, says
}

// evaluates evaluates the policy, as answers does. It also returns what the validations
// cost of the API server's budget.
func (p *policy) evaluates(t testing.TB, r request) (looks bool, refuses []int, says []string, cost int64) {
	t.Helper()
	operation := admission.Update
	switch {
	case r.isDeletion:
		operation = admission.Delete
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
	for _, other := range p.spec.MatchConstraints.ResourceRules {
		if slices.Contains(other.Resources, r.resource) {
			rule = other
		}
	}
	resource := schema.GroupVersionResource{Group: rule.APIGroups[0], Version: rule.APIVersions[0], Resource: r.resource}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cmp.Or(r.namespace, "shop"), Labels: r.labels}}
	where := namespace.Name
	if r.resource == "clusterscalingpolicies" {
		where, namespace = "", nil
	}
	attributes := admission.NewAttributesRecord(r.after, r.before, schema.GroupVersionKind{}, where, "web", resource, r.subresource,
		operation, nil, false, &user.DefaultInfo{Name: who})
	versioned := &admission.VersionedAttributes{Attributes: attributes}
	if r.before != nil {
		versioned.VersionedOldObject = admission.NewLazyObject(r.before)
	}
	if r.after != nil {
		versioned.VersionedObject = admission.NewLazyObject(r.after)
	}
	asked := plugincel.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(resource), metav1.GroupVersionKind{})
	bindings := plugincel.OptionalVariableBindings{Authorizer: r.may, VersionedParams: r.params}
	budget := int64(celconfig.RuntimeCELCostBudget)
	evaluate := func(e plugincel.ConditionEvaluator) (results []plugincel.EvaluationResult) {
		var err error
		if results, budget, err = e.ForInput(t.Context(), versioned, asked, bindings, namespace, budget); err != nil {
			t.Fatal(err)
		}
		return results
	}
	for _, result := range evaluate(p.conditions) {
		if result.Error != nil || result.EvalResult != types.True {
			return false, nil, nil, 0
		}
	}
	budget = celconfig.RuntimeCELCostBudget // the server counts conditions apart
	results := evaluate(p.validations)
	cost = celconfig.RuntimeCELCostBudget - budget
	var messages []plugincel.EvaluationResult
	for i, result := range results {
		if result.Error == nil && result.EvalResult == types.True {
			continue
		}
		refuses = append(refuses, i)
		if messages == nil { // They are slow.
			messages = evaluate(p.messages)
		}
		switch message := messages[i]; {
		case result.Error != nil:
			says = append(says, result.Error.Error())
		case message.Error != nil:
			t.Errorf("the message of validation %d: %v", i, message.Error)
		default:
			says = append(says, fmt.Sprint(message.EvalResult.Value()))
		}
	}
	return true, refuses, says, cost
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission defines how the API server sizes new pods: one policy with one binding, and in
// each namespace an object with the sizes, NewPodSizes.
//
// The API server itself merges the sizes into a new pod. It calls no webhook, so the operator can
// neither delay nor prevent the creation of a pod. A pod that the policy cannot evaluate is
// created unchanged.
package admission

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// form is the number of the form of lines. A policy sizes pods by lines of its own form only, so that one of an older version,
// which an upgrade leaves behind, has no effect. Change it with each change of the policy or of the lines.
const form = "5"

// PolicyName is the name of the policy and of its binding. Several versions of the operator may
// run in one cluster, so a changed policy gets another name.
const PolicyName = "verticalscaler-new-pods-" + form

// afterName follows the name of a Deployment in its line.
const afterName = "/" + form + " "

// The expressions of the policy, for the pod "object" and the sizes "params".
const (
	// hash is the label by which the Deployment controller distinguishes the ReplicaSets of a Deployment.
	hash = `object.metadata.labels['` + appsv1.DefaultDeploymentUniqueLabelKey + `']`

	// isReplicaSet is true if the owner o is the pod's controller, and is named like a ReplicaSet of a
	// Deployment. Labels alone would match any pod that has them.
	isReplicaSet = `has(o.controller) && o.controller && o.kind == 'ReplicaSet' && o.apiVersion.startsWith('apps/') && o.name.endsWith('-' + ` + hash + `)`

	// deployment is the name of the Deployment of the ReplicaSet o.
	deployment = `o.name.substring(0, o.name.size() - ` + hash + `.size() - 1)`

	// lineOf is the line of the Deployment of the ReplicaSet o.
	lineOf = `params.spec.deployments.split('\n' + ` + deployment + ` + '` + afterName + `', 2)[1].split('\n', 2)[0]`

	// running are the containers that run for as long as the pod, with native sidecars.
	running  = `object.spec.containers + (has(object.spec.initContainers) ? ` + sidecars + ` : [])`
	sidecars = `object.spec.initContainers.filter(o, has(o.restartPolicy) && o.restartPolicy == 'Always')`
)

// fitting are the containers to which a size s applies: they have limits for exactly the resources
// that the size limits. After a change of the template, sizes could otherwise exceed its limits,
// and the pods would be rejected.
func fitting() string {
	isLimitedAlike := func(resource, request, limit string) string {
		return `(s[` + request + `] == '' || (s[` + limit + `] != '') == (has(o.resources) && has(o.resources.limits) && '` + resource + `' in o.resources.limits))`
	}
	return `variables.running.filter(o, variables.sizes.exists(s, s[0] == o.name && ` + isLimitedAlike("cpu", "1", "3") + ` && ` + isLimitedAlike("memory", "2", "4") + `))`
}

// isUnsized matches the pods of a Deployment with a line and with a container that differs from it. A pod with
// pod-level resources may not exceed them, so it stays. The API server evaluates the policy again after other
// policies. A second merge of a pod is half of the cost, so a pod that has its sizes does not match.
func isUnsized() string {
	same := `';' + c.name + ',' + ` + declared("requests", "cpu") + ` + ',' + ` + declared("requests", "memory") +
		` + ',' + ` + declared("limits", "cpu") + ` + ',' + ` + declared("limits", "memory") + ` + ';'`
	differs := `(` + running + `).exists(c, l.contains(';' + c.name + ',') && !l.contains(` + same + `))`
	hasLine := `params.spec.deployments.contains('\n' + ` + deployment + ` + '` + afterName + `')`
	isLabeled := `has(object.metadata.labels) && '` + appsv1.DefaultDeploymentUniqueLabelKey + `' in object.metadata.labels`
	return `!has(object.spec.resources) && has(object.metadata.ownerReferences) && ` + isLabeled +
		` && object.metadata.ownerReferences.exists(o, ` + isReplicaSet + ` && ` + hasLine + ` && [';' + ` + lineOf + ` + ';'].exists(l, ` + differs + `))`
}

// isExact is true if pods of the ReplicaSet get exactly these sizes: the line has no "@", or names the ReplicaSet.
// Any other pod gets the larger of the line and its own.
const isExact = `!variables.line.startsWith('@') || variables.line.startsWith('@' + variables.owner.uid + ';')`

// declared is the amount that container c declares in one of its lists, as a text.
func declared(list, resource string) string {
	return `(has(c.resources) && has(c.resources.` + list + `) && '` + resource + `' in c.resources.` + list +
		` ? string(c.resources.` + list + `['` + resource + `']) : '')`
}

// mutation merges the sizes into the fitting containers, in both lists.
func mutation() string {
	isContainer := `object.spec.containers.exists(o, o.name == c.name)`
	return `Object{spec: Object.spec{` + sized("containers", isContainer) + `, ` + sized("initContainers", "!"+isContainer) + `}}`
}

// sized are the fitting containers of a list with their sizes. Empty amounts stay, and so do those at least as
// large as the size, unless the size is exact.
func sized(list, isInList string) string {
	amount := func(of, resource, field string) string {
		has := declared(of, resource)
		isSet := `s[` + field + `] != '' && (variables.exact || ` + has + ` == '' || quantity(s[` + field + `]).isGreaterThan(quantity(` + has + `)))`
		return `?'` + resource + `': ` + isSet + ` ? optional.of(s[` + field + `]) : optional.none()`
	}
	return list + `: variables.fitting.filter(c, ` + isInList + `).map(c, variables.sizes.filter(s, s[0] == c.name)` +
		`.map(s, Object.spec.` + list + `{name: s[0], resources: Object.spec.` + list + `.resources{` +
		`requests: {` + amount("requests", "cpu", "1") + `, ` + amount("requests", "memory", "2") +
		`}, limits: {` + amount("limits", "cpu", "3") + `, ` + amount("limits", "memory", "4") + `}}})[0])`
}

// Policy is the policy for all new pods of Deployments. It is part of the installation, in
// config/components/new-pods, because permission to write policies is permission to change any
// pod of the cluster. It sets the API server's defaults, so that the two can be compared.
//
// Pods without the label of a ReplicaSet of a Deployment cost one comparison. All others cost the
// reading of the sizes of their namespace, if there are any.
func Policy() *admissionv1.MutatingAdmissionPolicy {
	return &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: PolicyName},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			ParamKind: &admissionv1.ParamKind{APIVersion: v1beta1.GroupVersion.String(), Kind: "NewPodSizes"},
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{},
				ObjectSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: appsv1.DefaultDeploymentUniqueLabelKey, Operator: metav1.LabelSelectorOpExists},
				}},
				MatchPolicy: ptr.To(admissionv1.Equivalent),
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}, Scope: ptr.To(admissionv1.NamespacedScope)},
				}}},
			},
			MatchConditions: []admissionv1.MatchCondition{{Name: "of-a-deployment-with-sizes", Expression: isUnsized()}},
			Variables: []admissionv1.Variable{
				{Name: "owner", Expression: `object.metadata.ownerReferences.filter(o, has(o.controller) && o.controller)[0]`},
				{Name: "line", Expression: `[variables.owner].map(o, ` + lineOf + `)[0]`},
				{Name: "exact", Expression: isExact},
				{Name: "sizes", Expression: `variables.line.split(';').map(c, c.split(','))`},
				{Name: "running", Expression: running},
				{Name: "fitting", Expression: fitting()},
			},
			Mutations: []admissionv1.Mutation{{
				PatchType:          admissionv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: mutation()},
			}},
			FailurePolicy:      ptr.To(admissionv1.Ignore),
			ReinvocationPolicy: admissionv1.IfNeededReinvocationPolicy,
		},
	}
}

// Binding applies the policy with the sizes in the pod's own namespace. It is part of the
// installation, too. It has a selector and no name: with a name, the API server asks its storage
// for each pod of a namespace without sizes.
func Binding() *admissionv1.MutatingAdmissionPolicyBinding {
	return &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: PolicyName},
		Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{
			PolicyName: PolicyName,
			ParamRef:   &admissionv1.ParamRef{Selector: &metav1.LabelSelector{}, ParameterNotFoundAction: ptr.To(admissionv1.AllowAction)},
		},
	}
}

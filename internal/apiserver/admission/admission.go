// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission says what the API server shall do to new pods: one policy for all
// scalers, and one binding for each scaler that needs it.
//
// The API server itself merges into a new pod what the scaler's status holds under
// admission. No server of ours is asked, so that nothing of ours can keep a pod from being
// made, or slow it down while it is away. A pod that the policy cannot judge is made as it
// is.
package admission

import (
	"encoding/hex"
	"hash/fnv"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

const (
	// PolicyName is the policy's name. Operators of several versions may run in one cluster,
	// so a policy that says something else gets another name.
	PolicyName = "verticalscaler-new-pods-1"

	// managedBy labels what the operator makes.
	managedBy = "app.kubernetes.io/managed-by"
	operator  = "verticalscaler-operator"

	// mostName keeps a binding's name within what a name may have.
	maxReadableName = 200
)

// Labels are on all bindings.
func Labels() map[string]string { return map[string]string{managedBy: operator} }

// The expressions of the policy, for the pod "object" and the scaler "params".
const (
	// ofDeployment says that the pod's controller is a ReplicaSet of the scaler's Deployment,
	// by the name that the Deployment's controller gives it. Labels alone would let in any
	// pod that carries them.
	podOfDeployment = `has(object.metadata.ownerReferences) && has(object.metadata.labels) && '` + appsv1.DefaultDeploymentUniqueLabelKey + `' in object.metadata.labels` +
		` && object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller && o.kind == 'ReplicaSet' && o.apiVersion.startsWith('apps/')` +
		` && o.name == params.spec.deploymentName + '-' + object.metadata.labels['` + appsv1.DefaultDeploymentUniqueLabelKey + `'])`

	// sizes are those of the scaler's status.
	sizes = `has(params.status) && has(params.status.newPods) && has(params.status.newPods.containers) ? params.status.newPods.containers : []`

	// fitting are the pod's containers that get a size: those that have limits exactly where
	// the size has some. A template that has changed since would otherwise get requests above
	// its limits, and make no pods at all.
	fitting = `object.spec.containers.filter(o, variables.sizes.exists(s, s.containerName == o.name && ['cpu', 'memory'].all(r,` +
		` !(has(s.requests) && r in s.requests) || (has(s.limits) && r in s.limits) == (has(o.resources) && has(o.resources.limits) && r in o.resources.limits))))`

	// mutation merges the sizes into the fitting containers.
	mutation = `Object{spec: Object.spec{containers: variables.fitting.map(o, Object.spec.containers{name: o.name, resources: Object.spec.containers.resources{` +
		`requests: variables.sizes.filter(s, s.containerName == o.name)[0].requests,` +
		` ?limits: variables.sizes.filter(s, s.containerName == o.name)[0].?limits}})}}`
)

// Policy is the policy that all bindings share. It is installed with the rights, from
// config/components/new-pods, since who may write policies may change any pod of the cluster.
// What the API server would fill in is said, so that the two can be compared.
func Policy() *admissionv1.MutatingAdmissionPolicy {
	return &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: PolicyName},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			ParamKind: &admissionv1.ParamKind{APIVersion: v1beta1.GroupVersion.String(), Kind: "VerticalScaler"},
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{},
				ObjectSelector:    &metav1.LabelSelector{},
				MatchPolicy:       ptr.To(admissionv1.Equivalent),
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}, Scope: ptr.To(admissionv1.NamespacedScope)},
				}}},
			},
			MatchConditions: []admissionv1.MatchCondition{{Name: "of-the-deployment", Expression: podOfDeployment}},
			Variables: []admissionv1.Variable{
				{Name: "sizes", Expression: sizes},
				{Name: "fitting", Expression: fitting},
			},
			Mutations: []admissionv1.Mutation{{
				PatchType:          admissionv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: mutation},
			}},
			FailurePolicy:      ptr.To(admissionv1.Ignore),
			ReinvocationPolicy: admissionv1.IfNeededReinvocationPolicy,
		},
	}
}

// Binding lets the policy act on the pods with these labels, in the scaler's namespace, with
// the scaler as its parameter. A binding for each scaler costs the API server far less than
// one for all of them, since labels are compared before any expression is looked at.
func Binding(scaler types.NamespacedName, pods *metav1.LabelSelector) *admissionv1.MutatingAdmissionPolicyBinding {
	return &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: BindingName(scaler), Labels: Labels()},
		Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{
			PolicyName: PolicyName,
			ParamRef: &admissionv1.ParamRef{
				Name: scaler.Name, Namespace: scaler.Namespace, ParameterNotFoundAction: ptr.To(admissionv1.AllowAction),
			},
			MatchResources: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: scaler.Namespace}},
				ObjectSelector:    pods.DeepCopy(),
				MatchPolicy:       ptr.To(admissionv1.Equivalent),
			},
		},
	}
}

// BindingName is the name of the scaler's binding. Both names may have dots and dashes, so
// a hash tells apart what would else read the same.
func BindingName(scaler types.NamespacedName) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(scaler.String()))
	readable := scaler.Namespace + "." + scaler.Name
	return readable[:min(len(readable), maxReadableName)] + "." + hex.EncodeToString(h.Sum(nil))
}

// ScalerOf is the scaler that a binding of ours is for.
func ScalerOf(binding *admissionv1.MutatingAdmissionPolicyBinding) (types.NamespacedName, bool) {
	ref := binding.Spec.ParamRef
	if binding.Labels[managedBy] != operator || ref == nil {
		return types.NamespacedName{}, false
	}
	scaler := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	return scaler, binding.Name == BindingName(scaler)
}

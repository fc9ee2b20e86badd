// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission defines how the API server sizes new pods: one policy for all scalers, and
// one binding for each scaler that needs it.
//
// The API server itself merges the sizes in the scaler's status into a new pod. It calls no
// webhook, so the operator can neither delay nor prevent the creation of a pod. A pod that
// the policy cannot evaluate is created unchanged.
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
	// PolicyName is the name of the policy. Several versions of the operator may run in one
	// cluster, so a changed policy gets another name.
	PolicyName = "verticalscaler-new-pods-2"

	// managedBy is a label of the objects that the operator creates.
	managedBy = "app.kubernetes.io/managed-by"
	operator  = "verticalscaler-operator"

	// maxReadableName bounds the readable part of a binding's name.
	maxReadableName = 200
)

// Labels are the labels of all bindings.
func Labels() map[string]string { return map[string]string{managedBy: operator} }

// The expressions of the policy, for the pod "object" and the scaler "params".
const (
	// podOfDeployment matches pods whose controller is a ReplicaSet of the scaler's Deployment,
	// by the name that the Deployment controller gives to the ReplicaSet. Labels alone would
	// match any pod that has them.
	podOfDeployment = `has(object.metadata.ownerReferences) && has(object.metadata.labels) && '` + appsv1.DefaultDeploymentUniqueLabelKey + `' in object.metadata.labels` +
		` && object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller && o.kind == 'ReplicaSet' && o.apiVersion.startsWith('apps/')` +
		` && o.name == params.spec.deploymentName + '-' + object.metadata.labels['` + appsv1.DefaultDeploymentUniqueLabelKey + `'])`

	// sizes are the sizes in the scaler's status.
	sizes = `has(params.status) && has(params.status.newPods) && has(params.status.newPods.containers) ? params.status.newPods.containers : []`

	// running are the containers that run for as long as the pod, with native sidecars.
	running = `object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers.filter(o, has(o.restartPolicy) && o.restartPolicy == 'Always') : [])`

	// fitting are the containers to which a size applies: those that have limits for exactly
	// the resources that the size limits. If the template has changed since, the sizes could
	// otherwise exceed its limits, and the pods would be rejected.
	fitting = `variables.running.filter(o, variables.sizes.exists(s, s.containerName == o.name && ['cpu', 'memory'].all(r,` +
		` !(has(s.requests) && r in s.requests) || (has(s.limits) && r in s.limits) == (has(o.resources) && has(o.resources.limits) && r in o.resources.limits))))`
)

// mutation merges the sizes into the fitting containers, in both lists.
func mutation() string {
	isContainer := `object.spec.containers.exists(c, c.name == o.name)`
	return `Object{spec: Object.spec{` + sized("containers", isContainer) + `, ` + sized("initContainers", "!"+isContainer) + `}}`
}

// sized are the fitting containers of a list with their sizes.
func sized(list, isInList string) string {
	return list + `: variables.fitting.filter(o, ` + isInList + `).map(o, Object.spec.` + list + `{name: o.name, resources: Object.spec.` + list + `.resources{` +
		`requests: variables.sizes.filter(s, s.containerName == o.name)[0].requests,` +
		` ?limits: variables.sizes.filter(s, s.containerName == o.name)[0].?limits}})`
}

// Policy is the policy that all bindings share. It is part of the installation, in
// config/components/new-pods, because permission to write policies is permission to change any
// pod of the cluster. It sets the API server's defaults, so that the two can be compared.
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
				{Name: "running", Expression: running},
				{Name: "fitting", Expression: fitting},
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

// Binding applies the policy to the pods with these labels in the scaler's namespace, with the
// scaler as its parameter. One binding for each scaler costs the API server far less than one
// for all, because it compares labels before it evaluates expressions.
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

// BindingName is the name of the scaler's binding. Namespace and name may both contain dots
// and dashes, so a hash keeps the result unique.
func BindingName(scaler types.NamespacedName) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(scaler.String()))
	readable := scaler.Namespace + "." + scaler.Name
	return readable[:min(len(readable), maxReadableName)] + "." + hex.EncodeToString(h.Sum(nil))
}

// ScalerOf returns the scaler that one of our bindings is for.
func ScalerOf(binding *admissionv1.MutatingAdmissionPolicyBinding) (types.NamespacedName, bool) {
	ref := binding.Spec.ParamRef
	if binding.Labels[managedBy] != operator || ref == nil {
		return types.NamespacedName{}, false
	}
	scaler := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	return scaler, binding.Name == BindingName(scaler)
}

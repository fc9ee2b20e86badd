// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package benchmark

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/fleet"
)

// The operator sized new pods by one binding for each scaler before, whose parameter was the scaler. It is kept here to
// compare. Its policy selects pods with this label only, so that the baseline is the same.
const formerLabel = "benchmark.verticalscaler.io/former"

// formerKinds installs the former policy, with a binding for each of 5,000 scalers. It returns the kinds of pods to
// compare, the baseline first.
func (c *creator) formerKinds(b *testing.B) []podKind {
	b.Helper()
	ours, none := c.env.Namespace(b), c.env.Namespace(b)
	namespaces := []string{ours}
	for range sizedNamespaces - 1 {
		namespaces = append(namespaces, c.env.Namespace(b))
	}
	// Only the scaler of the pod is read: the others are in other namespaces, or for other labels.
	const sized = fleet.PerNamespace / 2
	scaler := testkit.Scaler(ours, deploymentName(sized), deploymentName(sized))
	c.createAll(b, formerPolicy(), scaler)
	scaler.Status.NewPods = &v1beta1.NewPods{Containers: sizesOf(sized)}
	if err := c.env.Client.Status().Update(b.Context(), scaler); err != nil {
		b.Fatal(err)
	}
	testkit.InParallel(b, sizedNamespaces*fleet.PerNamespace, func(i int) error {
		if i == sized {
			return nil
		}
		return c.env.Client.Create(b.Context(), formerBinding(namespaces[i/fleet.PerNamespace], i%fleet.PerNamespace))
	})
	c.createAll(b, formerBinding(ours, sized)) // Last: once the API server knows it, it knows all.
	selected := func(pod *corev1.Pod) *corev1.Pod {
		pod.Labels[formerLabel] = "true"
		return pod
	}
	plain := newPod(none, deploymentName(sized))
	delete(plain.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	kinds := []podKind{
		{formerBaseline, plain, "100m"},
		{formerUnrelated, selected(newPod(none, deploymentName(sized))), "100m"},
		{formerSized, selected(newPod(ours, deploymentName(sized))), cpuOf(sized)},
	}
	c.await(b, kinds...)
	return kinds
}

// formerPolicy gives new pods the sizes in the status of their scaler.
func formerPolicy() *admissionv1.MutatingAdmissionPolicy {
	const (
		label           = `'` + appsv1.DefaultDeploymentUniqueLabelKey + `'`
		podOfDeployment = `has(object.metadata.ownerReferences) && has(object.metadata.labels) && ` + label + ` in object.metadata.labels` +
			` && object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller && o.kind == 'ReplicaSet' && o.apiVersion.startsWith('apps/')` +
			` && o.name == params.spec.deploymentName + '-' + object.metadata.labels[` + label + `])`
		sizes   = `has(params.status) && has(params.status.newPods) && has(params.status.newPods.containers) ? params.status.newPods.containers : []`
		fitting = `object.spec.containers.filter(o, variables.sizes.exists(s, s.containerName == o.name && ['cpu', 'memory'].all(r,` +
			` !(has(s.requests) && r in s.requests) || (has(s.limits) && r in s.limits) == (has(o.resources) && has(o.resources.limits) && r in o.resources.limits))))`
		mutation = `Object{spec: Object.spec{containers: variables.fitting.map(o, Object.spec.containers{name: o.name, resources: Object.spec.containers.resources{` +
			`requests: variables.sizes.filter(s, s.containerName == o.name)[0].requests,` +
			` ?limits: variables.sizes.filter(s, s.containerName == o.name)[0].?limits}})}}`
	)
	return &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "former"},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			ParamKind: &admissionv1.ParamKind{APIVersion: v1beta1.GroupVersion.String(), Kind: "VerticalScaler"},
			MatchConstraints: &admissionv1.MatchResources{
				ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{formerLabel: "true"}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				}}},
			},
			MatchConditions: []admissionv1.MatchCondition{{Name: "of-the-deployment", Expression: podOfDeployment}},
			Variables:       []admissionv1.Variable{{Name: "sizes", Expression: sizes}, {Name: "fitting", Expression: fitting}},
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: mutation},
			}},
			FailurePolicy:      ptr.To(admissionv1.Ignore),
			ReinvocationPolicy: admissionv1.IfNeededReinvocationPolicy,
		},
	}
}

// formerBinding is the binding of a scaler.
func formerBinding(namespace string, i int) *admissionv1.MutatingAdmissionPolicyBinding {
	return &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace + "." + deploymentName(i)},
		Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{
			PolicyName: "former",
			ParamRef:   &admissionv1.ParamRef{Name: deploymentName(i), Namespace: namespace, ParameterNotFoundAction: ptr.To(admissionv1.AllowAction)},
			MatchResources: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
				ObjectSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{"app": deploymentName(i)}},
			},
		},
	}
}

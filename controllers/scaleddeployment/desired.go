// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaleddeployment

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
)

// What is desired is a document for server-side apply: it holds only what we have an
// opinion on. What others add, such as the annotation of "kubectl rollout restart" or
// the Deployment's strategy, is theirs and stays.

// The kinds of what an owner has.
var (
	deploymentKind = appsv1.SchemeGroupVersion.WithKind("Deployment")
	scalerKind     = v1beta1.GroupVersion.WithKind("VerticalScaler")
)

// deploymentName is the name of the owner's Deployment.
func deploymentName(owner *v1beta1.ScaledDeployment) string {
	if owner.Spec.DeploymentName != "" {
		return owner.Spec.DeploymentName
	}
	return owner.Name
}

// selectorOf is the Deployment's selector.
func selectorOf(owner *v1beta1.ScaledDeployment) *metav1.LabelSelector {
	if owner.Spec.Selector != nil {
		return owner.Spec.Selector
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{v1beta1.ScaledDeploymentLabel: owner.Name}}
}

// deploymentFor is the Deployment that the owner asks for, less the resources that
// belong to a scaler.
func deploymentFor(owner *v1beta1.ScaledDeployment, scalers *fieldpath.Set) (*unstructured.Unstructured, error) {
	template := owner.Spec.Template.DeepCopy()
	if owner.Spec.Selector == nil {
		if template.Labels == nil {
			template.Labels = map[string]string{}
		}
		// A label that says something else is left for the API server to refuse.
		if _, ok := template.Labels[v1beta1.ScaledDeploymentLabel]; !ok {
			template.Labels[v1beta1.ScaledDeploymentLabel] = owner.Name
		}
	}
	omitResources(template.Spec.Containers, scalers)
	out, err := ownedDocument(owner, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: deploymentName(owner)},
		Spec:       appsv1.DeploymentSpec{Replicas: owner.Spec.Replicas, Selector: selectorOf(owner), Template: *template},
	}, deploymentKind)
	if err != nil {
		return nil, err
	}
	// What a Go struct spells out although nobody has said it.
	unstructured.RemoveNestedField(out.Object, "spec", "strategy")
	unstructured.RemoveNestedField(out.Object, "spec", "template", "metadata", "creationTimestamp")
	for _, list := range []string{"containers", "initContainers"} {
		dropEmptyResources(out.Object, "spec", "template", "spec", list)
	}
	return out, stampAppliedHash(out)
}

// lettingGo is a document that takes a scaler's name off containers that the owner has
// removed: applied as the scaler, it says again what the scaler owns of the others. nil
// where there is nothing to take off. While the scaler owns anything of a container, no
// apply of ours removes it. One that was never the owner's is not the owner's to remove.
func releasedFields(owner *v1beta1.ScaledDeployment, live *appsv1.Deployment, owners, scalers *fieldpath.Set) *appsv1ac.DeploymentApplyConfiguration {
	var kept []*corev1ac.ContainerApplyConfiguration
	found := false
	for _, c := range live.Spec.Template.Spec.Containers {
		isWanted := slices.ContainsFunc(owner.Spec.Template.Spec.Containers, func(w corev1.Container) bool { return w.Name == c.Name })
		if !isWanted && ownership.HasContainer(owners, c.Name) && ownership.HasContainer(scalers, c.Name) {
			found = true
			continue
		}
		resources := corev1ac.ResourceRequirements()
		if requests := ownedResources(c.Resources.Requests, c.Name, "requests", scalers); len(requests) > 0 {
			resources.WithRequests(requests)
		}
		if limits := ownedResources(c.Resources.Limits, c.Name, "limits", scalers); len(limits) > 0 {
			resources.WithLimits(limits)
		}
		if resources.Requests != nil || resources.Limits != nil {
			kept = append(kept, corev1ac.Container().WithName(c.Name).WithResources(resources))
		}
	}
	if !found {
		return nil
	}
	out := appsv1ac.Deployment(live.Name, live.Namespace).WithUID(live.UID).WithResourceVersion(live.ResourceVersion)
	if len(kept) > 0 {
		out.WithSpec(appsv1ac.DeploymentSpec().WithTemplate(corev1ac.PodTemplateSpec().WithSpec(corev1ac.PodSpec().WithContainers(kept...))))
	}
	return out
}

// ownedResources are those of the list that are in the set.
func ownedResources(list corev1.ResourceList, container, field string, set *fieldpath.Set) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, amount := range list {
		if ownership.HasResource(set, container, field, string(name)) {
			out[name] = amount
		}
	}
	return out
}

// scalerFor is the VerticalScaler that the owner asks for. It has the owner's name.
func scalerFor(owner *v1beta1.ScaledDeployment) (*unstructured.Unstructured, error) {
	out, err := ownedDocument(owner, &v1beta1.VerticalScaler{
		ObjectMeta: metav1.ObjectMeta{Name: owner.Name},
		Spec:       v1beta1.VerticalScalerSpec{DeploymentName: deploymentName(owner), Scaling: *owner.Spec.Scaling.DeepCopy()},
	}, scalerKind)
	if err != nil {
		return nil, err
	}
	return out, stampAppliedHash(out)
}

// owned makes the object one of the owner's.
func ownedDocument(owner *v1beta1.ScaledDeployment, object metav1.Object, kind schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	object.SetNamespace(owner.Namespace)
	object.SetLabels(map[string]string{v1beta1.ScaledDeploymentLabel: owner.Name})
	object.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: v1beta1.GroupVersion.String(),
		Kind:       v1beta1.ScaledDeploymentKind,
		Name:       owner.Name,
		UID:        owner.UID,
		Controller: ptr.To(true),
		// Deleting the owner in the foreground waits for what it owns.
		BlockOwnerDeletion: ptr.To(true),
	}})
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("writing out the %s: %w", kind.Kind, err)
	}
	out := &unstructured.Unstructured{Object: content}
	out.SetGroupVersionKind(kind)
	unstructured.RemoveNestedField(out.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(out.Object, "status")
	return out, nil
}

// leaveResources takes out of the containers the requests and limits that are in the
// set: they belong to a scaler, until it gives them back.
func omitResources(containers []corev1.Container, scalers *fieldpath.Set) {
	for i := range containers {
		c := &containers[i]
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if ownership.HasResource(scalers, c.Name, "requests", string(name)) {
				delete(c.Resources.Requests, name)
			}
			if ownership.HasResource(scalers, c.Name, "limits", string(name)) {
				delete(c.Resources.Limits, name)
			}
		}
	}
}

// dropEmptyResources drops "resources: {}" from the containers in a list.
func dropEmptyResources(object map[string]any, path ...string) {
	list, _, _ := unstructured.NestedFieldNoCopy(object, path...)
	containers, _ := list.([]any)
	for _, c := range containers {
		if container, ok := c.(map[string]any); ok {
			if resources, ok := container["resources"].(map[string]any); ok && len(resources) == 0 {
				delete(container, "resources")
			}
		}
	}
}

// stamp notes on the document what it says, so that we can see later whether it was
// applied: a value that is wanted no longer cannot be told from one that somebody else
// has added.
func stampAppliedHash(desired *unstructured.Unstructured) error {
	text, err := json.Marshal(desired.Object) // its keys are sorted
	if err != nil {
		return fmt.Errorf("encoding %s: %w", desired.GetKind(), err)
	}
	sum := sha256.Sum256(text)
	desired.SetAnnotations(map[string]string{v1beta1.AppliedAnnotation: hex.EncodeToString(sum[:8])})
	return nil
}

// appliedOf is what the document, or the object that it was applied to, says of itself.
func appliedHash(object metav1.Object) string {
	return object.GetAnnotations()[v1beta1.AppliedAnnotation]
}

// isInForce says whether applying the document would change nothing: it was applied,
// and all that it says still holds.
func isApplied(desired *unstructured.Unstructured, live metav1.Object) (bool, error) {
	if appliedHash(live) != appliedHash(desired) {
		return false, nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return false, fmt.Errorf("reading the %s: %w", desired.GetKind(), err)
	}
	said := desired.DeepCopy()
	said.SetGroupVersionKind(schema.GroupVersionKind{}) // a typed object does not say
	unstructured.RemoveNestedField(said.Object, "apiVersion")
	unstructured.RemoveNestedField(said.Object, "kind")
	return contains("", said.Object, content), nil
}

// mergedLists are the lists, of those in a Deployment and a VerticalScaler, whose entries
// server-side apply tells apart by a key, so that others may have put theirs in between.
// Every other list is one value.
var mergedLists = sets.New("ownerReferences",
	"containers", "initContainers", "env", "ports", "volumeMounts", "volumeDevices", "volumes", "imagePullSecrets",
	"hostAliases", "topologySpreadConstraints", "resourceClaims", "claims", "schedulingGates",
	"containerPolicies", "controlledResources")

// holds says whether live, the value of a field, has all that is desired.
func contains(field string, desired, live any) bool {
	switch want := desired.(type) {
	case map[string]any:
		have, ok := live.(map[string]any)
		if !ok {
			return false
		}
		for key, value := range want {
			if !contains(key, value, have[key]) {
				return false
			}
		}
		return true
	case []any:
		have, ok := live.([]any)
		if !ok && (len(want) > 0 || live != nil) {
			return false // but an empty list is stored as none
		}
		if mergedLists.Has(field) {
			return containsInOrder(want, have)
		}
		return slices.EqualFunc(want, have, func(a, b any) bool { return contains(field, a, b) })
	}
	return desired == live
}

// holdInOrder says whether a list has all that is desired, in that order, whatever else
// is in between.
func containsInOrder(want, have []any) bool {
	for _, value := range want {
		at := slices.IndexFunc(have, func(entry any) bool { return contains("", value, entry) })
		if at < 0 {
			return false
		}
		have = have[at+1:]
	}
	return true
}

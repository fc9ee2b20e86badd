// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaleddeployment

import (
	"cmp"
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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
)

// A desired object is a document for server-side apply: it has only the fields that the
// owner sets. Fields of other managers stay, such as the annotation of "kubectl rollout
// restart" or the Deployment's strategy.

// The kinds of the objects that an owner has.
var (
	deploymentKind = appsv1.SchemeGroupVersion.WithKind("Deployment")
	scalerKind     = v1beta1.GroupVersion.WithKind("VerticalScaler")
)

// deploymentName is the name of the owner's Deployment.
func deploymentName(owner *v1beta1.ScaledDeployment) string {
	return cmp.Or(owner.Spec.DeploymentName, owner.Name)
}

// selectorOf is the Deployment's selector.
func selectorOf(owner *v1beta1.ScaledDeployment) *metav1.LabelSelector {
	if owner.Spec.Selector != nil {
		return owner.Spec.Selector
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{v1beta1.ScaledDeploymentLabel: owner.Name}}
}

// adoptHPAReplicas returns the owner with the Deployment's replicas if an HPA scales the
// Deployment directly. Such an HPA should target the owner, but reverting its changes
// would terminate pods again and again. Without the field, the API server would set the
// default.
func adoptHPAReplicas(s *scope) *v1beta1.ScaledDeployment {
	if s.scaledBy == "" || s.deployment == nil {
		return s.owner
	}
	adopted := s.owner.DeepCopy()
	adopted.Spec.Replicas = s.deployment.Spec.Replicas
	return adopted
}

// deploymentFor is the Deployment that the owner asks for, without the resources that
// scalers own.
func deploymentFor(owner *v1beta1.ScaledDeployment, scalers *fieldpath.Set) (*unstructured.Unstructured, error) {
	template := owner.Spec.Template.DeepCopy()
	if owner.Spec.Selector == nil {
		if template.Labels == nil {
			template.Labels = map[string]string{}
		}
		// The API server rejects a label with another value.
		if _, ok := template.Labels[v1beta1.ScaledDeploymentLabel]; !ok {
			template.Labels[v1beta1.ScaledDeploymentLabel] = owner.Name
		}
	}
	omitResources(template.Spec.Containers, scalers)
	omitResources(template.Spec.InitContainers, scalers)
	out, err := ownedDocument(owner, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: deploymentName(owner)},
		Spec:       appsv1.DeploymentSpec{Replicas: owner.Spec.Replicas, Selector: selectorOf(owner), Template: *template},
	}, deploymentKind)
	if err != nil {
		return nil, err
	}
	// A Go struct encodes these fields even if they are not set.
	unstructured.RemoveNestedField(out.Object, "spec", "strategy")
	unstructured.RemoveNestedField(out.Object, "spec", "template", "metadata", "creationTimestamp")
	for _, list := range []string{"containers", "initContainers"} {
		dropEmptyResources(out.Object, "spec", "template", "spec", list)
	}
	return out, stampAppliedHash(out)
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

// ownedDocument turns the object into a document with the owner's label and reference.
func ownedDocument(owner *v1beta1.ScaledDeployment, object metav1.Object, kind schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	object.SetNamespace(owner.Namespace)
	object.SetLabels(map[string]string{v1beta1.ScaledDeploymentLabel: owner.Name})
	object.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: v1beta1.GroupVersion.String(),
		Kind:       v1beta1.ScaledDeploymentKind,
		Name:       owner.Name,
		UID:        owner.UID,
		Controller: ptr.To(true),
		// Foreground deletion of the owner waits for its objects.
		BlockOwnerDeletion: ptr.To(true),
	}})
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("encoding the %s: %w", kind.Kind, err)
	}
	out := &unstructured.Unstructured{Object: content}
	out.SetGroupVersionKind(kind)
	unstructured.RemoveNestedField(out.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(out.Object, "status")
	return out, nil
}

// omitResources removes the requests and limits that the set contains. They belong to a
// scaler until it restores the original values.
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

// dropEmptyResources removes "resources: {}" from the containers in a list.
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

// stampAppliedHash annotates the document with its hash, which shows later whether it was
// applied. Without it, a value that the owner has removed looks like one that another
// manager has added.
func stampAppliedHash(desired *unstructured.Unstructured) error {
	text, err := json.Marshal(desired.Object) // sorts the keys
	if err != nil {
		return fmt.Errorf("encoding %s: %w", desired.GetKind(), err)
	}
	sum := sha256.Sum256(text)
	desired.SetAnnotations(map[string]string{v1beta1.AppliedAnnotation: hex.EncodeToString(sum[:8])})
	return nil
}

// applyingDocument is applied first: the document with the label and without its hash. A Deployment
// that has kept the label is applied again.
func applyingDocument(desired *unstructured.Unstructured) *unstructured.Unstructured {
	out := desired.DeepCopy()
	out.SetLabels(map[string]string{v1beta1.ScaledDeploymentLabel: desired.GetLabels()[v1beta1.ScaledDeploymentLabel], v1beta1.ApplyingLabel: "true"})
	out.SetAnnotations(nil)
	return out
}

// appliedHash is the hash of the document, or of the document that was applied to an object.
func appliedHash(object metav1.Object) string {
	return object.GetAnnotations()[v1beta1.AppliedAnnotation]
}

// isApplied reports whether applying the document would change nothing: it was applied, and
// the object still has all of its values.
func isApplied(desired *unstructured.Unstructured, live metav1.Object) (bool, error) {
	if appliedHash(live) != appliedHash(desired) {
		return false, nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return false, fmt.Errorf("converting the %s: %w", desired.GetKind(), err)
	}
	fields := desired.DeepCopy()
	unstructured.RemoveNestedField(fields.Object, "apiVersion") // A typed object has none.
	unstructured.RemoveNestedField(fields.Object, "kind")
	return contains("", fields.Object, content), nil
}

// mergedLists are the lists of a Deployment and a VerticalScaler that server-side apply
// merges by key. Other managers may have added entries. Any other list is one value.
var mergedLists = sets.New("ownerReferences",
	"containers", "initContainers", "env", "ports", "volumeMounts", "volumeDevices", "volumes", "imagePullSecrets",
	"hostAliases", "topologySpreadConstraints", "resourceClaims", "claims", "schedulingGates",
	"containerPolicies", "controlledResources")

// contains reports whether live, the value of the field, has everything that is desired.
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
			return false // An empty list is stored as none.
		}
		if mergedLists.Has(field) {
			return containsInOrder(want, have)
		}
		return slices.EqualFunc(want, have, func(a, b any) bool { return contains(field, a, b) })
	}
	return desired == live
}

// containsInOrder reports whether a list has all desired entries in their order, with any
// other entries between them.
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

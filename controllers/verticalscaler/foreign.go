// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mostForeign limits the pods of other owners that a message names.
const mostForeign = 3

// foreignPods are the pods of other owners that match the selector of a Deployment without pods, such as pods of a Rollout of
// Argo that refers to the Deployment.
type foreignPods struct {
	// uid and version identify the Deployment and its state.
	uid     types.UID
	version string
	// names are the names of the pods and of their controllers, at most mostForeign.
	names []string
}

// foreignPodsOf returns the names of foreign pods. The cache does not know the labels of pods, so the API server is asked
// once for each version of the Deployment.
func (r *Reconciler) foreignPodsOf(ctx context.Context, scaler types.NamespacedName, d *appsv1.Deployment) ([]string, error) {
	if known := r.memory.of(scaler).foreign; known.uid == d.UID && known.version == d.ResourceVersion {
		return known.names, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("reading the selector of Deployment %s: %w", d.Name, err)
	}
	pods := metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	err = r.Live.List(ctx, &pods, client.InNamespace(d.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.Limit(mostForeign))
	if err != nil {
		return nil, fmt.Errorf("listing the pods that match the selector of Deployment %s: %w", d.Name, err)
	}
	var names []string
	for i := range pods.Items {
		owner := "no controller"
		if o := metav1.GetControllerOfNoCopy(&pods.Items[i]); o != nil {
			owner = o.Kind + " " + o.Name
		}
		names = append(names, fmt.Sprintf("%s (%s)", pods.Items[i].Name, owner))
	}
	r.memory.change(scaler, func(m *memory) { m.foreign = foreignPods{d.UID, d.ResourceVersion, names} })
	return names, nil
}

// noteForeign adds foreign pods to the message that the Deployment has no pods.
func noteForeign(message string, names []string) string {
	if len(names) == 0 {
		return message
	}
	return message + ". Pods that match its selector belong to another owner and are not sized: " + strings.Join(names, ", ")
}

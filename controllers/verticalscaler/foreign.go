// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// mostForeign limits the pods of other owners that a message names.
const mostForeign = 3

// nameForeignPods adds to the reason NoPods which pods match the Deployment's selector and belong to another owner, such as
// a Rollout of Argo that refers to the Deployment. The cache does not know the labels of pods, so the API server is asked
// when the Deployment is first found without pods. The message stays until it has some again.
func (r *Reconciler) nameForeignPods(ctx context.Context, s *scope) error {
	if s.plan.Verdict.Reason != v1beta1.ReasonNoPods || len(s.observation.situation.Pods) > 0 || s.observation.deployment.Spec.Selector == nil {
		return nil
	}
	if before := meta.FindStatusCondition(s.scaler.Status.Conditions, v1beta1.ConditionApplied); before != nil && before.Reason == v1beta1.ReasonNoPods {
		s.plan.Verdict.Message = before.Message
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s.observation.deployment.Spec.Selector)
	if err != nil {
		return fmt.Errorf("reading the selector of Deployment %s: %w", s.observation.deployment.Name, err)
	}
	pods := metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	err = r.Live.List(ctx, &pods, client.InNamespace(s.scaler.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.Limit(mostForeign))
	if err != nil {
		return fmt.Errorf("listing the pods that match the selector of Deployment %s: %w", s.observation.deployment.Name, err)
	}
	var names []string
	for i := range pods.Items {
		owner := "no controller"
		if o := metav1.GetControllerOfNoCopy(&pods.Items[i]); o != nil {
			owner = o.Kind + " " + o.Name
		}
		names = append(names, fmt.Sprintf("%s (%s)", pods.Items[i].Name, owner))
	}
	if len(names) > 0 {
		s.plan.Verdict = s.plan.Verdict.Noting("Pods that match its selector belong to another owner and are not sized: " + strings.Join(names, ", "))
	}
	return nil
}

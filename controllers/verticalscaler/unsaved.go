// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/apierror"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
)

// The usage history is saved before anything changes, so that a restarted operator knows what a
// change was based on. While the API server refuses the checkpoint, the status says so, and only
// urgent changes are made: a container that is OOM-killed or starved does not wait for a record.

// unsavedRetry is when a refused checkpoint is tried again. No event tells that a role, a quota
// or a policy would accept it now.
const unsavedRetry = 30 * time.Second

// resolves says what to do about a refused checkpoint, by reason.
var resolves = map[string]string{
	v1beta1.ReasonForbidden:     ". Give the operator the role of its release, which allows verticalscalercheckpoints",
	v1beta1.ReasonQuotaExceeded: ". Raise the ResourceQuota, or remove verticalscalercheckpoints from it",
	v1beta1.ReasonRejected:      ". Make the policy or webhook accept verticalscalercheckpoints of the operator",
}

// noteRefused notes in an obstacle what follows from it that the API server refuses a request for the checkpoint. It returns any
// other error.
func (s *scope) noteRefused(ctx context.Context, err error, follows string, to *plan.Obstacle) error {
	refused := apierror.Of(err)
	if refused.Reason == "" || apierrors.IsNotFound(err) {
		return err
	}
	log.FromContext(ctx).V(1).Info("Checkpoint rejected", "reason", refused.Reason, "message", refused.Message)
	refused.Message = follows + ": " + refused.Message + resolves[refused.Reason]
	*to = stalledBy(refused)
	s.again(unsavedRetry)
	return nil
}

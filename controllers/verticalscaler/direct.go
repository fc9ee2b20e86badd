// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownwrites"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler/precedence"
)

// Direct prepares a reconciler for callers that call Reconcile themselves, as tests do, instead of SetupWithManager.
// Nothing is watched: Saw and Lost replace the watch of scalers.
func (r *Reconciler) Direct() {
	r.written = &ownwrites.Memory{}
	r.order = precedence.New(precedence.MaxReported)
}

// Saw records that a scaler exists, as the watch does.
func (r *Reconciler) Saw(vs *v1beta1.VerticalScaler) { r.order.Note(vs) }

// Lost records that a scaler was deleted, as the watch does.
func (r *Reconciler) Lost(vs client.ObjectKey) { r.order.Forget(vs) }

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownwrites"
)

// Direct prepares a reconciler for callers that call Reconcile themselves, as tests do, instead of SetupWithManager.
// Nothing is watched: Saw and Lost tell the reconciler of scalers.
func (r *Reconciler) Direct() {
	r.written = &ownwrites.Memory{}
	r.lookup = &lookup{indexer: toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, indexers())}
	r.contenders = newContenders(maxContenders)
}

// Saw tells the reconciler that a scaler exists, as its watch does.
func (r *Reconciler) Saw(vs *v1beta1.VerticalScaler) { r.contenders.note(vs) }

// Lost tells the reconciler that a scaler was deleted, as its watch does.
func (r *Reconciler) Lost(vs client.ObjectKey) { r.contenders.forget(vs) }

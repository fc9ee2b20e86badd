// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// isRestored reports whether the checkpoint was restored since it was read.
func (e *entry) isRestored(vs *v1beta1.VerticalScaler) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	value := vs.Annotations[v1beta1.RestoredAnnotation]
	return value != "" && value != e.restored
}

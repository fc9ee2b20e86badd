// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
)

// isRestored reports whether the checkpoint was restored since it was read.
func (e *entry) isRestored(vs *v1beta1.VerticalScaler) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	value := vs.Annotations[v1beta1.RestoredAnnotation]
	return value != "" && value != e.restored
}

// keepOthers keeps the histories of containers that a restored checkpoint does not have.
func (e *entry) keepOthers(known history.Histories) {
	for name, c := range known {
		if e.histories[name] == nil {
			e.histories[name] = c
		}
	}
}

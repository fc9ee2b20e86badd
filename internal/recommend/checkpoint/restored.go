// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"fmt"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
)

// isRestored says whether the checkpoint was restored from a backup since it was read.
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

// Observed is how much usage each container in a checkpoint is based on. The error names the first container that
// an operator could not read, or that knows of a time later than latest.
func Observed(spec v1beta1.VerticalScalerCheckpointSpec, latest time.Time) (map[string]time.Duration, error) {
	observed := map[string]time.Duration{}
	for _, c := range spec.Containers {
		container, err := read(c, latest)
		if err != nil {
			return nil, fmt.Errorf("the history of container %q: %w", c.ContainerName, err)
		}
		observed[c.ContainerName] = container.Observed()
	}
	return observed, nil
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/hack/internal/stage"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
)

//go:embed operator.yaml
var operatorConfig []byte

// sayCompression tells how the demo's time differs from the usual. It is computed,
// so that it stays true.
func sayCompression(usual, here config.Operator) []string {
	u, h := usual.Recommendation, here.Recommendation
	return []string{
		fmt.Sprintf("A day of remembering is %s here: CPU usage counts half after %s instead of %s, a peak of",
			dayHere, h.CPUHalfLife.Duration, days(u.CPUHalfLife)),
		fmt.Sprintf("memory for %s instead of %s. Not to scale: the memory after an OOM kill fades by half in",
			h.MemoryWindow.Duration, days(u.MemoryWindow)),
		fmt.Sprintf("%s instead of %s, the first recommendation needs %s of usage instead of %s,",
			h.OOMHalfLife.Duration, days(u.OOMHalfLife), h.MinEvidence.Duration, u.MinEvidence.Duration),
		fmt.Sprintf("usage is read every %s (metrics-server: %s) instead of %s, decisions pause %s instead of 5m0s,",
			here.Collection.Interval.Duration, stage.MetricResolution, usual.Collection.Interval.Duration, cooldown),
		fmt.Sprintf("and pods that were lowered are watched for %s instead of 2m0s before the others follow.", cooldown),
	}
}

func days(d metav1.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d.Duration == day:
		return "a day"
	case d.Duration > 0 && d.Duration%day == 0:
		return fmt.Sprintf("%d days", d.Duration/day)
	}
	return d.Duration.String()
}

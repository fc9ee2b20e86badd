// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// up raises the pods in place. One kubelet is late.
func up() Scenario {
	return Scenario{
		Name: "up",
		Setup: func(w *World) error {
			w.Script(web, 1, Late)
			return w.deploy(web)
		},
		Act: func(w *World) error {
			return w.create(w.scaler(web, web, v1beta1.UpdateModeInPlace, large))
		},
		Done: func(w *World) string {
			return firstOf(w.says(web, v1beta1.ConditionApplied, metav1.ConditionTrue, v1beta1.ReasonApplied), w.podsHave(web, large))
		},
	}
}

// firstOf is the first text that is not empty.
func firstOf(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

// says describes how a scaler's condition differs from what is expected; "" if it does not,
// and is about the latest generation.
func (w *World) says(scaler, kind string, status metav1.ConditionStatus, reason string) string {
	var s v1beta1.VerticalScaler
	if err := w.client.Get(w.ctx, w.key(scaler), &s); err != nil {
		return err.Error()
	}
	c := meta.FindStatusCondition(s.Status.Conditions, kind)
	if c == nil {
		return fmt.Sprintf("scaler %s has no condition %s", scaler, kind)
	}
	if c.Status != status || c.Reason != reason || c.ObservedGeneration != s.Generation {
		return fmt.Sprintf("scaler %s: %s of generation %d of %d is %s, %s: %s", scaler, kind, c.ObservedGeneration, s.Generation, c.Status, c.Reason, c.Message)
	}
	return ""
}

// podsHave describes the pods of a Deployment that do not have a size, or not in force; ""
// if all have it and the Deployment is complete.
func (w *World) podsHave(deployment string, s size) string {
	if wrong := w.isRunning(deployment); wrong != "" {
		return wrong
	}
	pods, err := w.podsOf(deployment)
	if err != nil {
		return err.Error()
	}
	for i := range pods {
		if line := podLine(&pods[i]); !hasSize(&pods[i], s) {
			return fmt.Sprintf("pod %s is %s", pods[i].Name, line)
		}
	}
	return ""
}

func hasSize(pod *corev1.Pod, s size) bool {
	line := podLine(pod)
	return strings.Contains(line, "zeta "+resourceLine(requirements(s.zetaCPU, s.zetaMemory))) &&
		strings.Contains(line, "alpha "+resourceLine(requirements(s.alphaCPU, s.alphaMemory))) && !strings.Contains(line, "in force")
}

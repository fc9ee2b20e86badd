// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// The annotations that the fake nodes take a pod's usage from, and the one whose
// every new value makes them kill the pod's first container for its memory.
const (
	cpuAnnotation    = "usage.verticalscaler.io/cpu"
	memoryAnnotation = "usage.verticalscaler.io/memory"
	oomAnnotation    = "kwok.verticalscaler.io/oom"
)

// drive makes all pods use so much from now on, and one of them run out of memory
// if that is asked for. It names the victim.
func drive(ctx context.Context, c client.Client, load quantity.Amounts, oom string) (victim string, err error) {
	pods, err := listPods(ctx, c)
	if err != nil {
		return "", err
	}
	for i := range pods {
		annotations := map[string]string{
			cpuAnnotation:    quantity.FormatCPU(load.CPUMillis),
			memoryAnnotation: quantity.FormatMemory(load.MemoryBytes),
		}
		// Any will do; the last one has the most pods to be resized before it.
		if oom != "" && i == len(pods)-1 {
			annotations[oomAnnotation] = oom
			victim = pods[i].Name
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
		if err != nil {
			return "", fmt.Errorf("encoding the load: %w", err)
		}
		if err := c.Patch(ctx, &pods[i], client.RawPatch(types.MergePatchType, patch)); err != nil {
			return "", fmt.Errorf("moving the load of pod %s: %w", pods[i].Name, err)
		}
	}
	return victim, nil
}

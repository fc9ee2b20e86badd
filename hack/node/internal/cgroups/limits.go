// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Limits are what the kernel enforces on a container at this moment. -1 stands for no limit.
type Limits struct {
	Version          int   `json:"cgroupVersion"`
	CPUShares        int64 `json:"cpuShares"` // with version 1
	CPUQuotaMicros   int64 `json:"cpuQuotaMicros"`
	CPUPeriodMicros  int64 `json:"cpuPeriodMicros"`
	MemoryLimitBytes int64 `json:"memoryLimitBytes"`
}

// Container reads the limits of a container.
func (g *Group) Container(podUID, containerID string) (limits Limits, err error) {
	limits.Version = g.Layout.Version
	var texts []string
	files := [][2]string{{"cpu", "cpu.max"}, {"memory", "memory.max"}}
	if g.Layout.Version == 1 {
		files = [][2]string{{"cpu", "cpu.shares"}, {"cpu", "cpu.cfs_quota_us"}, {"cpu", "cpu.cfs_period_us"}, {"memory", "memory.limit_in_bytes"}}
	}
	for _, file := range files {
		text, err := g.read(file[0], filepath.Join("pod"+podUID, containerID, file[1]))
		if err != nil {
			return limits, err
		}
		texts = append(texts, strings.Fields(text)...) // cpu.max is "30000 100000" or "max 100000"
	}
	fields := []*int64{&limits.CPUQuotaMicros, &limits.CPUPeriodMicros, &limits.MemoryLimitBytes}
	if g.Layout.Version == 1 {
		fields = append([]*int64{&limits.CPUShares}, fields...)
	}
	if len(texts) != len(fields) {
		return limits, fmt.Errorf("cannot read %q", texts)
	}
	for i, field := range fields {
		if texts[i] == "max" {
			*field = -1
		} else if *field, err = strconv.ParseInt(texts[i], 10, 64); err != nil {
			return limits, err
		}
	}
	return limits, nil
}

// read looks below each quality-of-service class, because the caller does not know the class of the pod.
func (g *Group) read(controller, file string) (string, error) {
	for _, class := range []string{"", "burstable", "besteffort"} {
		for _, tree := range g.Layout.Trees {
			if !tree.has(controller) {
				continue
			}
			if text, err := os.ReadFile(filepath.Join(tree.Mount, g.Name, "kubepods", class, file)); err == nil {
				return string(text), nil
			}
		}
	}
	return "", fmt.Errorf("there is no %s", file)
}

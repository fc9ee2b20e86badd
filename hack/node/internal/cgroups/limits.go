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

// Unlimited stands for a quota or limit that is not set, in both generations.
const Unlimited = -1

// Limits are what the kernel enforces on a container or a pod at this moment.
type Limits struct {
	Version int `json:"cgroupVersion"`
	// CPUShares is version 1 (2 to 262144), CPUWeight version 2 (1 to 10000).
	CPUShares        *int64 `json:"cpuShares,omitempty"`
	CPUWeight        *int64 `json:"cpuWeight,omitempty"`
	CPUQuotaMicros   int64  `json:"cpuQuotaMicros"`
	CPUPeriodMicros  int64  `json:"cpuPeriodMicros"`
	MemoryLimitBytes int64  `json:"memoryLimitBytes"`
	MemoryUsageBytes int64  `json:"memoryUsageBytes"`
}

// Container reads the limits of one container, or with an empty containerID those of its pod.
func (g *Group) Container(podUID, containerID string) (Limits, error) {
	if g.Layout.Version == 2 {
		folder, err := g.find("memory", podUID, containerID)
		if err != nil {
			return Limits{}, err
		}
		return readSecond(folder)
	}
	cpu, err := g.find("cpu", podUID, containerID)
	if err != nil {
		return Limits{}, err
	}
	memory, err := g.find("memory", podUID, containerID)
	if err != nil {
		return Limits{}, err
	}
	return readFirst(cpu, memory)
}

// find looks below each quality-of-service class, because the caller does not know the pod's.
func (g *Group) find(controller, podUID, containerID string) (string, error) {
	tree := g.Layout.tree(controller)
	if tree == nil {
		return "", fmt.Errorf("no %s controller", controller)
	}
	for _, class := range []string{"", "burstable", "besteffort"} {
		folder := filepath.Join(tree.Mount, g.Name, "kubepods", class, "pod"+podUID, containerID)
		if _, err := os.Stat(folder); err == nil {
			return folder, nil
		}
	}
	return "", fmt.Errorf("pod %s has no %s cgroup for container %q", podUID, controller, containerID)
}

func readFirst(cpu, memory string) (Limits, error) {
	r := reader{}
	shares := r.number(cpu, "cpu.shares")
	limits := Limits{
		Version:          1,
		CPUShares:        &shares,
		CPUQuotaMicros:   r.number(cpu, "cpu.cfs_quota_us"),
		CPUPeriodMicros:  r.number(cpu, "cpu.cfs_period_us"),
		MemoryLimitBytes: r.number(memory, "memory.limit_in_bytes"),
		MemoryUsageBytes: r.number(memory, "memory.usage_in_bytes"),
	}
	// Version 1 says "no limit" with the largest multiple of the page size that fits.
	if limits.MemoryLimitBytes >= 1<<62 {
		limits.MemoryLimitBytes = Unlimited
	}
	return limits, r.err
}

func readSecond(folder string) (Limits, error) {
	r := reader{}
	weight := r.number(folder, "cpu.weight")
	limits := Limits{
		Version:          2,
		CPUWeight:        &weight,
		MemoryLimitBytes: r.number(folder, "memory.max"),
		MemoryUsageBytes: r.number(folder, "memory.current"),
	}
	// cpu.max is "30000 100000" or "max 100000".
	quota, period, _ := strings.Cut(r.text(folder, "cpu.max"), " ")
	limits.CPUQuotaMicros, limits.CPUPeriodMicros = r.parse(quota), r.parse(period)
	return limits, r.err
}

// reader keeps the first error, so that a list of numbers reads like one.
type reader struct{ err error }

func (r *reader) text(folder, file string) string {
	text, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil && r.err == nil {
		r.err = err
	}
	return strings.TrimSpace(string(text))
}

func (r *reader) number(folder, file string) int64 { return r.parse(r.text(folder, file)) }

func (r *reader) parse(text string) int64 {
	if text == "max" {
		return Unlimited
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil && r.err == nil {
		r.err = err
	}
	return n
}

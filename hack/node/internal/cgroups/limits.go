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

// Unlimited stands for a quota or limit that is not set, in both versions.
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
	r := reader{group: g, below: filepath.Join("pod"+podUID, containerID)}
	limits := Limits{Version: g.Layout.Version}
	if g.Layout.Version == 1 {
		limits.CPUShares = new(r.number("cpu", "cpu.shares"))
		limits.CPUQuotaMicros = r.number("cpu", "cpu.cfs_quota_us")
		limits.CPUPeriodMicros = r.number("cpu", "cpu.cfs_period_us")
		limits.MemoryLimitBytes = r.number("memory", "memory.limit_in_bytes")
		limits.MemoryUsageBytes = r.number("memory", "memory.usage_in_bytes")
		// In version 1, "no limit" is the largest multiple of the page size that fits.
		if limits.MemoryLimitBytes >= 1<<62 {
			limits.MemoryLimitBytes = Unlimited
		}
		return limits, r.err
	}
	limits.CPUWeight = new(r.number("cpu", "cpu.weight"))
	// cpu.max is "30000 100000" or "max 100000".
	quota, period, _ := strings.Cut(r.text("cpu", "cpu.max"), " ")
	limits.CPUQuotaMicros, limits.CPUPeriodMicros = r.parse(quota), r.parse(period)
	limits.MemoryLimitBytes = r.number("memory", "memory.max")
	limits.MemoryUsageBytes = r.number("memory", "memory.current")
	return limits, r.err
}

// reader reads files of one cgroup. It keeps the first error.
type reader struct {
	group *Group
	below string
	err   error
}

// text looks below each quality-of-service class, because the caller does not know the class of the pod.
func (r *reader) text(controller, file string) string {
	for _, class := range []string{"", "burstable", "besteffort"} {
		for _, tree := range r.group.Layout.Trees {
			if !tree.has(controller) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(tree.Mount, r.group.Name, "kubepods", class, r.below, file))
			if err == nil {
				return strings.TrimSpace(string(text))
			}
		}
	}
	r.fail(fmt.Errorf("%s has no %s", r.below, file))
	return ""
}

func (r *reader) number(controller, file string) int64 { return r.parse(r.text(controller, file)) }

func (r *reader) parse(text string) int64 {
	if text == "max" {
		return Unlimited
	}
	n, err := strconv.ParseInt(text, 10, 64)
	r.fail(err)
	return n
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"runtime/debug"
	"strconv"
)

const (
	// MemoryLimitEnv names the environment variable with the memory limit of the operator's
	// container, in bytes.
	MemoryLimitEnv = "MEMORY_LIMIT"
	// memoryPercent is the part of the limit that Go's heap, stacks and structures may fill. The
	// rest covers memory that Go does not count, such as the program itself, and the overshoot
	// until a garbage collection ends.
	memoryPercent = 90
	// garbagePercent is the garbage that may be added to the live heap before it is collected. Go's default of 100 takes a quarter
	// more memory, and 8 % less CPU at rest: most of the heap are usage histories and cached objects, which stay.
	garbagePercent = 50
)

// LimitMemory makes Go collect garbage at half of the live heap, and more often near 90 % of the container's memory limit. It
// follows a limit that is changed, as OLM's Subscription can. GOGC and GOMEMLIMIT take precedence. Without a limit, there
// is none. A limit that is not a positive number of bytes is an error.
func LimitMemory(getenv func(string) string) error {
	if getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
	text := getenv(MemoryLimitEnv)
	if text == "" || getenv("GOMEMLIMIT") != "" {
		return nil
	}
	limit, err := strconv.ParseInt(text, 10, 64)
	if err != nil || limit <= 0 {
		return fmt.Errorf("%s must be a positive number of bytes, not %q", MemoryLimitEnv, text)
	}
	debug.SetMemoryLimit(limit / 100 * memoryPercent)
	return nil
}

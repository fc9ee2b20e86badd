// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usage holds what the sources of usage deliver: samples, and what was
// wrong with those that were refused.
package usage

import "time"

// Sample is what one container of one pod used.
type Sample struct {
	Namespace string
	Pod       string
	Container string
	// Time is the end of the window that the sample is about.
	Time time.Time
	// Window is the length of time that CPU is averaged over.
	Window time.Duration
	// CPUMillis is the average CPU used, in millicores. At least 0.
	CPUMillis int64
	// NoCPU says that CPUMillis is of a start, for which the container had more CPU than
	// usual, and tells nothing of what it usually needs.
	NoCPU bool
	// MemoryBytes is the working set, in bytes. At least 0.
	MemoryBytes int64
}

// Refusal says why an item of a source's answer was not used.
type Refusal string

const (
	// Malformed items cannot be read at all, or lack a name or a resource.
	Malformed Refusal = "Malformed"
	// NotANumber stands for quantities such as NaN or Inf.
	NotANumber Refusal = "NotANumber"
	// Negative usage does not exist.
	Negative Refusal = "Negative"
	// TooLarge is above 10,000 cores or 1 PiB.
	TooLarge Refusal = "TooLarge"
	// Stale samples are older than the source's maximum age.
	Stale Refusal = "Stale"
	// FromTheFuture is a sample whose time has not come yet.
	FromTheFuture Refusal = "FromTheFuture"
	// BadWindow is a window that is not above 0, or absurdly long.
	BadWindow Refusal = "BadWindow"
	// Duplicate is a second item about the same container or pod.
	Duplicate Refusal = "Duplicate"
)

// Refused is an item that was not used. Pod and Container are empty where the item
// does not tell them.
type Refused struct {
	Pod       string
	Container string
	Why       Refusal
}

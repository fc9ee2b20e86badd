// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usage holds the samples that usage sources deliver, and the reasons why items were
// rejected.
package usage

import (
	"errors"
	"time"
)

// ErrTooLarge is wrapped by errors about answers that are too large to read at once.
var ErrTooLarge = errors.New("the response is too large")

// Container names a container of a pod.
type Container struct{ Namespace, Pod, Name string }

// Sample is the usage of one container of one pod.
type Sample struct {
	Namespace string
	Pod       string
	Container string
	// Time is the end of the window of the sample.
	Time time.Time
	// Window is the averaging length of CPU.
	Window time.Duration
	// CPUMillis is the average CPU used, in millicores. At least 0.
	CPUMillis int64
	// LimitFactor is the container's applied CPU limit divided by its CPU request, or 0 without one
	// of them. Past usage has none.
	LimitFactor float64
	// CPULimitMillis is that limit, in millicores, or 0 like LimitFactor, and if the pod was resized in the window.
	CPULimitMillis int64
	// NoCPU is true if CPUMillis does not count: it is from a start for which the container had
	// a startup boost.
	NoCPU bool
	// Starting is true if the pod was not Ready yet since the container started, and the container may get the CPU that
	// its starts are seen to need.
	Starting bool
	// RaisesOnly is true if another running pod has no sample of the container: the sample is evidence for more
	// only.
	RaisesOnly bool
	// MemoryBytes is the working set, in bytes. At least 0.
	MemoryBytes int64
	// MemoryRequest and MemoryLimit are the container's amounts that its kubelet reports as applied, or 0. Past
	// usage has none.
	MemoryRequest, MemoryLimit int64
}

// Refusal is the reason why an item of a source's response was not used.
type Refusal string

const (
	// Malformed means that the item cannot be read, or lacks a name or a resource.
	Malformed Refusal = "Malformed"
	// NotANumber means that the quantity is NaN, Inf or the like.
	NotANumber Refusal = "NotANumber"
	// Negative means that the quantity is negative.
	Negative Refusal = "Negative"
	// AboveLimit means that the memory is far above the memory limit of the container.
	AboveLimit Refusal = "AboveLimit"
	// TooLarge means that the quantity is above 10,000 cores or 1 PiB.
	TooLarge Refusal = "TooLarge"
	// Stale means that the sample is older than the source's maximum age.
	Stale Refusal = "Stale"
	// FromTheFuture means that the time of the sample is in the future.
	FromTheFuture Refusal = "FromTheFuture"
	// BadWindow means that the window is not above 0, or implausibly long.
	BadWindow Refusal = "BadWindow"
	// Duplicate means that it is a second item about the same container or pod.
	Duplicate Refusal = "Duplicate"
)

// Words describes the rejected sample, after "the reported".
func (r Refusal) Words() string {
	return map[Refusal]string{
		Malformed:     "sample cannot be read",
		NotANumber:    "usage is not a number",
		Negative:      "usage is negative",
		AboveLimit:    "memory is far above the container's limit",
		TooLarge:      "usage is implausibly large",
		Stale:         "sample is too old",
		FromTheFuture: "sample has a time in the future",
		BadWindow:     "sample has an implausible window",
		Duplicate:     "sample occurs twice",
	}[r]
}

// Answer is the answer of a source about the pods of a namespace.
type Answer struct {
	Samples []Sample
	Refused []Refused
}

// Refused is an item that was not used. Pod and Container are empty if the item does not name
// them.
type Refused struct {
	Pod       string
	Container string
	Why       Refusal
	// Time is the sample's; zero if the item has none.
	Time time.Time
}

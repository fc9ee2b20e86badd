// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import "github.com/verticalscaler/verticalscaler-operator/internal/plan/model"

// These are the types of package model, so that callers import one package.
//
//nolint:revive // each type is documented where it is declared
type (
	Policy          = model.Policy
	Direction       = model.Direction
	ContainerPolicy = model.ContainerPolicy
	LimitRule       = model.LimitRule
	LimitPolicy     = model.LimitPolicy
	Boost           = model.Boost
	Resource        = model.Resource

	Situation        = model.Situation
	Ceilings         = model.Ceilings
	Size             = model.Size
	Original         = model.Original
	NewPods          = model.NewPods
	Obstacle         = model.Obstacle
	Contest          = model.Contest
	Writers          = model.Writers
	RejectedResize   = model.RejectedResize
	RejectedEviction = model.RejectedEviction

	Decision       = model.Decision
	Verification   = model.Verification
	RevertedChange = model.RevertedChange

	Plan     = model.Plan
	Progress = model.Progress
	Verdict  = model.Verdict
	State    = model.State

	Step       = model.Step
	Resize     = model.Resize
	TakeOver   = model.TakeOver
	Rewrite    = model.Rewrite
	Evict      = model.Evict
	EvictedPod = model.EvictedPod
	Restore    = model.Restore
	Record     = model.Record
)

// The states of a verdict.
const (
	Waiting       = model.Waiting
	Changing      = model.Changing
	Applied       = model.Applied
	PartlyApplied = model.PartlyApplied
	Stalled       = model.Stalled
)

// The reasons of a decision.
const (
	DecidedOOMKill    = model.DecidedOOMKill
	DecidedReverted   = model.DecidedReverted
	DecidedBounds     = model.DecidedBounds
	DecidedLowerBound = model.DecidedLowerBound
	DecidedScaleUp    = model.DecidedScaleUp
	DecidedScaleDown  = model.DecidedScaleDown
	DecidedAdopted    = model.DecidedAdopted
)

// The rules for limits when requests change.
const (
	LimitsStay   = model.LimitsStay
	LimitsRise   = model.LimitsRise
	LimitsFollow = model.LimitsFollow
)

// The resources.
const (
	CPU    = model.CPU
	Memory = model.Memory
)

// DefaultTolerance is the policy's default.
const DefaultTolerance = model.DefaultTolerance

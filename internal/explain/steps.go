// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
)

// Amount is an amount of one resource: millicores or bytes. JSON has a number of cores or bytes, text a rounded quantity.
type Amount struct {
	resource string
	amount   int64
}

// MarshalJSON writes a number of cores or bytes.
func (a Amount) MarshalJSON() ([]byte, error) { return json.Marshal(NumberOf(a.resource, a.amount)) }

// Value is the amount in millicores or bytes; 0 for nil.
func (a *Amount) Value() int64 {
	if a == nil {
		return 0
	}
	return a.amount
}

// String is the rounded amount.
func (a Amount) String() string { return Format(a.resource, a.amount) }

// Format is the rounded amount of a resource, as text.
func Format(resource string, amount int64) string {
	if resource == recommend.CPU {
		return quantity.FormatCPU(amount)
	}
	return quantity.FormatMemory(amount)
}

// NumberOf is an amount of a resource for programs: cores, such as 0.31, or bytes.
func NumberOf(resource string, amount int64) any {
	if resource == recommend.CPU {
		return float64(amount) / 1000
	}
	return amount
}

// amountOf is nil for 0.
func amountOf(resource string, amount int64) *Amount {
	if amount == 0 {
		return nil
	}
	return &Amount{resource, amount}
}

// AmountOf is the amount of a resource: cpu or memory.
func AmountOf(resource string, a quantity.Amounts) int64 {
	if resource == recommend.CPU {
		return a.CPUMillis
	}
	return a.MemoryBytes
}

// Step is one step from usage to a target.
type Step struct {
	// Code is the code, one of the constants in internal/recommend.
	Code string `json:"code"`
	// Means describes the step in words.
	Means string `json:"means"`
	// MarginPercent is its addition, in percent of the amount before it; 0 for a step that sets the
	// amount to Value.
	MarginPercent float64 `json:"marginPercent,omitempty"`
	// Value is the amount after the step, as the status has it.
	Value *Amount `json:"value,omitempty"`
}

// InWords describes the step with its margin.
func (s Step) InWords() string {
	if s.MarginPercent == 0 {
		return s.Means
	}
	return fmt.Sprintf("%s %% more: %s", strconv.FormatFloat(s.MarginPercent, 'f', -1, 64), s.Means)
}

// stepMeans is the meaning of a step, also of an unknown one.
func stepMeans(code string) string {
	if i := slices.IndexFunc(Steps, func(s Step) bool { return s.Code == code }); i >= 0 {
		return Steps[i].Means
	}
	return "a step that this version does not know"
}

// Steps are all steps, in words. Each step in internal/recommend needs a line here; a test checks it.
var Steps = []Step{
	{Code: recommend.RecentPeak, Means: "the highest usage of the last 15 minutes to 3 hours"},
	{Code: recommend.RecentUsage, Means: "the mean usage of about the last half hour, plus its deviation"},
	{Code: recommend.DayPeak, Means: "the highest usage of a day"},
	{Code: recommend.WeekPeak, Means: "the highest usage of eight days"},
	{Code: recommend.SameTime, Means: "the highest usage around this time of day, in the last days"},
	{Code: recommend.Peak, Means: "the highest usage of eight days"},
	{Code: recommend.Volatility, Means: "a margin for how much usage peaks vary"},
	{Code: recommend.LimitedHistory, Means: "a margin in the first days of usage"},
	{Code: recommend.SafetyMargin, Means: "the policy's safetyMarginPercent"},
	{Code: recommend.OOMFloor, Means: "the amount that an OOM kill has shown to be necessary"},
	{Code: recommend.RaiseDidNotHelp, Means: "the size before raises that did not stop the OOM kills"},
	{Code: recommend.UsageFollowsLimit, Means: "no more than now, because usage grows with the memory limit"},
	{Code: recommend.TemplateRaised, Means: "the request that was raised in the Deployment, until a day of usage with it is known"},
	{Code: recommend.Minimum, Means: "the smallest recommendation"},
	{Code: recommend.NotLowered, Means: "the previous target: it is not lowered with less history than it was set with"},
	{Code: recommend.MinAllowed, Means: "the policy's minAllowed"},
	{Code: recommend.MaxAllowed, Means: "the policy's maxAllowed"},
}

// stepsOf are the steps of one resource in the status, in words and as values.
func stepsOf(rec recommend.Container, resource string) (steps []Step, values []recommend.Reason) {
	for _, r := range rec.Reasons {
		if r.Resource != resource {
			continue
		}
		values = append(values, r)
		steps = append(steps, Step{Code: r.Code, Means: stepMeans(r.Code), MarginPercent: float64(r.PerMille) / 10, Value: amountOf(resource, r.Value)})
	}
	return steps, values
}

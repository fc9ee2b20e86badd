// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// Amount is an amount of one resource: millicores or bytes. It is written as a quantity,
// exactly, and said for people, rounded.
type Amount struct {
	resource string
	amount   int64
}

// MarshalJSON writes a quantity, such as "310m" or "640Mi".
func (a Amount) MarshalJSON() ([]byte, error) {
	q := quantity.Memory(a.amount)
	if a.resource == recommend.CPU {
		q = quantity.CPU(a.amount)
	}
	return json.Marshal(q.String())
}

// String says the amount for people.
func (a Amount) String() string {
	if a.resource == recommend.CPU {
		return quantity.FormatCPU(a.amount)
	}
	return quantity.FormatMemory(a.amount)
}

// amountOf is nil for 0, which stands for none.
func amountOf(resource string, amount int64) *Amount {
	if amount == 0 {
		return nil
	}
	return &Amount{resource, amount}
}

func of(resource string, a quantity.Amounts) int64 {
	if resource == recommend.CPU {
		return a.CPUMillis
	}
	return a.MemoryBytes
}

// Step is one step from usage to a number.
type Step struct {
	// Code is the code, one of the constants in internal/recommend.
	Code string `json:"code"`
	// Means is what the step does, in words.
	Means string `json:"means"`
	// MarginPercent is what it adds, in percent of the amount before it; 0 for a step
	// that leads to Value whatever was before.
	MarginPercent float64 `json:"marginPercent,omitempty"`
	// Value is the amount after the step, as the status has it.
	Value *Amount `json:"value,omitempty"`
}

// StepMeans is what a step does, in words, and false for one that is not known here.
func StepMeans(code string) (means string, ok bool) {
	i := slices.IndexFunc(stepWords, func(s Step) bool { return s.Code == code })
	if i < 0 {
		return "is a step that this version does not know", false
	}
	return stepWords[i].Means, true
}

// Steps are all that there are, in words.
func Steps() []Step { return slices.Clone(stepWords) }

// Whoever adds a step to internal/recommend adds a line here; a test asks for it.
var stepWords = []Step{
	{Code: recommend.RecentPeak, Means: "holds the highest usage of the last quarter of an hour to three hours"},
	{Code: recommend.RecentUsage, Means: "holds the mean usage of about the last half-hour, and what usage strays from it"},
	{Code: recommend.DayPeak, Means: "holds the highest usage of a day"},
	{Code: recommend.WeekPeak, Means: "holds the highest usage of eight days"},
	{Code: recommend.SameTime, Means: "holds the highest usage around this time of the last days"},
	{Code: recommend.Peak, Means: "is the highest usage of eight days"},
	{Code: recommend.Volatility, Means: "for how much the peaks of usage change"},
	{Code: recommend.LimitedHistory, Means: "until a day of usage is known"},
	{Code: recommend.SafetyMargin, Means: "is the policy's safetyMarginPercent"},
	{Code: recommend.OOMFloor, Means: "is what an OOM kill has proven necessary"},
	{Code: recommend.Minimum, Means: "is the least that is ever recommended"},
	{Code: recommend.NotLowered, Means: "is kept: it was set with more usage than is known now, and nothing is lowered with less"},
	{Code: recommend.MinAllowed, Means: "is the policy's minAllowed"},
	{Code: recommend.MaxAllowed, Means: "is the policy's maxAllowed"},
}

// stepsOf are the steps of one resource that the status tells of, in words and as values.
func stepsOf(rec v1beta1.ContainerRecommendation, resource string) (steps []Step, values []recommend.Reason) {
	for _, r := range rec.Reasons {
		if string(r.Resource) != resource {
			continue
		}
		value := scaler.Reason(r)
		means, _ := StepMeans(r.Code)
		values = append(values, value)
		steps = append(steps, Step{
			Code: r.Code, Means: means, MarginPercent: float64(value.PerMille) / 10, Value: amountOf(resource, value.Value),
		})
	}
	return steps, values
}

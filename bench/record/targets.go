// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/profile"
)

// target is a goal of a profile in a group of a scenario: a measure of at most some value.
type target struct {
	profile         profile.Profile
	scenario, group string
	measure         int
	most            float64
	// isAbsolute reports that most is the value itself; otherwise, it is a share of VPA's value.
	isAbsolute bool
	// isOfFolds reports that it must also be reached without each source in turn.
	isOfFolds bool
}

// targets are the project's targets.
func targets() []target {
	both := []string{groupAll, groupContainers}
	list := []target{
		{profile: profile.Balanced, scenario: recorded, group: groupAll, measure: cores, most: 0.70},
		{profile: profile.Balanced, scenario: recorded, group: groupContainers, measure: cores, most: 0.84},
		{profile: profile.Balanced, scenario: tenPods, group: groupContainers, measure: cores, most: 0.90},
		{profile: profile.Balanced, scenario: jittered, group: groupContainers, measure: cores, most: 0.84},
	}
	for _, group := range both {
		list = append(list, target{profile: profile.Balanced, scenario: recorded, group: group, measure: starved, most: 1})
	}
	list = append(list,
		target{profile: profile.Balanced, scenario: tenPods, group: groupContainers, measure: starved, most: 1},
		target{profile: profile.Balanced, scenario: jittered, group: groupContainers, measure: starvedMeans, most: 0.5, isAbsolute: true},
	)
	for _, group := range both {
		list = append(list, target{profile: profile.Balanced, scenario: recorded, group: group, measure: unserved, most: 1.1, isAbsolute: true})
	}
	list = append(list,
		target{profile: profile.Balanced, scenario: recorded, group: groupContainers, measure: oomDays, most: 0.5, isAbsolute: true},
		target{profile: profile.Balanced, scenario: recorded, group: groupContainers, measure: gib, most: 1},
		target{profile: profile.Balanced, scenario: firstDay, group: groupContainers, measure: oomKills, most: 0.5},
	)
	for _, group := range both {
		list = append(list, target{profile: profile.Balanced, scenario: recorded, group: group, measure: resizesP90, most: 12, isAbsolute: true})
	}
	list = append(list, target{profile: profile.Balanced, scenario: patterned, group: officeWeek, measure: resizes, most: 5, isAbsolute: true})
	for _, group := range both {
		list = append(list, target{profile: profile.Safe, scenario: recorded, group: group, measure: starved, most: 0.25})
	}
	for _, group := range both {
		list = append(list,
			target{profile: profile.Calm, scenario: recorded, group: group, measure: cores, most: 1, isOfFolds: true},
			target{profile: profile.Calm, scenario: recorded, group: group, measure: resizes, most: 2.5, isAbsolute: true, isOfFolds: true},
		)
		for _, measure := range []int{starved, unserved, gib, oomDays} {
			list = append(list, target{profile: profile.Calm, scenario: recorded, group: group, measure: measure, most: 1})
		}
	}
	return list
}

// isReached compares with VPA. If VPA's value is 0, the value must be 0, too.
func (t target) isReached(vpa, ours values) bool {
	if t.isAbsolute {
		return ours[t.measure] <= t.most
	}
	return ours[t.measure] <= t.most*vpa[t.measure]
}

func (t target) String() string {
	m := measures[t.measure]
	text := fmt.Sprintf("%s: at most %.3g of VPA's", m.name, t.most)
	switch {
	case t.isAbsolute && strings.HasSuffix(m.format, "%%"):
		text = fmt.Sprintf("%s: at most %g%%", m.name, t.most)
	case t.isAbsolute:
		text = fmt.Sprintf("%s: at most %g%s", m.name, t.most, m.unit)
	case t.most == 1:
		text = m.name + ": no more than VPA"
	}
	if t.isOfFolds {
		text += ", also without each source"
	}
	return text
}

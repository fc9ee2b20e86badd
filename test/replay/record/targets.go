// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/profile"
)

// target is a goal of a profile in a group: a measure of at most some value.
type target struct {
	profile profile.Profile
	group   string
	measure int
	most    float64
	// isAbsolute reports that most is the value itself; otherwise, it is a share of VPA's value.
	isAbsolute bool
}

// targets are the project's targets.
func targets() []target {
	const third, quarter, half = 1.0 / 3, 0.25, 0.5
	list := []target{
		{profile.Balanced, groupAll, cores, 0.78, false},
		{profile.Balanced, groupContainers, cores, 0.82, false},
	}
	for _, group := range []string{groupAll, groupContainers} {
		list = append(list,
			target{profile.Balanced, group, starved, 1, false},
			target{profile.Balanced, group, unserved, third, false},
		)
	}
	list = append(list,
		target{profile.Balanced, groupContainers, oomDays, half, false},
		target{profile.Balanced, groupContainers, gib, 1.03, false},
	)
	for _, group := range []string{groupAll, groupContainers} {
		list = append(list, target{profile.Balanced, group, resizes, 12, true})
	}
	for _, group := range []string{groupAll, groupContainers} {
		list = append(list, target{profile.Safe, group, starved, quarter, false})
	}
	for _, group := range []string{groupAll, groupContainers} {
		list = append(list, target{profile.Calm, group, resizes, 2.5, true})
		for _, measure := range []int{cores, starved, unserved, gib, oomDays, oomKills} {
			list = append(list, target{profile.Calm, group, measure, 1, false})
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
	switch m := measures[t.measure]; {
	case t.isAbsolute:
		return fmt.Sprintf("%s: at most %g a day", m.name, t.most)
	case t.most == 1:
		return m.name + ": no more than VPA"
	default:
		return fmt.Sprintf("%s: at most %.3g of VPA's", m.name, t.most)
	}
}

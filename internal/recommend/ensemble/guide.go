// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package ensemble

const (
	// guideDays is the least number of similar days for a guide.
	guideDays = 2
	// guideNear is the factor within which usage was at the same time of a similar day.
	guideNear = 1.5
	// guideAhead is how many half-hours a guide looks ahead.
	guideAhead = 8
	// laterFrom and laterTo are the half-hours ahead that tell whether usage falls further.
	laterFrom, laterTo = 3, 6
	// laterShare is the share of a proposal below which usage then is.
	laterShare = .9
	// staircaseShare is the share of a level to which it falls while usage falls further, so
	// that an evening takes three resizes and not ten.
	staircaseShare = .6
)

// guide is what the time of day says about the coming hours. It is zero unless usage was similar
// at this time of at least guideDays of the last seven days.
type guide struct {
	// ahead is the usage that all of these days reached within the next four hours.
	ahead float32
	// later is the most that any of them used from one and a half to three hours later.
	later float32
}

// guide compares the last hour with the same hour of the last seven days, if the current interval
// has this usage.
func (c *CPU) guide(usage float32) (g guide) {
	now := max(c.highestSlot(0, 2), usage)
	days := 0
	for day := 1; day <= 7; day++ {
		at := day * perDay
		then := c.highestSlot(at, 2)
		if then == 0 || then > now*guideNear || then*guideNear < now {
			continue
		}
		reached := c.highestSlot(at-guideAhead, guideAhead+1)
		if days == 0 || reached < g.ahead {
			g.ahead = reached
		}
		g.later = max(g.later, c.highestSlot(at-laterTo, laterTo-laterFrom+1))
		days++
	}
	if days < guideDays {
		return guide{}
	}
	return g
}

// scaled is the guide for a candidate's margin and spread.
func (g guide) scaled(by float32) guide { return guide{ahead: g.ahead * by, later: g.later * by} }

// fallsFurther reports whether usage will be clearly below a level in the next hours.
func (g guide) fallsFurther(level float32) bool { return g.later > 0 && g.later < level*laterShare }

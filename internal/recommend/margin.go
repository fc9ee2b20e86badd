// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package recommend

import (
	"strconv"
	"strings"
)

// FormatMargin writes a margin in thousandths as a percentage with at most one decimal, as in "15%"
// and "12.5%". It returns "" for 0, and for values that ParseMargin rejects, the nearest accepted
// margin.
func FormatMargin(perMille int64) string {
	perMille = min(max(perMille, 0), MaxPerMille)
	if perMille == 0 {
		return ""
	}
	text := strconv.FormatInt(perMille/10, 10)
	if tenths := perMille % 10; tenths != 0 {
		text += "." + strconv.FormatInt(tenths, 10)
	}
	return text + "%"
}

// ParseMargin reads the text of FormatMargin, in thousandths: 0 to MaxPerMille. Other text is 0:
// the step then leads to its value.
func ParseMargin(text string) int64 {
	number, ok := strings.CutSuffix(text, "%")
	if !ok {
		return 0
	}
	whole, tenths, hasTenths := strings.Cut(number, ".")
	if !hasTenths {
		tenths = "0"
	}
	if len(tenths) != 1 {
		return 0
	}
	perMille, err := strconv.ParseUint(whole+tenths, 10, 16)
	if err != nil {
		return 0
	}
	return min(int64(perMille), MaxPerMille)
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	title   = regexp.MustCompile(`^# (\d+)\. (.*)\n`)
	word    = regexp.MustCompile(`\S*[\p{L}\p{N}]\S*`)
	between = regexp.MustCompile(`[^a-z0-9]+`)
)

// A record is short enough to read, and its file name repeats its title, so that a search finds both.
func TestDecisionRecordsAreShortAndNamedByTheirTitles(t *testing.T) {
	for _, page := range files(t, "docs/adr/*.md") {
		text, name := read(t, page), filepath.Base(page)
		if words := len(word.FindAllString(text, -1)); words > 300 {
			t.Errorf("%s has %d words; at most 300 are allowed", name, words)
		}
		m := title.FindStringSubmatch(text)
		if m == nil {
			t.Errorf("%s does not begin with a title such as \"# 7. Do this\"", name)
			continue
		}
		number, _ := strconv.Atoi(m[1])
		if want := fmt.Sprintf("%04d-%s.md", number, strings.Trim(between.ReplaceAllString(strings.ToLower(m[2]), "-"), "-")); name != want {
			t.Errorf("%s has the title %q, so its name should be %s", name, m[2], want)
		}
	}
}

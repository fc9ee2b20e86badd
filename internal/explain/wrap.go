// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"regexp"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// leastWidth is the narrowest terminal that text is wrapped for.
const leastWidth = 40

// label matches the start of a line before its text: spaces, and a word with spaces after it.
var label = regexp.MustCompile(`^ *(?:\S{1,16} {2,})?`)

// Wrap breaks lines that are longer than a terminal is wide. Continuation lines are indented like
// the text. A width of 0 breaks nothing.
func Wrap(text string, width int) string {
	if width <= 0 {
		return text
	}
	width = max(width, leastWidth)
	var b strings.Builder
	for line := range strings.Lines(text) {
		if ansi.StringWidth(line) <= width || strings.Contains(line, " kubectl patch ") { // which is pasted as a whole
			b.WriteString(line)
			continue
		}
		head := label.FindString(line)
		parts := Wrapped(line[len(head):], width-len(head))
		b.WriteString(head + strings.Join(parts, "\n"+strings.Repeat(" ", len(head))) + "\n")
	}
	return b.String()
}

// Wrapped breaks text between words.
func Wrapped(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && ansi.StringWidth(line)+1+ansi.StringWidth(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

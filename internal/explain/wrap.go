// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// leastWidth is the narrowest terminal that text is wrapped for.
const leastWidth = 40

// label is what stands before the text of a line: spaces, and a word with spaces after it.
var label = regexp.MustCompile(`^ *(?:\S+ {2,})?`)

// Wrap breaks lines that are longer than a terminal is wide. What continues a line is indented like
// its text. A width of 0 breaks nothing.
func Wrap(text string, width int) string {
	if width <= 0 {
		return text
	}
	width = max(width, leastWidth)
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(wrapLine(line, width))
	}
	return b.String()
}

func wrapLine(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	line, hasEnd := strings.CutSuffix(line, "\n")
	head := label.FindString(line)
	indent := strings.Repeat(" ", min(utf8.RuneCountInString(head), width/2))
	var b strings.Builder
	b.WriteString(head)
	column, isFirst := utf8.RuneCountInString(head), true
	for word := range strings.FieldsSeq(line[len(head):]) {
		length := utf8.RuneCountInString(word)
		switch {
		case isFirst:
		case column+1+length > width:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column, isFirst = column+length, false
	}
	if hasEnd {
		b.WriteString("\n")
	}
	return b.String()
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"unicode/utf8"
)

// width is the most columns that a line has.
const width = 100

// paint marks text up for a terminal. Its zero value leaves it as it is.
type paint struct{ colours bool }

func (p paint) bold(s string) string  { return p.with("1", s) }
func (p paint) dim(s string) string   { return p.with("2", s) }
func (p paint) red(s string) string   { return p.with("31", s) }
func (p paint) green(s string) string { return p.with("32", s) }

func (p paint) with(code, s string) string {
	if !p.colours || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// cut makes text at most n columns wide.
func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:max(0, n-1)]) + "…"
}

// fit makes text exactly n columns wide, and fitRight with the text at the right.
func fit(s string, n int) string { return cut(s, n) + blanks(s, n) }

func fitRight(s string, n int) string { return blanks(s, n) + cut(s, n) }

func blanks(s string, n int) string { return strings.Repeat(" ", max(0, n-utf8.RuneCountInString(s))) }

// wrap breaks text between words into lines of at most n columns.
func wrap(s string, n int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(s) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > n:
			lines = append(lines, cut(line, n))
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, cut(line, n))
}

// bar is n columns wide and shows a value as a share of a whole: full up to it, and
// overflowing where it is more.
//
//	60 of 100 → "██████····"    150 of 100 → "█████████▶"
func bar(value, whole int64, n int) string {
	if whole <= 0 || value < 0 {
		return strings.Repeat("·", n)
	}
	if value > whole {
		return strings.Repeat("█", n-1) + "▶"
	}
	full := int((value*int64(n) + whole/2) / whole)
	return strings.Repeat("█", full) + strings.Repeat("·", n-full)
}

// sparkline shows the last n values, with most as the top of the scale.
func sparkline(values []int64, most int64, n int) string {
	levels := []rune("▁▂▃▄▅▆▇█")
	values = values[max(0, len(values)-n):]
	var out strings.Builder
	for _, v := range values {
		level := int64(0)
		if most > 0 {
			level = min(v*int64(len(levels))/(most+1), int64(len(levels))-1)
		}
		out.WriteRune(levels[max(0, level)])
	}
	return out.String()
}

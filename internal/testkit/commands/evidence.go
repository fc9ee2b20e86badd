// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Row is a line of a table in a Markdown text.
type Row struct {
	// Heading is the heading above the table, without its number signs.
	Heading string
	// Cells are the cells, trimmed, with "|" unescaped.
	Cells []string
}

// cellBorder is what separates cells.
var cellBorder = regexp.MustCompile(`(^|[^\\])\|`)

// Rows lists the lines of all tables in a Markdown text, without the lines of their headers.
func Rows(markdown string) (rows []Row) {
	heading, inTable := "", false
	for line := range strings.Lines(markdown) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "#"):
			heading = strings.TrimSpace(strings.TrimLeft(line, "#"))
		case strings.HasPrefix(line, "|---"):
			inTable = true
		case !strings.HasPrefix(line, "|"):
			inTable = false
		case inTable:
			rows = append(rows, Row{Heading: heading, Cells: cells(line)})
		}
	}
	return rows
}

func cells(line string) (out []string) {
	line = strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|")
	for cell := range strings.SplitSeq(cellBorder.ReplaceAllString(line, "$1\x00"), "\x00") {
		out = append(out, strings.ReplaceAll(strings.TrimSpace(cell), `\|`, "|"))
	}
	return out
}

// Evidence lists the inline code in a text: commands and files.
func Evidence(text string) (evidence []string) {
	for _, match := range inlineCode.FindAllStringSubmatch(text, -1) {
		evidence = append(evidence, match[1])
	}
	return evidence
}

// Exists is an error if a command names something that does not exist below root, or if there is no
// such file.
func Exists(root, evidence string) error {
	if named := Of("`" + evidence + "`"); len(named) == 1 {
		return Check(root, named[0])
	}
	_, err := os.Stat(filepath.Join(root, filepath.FromSlash(evidence)))
	return err
}

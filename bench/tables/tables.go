// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tables reads folders of recorded usage for the benchmarks.
package tables

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
)

// Read reads all tables of a folder, which also contain the initial requests.
func Read(folder fs.FS) ([]backtest.Trace, error) {
	var reader backtest.Reader
	var tables []string
	for _, pattern := range []string{"*.csv", "*.csv.gz"} {
		found, err := fs.Glob(folder, pattern)
		if err != nil {
			return nil, err
		}
		tables = append(tables, found...)
	}
	slices.Sort(tables)
	for _, name := range tables {
		file, err := folder.Open(name)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(reader.Read(name, file), file.Close()); err != nil {
			return nil, err
		}
	}
	return reader.Traces()
}

// Patterns have the syntax of path.Match.
type Patterns []string

// ParsePatterns reads a list such as borg-*,smd-*.
func ParsePatterns(text string) (Patterns, error) {
	list := Patterns(strings.Split(text, ","))
	for _, pattern := range list {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			return nil, fmt.Errorf("%q is not a pattern such as borg-*", pattern)
		}
	}
	return list, nil
}

// Match reports whether a pattern matches the name of the series, or of its table.
func (p Patterns) Match(t backtest.Trace) bool {
	return slices.ContainsFunc(p, func(pattern string) bool {
		byName, _ := path.Match(pattern, t.Name) // ParsePatterns has checked all patterns
		byTable, _ := path.Match(pattern, Source(t))
		return byName || byTable
	})
}

// Source is the name of a series' table, without .csv and .gz.
func Source(t backtest.Trace) string {
	return strings.TrimSuffix(strings.TrimSuffix(t.Table, ".gz"), ".csv")
}

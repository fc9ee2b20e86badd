// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
)

const (
	// groupAll is the group of all series.
	groupAll = "all"
	// groupContainers is the group that the targets for container usage apply to.
	groupContainers = "containers"
)

// group is a named set of series; groupAll contains all series.
type group struct {
	name     string
	patterns patterns
}

func (g group) match(t backtest.Trace) bool { return g.name == groupAll || g.patterns.match(t) }

// sourceOf is the name of a series' table, without .csv and .gz.
func sourceOf(t backtest.Trace) string {
	return strings.TrimSuffix(strings.TrimSuffix(t.Table, ".gz"), ".csv")
}

// siblings are expressions that match the part of a series' name that it shares with its siblings.
type siblings []*regexp.Regexp

// clusterOf names the cluster of a series: its source and what the first expression matches of its
// name; if none does, its source and its name.
func (s siblings) clusterOf(t backtest.Trace) string {
	for _, expression := range s {
		if match := expression.FindString(t.Name); match != "" {
			return sourceOf(t) + "/" + match + "*"
		}
	}
	return sourceOf(t) + "/" + t.Name
}

// patterns are those of path.Match.
type patterns []string

// match reports whether a pattern matches the name of the series, or of its table.
func (p patterns) match(t backtest.Trace) bool {
	table := sourceOf(t)
	return slices.ContainsFunc(p, func(pattern string) bool {
		byName, _ := path.Match(pattern, t.Name) // parsePatterns has checked all patterns
		byTable, _ := path.Match(pattern, table)
		return byName || byTable
	})
}

func parsePatterns(text string) (patterns, error) {
	list := patterns(strings.Split(text, ","))
	for _, pattern := range list {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			return nil, fmt.Errorf("%q is not a pattern such as borg-*", pattern)
		}
	}
	return list, nil
}

func parseGroup(text string) (g group, err error) {
	name, list, ok := strings.Cut(text, "=")
	if !ok || name == "" || name == groupAll {
		return g, fmt.Errorf("%q is not like %s=borg-*,smd-*", text, groupContainers)
	}
	g.name = name
	g.patterns, err = parsePatterns(list)
	return g, err
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "slices"

// A rule is one that a hub's pipeline applies, or one whose violation only shows after the merge.
type rule struct {
	name string
	// source is the code that the rule follows: repository, file and function.
	source string
	// applies says which submissions the rule is about; all if nil.
	applies func(*submission) bool
	check   func(*submission) []string
}

func (r rule) appliesTo(s *submission) bool { return r.applies == nil || r.applies(s) }

var rules = slices.Concat(layoutRules, configRules, catalogRules, bundleRules, preflightRules)

const (
	pipelines = "redhat-openshift-ecosystem/operator-pipelines "
	static    = pipelines + "operatorcert/static_tests/"
	preflight = "redhat-openshift-ecosystem/openshift-preflight internal/"
)

func withCatalog(s *submission) bool    { return s.fbc() && s.version() != "" }
func withoutCatalog(s *submission) bool { return !s.fbc() && s.version() != "" }
func withBundle(s *submission) bool     { return s.version() != "" }

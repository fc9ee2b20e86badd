// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// choice is a flag with a fixed set of values.
type choice struct {
	into   *string
	values []string
}

func (c choice) String() string { return *c.into }

func (c choice) Type() string { return "string" }

func (c choice) Set(value string) error {
	if !slices.Contains(c.values, value) {
		return fmt.Errorf("use one of %s", strings.Join(c.values, ", "))
	}
	*c.into = value
	return nil
}

// AddChoice adds a flag with a fixed set of values, which are named after the usage and completed. The present value is the
// default.
func AddChoice(c *cobra.Command, into *string, name, shorthand string, values []string, usage string) {
	c.Flags().VarP(choice{into, values}, name, shorthand, usage+": "+strings.Join(values, ", ")+".")
	Complete(c, name, values)
}

// Complete completes the values of a flag.
func Complete(c *cobra.Command, flag string, values []string) {
	if err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // a flag that does not exist
	}
}

// DryRun is the value of kubectl's flag --dry-run.
type DryRun string

// The values of --dry-run.
const (
	NoDryRun     DryRun = "none"
	ServerDryRun DryRun = "server"
	ClientDryRun DryRun = "client"
)

// AddDryRun adds kubectl's flag --dry-run.
func AddDryRun(c *cobra.Command, into *DryRun) {
	*into = NoDryRun
	AddChoice(c, (*string)(into), "dry-run", "", []string{string(NoDryRun), string(ServerDryRun), string(ClientDryRun)},
		"Change nothing, and let the API server check the change (server) or send nothing (client)")
	c.Flags().Lookup("dry-run").NoOptDefVal = string(ServerDryRun)
}

// Suffix ends the line about a change.
func (d DryRun) Suffix() string {
	return map[DryRun]string{ClientDryRun: " (dry run)", ServerDryRun: " (server dry run)"}[d]
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

const commandName = "kubectl vscaler"

// newRoot creates the command. It keeps no state, so each test creates its own.
func newRoot(streams genericiooptions.IOStreams) *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-vscaler",
		Short: "Work with VerticalScaler",
		Long:  "Work with VerticalScaler, which keeps the CPU and memory of Deployments' pods at what they need.",
		// kubectl finds the plugin by its file name; help shows what users type.
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: commandName},
		Version:       version,
		Args:          noCommand,
		SilenceErrors: true,
		SilenceUsage:  true,

		SuggestionsMinimumDistance: 2,
		RunE:                       func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w: see \"%s --help\"", err, c.CommandPath())}
	})
	cluster := newCluster(root)
	root.AddCommand(newStatus(streams, cluster), newTop(streams, cluster), newExplain(streams, cluster), newDashboard(streams, cluster))
	root.AddCommand(newReport(streams, cluster), newImport(streams, cluster))
	root.AddCommand(newAdopt(streams, cluster), newSuspend(streams, cluster), newResume(streams, cluster), newRollback(streams, cluster))
	root.AddCommand(newCheck(streams, cluster), newSupportBundle(streams, cluster))
	return root
}

// noCommand rejects unknown subcommands.
func noCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if like := c.SuggestionsFor(args[0]); len(like) > 0 {
		return usageError{fmt.Errorf("unknown command %q: did you mean %s?", args[0], strings.Join(like, " or "))}
	}
	return usageError{fmt.Errorf("unknown command %q: see \"%s --help\"", args[0], c.CommandPath())}
}

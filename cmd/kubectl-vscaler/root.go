// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/adopt"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/change"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/check"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/dashboard"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/importvpa"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/kube"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/report"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/status"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/support"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/top"
)

// newRoot creates the command, and the cluster that it reads. It keeps no state, so each test creates its own.
func newRoot(streams genericiooptions.IOStreams) (*cobra.Command, *kube.Cluster) {
	root := &cobra.Command{
		Use:   "kubectl-vscaler",
		Short: "Work with VerticalScaler",
		Long:  "Work with VerticalScaler, which keeps the CPU and memory of Deployments' pods at what they need.",
		// kubectl finds the plugin by its file name; help shows what users type.
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: cli.Name},
		Version:       cli.Version,
		Args:          cli.NoCommand,
		SilenceErrors: true,
		SilenceUsage:  true,

		SuggestionsMinimumDistance: 2,
		RunE:                       func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return cli.Usage(fmt.Errorf("%w: see \"%s --help\"", err, c.CommandPath()))
	})
	cluster := kube.New(root)
	for _, command := range []func(genericiooptions.IOStreams, *kube.Cluster) *cobra.Command{
		status.New, status.NewExplain, top.New, dashboard.New, report.New, importvpa.New, adopt.New, change.NewSuspend, change.NewResume, change.NewRollback,
		change.NewFreeze, change.NewUnfreeze,
		check.New, support.New,
	} {
		root.AddCommand(command(streams, cluster))
	}
	return root, cluster
}

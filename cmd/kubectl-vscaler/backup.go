// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/backup"
)

const backupLong = `Write a backup of what scalers have learned: the scalers, their histories and recommendations, ScaledDeployments and
policies. Policies of the whole cluster are included with --all-namespaces. "restore" reads the file.

A backup holds what the API server has. A running operator may have seen more: at most what a restart of it would lose.
The same objects give the same bytes, so a backup can be compared with the one before.

The file holds no Secrets. ScaledDeployments are in it as they are, with the environment of their containers. Only the user
may read the file.

The command requires the permission to list VerticalScalers, VerticalScalerCheckpoints, ScaledDeployments and policies.

Exit codes: 0: success, 1: failure, 2: invalid usage.`

const backupExample = `  # All namespaces, into a file
  %[1]s backup -A -o vscaler-backup.yaml

  # One namespace, to the standard output
  %[1]s backup -n shop`

func newBackup(streams genericiooptions.IOStreams, cluster *cluster) *cobra.Command {
	var everywhere bool
	var output string
	c := &cobra.Command{
		Use:     "backup",
		Short:   "Write what scalers have learned into a file",
		Long:    backupLong,
		Example: fmt.Sprintf(backupExample, commandName),
		Args:    noCommand,
		RunE: func(c *cobra.Command, _ []string) error {
			namespace, err := cluster.namespace()
			if err != nil {
				return err
			}
			if everywhere {
				namespace = ""
			}
			reader, err := cluster.open()
			if err != nil {
				return err
			}
			b, err := backupOf(c.Context(), reader, namespace)
			if err != nil {
				return err
			}
			return saveBackup(streams, b, output)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	c.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "All namespaces, and policies of the whole cluster.")
	c.Flags().StringVarP(&output, "output", "o", "-", "The file to write, which is replaced. - is the standard output.")
	if err := c.RegisterFlagCompletionFunc("output", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveDefault
	}); err != nil {
		panic(err) // a flag that does not exist
	}
	return c
}

// backupOf reads all that a backup of a namespace has, or of all namespaces if it is empty. Scalers come first: a checkpoint
// is written by an operator that knows at least that scaler.
func backupOf(ctx context.Context, c client.Reader, namespace string) (backup.Backup, error) {
	var scalers v1beta1.VerticalScalerList
	var checkpoints v1beta1.VerticalScalerCheckpointList
	var owners v1beta1.ScaledDeploymentList
	var policies v1beta1.ScalingPolicyList
	var clusterPolicies v1beta1.ClusterScalingPolicyList
	for _, l := range []struct {
		what   string
		list   client.ObjectList
		where  string
		isLeft bool
	}{
		{what: "VerticalScalers", list: &scalers, where: namespace},
		{what: "VerticalScalerCheckpoints", list: &checkpoints, where: namespace},
		{what: "ScaledDeployments", list: &owners, where: namespace},
		{what: "ScalingPolicies", list: &policies, where: namespace},
		{what: "ClusterScalingPolicies", list: &clusterPolicies, isLeft: namespace != ""},
	} {
		if l.isLeft {
			continue
		}
		err := c.List(ctx, l.list, client.InNamespace(l.where))
		switch {
		case apierrors.IsNotFound(err):
			return backup.Backup{}, errNotInstalled
		case err != nil:
			return backup.Backup{}, fmt.Errorf("listing %s: %w", l.what, err)
		}
	}
	return backup.Of(clusterPolicies.Items, policies.Items, owners.Items, scalers.Items, checkpoints.Items), nil
}

// saveBackup writes the file as a whole, or leaves what there was.
func saveBackup(streams genericiooptions.IOStreams, b backup.Backup, output string) (err error) {
	var text bytes.Buffer
	if err := b.Write(&text); err != nil {
		return err
	}
	if output == "-" {
		_, err := streams.Out.Write(text.Bytes())
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(output), ".vscaler-backup-*") // only the user may read it
	if err != nil {
		return fmt.Errorf("creating the backup: %w", err)
	}
	_, err = file.Write(text.Bytes())
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), output)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing the backup: %w", err), os.Remove(file.Name()))
	}
	histories := 0
	for i := range b.Scalers {
		if b.Scalers[i].Checkpoint != nil {
			histories++
		}
	}
	fmt.Fprintf(streams.Out, "%s written: %d scalers, %d of them with a history, %d ScaledDeployments, %d policies\n",
		output, len(b.Scalers), histories, len(b.ScaledDeployments), len(b.Policies)+len(b.ClusterPolicies))
	return nil
}

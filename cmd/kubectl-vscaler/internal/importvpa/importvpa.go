// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package importvpa has the command that prints scalers for objects of other programs.
package importvpa

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/kube"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler/fromvpa"
)

// New is the command import.
func New(streams genericiooptions.IOStreams, cluster *kube.Cluster) *cobra.Command {
	c := &cobra.Command{
		Use:   "import",
		Short: "Print scalers for objects of other programs",
		Args:  cli.NoCommand,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newImportVPA(streams, cluster))
	return c
}

func newImportVPA(streams genericiooptions.IOStreams, cluster *kube.Cluster) *cobra.Command {
	everywhere := false
	c := cli.Command(&cobra.Command{Use: "vpa [NAME...]", Short: "Print scalers for VerticalPodAutoscalers"}, func(ctx context.Context, _ *cobra.Command, names []string) error {
		if everywhere && len(names) > 0 {
			return cli.Usagef("a name cannot be combined with --all-namespaces")
		}
		namespace, reader, err := cluster.OpenNamespace(everywhere)
		if err != nil {
			return err
		}
		vpas, err := vpasOf(ctx, reader, namespace, names)
		if err := writeImports(streams, vpas); err != nil {
			return err
		}
		if err == nil && len(vpas) == 0 {
			fmt.Fprintln(streams.ErrOut, strings.Replace(kube.NothingIn(namespace), "VerticalScalers", "VerticalPodAutoscalers", 1))
		}
		return err
	})
	c.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "All namespaces.")
	return c
}

// vpasOf reads VerticalPodAutoscalers: the named ones, or all of the namespace, or of all namespaces
// if it is empty. The error may be about some of the names.
func vpasOf(ctx context.Context, c client.Reader, namespace string, names []string) ([]unstructured.Unstructured, error) {
	if len(names) == 0 {
		all, err := kube.Untyped(ctx, c, kube.VPAKind, client.InNamespace(namespace))
		switch {
		case apierrors.IsNotFound(err):
			return nil, errors.New("the API server does not serve VerticalPodAutoscalers")
		case err != nil:
			return nil, fmt.Errorf("listing VerticalPodAutoscalers: %w", err)
		}
		return all, nil
	}
	var named []unstructured.Unstructured
	var errs []error
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			continue
		}
		var vpa unstructured.Unstructured
		vpa.SetGroupVersionKind(kube.VPAKind)
		switch err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &vpa); {
		case apierrors.IsNotFound(err):
			errs = append(errs, fmt.Errorf("VerticalPodAutoscaler %s/%s not found", namespace, name))
		case err != nil:
			errs = append(errs, fmt.Errorf("reading VerticalPodAutoscaler %s/%s: %w", namespace, name, err))
		default:
			named = append(named, vpa)
		}
	}
	return named, errors.Join(errs...)
}

// writeImports writes one document for each VerticalPodAutoscaler, and warns of what needs a look.
func writeImports(streams genericiooptions.IOStreams, vpas []unstructured.Unstructured) error {
	for i, vpa := range vpas {
		spec, _, err := unstructured.NestedMap(vpa.Object, "spec")
		if err != nil {
			return fmt.Errorf("reading VerticalPodAutoscaler %s/%s: %w", vpa.GetNamespace(), vpa.GetName(), err)
		}
		imported := fromvpa.Of(vpa.GetNamespace(), vpa.GetName(), spec)
		text, err := imported.YAML()
		if err != nil {
			return err
		}
		if i > 0 {
			text = "---\n" + text
		}
		if _, err := io.WriteString(streams.Out, text); err != nil {
			return err
		}
		switch {
		case imported.Scaler == nil:
			fmt.Fprintf(streams.ErrOut, "warning: VerticalPodAutoscaler %s/%s is skipped: %s\n", vpa.GetNamespace(), vpa.GetName(), imported.Skipped)
		case len(imported.Doubts) > 0:
			fmt.Fprintf(streams.ErrOut, "warning: VerticalPodAutoscaler %s/%s is imported with updateMode Recommend: not imported are %s\n",
				vpa.GetNamespace(), vpa.GetName(), strings.Join(imported.Doubts, ", "))
		}
	}
	return nil
}

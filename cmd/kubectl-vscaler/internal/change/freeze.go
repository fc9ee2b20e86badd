// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package change

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/kube"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/freeze"
)

// freezing are the flags of freeze and unfreeze.
type freezing struct {
	genericiooptions.IOStreams
	cluster *kube.Cluster

	namespaces []string
	reason     string
	dryRun     cli.DryRun
}

// NewFreeze is the command freeze.
func NewFreeze(streams genericiooptions.IOStreams, cluster *kube.Cluster) *cobra.Command {
	o := &freezing{IOStreams: streams, cluster: cluster}
	c := cli.Command(&cobra.Command{Use: "freeze", Short: "Stop the changes of all scalers at once"}, o.freeze)
	c.Flags().StringSliceVar(&o.namespaces, "namespaces", nil, "The namespaces to freeze, such as shop,billing, instead of all.")
	c.Flags().StringVar(&o.reason, "reason", "", "The reason, which all views show.")
	cli.AddDryRun(c, &o.dryRun)
	return c
}

// NewUnfreeze is the command unfreeze.
func NewUnfreeze(streams genericiooptions.IOStreams, cluster *kube.Cluster) *cobra.Command {
	o := &freezing{IOStreams: streams, cluster: cluster}
	c := cli.Command(&cobra.Command{Use: "unfreeze", Short: "Continue the changes that freeze has stopped"}, o.unfreeze)
	cli.AddDryRun(c, &o.dryRun)
	return c
}

func (o *freezing) freeze(ctx context.Context, _ *cobra.Command, _ []string) error {
	if strings.TrimSpace(o.reason) == "" {
		return cli.Usagef("give --reason, which all views show")
	}
	data := map[string]string{freeze.KeyReason: o.reason}
	for _, name := range o.namespaces { // The operator freezes everything for an invalid name.
		if len(validation.IsDNS1123Label(name)) > 0 {
			return cli.Usagef("--namespaces: %q is not the name of a namespace", name)
		}
		data[freeze.KeyNamespaces] = strings.Join(o.namespaces, ",")
	}
	return o.each(ctx, func(c client.Client, switched *corev1.ConfigMap, exists bool) (string, error) {
		var review authenticationv1.SelfSubjectReview
		_ = c.Create(ctx, &review) // Without it, the field manager stands for the user.
		data[freeze.KeyUser] = cmp.Or(review.Status.UserInfo.Username, cli.FieldManager)
		switched.Data = data
		if exists {
			return "replaced", send(c, o.dryRun, func(c client.Client) error { return c.Update(ctx, switched) })
		}
		return "created", send(c, o.dryRun, func(c client.Client) error { return c.Create(ctx, switched) })
	})
}

func (o *freezing) unfreeze(ctx context.Context, _ *cobra.Command, _ []string) error {
	return o.each(ctx, func(c client.Client, switched *corev1.ConfigMap, exists bool) (string, error) {
		if !exists {
			return "not found (unchanged)", nil
		}
		return "deleted", send(c, o.dryRun, func(c client.Client) error { return c.Delete(ctx, switched) })
	})
}

// each changes the switch of each operator that is known, or that in the operator's namespace. It reports the freeze that was on before.
func (o *freezing) each(ctx context.Context, change func(c client.Client, switched *corev1.ConfigMap, exists bool) (done string, err error)) error {
	c, err := o.cluster.Open()
	if err != nil {
		return err
	}
	operators, _ := o.cluster.Operators(ctx, c, "")
	var namespaces []string
	for _, operator := range operators {
		namespaces = append(namespaces, operator.Namespace)
	}
	if len(namespaces) == 0 {
		namespaces = []string{o.cluster.OperatorNamespace()}
	}
	var errs []error
	for _, namespace := range namespaces {
		switched := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1beta1.FreezeName}}
		err := c.Get(ctx, client.ObjectKeyFromObject(switched), switched)
		exists, done := err == nil, ""
		if exists {
			fmt.Fprintln(o.ErrOut, "Before this command:", kube.FreezeIn(switched).Text(o.cluster.Now()))
		}
		if client.IgnoreNotFound(err) == nil {
			done, err = change(c, switched, exists)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("configmap/%s in namespace %s: %w", v1beta1.FreezeName, namespace, err))
			continue
		}
		fmt.Fprintf(o.Out, "configmap/%s in namespace %s %s%s\n", v1beta1.FreezeName, namespace, done, o.dryRun.Suffix())
	}
	return errors.Join(errs...)
}

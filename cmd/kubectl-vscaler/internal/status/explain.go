// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/kube"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
)

// NewExplain is the command explain.
func NewExplain(streams genericiooptions.IOStreams, cluster *kube.Cluster) *cobra.Command {
	output := "text"
	c := cli.Command("explain", cluster.CompleteName, func(ctx context.Context, _ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return cli.Usagef("name one VerticalScaler: NAME or TYPE/NAME")
		}
		found, err := explanationOf(ctx, cluster, args[0])
		if err != nil {
			return err
		}
		if output != "text" {
			return cli.WriteData(streams.Out, output, found)
		}
		var text strings.Builder
		if err := found.WriteText(&text, cluster.Now()); err != nil {
			return err
		}
		_, err = io.WriteString(streams.Out, explain.Wrap(text.String(), cli.Width(streams.Out)))
		return err
	})
	cli.AddChoice(c, &output, "output", "o", []string{"text", "json", "yaml"}, "The format")
	return c
}

// explanation is that of a scaler or of a ScaledDeployment.
type explanation interface {
	// WriteText writes text, with ages relative to now.
	WriteText(w io.Writer, now time.Time) error
}

// explanationOf explains the scaler or policy that the user names. A ScaledDeployment without a scaler is
// explained.
func explanationOf(ctx context.Context, cluster *kube.Cluster, name string) (explanation, error) {
	names, err := kube.References([]string{name})
	if err != nil {
		return nil, err
	}
	namespace, reader, err := cluster.OpenNamespace(false)
	if err != nil {
		return nil, err
	}
	if names[0].IsPolicy() {
		evidence, err := policyEvidenceOf(ctx, cluster, reader, namespace, names[0])
		if err != nil {
			return nil, err
		}
		return explain.OfPolicy(evidence), nil
	}
	evidence, owner, err := kube.Find(ctx, reader, namespace, names[0])
	switch {
	case err != nil:
		return nil, err
	case owner != nil:
		return explain.OfOwned(owner), nil
	}
	evidence.Operators = cluster.OperatorsOr(ctx, reader, namespace, &evidence.Missing)
	evidence.Now = cluster.Now()
	return explain.Of(evidence), nil
}

// policyEvidenceOf reads a policy.
func policyEvidenceOf(ctx context.Context, cluster *kube.Cluster, c client.Reader, namespace string, name kube.Reference) (e explain.PolicyEvidence, err error) {
	var policy client.Object = &v1beta1.ClusterScalingPolicy{}
	key := types.NamespacedName{Name: name.Name}
	if name.Kind == kube.PolicyKind {
		policy, key.Namespace = &v1beta1.ScalingPolicy{}, namespace
	}
	switch err := c.Get(ctx, key, policy); {
	case apierrors.IsNotFound(err):
		return e, fmt.Errorf("%s %s not found", name.Kind, strings.TrimPrefix(key.String(), "/"))
	case err != nil:
		return e, fmt.Errorf("reading %s %s: %w", name.Kind, strings.TrimPrefix(key.String(), "/"), err)
	}
	e.Policy = kube.Described(policy)
	e.Operators = cluster.OperatorsOr(ctx, c, namespace, &e.Missing)
	e.Now = cluster.Now()
	return e, nil
}

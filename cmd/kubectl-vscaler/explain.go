// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

const explainLong = `Explain a scaler: how its numbers came about, whether they are applied, and if not, what blocks them and how to unblock
it. Name the scaler, its Deployment or its ScaledDeployment. Or explain a policy: what it selects, what it skips and why,
and how far the promotion of its scalers is.

The scaler's status holds the steps from usage to each number. The command calculates them again and reports a difference.
It changes nothing and reads only from the API server.

If a request waits until more usage has been observed, the command says in about how long it is lowered.

The command requires the permission to get the VerticalScaler or the policy. It reads the Deployment, its pods and the
operator's lease if it may, and lists at the end what it could not read.

Exit codes: 0: explained, 1: failure or not found, 2: invalid usage.`

const explainExample = `  # Why is the recommendation not applied?
  %[1]s explain web -n shop

  # The scaler of a Deployment
  %[1]s explain deployment/web

  # Policies
  %[1]s explain scalingpolicy/backends -n shop
  %[1]s explain cspolicy/fleet

  # The same as data
  %[1]s explain web -o json | jq -r '.findings[0].advice'`

var explainOutputs = []string{"text", "json", "yaml"}

func newExplain(streams genericiooptions.IOStreams, cluster *cluster) *cobra.Command {
	output := "text"
	c := &cobra.Command{
		Use:     "explain NAME | TYPE/NAME",
		Short:   "Explain a scaler's numbers, its last changes, and what blocks them",
		Long:    explainLong,
		Example: fmt.Sprintf(explainExample, commandName),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{errors.New("name one VerticalScaler: NAME or TYPE/NAME")}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if !slices.Contains(explainOutputs, output) {
				return usageError{fmt.Errorf("--output %q is not one of %s", output, strings.Join(explainOutputs, ", "))}
			}
			found, err := explanationOf(c.Context(), cluster, args[0])
			if err != nil {
				return err
			}
			return write(streams.Out, found, output)
		},
		ValidArgsFunction: func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return cluster.completeNames(c, args, word)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", output, "The format: "+strings.Join(explainOutputs, ", ")+".")
	if err := c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(explainOutputs, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // a flag that does not exist
	}
	return c
}

// errNotInstalled is the error for a list of a kind that the API server does not serve.
var errNotInstalled = errors.New("the API server does not serve VerticalScalers: is the operator installed?")

// explanation is that of a scaler or of a ScaledDeployment.
type explanation interface {
	WriteJSON(w io.Writer) error
	WriteYAML(w io.Writer) error
	// WriteText writes text, with ages relative to now.
	WriteText(w io.Writer, now time.Time) error
}

// explanationOf explains the scaler or policy that the user names. A ScaledDeployment without a scaler is
// explained.
func explanationOf(ctx context.Context, cluster *cluster, name string) (explanation, error) {
	names, err := references([]string{name})
	if err != nil {
		return nil, err
	}
	namespace, err := cluster.namespace()
	if err != nil {
		return nil, err
	}
	reader, err := cluster.open()
	if err != nil {
		return nil, err
	}
	if names[0].isPolicy() {
		evidence, err := policyEvidenceOf(ctx, cluster, reader, namespace, names[0])
		if err != nil {
			return nil, err
		}
		return explain.OfPolicy(evidence), nil
	}
	evidence, owner, err := find(ctx, reader, namespace, names[0])
	switch {
	case err != nil:
		return nil, err
	case owner != nil:
		return explain.OfOwned(owner), nil
	}
	if evidence.Operators, err = operatorsOf(ctx, reader, cluster.operatorNamespace, namespace); err != nil {
		evidence.Missing = append(evidence.Missing, fmt.Sprintf("Whether the operator runs: %v", err))
	}
	evidence.Now = cluster.time.Now(clock.RealClock{}.Now())
	return explain.Of(evidence), nil
}

// policyEvidenceOf reads a policy.
func policyEvidenceOf(ctx context.Context, cluster *cluster, c client.Reader, namespace string, name reference) (e explain.PolicyEvidence, err error) {
	var policy client.Object = &v1beta1.ClusterScalingPolicy{}
	key := types.NamespacedName{Name: name.name}
	if name.kind == policyKind {
		policy, key.Namespace = &v1beta1.ScalingPolicy{}, namespace
	}
	switch err := c.Get(ctx, key, policy); {
	case apierrors.IsNotFound(err):
		return e, fmt.Errorf("%s %s not found", name.kind, strings.TrimPrefix(key.String(), "/"))
	case err != nil:
		return e, fmt.Errorf("reading %s %s: %w", name.kind, strings.TrimPrefix(key.String(), "/"), err)
	}
	e.Policy = described(policy)
	if e.Operators, err = operatorsOf(ctx, c, cluster.operatorNamespace, namespace); err != nil {
		e.Missing = append(e.Missing, fmt.Sprintf("Whether the operator runs: %v", err))
	}
	e.Now = cluster.time.Now(clock.RealClock{}.Now())
	return e, nil
}

// write writes an explanation in the format that the user asks for.
func write(w io.Writer, x explanation, output string) error {
	switch output {
	case "json":
		return x.WriteJSON(w)
	case "yaml":
		return x.WriteYAML(w)
	}
	var text strings.Builder
	if err := x.WriteText(&text, clock.RealClock{}.Now()); err != nil {
		return err
	}
	_, err := io.WriteString(w, explain.Wrap(text.String(), widthOf(w)))
	return err
}

// find reads what explains the scaler that the user names: by its name, else as that of the
// ScaledDeployment or the Deployment by that name. If a ScaledDeployment has none, it is that.
func find(ctx context.Context, c client.Reader, namespace string, name reference) (explain.Evidence, *v1beta1.ScaledDeployment, error) {
	if name.isPolicy() {
		return explain.Evidence{}, nil, usageError{fmt.Errorf("%s is a policy, and not a scaler: name one of its scalers, or see it with \"%s explain %s\"", name, commandName, name)}
	}
	if name.kind == "" || name.kind == scalerKind {
		evidence, err := evidenceOf(ctx, c, types.NamespacedName{Namespace: namespace, Name: name.name})
		if !errors.Is(err, errNoScaler) {
			return evidence, nil, err
		}
	}
	var none explain.Evidence
	var scalers v1beta1.VerticalScalerList
	if err := c.List(ctx, &scalers, client.InNamespace(namespace)); err != nil {
		if apierrors.IsNotFound(err) {
			return none, nil, errNotInstalled
		}
		return none, nil, name.notFound(namespace)
	}
	var owners v1beta1.ScaledDeploymentList
	if err := c.List(ctx, &owners, client.InNamespace(namespace)); err != nil {
		owners.Items = nil // the user may not read them
	}
	if name.kind == "" && slices.ContainsFunc(owners.Items, func(d v1beta1.ScaledDeployment) bool { return d.Name == name.name }) {
		name.kind = ownerKind
	}
	name = name.resolved(scalers.Items, owners.Items)
	named := slices.DeleteFunc(scalers.Items, func(s v1beta1.VerticalScaler) bool { return !name.isScaler(&s) })
	switch len(named) {
	case 1:
		return evidenceFor(ctx, c, &named[0]), nil, nil
	case 0:
		if i := slices.IndexFunc(owners.Items, func(d v1beta1.ScaledDeployment) bool { return name.isOwner(&d) }); i >= 0 {
			return none, &owners.Items[i], nil
		}
		return none, nil, name.notFound(namespace)
	}
	names := make([]string, len(named))
	for i, s := range named {
		names[i] = s.Name
	}
	return none, nil, fmt.Errorf("several VerticalScalers name Deployment %s/%s: %s", namespace, name.name, strings.Join(names, ", "))
}

// widthOf is the number of columns of a terminal; 0 for anything else, which is not wrapped.
func widthOf(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// errNoScaler is the error for a name that no scaler has.
var errNoScaler = errors.New("not found")

// evidenceOf reads the objects that explain a scaler. Only the scaler itself is required.
func evidenceOf(ctx context.Context, c client.Reader, name types.NamespacedName) (explain.Evidence, error) {
	var scaler v1beta1.VerticalScaler
	switch err := c.Get(ctx, name, &scaler); {
	case apierrors.IsNotFound(err):
		return explain.Evidence{}, fmt.Errorf("VerticalScaler %s %w", name, errNoScaler)
	case err != nil:
		return explain.Evidence{}, fmt.Errorf("reading VerticalScaler %s: %w", name, err)
	}
	return evidenceFor(ctx, c, &scaler), nil
}

// evidenceFor reads the other objects that explain a scaler, as far as the user may.
func evidenceFor(ctx context.Context, c client.Reader, scaler *v1beta1.VerticalScaler) (e explain.Evidence) {
	e.Scaler = scaler

	var deployment appsv1.Deployment
	key := types.NamespacedName{Namespace: scaler.Namespace, Name: scaler.Spec.DeploymentName}
	switch err := c.Get(ctx, key, &deployment); {
	case apierrors.IsNotFound(err):
		return e // the scaler's status says so
	case err != nil:
		e.Missing = append(e.Missing, fmt.Sprintf("The pod template and the pods of Deployment %s: %v", key, err))
		return e
	}
	e.Deployment = &deployment
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		e.Missing = append(e.Missing, fmt.Sprintf("The pods of Deployment %s: %v", key, err))
		return e
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		e.Missing = append(e.Missing, fmt.Sprintf("The pods of Deployment %s: %v", key, err))
		return e
	}
	for i := range pods.Items {
		if pod := workload.ReadPod(&pods.Items[i], true); pod.Running && !pod.Terminating {
			e.Pods = append(e.Pods, pod)
		}
	}
	return e
}

// warnOnce prints each warning once.
func warnOnce(w io.Writer) func(what string, err error) {
	said := map[string]bool{}
	return func(what string, err error) {
		if text := fmt.Sprintf("warning: %s: %v", what, err); !said[text] {
			said[text] = true
			fmt.Fprintln(w, text)
		}
	}
}

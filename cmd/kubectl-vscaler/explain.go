// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
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
it.

The scaler's status holds the steps from usage to each number. The command calculates them again and reports a difference.
It changes nothing and reads only from the API server.

The command requires the permission to get the VerticalScaler. It reads the Deployment and its pods if it may, and lists at
the end what it could not read.

Exit codes: 0: explained, 1: failure or not found, 2: invalid usage.`

const explainExample = `  # Why is the recommendation not applied?
  %[1]s explain web -n shop

  # The same as data
  %[1]s explain web -o json | jq -r '.findings[0].advice'`

var explainOutputs = []string{"text", "json", "yaml"}

func newExplain(streams genericiooptions.IOStreams, cluster *cluster) *cobra.Command {
	output := "text"
	c := &cobra.Command{
		Use:     "explain NAME",
		Short:   "Explain a scaler's numbers and what blocks them",
		Long:    explainLong,
		Example: fmt.Sprintf(explainExample, commandName),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{errors.New("name one VerticalScaler to explain")}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if !slices.Contains(explainOutputs, output) {
				return usageError{fmt.Errorf("--output %q is not one of %s", output, strings.Join(explainOutputs, ", "))}
			}
			namespace, err := cluster.namespace()
			if err != nil {
				return err
			}
			reader, err := cluster.open()
			if err != nil {
				return err
			}
			evidence, err := evidenceOf(c.Context(), reader, types.NamespacedName{Namespace: namespace, Name: args[0]})
			if err != nil {
				return err
			}
			switch explanation := explain.Of(evidence); output {
			case "json":
				return explanation.WriteJSON(streams.Out)
			case "yaml":
				return explanation.WriteYAML(streams.Out)
			default:
				return explanation.WriteText(streams.Out, clock.RealClock{}.Now())
			}
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

// evidenceOf reads the objects that explain a scaler. Only the scaler itself is required.
func evidenceOf(ctx context.Context, c client.Reader, name types.NamespacedName) (e explain.Evidence, err error) {
	var scaler v1beta1.VerticalScaler
	if err := c.Get(ctx, name, &scaler); err != nil {
		if apierrors.IsNotFound(err) {
			return e, notFound(ctx, c, name)
		}
		return e, fmt.Errorf("reading VerticalScaler %s: %w", name, err)
	}
	e.Scaler = &scaler

	var deployment appsv1.Deployment
	key := types.NamespacedName{Namespace: name.Namespace, Name: scaler.Spec.DeploymentName}
	switch err := c.Get(ctx, key, &deployment); {
	case apierrors.IsNotFound(err):
		return e, nil // the scaler's status says so
	case err != nil:
		e.Missing = append(e.Missing, fmt.Sprintf("The pod template and the pods of Deployment %s: %v", key, err))
		return e, nil
	}
	e.Deployment = &deployment
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		e.Missing = append(e.Missing, fmt.Sprintf("The pods of Deployment %s: %v", key, err))
		return e, nil
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		e.Missing = append(e.Missing, fmt.Sprintf("The pods of Deployment %s: %v", key, err))
		return e, nil
	}
	for i := range pods.Items {
		if pod := workload.ReadPod(&pods.Items[i], true); pod.Running && !pod.Terminating {
			e.Pods = append(e.Pods, pod)
		}
	}
	return e, nil
}

// notFound names the scalers of a Deployment by that name, if it may list them.
func notFound(ctx context.Context, c client.Reader, name types.NamespacedName) error {
	var scalers v1beta1.VerticalScalerList
	if err := c.List(ctx, &scalers, client.InNamespace(name.Namespace)); err != nil {
		if apierrors.IsNotFound(err) {
			return errNotInstalled
		}
		return fmt.Errorf("VerticalScaler %s not found", name)
	}
	var others []string
	for _, s := range scalers.Items {
		if s.Spec.DeploymentName == name.Name {
			others = append(others, s.Name)
		}
	}
	if len(others) > 0 {
		return fmt.Errorf("VerticalScaler %s not found; Deployment %s is named by %s", name, name.Name, strings.Join(others, ", "))
	}
	return fmt.Errorf("VerticalScaler %s not found", name)
}

// completeNames completes the names of scalers. It returns quickly, to keep the shell responsive.
func (c *cluster) completeNames(command *cobra.Command, args []string, word string) (names []string, _ cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	namespace, err := c.namespace()
	if err != nil {
		return nil, none
	}
	reader, err := c.open()
	if err != nil {
		return nil, none
	}
	ctx, cancel := context.WithTimeout(command.Context(), completeWithin)
	defer cancel()
	var scalers v1beta1.VerticalScalerList
	if err := reader.List(ctx, &scalers, client.InNamespace(namespace)); err != nil {
		return nil, none
	}
	for _, s := range scalers.Items {
		if strings.HasPrefix(s.Name, word) && !slices.Contains(args, s.Name) {
			names = append(names, cobra.CompletionWithDesc(s.Name, "Deployment "+s.Spec.DeploymentName))
		}
	}
	return names, none
}

// completeWithin is how long a completion may take.
const completeWithin = 3 * time.Second

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

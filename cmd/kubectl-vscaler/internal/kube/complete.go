// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// completeWithin is how long a completion may take.
const completeWithin = 3 * time.Second

// shortTypes are the types that are completed.
var shortTypes = []string{"vscaler", "deployment", "sdeploy", "spolicy", "cspolicy"}

// CompleteNames completes the names of scalers, and TYPE/NAME. It returns quickly, to keep the shell responsive.
func (c *Cluster) CompleteNames(command *cobra.Command, args []string, word string) (names []string, _ cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	namespace, err := c.Namespace()
	if err != nil {
		return nil, none
	}
	reader, err := c.Open()
	if err != nil {
		return nil, none
	}
	ctx, cancel := context.WithTimeout(command.Context(), completeWithin)
	defer cancel()
	of, prefix := ScalerKind, ""
	if typed, _, isTyped := strings.Cut(word, "/"); isTyped {
		known, ok := kinds[strings.ToLower(typed)]
		if !ok {
			return nil, none
		}
		of, prefix = known, typed+"/"
	}
	for _, found := range namesOf(ctx, reader, namespace, of) {
		if name := prefix + found.name; strings.HasPrefix(name, word) && !slices.Contains(args, name) {
			names = append(names, cobra.CompletionWithDesc(name, found.about))
		}
	}
	if len(names) > 0 || prefix != "" || word == "" {
		return names, none
	}
	for _, short := range shortTypes {
		if strings.HasPrefix(short, word) {
			names = append(names, short+"/")
		}
	}
	return names, none | cobra.ShellCompDirectiveNoSpace
}

// CompleteName is CompleteNames for commands that take one name.
func (c *Cluster) CompleteName(command *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.CompleteNames(command, args, word)
}

// completion is a name, and what it is about.
type completion struct{ name, about string }

// namesOf are the names of a kind in the namespace; none if they cannot be read.
func namesOf(ctx context.Context, c client.Reader, namespace string, of Kind) (all []completion) {
	switch of {
	case ScalerKind, DeploymentKind:
		var list v1beta1.VerticalScalerList
		if c.List(ctx, &list, client.InNamespace(namespace)) != nil {
			return nil
		}
		for _, s := range list.Items {
			if of == ScalerKind {
				all = append(all, completion{s.Name, "Deployment " + s.Spec.DeploymentName})
				continue
			}
			all = append(all, completion{s.Spec.DeploymentName, "VerticalScaler " + s.Name})
		}
	case OwnerKind:
		return listed(ctx, c, of, &v1beta1.ScaledDeploymentList{}, client.InNamespace(namespace))
	case PolicyKind:
		return listed(ctx, c, of, &v1beta1.ScalingPolicyList{}, client.InNamespace(namespace))
	case ClusterPolicyKind:
		return listed(ctx, c, of, &v1beta1.ClusterScalingPolicyList{})
	}
	return all
}

func listed(ctx context.Context, c client.Reader, of Kind, list client.ObjectList, options ...client.ListOption) (all []completion) {
	if c.List(ctx, list, options...) != nil {
		return nil
	}
	_ = meta.EachListItem(list, func(object runtime.Object) error { // never fails
		if named, ok := object.(client.Object); ok {
			all = append(all, completion{named.GetName(), string(of)})
		}
		return nil
	})
	return all
}

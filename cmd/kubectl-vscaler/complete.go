// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// completeWithin is how long a completion may take.
const completeWithin = 3 * time.Second

// shortTypes are the types that are completed.
var shortTypes = []string{"vscaler", "deployment", "sdeploy", "spolicy", "cspolicy"}

// completeNames completes the names of scalers, and TYPE/NAME. It returns quickly, to keep the shell responsive.
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
	of, prefix := scalerKind, ""
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

// completion is a name, and what it is about.
type completion struct{ name, about string }

// namesOf are the names of a kind in the namespace; none if they cannot be read.
func namesOf(ctx context.Context, c client.Reader, namespace string, of kind) (all []completion) {
	switch of {
	case scalerKind, deploymentKind:
		var list v1beta1.VerticalScalerList
		if c.List(ctx, &list, client.InNamespace(namespace)) != nil {
			return nil
		}
		for _, s := range list.Items {
			if of == scalerKind {
				all = append(all, completion{s.Name, "Deployment " + s.Spec.DeploymentName})
				continue
			}
			all = append(all, completion{s.Spec.DeploymentName, "VerticalScaler " + s.Name})
		}
	case ownerKind:
		var list v1beta1.ScaledDeploymentList
		if c.List(ctx, &list, client.InNamespace(namespace)) != nil {
			return nil
		}
		for _, d := range list.Items {
			all = append(all, completion{d.Name, string(of)})
		}
	case policyKind:
		var list v1beta1.ScalingPolicyList
		if c.List(ctx, &list, client.InNamespace(namespace)) != nil {
			return nil
		}
		for _, p := range list.Items {
			all = append(all, completion{p.Name, string(of)})
		}
	case clusterPolicyKind:
		var list v1beta1.ClusterScalingPolicyList
		if c.List(ctx, &list) != nil {
			return nil
		}
		for _, p := range list.Items {
			all = append(all, completion{p.Name, string(of)})
		}
	}
	return all
}

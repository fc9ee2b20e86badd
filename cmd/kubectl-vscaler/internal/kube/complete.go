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
	namespace, reader, err := c.OpenNamespace(false)
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

// namesOf are the names of a kind in the namespace; none if they cannot be read. Deployments are those with a scaler.
func namesOf(ctx context.Context, c client.Reader, namespace string, of Kind) (all []completion) {
	lists := map[Kind]client.ObjectList{
		ScalerKind: &v1beta1.VerticalScalerList{}, DeploymentKind: &v1beta1.VerticalScalerList{}, OwnerKind: &v1beta1.ScaledDeploymentList{},
		PolicyKind: &v1beta1.ScalingPolicyList{}, ClusterPolicyKind: &v1beta1.ClusterScalingPolicyList{},
	}
	if c.List(ctx, lists[of], client.InNamespace(namespace)) != nil {
		return nil
	}
	_ = meta.EachListItem(lists[of], func(object runtime.Object) error { // never fails
		switch o := object.(type) {
		case *v1beta1.VerticalScaler:
			if of == ScalerKind {
				all = append(all, completion{o.Name, "Deployment " + o.Spec.DeploymentName})
			} else {
				all = append(all, completion{o.Spec.DeploymentName, "VerticalScaler " + o.Name})
			}
		case client.Object:
			all = append(all, completion{o.GetName(), string(of)})
		}
		return nil
	})
	return all
}

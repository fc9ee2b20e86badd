// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
)

// Kind is the kind of object that a user names. The zero value is not named.
type Kind string

// The kinds of objects that a user names.
const (
	ScalerKind     Kind = "VerticalScaler"
	OwnerKind      Kind = "ScaledDeployment"
	DeploymentKind Kind = "Deployment"

	PodKind        Kind = "Pod"
	ReplicaSetKind Kind = "ReplicaSet"
	HPAKind        Kind = "HorizontalPodAutoscaler"

	PolicyKind        Kind = v1beta1.ScalingPolicyKind
	ClusterPolicyKind Kind = v1beta1.ClusterScalingPolicyKind
)

// kinds are the words for a kind, as kubectl accepts them.
var kinds = map[string]Kind{
	"vscaler": ScalerKind, "vscalers": ScalerKind, "verticalscaler": ScalerKind, "verticalscalers": ScalerKind,
	"verticalscaler.autoscaling.verticalscaler.io": ScalerKind, "verticalscalers.autoscaling.verticalscaler.io": ScalerKind,
	"sdeploy": OwnerKind, "sdeploys": OwnerKind, "scaleddeployment": OwnerKind, "scaleddeployments": OwnerKind,
	"scaleddeployment.autoscaling.verticalscaler.io": OwnerKind, "scaleddeployments.autoscaling.verticalscaler.io": OwnerKind,
	"spolicy": PolicyKind, "spolicies": PolicyKind, "scalingpolicy": PolicyKind, "scalingpolicies": PolicyKind,
	"scalingpolicy.autoscaling.verticalscaler.io": PolicyKind, "scalingpolicies.autoscaling.verticalscaler.io": PolicyKind,
	"cspolicy": ClusterPolicyKind, "cspolicies": ClusterPolicyKind, "clusterscalingpolicy": ClusterPolicyKind, "clusterscalingpolicies": ClusterPolicyKind,
	"clusterscalingpolicy.autoscaling.verticalscaler.io": ClusterPolicyKind, "clusterscalingpolicies.autoscaling.verticalscaler.io": ClusterPolicyKind,
	"deploy": DeploymentKind, "deployment": DeploymentKind, "deployments": DeploymentKind,
	"deployment.apps": DeploymentKind, "deployments.apps": DeploymentKind,
	"po": PodKind, "pod": PodKind, "pods": PodKind,
	"rs": ReplicaSetKind, "replicaset": ReplicaSetKind, "replicasets": ReplicaSetKind, "replicaset.apps": ReplicaSetKind, "replicasets.apps": ReplicaSetKind,
	"hpa": HPAKind, "horizontalpodautoscaler": HPAKind, "horizontalpodautoscalers": HPAKind,
	"horizontalpodautoscaler.autoscaling": HPAKind, "horizontalpodautoscalers.autoscaling": HPAKind,
}

// Reference is NAME or TYPE/NAME.
type Reference struct {
	Kind Kind // empty without a type
	Name string
}

func (r Reference) String() string {
	if r.Kind == "" {
		return r.Name
	}
	return string(r.Kind) + "/" + r.Name
}

// References reads the arguments of a command.
func References(args []string) (all []Reference, err error) {
	for _, arg := range args {
		word, name, isTyped := strings.Cut(arg, "/")
		if !isTyped {
			word, name = "", arg
		}
		kind, ok := kinds[strings.ToLower(word)]
		switch {
		case isTyped && !ok:
			return nil, cli.Usagef("%q is not of a type that has a scaler: use vscaler/NAME, deployment/NAME, pod/NAME, replicaset/NAME, hpa/NAME, sdeploy/NAME, spolicy/NAME or cspolicy/NAME", arg)
		case name == "" || strings.Contains(name, "/"):
			return nil, cli.Usagef("%q is not a name: use NAME or TYPE/NAME", arg)
		}
		all = append(all, Reference{kind, name})
	}
	return all, nil
}

// IsPolicy reports whether the reference names a policy.
func (r Reference) IsPolicy() bool { return r.Kind == PolicyKind || r.Kind == ClusterPolicyKind }

// IsPolicyRow reports whether the reference names the policy. Without a type, it does not.
func (r Reference) IsPolicyRow(row explain.PolicyRow) bool { return r.String() == row.ID() }

// isOneOf reports whether an object with these names is meant. Without a type, only the first one counts.
func (r Reference) isOneOf(names ...Reference) bool {
	return slices.Contains(names, r) || r == Reference{Name: names[0].Name}
}

// IsScaler reports whether the reference names the scaler itself, its Deployment, the
// ScaledDeployment that it belongs to, or the policy that has created it.
func (r Reference) IsScaler(s *v1beta1.VerticalScaler) bool {
	return r.IsRow(explain.RowOf(explain.Evidence{Scaler: s}))
}

// IsRow reports that of the row of a scaler.
func (r Reference) IsRow(row explain.Row) bool {
	return r.isOneOf(Reference{ScalerKind, row.Name}, Reference{DeploymentKind, row.Deployment}, Reference{OwnerKind, row.Owner}) ||
		r.IsPolicy() && r.String() == row.Policy
}

// IsOwner reports whether the reference names the ScaledDeployment or its Deployment.
func (r Reference) IsOwner(d *v1beta1.ScaledDeployment) bool {
	return r.IsOwnedRow(explain.OwnedRowOf(d, nil, time.Time{}))
}

// IsOwnedRow reports that of the row of a ScaledDeployment.
func (r Reference) IsOwnedRow(row explain.OwnedRow) bool {
	return r.isOneOf(Reference{OwnerKind, row.Name}, Reference{DeploymentKind, row.Deployment})
}

// Resolved gives a type to a name that no scaler and no ScaledDeployment has, if a Deployment with a scaler has it.
func (r Reference) Resolved(scalers []v1beta1.VerticalScaler, owners []v1beta1.ScaledDeployment) Reference {
	isKnown := slices.ContainsFunc(scalers, func(s v1beta1.VerticalScaler) bool { return s.Name == r.Name }) ||
		slices.ContainsFunc(owners, func(d v1beta1.ScaledDeployment) bool { return d.Name == r.Name })
	if r.Kind == "" && !isKnown {
		if of := (Reference{DeploymentKind, r.Name}); slices.ContainsFunc(scalers, func(s v1beta1.VerticalScaler) bool { return of.IsScaler(&s) }) {
			return of
		}
	}
	return r
}

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

// namesOf are the names of a kind in the namespace; none if they cannot be read. Only Deployments with a scaler count.
func namesOf(ctx context.Context, c client.Reader, namespace string, of Kind) (all []completion) {
	lists := map[Kind]client.ObjectList{
		ScalerKind: &v1beta1.VerticalScalerList{}, DeploymentKind: &v1beta1.VerticalScalerList{}, OwnerKind: &v1beta1.ScaledDeploymentList{}, PodKind: &corev1.PodList{},
		PolicyKind: &v1beta1.ScalingPolicyList{}, ClusterPolicyKind: &v1beta1.ClusterScalingPolicyList{},
	}
	if lists[of] == nil {
		return nil
	}
	objects, err := Objects(ctx, c, lists[of], client.InNamespace(namespace))
	if err != nil {
		return nil
	}
	for _, o := range objects {
		found := completion{o.GetName(), string(of)}
		if s, ok := o.(*v1beta1.VerticalScaler); ok && of == DeploymentKind {
			found = completion{s.Spec.DeploymentName, "VerticalScaler " + s.Name}
		} else if ok {
			found.about = "Deployment " + s.Spec.DeploymentName
		}
		all = append(all, found)
	}
	return all
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
)

// kind is the kind of object that a user names. The zero value is not named.
type kind string

const (
	scalerKind     kind = "VerticalScaler"
	ownerKind      kind = "ScaledDeployment"
	deploymentKind kind = "Deployment"

	policyKind        kind = v1beta1.ScalingPolicyKind
	clusterPolicyKind kind = v1beta1.ClusterScalingPolicyKind
)

// kinds are the words for a kind, as kubectl accepts them.
var kinds = map[string]kind{
	"vscaler": scalerKind, "vscalers": scalerKind, "verticalscaler": scalerKind, "verticalscalers": scalerKind,
	"verticalscaler.autoscaling.verticalscaler.io": scalerKind, "verticalscalers.autoscaling.verticalscaler.io": scalerKind,
	"sdeploy": ownerKind, "sdeploys": ownerKind, "scaleddeployment": ownerKind, "scaleddeployments": ownerKind,
	"scaleddeployment.autoscaling.verticalscaler.io": ownerKind, "scaleddeployments.autoscaling.verticalscaler.io": ownerKind,
	"spolicy": policyKind, "spolicies": policyKind, "scalingpolicy": policyKind, "scalingpolicies": policyKind,
	"scalingpolicy.autoscaling.verticalscaler.io": policyKind, "scalingpolicies.autoscaling.verticalscaler.io": policyKind,
	"cspolicy": clusterPolicyKind, "cspolicies": clusterPolicyKind, "clusterscalingpolicy": clusterPolicyKind, "clusterscalingpolicies": clusterPolicyKind,
	"clusterscalingpolicy.autoscaling.verticalscaler.io": clusterPolicyKind, "clusterscalingpolicies.autoscaling.verticalscaler.io": clusterPolicyKind,
	"deploy": deploymentKind, "deployment": deploymentKind, "deployments": deploymentKind,
	"deployment.apps": deploymentKind, "deployments.apps": deploymentKind,
}

// reference is NAME or TYPE/NAME.
type reference struct {
	kind kind // empty without a type
	name string
}

func (r reference) String() string {
	if r.kind == "" {
		return r.name
	}
	return string(r.kind) + "/" + r.name
}

// references reads the arguments of a command.
func references(args []string) (all []reference, err error) {
	for _, arg := range args {
		word, name, isTyped := strings.Cut(arg, "/")
		if !isTyped {
			word, name = "", arg
		}
		kind, ok := kinds[strings.ToLower(word)]
		switch {
		case isTyped && !ok:
			return nil, usageError{fmt.Errorf("%q is not of a type that has a scaler: use vscaler/NAME, deployment/NAME, sdeploy/NAME, spolicy/NAME or cspolicy/NAME", arg)}
		case name == "" || strings.Contains(name, "/"):
			return nil, usageError{fmt.Errorf("%q is not a name: use NAME or TYPE/NAME", arg)}
		}
		all = append(all, reference{kind, name})
	}
	return all, nil
}

// isPolicy reports whether the reference names a policy.
func (r reference) isPolicy() bool { return r.kind == policyKind || r.kind == clusterPolicyKind }

// isPolicyRow reports whether the reference names the policy. Without a type, it does not.
func (r reference) isPolicyRow(row explain.PolicyRow) bool { return r.String() == row.ID() }

// isScaler reports whether the reference names the scaler itself, its Deployment, the
// ScaledDeployment that it belongs to, or the policy that has created it.
func (r reference) isScaler(s *v1beta1.VerticalScaler) bool {
	return r.isRow(explain.RowOf(explain.Evidence{Scaler: s}))
}

func (r reference) isRow(row explain.Row) bool {
	switch r.kind {
	case deploymentKind:
		return row.Deployment == r.name
	case ownerKind:
		return row.Owner == r.name
	case policyKind, clusterPolicyKind:
		return row.Policy == r.String()
	}
	return row.Name == r.name
}

// isOwner reports whether the reference names the ScaledDeployment or its Deployment.
func (r reference) isOwner(d *v1beta1.ScaledDeployment) bool {
	return r.isOwnedRow(explain.OwnedRowOf(d))
}

func (r reference) isOwnedRow(row explain.OwnedRow) bool {
	switch r.kind {
	case deploymentKind:
		return row.Deployment == r.name
	case scalerKind, policyKind, clusterPolicyKind:
		return false
	}
	return row.Name == r.name
}

// resolved gives a type to a name that no scaler and no ScaledDeployment has, if it is that of a
// Deployment with a scaler.
func (r reference) resolved(scalers []v1beta1.VerticalScaler, owners []v1beta1.ScaledDeployment) reference {
	isKnown := slices.ContainsFunc(scalers, func(s v1beta1.VerticalScaler) bool { return s.Name == r.name }) ||
		slices.ContainsFunc(owners, func(d v1beta1.ScaledDeployment) bool { return d.Name == r.name })
	if r.kind == "" && !isKnown {
		if of := (reference{deploymentKind, r.name}); slices.ContainsFunc(scalers, func(s v1beta1.VerticalScaler) bool { return of.isScaler(&s) }) {
			return of
		}
	}
	return r
}

// notFound is the error for a name that no object has.
func (r reference) notFound(namespace string) error {
	switch r.kind {
	case deploymentKind:
		return fmt.Errorf("no VerticalScaler of Deployment %s/%s found", namespace, r.name)
	case ownerKind:
		return fmt.Errorf("ScaledDeployment %s/%s not found", namespace, r.name)
	case policyKind:
		return fmt.Errorf("no ScalingPolicy %s/%s and no VerticalScaler of it found", namespace, r.name)
	case clusterPolicyKind:
		return fmt.Errorf("no ClusterScalingPolicy %s and no VerticalScaler of it found in namespace %s", r.name, namespace)
	}
	return fmt.Errorf("VerticalScaler %s/%s not found", namespace, r.name)
}

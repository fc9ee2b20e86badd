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
)

// kinds are the words for a kind, as kubectl accepts them.
var kinds = map[string]kind{
	"vscaler": scalerKind, "vscalers": scalerKind, "verticalscaler": scalerKind, "verticalscalers": scalerKind,
	"verticalscaler.autoscaling.verticalscaler.io": scalerKind, "verticalscalers.autoscaling.verticalscaler.io": scalerKind,
	"sdeploy": ownerKind, "sdeploys": ownerKind, "scaleddeployment": ownerKind, "scaleddeployments": ownerKind,
	"scaleddeployment.autoscaling.verticalscaler.io": ownerKind, "scaleddeployments.autoscaling.verticalscaler.io": ownerKind,
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
			return nil, usageError{fmt.Errorf("%q is not of a type that has a scaler: use vscaler/NAME, deployment/NAME or sdeploy/NAME", arg)}
		case name == "" || strings.Contains(name, "/"):
			return nil, usageError{fmt.Errorf("%q is not a name: use NAME or TYPE/NAME", arg)}
		}
		all = append(all, reference{kind, name})
	}
	return all, nil
}

// isScaler reports whether the reference names the scaler itself, its Deployment, or the
// ScaledDeployment that it belongs to.
func (r reference) isScaler(s *v1beta1.VerticalScaler) bool {
	return r.isRow(explain.RowOf(explain.Evidence{Scaler: s}))
}

func (r reference) isRow(row explain.Row) bool {
	switch r.kind {
	case deploymentKind:
		return row.Deployment == r.name
	case ownerKind:
		return row.Owner == r.name
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
	case scalerKind:
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
	}
	return fmt.Errorf("VerticalScaler %s/%s not found", namespace, r.name)
}

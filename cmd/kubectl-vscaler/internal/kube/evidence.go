// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/snapshot"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// ErrNotInstalled is the error for a list of a kind that the API server does not serve.
var ErrNotInstalled = errors.New("the API server does not serve VerticalScalers: is the operator installed? See " + cli.Name + " check")

// Scalers lists scalers.
func Scalers(ctx context.Context, c client.Reader, options ...client.ListOption) (all []v1beta1.VerticalScaler, err error) {
	err = List(ctx, c, func(page *v1beta1.VerticalScalerList) { all = append(all, page.Items...) }, options...)
	switch {
	case apierrors.IsNotFound(err):
		return nil, ErrNotInstalled
	case err != nil:
		return nil, fmt.Errorf("listing VerticalScalers: %w", err)
	}
	return all, nil
}

// Objects lists objects.
func Objects(ctx context.Context, c client.Reader, list client.ObjectList, options ...client.ListOption) (all []client.Object, err error) {
	if err := c.List(ctx, list, options...); err != nil {
		return nil, err
	}
	err = meta.EachListItem(list, func(object runtime.Object) error {
		if o, ok := object.(client.Object); ok {
			all = append(all, o)
		}
		return nil
	})
	return all, err
}

// Untyped lists objects of a kind that the plugin has no type of.
func Untyped(ctx context.Context, c client.Reader, kind schema.GroupVersionKind, options ...client.ListOption) ([]unstructured.Unstructured, error) {
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err := c.List(ctx, &list, options...)
	return list.Items, err
}

// Owners lists ScaledDeployments. Older operators have none.
func Owners(ctx context.Context, c client.Reader, options ...client.ListOption) ([]v1beta1.ScaledDeployment, error) {
	var owners v1beta1.ScaledDeploymentList
	err := client.IgnoreNotFound(c.List(ctx, &owners, options...))
	return owners.Items, err
}

// Deployments are the Deployments of a namespace, or of all, by name.
func Deployments(ctx context.Context, c client.Reader, namespace string) (map[types.NamespacedName]*appsv1.Deployment, error) {
	all := map[types.NamespacedName]*appsv1.Deployment{}
	err := List(ctx, c, func(page *appsv1.DeploymentList) {
		for i := range page.Items {
			all[client.ObjectKeyFromObject(&page.Items[i])] = &page.Items[i]
		}
	}, client.InNamespace(namespace))
	return all, err
}

// Policies are the policies of a namespace and of the cluster. They are optional: most users may not list those of
// the cluster, and older operators have none.
func Policies(ctx context.Context, c client.Reader, namespace string, options ...client.ListOption) []client.Object {
	cluster, _ := Objects(ctx, c, &v1beta1.ClusterScalingPolicyList{}, options...)
	namespaced, _ := Objects(ctx, c, &v1beta1.ScalingPolicyList{}, append(options, client.InNamespace(namespace))...)
	return append(cluster, namespaced...)
}

// Concerns reports whether a policy is shown beside the scalers of a namespace: it is of the namespace, or has created one
// of them.
func Concerns(policy explain.PolicyRow, namespace string, scalers []explain.Row) bool {
	return namespace == metav1.NamespaceAll || policy.Namespace != "" ||
		slices.ContainsFunc(scalers, func(s explain.Row) bool { return s.Policy == policy.ID() })
}

// NothingIn says that a namespace, or any, has no scalers.
func NothingIn(namespace string) string {
	if namespace == metav1.NamespaceAll {
		return "No VerticalScalers found."
	}
	return "No VerticalScalers found in namespace " + namespace + "."
}

// HowToBegin is advice for an empty fleet.
func HowToBegin(namespace string) string {
	which := "-n " + namespace
	if namespace == metav1.NamespaceAll {
		which = "--namespaces LABEL=VALUE"
	}
	return fmt.Sprintf("Create some with a policy: %s adopt %s --dry-run", cli.Name, which)
}

// Find reads what explains the scaler that the user names: by its name, else as that of the
// ScaledDeployment or the Deployment by that name. If a ScaledDeployment has none, it is that.
func (c *Cluster) Find(ctx context.Context, reader client.Reader, namespace string, name Reference) (explain.Evidence, *v1beta1.ScaledDeployment, error) {
	if name.IsPolicy() {
		return explain.Evidence{}, nil, cli.Usagef("%s is a policy, and not a scaler: name one of its scalers, or see it with \"%s explain %s\"", name, cli.Name, name)
	}
	if name.isBelow() {
		return c.findAbove(ctx, reader, namespace, name)
	}
	if name.Kind == "" || name.Kind == ScalerKind {
		evidence, err := EvidenceOf(ctx, reader, types.NamespacedName{Namespace: namespace, Name: name.Name})
		if !errors.Is(err, snapshot.ErrNotFound) {
			return evidence, nil, err
		}
	}
	var none explain.Evidence
	scalers, err := Scalers(ctx, reader, client.InNamespace(namespace))
	switch {
	case errors.Is(err, ErrNotInstalled):
		return none, nil, err
	case err != nil:
		return none, nil, c.NotFound(ctx, reader, namespace, name)
	}
	var owners v1beta1.ScaledDeploymentList
	if err := reader.List(ctx, &owners, client.InNamespace(namespace)); err != nil {
		owners.Items = nil // the user may not read them
	}
	if name.Kind == "" && slices.ContainsFunc(owners.Items, func(d v1beta1.ScaledDeployment) bool { return d.Name == name.Name }) {
		name.Kind = OwnerKind
	}
	name = name.Resolved(scalers, owners.Items)
	named := slices.DeleteFunc(scalers, func(s v1beta1.VerticalScaler) bool { return !name.IsScaler(&s) })
	switch len(named) {
	case 1:
		return EvidenceFor(ctx, reader, &named[0]), nil, nil
	case 0:
		if i := slices.IndexFunc(owners.Items, func(d v1beta1.ScaledDeployment) bool { return name.IsOwner(&d) }); i >= 0 {
			return none, &owners.Items[i], nil
		}
		if pod := (Reference{PodKind, name.Name}); name.Kind == "" && exists(ctx, reader, namespace, pod) {
			return c.findAbove(ctx, reader, namespace, pod)
		}
		return none, nil, c.NotFound(ctx, reader, namespace, name)
	}
	names := make([]string, len(named))
	for i, s := range named {
		names[i] = s.Name
	}
	return none, nil, fmt.Errorf("several VerticalScalers name Deployment %s/%s: %s", namespace, name.Name, strings.Join(names, ", "))
}

// Chosen are the named scalers, or all with the labels. A name that no scaler has is an error, and
// nothing is chosen then.
func (c *Cluster) Chosen(ctx context.Context, reader client.Reader, namespace string, selector labels.Selector, names []Reference) ([]v1beta1.VerticalScaler, error) {
	all, err := Scalers(ctx, reader, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector})
	if err != nil {
		return nil, err
	}
	var errs []error
	for i, name := range names {
		names[i] = name.Resolved(all, nil)
		if !slices.ContainsFunc(all, func(s v1beta1.VerticalScaler) bool { return names[i].IsScaler(&s) }) {
			errs = append(errs, c.NotFound(ctx, reader, namespace, name))
		}
	}
	return slices.DeleteFunc(all, func(s v1beta1.VerticalScaler) bool {
		return len(names) > 0 && !slices.ContainsFunc(names, func(name Reference) bool { return name.IsScaler(&s) })
	}), errors.Join(errs...)
}

// EvidenceOf reads the objects that explain a scaler. Only the scaler itself is required.
func EvidenceOf(ctx context.Context, c client.Reader, name types.NamespacedName) (explain.Evidence, error) {
	var scaler v1beta1.VerticalScaler
	switch err := c.Get(ctx, name, &scaler); {
	case apierrors.IsNotFound(err):
		return explain.Evidence{}, fmt.Errorf("VerticalScaler %s %w", name, snapshot.ErrNotFound)
	case err != nil:
		return explain.Evidence{}, fmt.Errorf("reading VerticalScaler %s: %w", name, err)
	}
	return EvidenceFor(ctx, c, &scaler), nil
}

// EvidenceFor reads the other objects that explain a scaler, as far as the user may.
func EvidenceFor(ctx context.Context, c client.Reader, scaler *v1beta1.VerticalScaler) (e explain.Evidence) {
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
	if applied := meta.FindStatusCondition(scaler.Status.Conditions, v1beta1.ConditionApplied); applied != nil && applied.Reason == v1beta1.ReasonHPAConflict {
		var err error
		if e.HPAs, err = HPAs(ctx, c, key.Namespace); err != nil {
			e.Missing = append(e.Missing, fmt.Sprintf("The HorizontalPodAutoscalers: %v", err))
		}
	}
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
	var ranges corev1.LimitRangeList
	if err := c.List(ctx, &ranges, client.InNamespace(key.Namespace)); err != nil {
		e.Missing = append(e.Missing, fmt.Sprintf("The LimitRanges: %v", err))
	}
	e.LimitRange = workload.ReadLimitRanges(ranges.Items)
	return e
}

// HPAs reads the HorizontalPodAutoscalers of a namespace, or of all.
func HPAs(ctx context.Context, c client.Reader, namespace string) (all []autoscalingv2.HorizontalPodAutoscaler, err error) {
	err = List(ctx, c, func(page *autoscalingv2.HorizontalPodAutoscalerList) { all = append(all, page.Items...) }, client.InNamespace(namespace))
	return all, err
}

// ForFleet is a policy's view of a namespace.
func ForFleet(n *corev1.Namespace) *fleet.Namespace {
	return &fleet.Namespace{Name: n.Name, Labels: n.Labels, Excluded: fleet.IsExcluded(n.Annotations), Terminating: n.DeletionTimestamp != nil}
}

// leftOut says which policies select a Deployment without a scaler, and why it has none, as far as that is known.
func (c *Cluster) leftOut(ctx context.Context, reader client.Reader, deployment *appsv1.Deployment) (lines []string) {
	namespace := deployment.Namespace
	found := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{corev1.LabelMetadataName: namespace}}}
	_ = reader.Get(ctx, types.NamespacedName{Name: namespace}, &found) // without it, its name is known
	var policies []*fleet.Policy
	for _, object := range Policies(ctx, reader, namespace) {
		if p, err := fleet.Read(object, c.OperatorNamespace()); err == nil {
			policies = append(policies, p)
		}
	}
	for _, p := range policies {
		m, ok := fleet.MemberOf(p, policies, inventory.ReadForFleet(deployment), ForFleet(&found), fleet.Scalers{}, "")
		if !ok {
			continue
		}
		reason, _ := explain.ReasonFor(cmp.Or(m.Skipped, v1beta1.ReasonCreatingScalers))
		lines = append(lines, fmt.Sprintf("%s/%s selects the Deployment, which has no scaler of it: %s. %s %s", p.Kind, p.Object.GetName(), reason.Reason, reason.Means, reason.Advice))
	}
	return lines
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
)

// State is the state of a world without what differs between two runs: names of pods, UIDs,
// times, resource versions, and numbers that depend on when samples were taken.
type State struct {
	Deployments []DeploymentState
	// Owners are the ScaledDeployments with their finalizers, conditions and numbers of pods.
	Owners  []string
	Scalers []ScalerState
}

// DeploymentState is a Deployment with its pods.
type DeploymentState struct {
	Name string
	// Containers are the template's containers with their resources, in order.
	Containers []string
	// Fields are the owners of resources of containers, sorted.
	Fields []string
	// Pods are the pods' containers with their resources in the spec and as applied, sorted.
	Pods []string
	// ReplicaSets is the number of ReplicaSets: one more than the rollouts.
	ReplicaSets int
}

// ScalerState is a VerticalScaler. Its status lacks the fields that differ between two runs.
type ScalerState struct {
	Name                 string
	Deleting, Checkpoint bool
	Finalizers           []string
	// Conditions are type=status reason, in order.
	Conditions []string
	Decision   *v1beta1.Decision
	Reverted   []v1beta1.RevertedChange
	Originals  *v1beta1.OriginalResources
	NewPods    []v1beta1.NewPodContainer
}

// DiffAfterFaults describes how the end of a run with faults differs from this one, which had none. Three differences
// are tolerated. A decision that was lost after it was applied is adopted from the pods, if they disagree, or not
// needed, if they agree. The silent pod may have no usage just now.
func (s State) DiffAfterFaults(got State) string {
	got.Scalers = slices.Clone(got.Scalers)
	for i := range min(len(got.Scalers), len(s.Scalers)) {
		got.Scalers[i].tolerate(s.Scalers[i])
	}
	return cmp.Diff(s, got)
}

func (s *ScalerState) tolerate(want ScalerState) {
	s.Conditions = slices.Clone(s.Conditions)
	replace := func(is, by string) {
		for i, line := range s.Conditions {
			s.Conditions[i] = strings.Replace(line, "=True "+is, "=True "+by, 1)
		}
	}
	replace(v1beta1.ReasonMetricsIncomplete, v1beta1.ReasonEnoughHistory)
	replace(v1beta1.ReasonMetricsRecovering, v1beta1.ReasonEnoughHistory)
	switch {
	case want.Decision == nil:
	case s.Decision == nil:
		s.Decision = want.Decision
		replace(v1beta1.ReasonWithinTolerance, v1beta1.ReasonApplied)
	default:
		adopted := *s.Decision
		if adopted.Reason == plan.DecidedAdopted {
			adopted.Reason = want.Decision.Reason
		}
		if slices.EqualFunc(adopted.Containers, want.Decision.Containers, isPartOf) {
			adopted.Containers = want.Decision.Containers
		}
		s.Decision = &adopted
	}
}

// isPartOf reports whether decided requests are the others without some of them.
func isPartOf(part, whole v1beta1.ContainerDecision) bool {
	within := func(a, b *resource.Quantity) bool { return a == nil || b != nil && a.Cmp(*b) == 0 }
	return part.ContainerName == whole.ContainerName && within(part.Requests.CPU, whole.Requests.CPU) && within(part.Requests.Memory, whole.Requests.Memory)
}

// EndState reads the state of the namespace.
func (w *World) EndState() (State, error) {
	var deployments appsv1.DeploymentList
	var sets appsv1.ReplicaSetList
	var pods corev1.PodList
	var scalers v1beta1.VerticalScalerList
	var owners v1beta1.ScaledDeploymentList
	var checkpoints v1beta1.VerticalScalerCheckpointList
	for _, list := range []client.ObjectList{&deployments, &sets, &pods, &scalers, &owners, &checkpoints} {
		if err := w.Client.List(w.ctx, list, client.InNamespace(w.Namespace)); err != nil {
			return State{}, fmt.Errorf("reading the state of %s: %w", w.Namespace, err)
		}
	}
	state := State{}
	for i := range deployments.Items {
		one, err := deploymentState(&deployments.Items[i], sets.Items, pods.Items)
		if err != nil {
			return State{}, err
		}
		state.Deployments = append(state.Deployments, one)
	}
	for _, scaler := range scalers.Items {
		hasCheckpoint := slices.ContainsFunc(checkpoints.Items, func(c v1beta1.VerticalScalerCheckpoint) bool { return c.Name == scaler.Name })
		state.Scalers = append(state.Scalers, scalerState(&scaler, hasCheckpoint))
	}
	for _, owner := range owners.Items {
		state.Owners = append(state.Owners, fmt.Sprint(owner.Name, owner.Finalizers, conditionLines(owner.Status.Conditions), owner.Status.AvailableReplicas))
	}
	return state, nil
}

func deploymentState(d *appsv1.Deployment, sets []appsv1.ReplicaSet, pods []corev1.Pod) (DeploymentState, error) {
	out := DeploymentState{Name: d.Name, Containers: sizesOf(d.Spec.Template.Spec.Containers)}
	var err error
	if out.Fields, err = fieldLines(d.ManagedFields); err != nil {
		return out, fmt.Errorf("reading the managed fields of Deployment %s: %w", d.Name, err)
	}
	for i := range sets {
		if metav1.IsControlledBy(&sets[i], d) {
			out.ReplicaSets++
		}
	}
	for i := range pods {
		if pods[i].Labels[AppLabel] == d.Spec.Selector.MatchLabels[AppLabel] && pods[i].DeletionTimestamp == nil {
			out.Pods = append(out.Pods, podLine(&pods[i]))
		}
	}
	slices.Sort(out.Pods)
	return out, nil
}

// podLine is a pod's containers with their resources in the spec, and the applied ones if
// they differ.
func podLine(pod *corev1.Pod) string {
	parts := []string{string(pod.Status.Phase), string(pod.Status.QOSClass)}
	for _, c := range containersOf(pod) {
		line := c.Name + " " + resourceLine(c.Resources)
		if s := statusOf(pod, c.Name); s != nil && s.Resources != nil && resourceLine(*s.Resources) != resourceLine(c.Resources) {
			line += " applied " + resourceLine(*s.Resources)
		}
		parts = append(parts, line)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress {
			parts = append(parts, string(c.Type)+" "+c.Reason)
		}
	}
	return strings.Join(parts, "; ")
}

func resourceLine(r corev1.ResourceRequirements) string {
	return fmt.Sprintf("%s/%s up to %s/%s", r.Requests.Cpu(), r.Requests.Memory(), r.Limits.Cpu(), r.Limits.Memory())
}

// fieldLines lists who owns which parts of the resources of containers in a template.
func fieldLines(entries []metav1.ManagedFieldsEntry) (lines []string, err error) {
	for _, entry := range entries {
		if entry.FieldsV1 == nil || entry.Subresource != "" {
			continue
		}
		set := &fieldpath.Set{}
		if err := set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
			return nil, err
		}
		set.Leaves().Iterate(func(path fieldpath.Path) {
			if text := path.String(); strings.Contains(text, ".containers[") && (strings.Contains(text, ".resources") || strings.HasSuffix(text, ".name")) {
				lines = append(lines, fmt.Sprintf("%s (%s): %s", entry.Manager, entry.Operation, strings.TrimPrefix(text, ".spec.template.spec.containers")))
			}
		})
	}
	slices.Sort(lines)
	return lines, nil
}

func scalerState(s *v1beta1.VerticalScaler, hasCheckpoint bool) ScalerState {
	status := s.Status.DeepCopy()
	out := ScalerState{
		Name: s.Name, Deleting: s.DeletionTimestamp != nil, Checkpoint: hasCheckpoint, Finalizers: s.Finalizers,
		Conditions: conditionLines(status.Conditions), Decision: status.Decision, Originals: status.OriginalResources,
	}
	if out.Decision != nil {
		out.Decision.Time, out.Decision.LastRevertTime, out.Decision.Verification = metav1.Time{}, nil, nil
	}
	if out.Originals != nil {
		out.Originals.UID = ""
	}
	for _, r := range status.RevertedChanges {
		out.Reverted = append(out.Reverted, v1beta1.RevertedChange{ContainerName: r.ContainerName, Resource: r.Resource, Value: r.Value})
	}
	if status.NewPods != nil {
		out.NewPods = status.NewPods.Containers
	}
	return out
}

func conditionLines(conditions []metav1.Condition) (lines []string) {
	for _, c := range conditions {
		lines = append(lines, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
	}
	slices.Sort(lines)
	return lines
}

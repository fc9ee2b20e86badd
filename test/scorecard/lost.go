// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scorecard

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
)

// lostOfStatus returns what a scaler's status has lost, or has less of, since it was
// stored.
func lostOfStatus(before, now *v1beta1.VerticalScaler) (lost []string) {
	say := func(format string, args ...any) { lost = append(lost, fmt.Sprintf(format, args...)) }
	was, is := before.Status, now.Status

	for key, value := range was.Annotations {
		if is.Annotations[key] != value {
			say("status.annotations[%s] was %q and is %q", key, value, is.Annotations[key])
		}
	}
	for _, c := range was.Conditions {
		if meta.FindStatusCondition(is.Conditions, c.Type) == nil {
			say("condition %s is lost", c.Type)
		}
	}
	if was.Recommendation != nil {
		lost = append(lost, lostOfRecommendation(was.Recommendation, is.Recommendation)...)
	}
	if was.Decision != nil {
		lost = append(lost, lostOfDecision(was.Decision, is.Decision)...)
	}
	for _, entry := range was.History {
		if !slices.ContainsFunc(is.History, func(e v1beta1.HistoryEntry) bool {
			return e.Message == entry.Message && e.Time.Equal(&entry.Time)
		}) {
			say("history entry %q is lost", entry.Message)
		}
	}
	if was.OriginalResources != nil {
		lost = append(lost, lostOfOriginal(was.OriginalResources, is.OriginalResources)...)
	}
	for _, finalizer := range before.Finalizers {
		if !slices.Contains(now.Finalizers, finalizer) {
			say("finalizer %s is lost", finalizer)
		}
	}
	return lost
}

func lostOfRecommendation(was, is *v1beta1.Recommendation) (lost []string) {
	if is == nil {
		return []string{"the recommendation is lost"}
	}
	for _, w := range was.ContainerRecommendations {
		i := slices.IndexFunc(is.ContainerRecommendations, func(c v1beta1.ContainerRecommendation) bool { return c.ContainerName == w.ContainerName })
		if i < 0 {
			lost = append(lost, fmt.Sprintf("the recommendation for container %s is lost", w.ContainerName))
			continue
		}
		c := is.ContainerRecommendations[i]
		what := "the recommendation for container " + w.ContainerName
		lost = append(lost, lowered(what, w.Target, c.Target)...)
		if c.ObservedSeconds < w.ObservedSeconds {
			lost = append(lost, fmt.Sprintf("%s rested on %d s and rests on %d s", what, w.ObservedSeconds, c.ObservedSeconds))
		}
	}
	return lost
}

func lostOfDecision(was, is *v1beta1.Decision) (lost []string) {
	if is == nil {
		return []string{"the decision is lost"}
	}
	if is.Time.Before(&was.Time) {
		lost = append(lost, fmt.Sprintf("the decision is of %s and was of %s", is.Time, was.Time))
	}
	for _, w := range was.Containers {
		i := slices.IndexFunc(is.Containers, func(c v1beta1.ContainerDecision) bool { return c.ContainerName == w.ContainerName })
		if i < 0 {
			lost = append(lost, fmt.Sprintf("the decision for container %s is lost", w.ContainerName))
			continue
		}
		lost = append(lost, lowered("the decision for container "+w.ContainerName, w.Requests, is.Containers[i].Requests)...)
	}
	return lost
}

// lostOfOriginal names the original resources that are lost or have changed. The operator
// restores exactly these values.
func lostOfOriginal(was, is *v1beta1.OriginalResources) (lost []string) {
	if is == nil {
		return []string{"the original resources are lost"}
	}
	if is.DeploymentName != was.DeploymentName || is.UID != was.UID {
		lost = append(lost, fmt.Sprintf("the original resources are of Deployment %s (%s), and were of %s (%s)", is.DeploymentName, is.UID, was.DeploymentName, was.UID))
	}
	for _, w := range was.Containers {
		i := slices.IndexFunc(is.Containers, func(c v1beta1.OriginalContainerResources) bool { return c.ContainerName == w.ContainerName })
		if i < 0 {
			lost = append(lost, fmt.Sprintf("the original resources of container %s are lost", w.ContainerName))
			continue
		}
		for _, pair := range []struct {
			name    string
			was, is v1beta1.Amounts
		}{{"requests", w.Requests, is.Containers[i].Requests}, {"limits", w.Limits, is.Containers[i].Limits}} {
			for _, r := range resourcesOf(pair.was, pair.is) {
				if r.was != nil && (r.is == nil || r.is.Cmp(*r.was) != 0) {
					lost = append(lost, fmt.Sprintf("the original %s of %s of container %s were %s and are %s", pair.name, r.name, w.ContainerName, r.was, r.is))
				}
			}
		}
	}
	return lost
}

// lowered returns the amounts that have been reduced.
func lowered(what string, was, is v1beta1.Amounts) (lost []string) {
	for _, r := range resourcesOf(was, is) {
		if r.was != nil && (r.is == nil || r.is.Cmp(*r.was) < 0) {
			lost = append(lost, fmt.Sprintf("%s was %s %s and is %s", what, r.name, r.was, r.is))
		}
	}
	return lost
}

type resourcePair struct {
	name    string
	was, is *resource.Quantity
}

func resourcesOf(was, is v1beta1.Amounts) []resourcePair {
	return []resourcePair{{"cpu", was.CPU, is.CPU}, {"memory", was.Memory, is.Memory}}
}

// lostOfCheckpoint returns the evidence that a checkpoint has lost since it was stored. It
// uses the code of this version, which must read checkpoints of earlier ones.
func lostOfCheckpoint(before, now *v1beta1.VerticalScalerCheckpoint) (lost []string) {
	say := func(format string, args ...any) { lost = append(lost, fmt.Sprintf(format, args...)) }
	if now.Spec.DeploymentName != before.Spec.DeploymentName {
		say("the checkpoint is about Deployment %s and was about %s", now.Spec.DeploymentName, before.Spec.DeploymentName)
	}
	for _, w := range before.Spec.Containers {
		was, err := history.Decode(w.Data)
		if err != nil {
			say("the recorded history of container %s cannot be read: %v", w.ContainerName, err)
			continue
		}
		i := slices.IndexFunc(now.Spec.Containers, func(c v1beta1.ContainerCheckpoint) bool { return c.ContainerName == w.ContainerName })
		if i < 0 {
			say("the history of container %s is lost", w.ContainerName)
			continue
		}
		is, err := history.Decode(now.Spec.Containers[i].Data)
		if err != nil {
			say("the stored history of container %s cannot be read: %v", w.ContainerName, err)
			continue
		}
		if is.Observed() < was.Observed() {
			say("container %s was observed for %s, and %s are left", w.ContainerName, was.Observed(), is.Observed())
		}
		if is.Peak() < was.Peak() {
			say("the peak of memory of container %s was %d bytes and is %d", w.ContainerName, was.Peak(), is.Peak())
		}
		if is.NewestKill().Before(was.NewestKill()) {
			say("the OOM kill of container %s of %s is forgotten", w.ContainerName, was.NewestKill())
		}
		if is.CPUPeak()*10 < was.CPUPeak()*9 {
			say("the peak of CPU of container %s was %dm and is %dm", w.ContainerName, was.CPUPeak(), is.CPUPeak())
		}
	}
	return lost
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Pod is the pod that the user asks about.
type Pod struct {
	Name string `json:"name"`
	// Facts are its sizes beside those of its template, its resizes, the kubelet's report, and its OOM kills.
	Facts []string `json:"facts"`
	// Restore returns to the requests of the template, and Stop stops further changes. They are commands.
	Restore string `json:"restore"`
	Stop    string `json:"stop"`
}

// podOf explains the pod of the evidence; nil for none.
func podOf(e Evidence) *Pod {
	if e.Pod == nil {
		return nil
	}
	name := fmt.Sprintf("%s -n %s", e.Scaler.Name, e.Scaler.Namespace)
	out := &Pod{Name: e.Pod.Name, Restore: "kubectl vscaler rollback " + name + " --to=original", Stop: "kubectl vscaler suspend " + name}
	if origin := OriginOf(e.Scaler); origin != nil && !origin.Detaching {
		out.Restore += " --detach"
	}
	pod, resizes := workload.ReadPod(e.Pod, true), resizesOf(e.Pod.ManagedFields)
	for _, c := range pod.Containers {
		inTemplate, _ := e.template().Container(c.Name)
		for _, resource := range []string{recommend.CPU, recommend.Memory} {
			out.Facts = append(out.Facts, fmt.Sprintf("%s %s: the pod %s. Its template %s. A new pod %s.",
				c.Name, resource, sizeOf(resource, c).words(), sizeOf(resource, inTemplate).words(), sizeOf(resource, e.inNewPod(c.Name)).words()))
		}
	}
	out.Facts = append(out.Facts, e.changesOf(pod, resizes)...)
	for _, c := range e.Pod.Status.Conditions {
		if isResize := c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress; isResize && c.Status == corev1.ConditionTrue {
			out.Facts = append(out.Facts, strings.TrimRight(fmt.Sprintf("The kubelet reports %s (%s) for %s: %s", c.Type, cmp.Or(c.Reason, "no reason"), Age(e.Now, c.LastTransitionTime.Time), c.Message), ": "))
		}
	}
	for _, kill := range pod.Kills {
		out.Facts = append(out.Facts, e.causeOf(kill, resizes))
	}
	return out
}

// template is the pod's template: that of its ReplicaSet, else that of the Deployment.
func (e Evidence) template() workload.Deployment {
	var d appsv1.Deployment
	switch {
	case e.PodTemplate != nil:
		d.Spec.Template = *e.PodTemplate
	case e.Deployment != nil:
		d = *e.Deployment
	}
	return workload.ReadDeployment(&d)
}

// inNewPod is a container of the Deployment's next pod.
func (e Evidence) inNewPod(name string) (c workload.Container) {
	if e.Deployment == nil {
		c, _ = e.template().Container(name)
		return c
	}
	c, _ = workload.ReadDeployment(e.Deployment).Container(name)
	published := e.Scaler.Status.NewPods
	if published == nil || meta.IsStatusConditionFalse(e.Scaler.Status.Conditions, v1beta1.ConditionNewPodsSized) {
		return c
	}
	i := slices.IndexFunc(published.Containers, func(p v1beta1.NewPodContainer) bool { return p.ContainerName == name })
	if i < 0 {
		return c
	}
	sized := workload.Resources{Requests: scaler.Amounts(published.Containers[i].Requests), Limits: scaler.Amounts(published.Containers[i].Limits)}
	for _, r := range model.Resources {
		if (r.Limit(sized) > 0) != (r.Limit(c.Resources) > 0) {
			return c
		}
	}
	// Pods of a revision that has not run with the published sizes get no less than their template.
	owner := metav1.GetControllerOf(e.Pod)
	isCurrent := e.PodTemplate == nil || apiequality.Semantic.DeepEqual(e.PodTemplate.Spec, e.Deployment.Spec.Template.Spec)
	isProven := owner != nil && (owner.UID == published.ReplicaSetUID) == isCurrent || scaler.Mode(&e.Scaler.Spec) == v1beta1.UpdateModeInitial
	for _, r := range model.Resources {
		if r.Request(sized) > 0 && (isProven || r.Request(sized) > r.Request(c.Resources)) {
			r.Copy(&c.Resources, sized)
		}
	}
	return c
}

// resizesOf are the resizes in the managed fields, one for each field manager, the last first.
func resizesOf(fields []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	resizes := slices.DeleteFunc(slices.Clone(fields), func(f metav1.ManagedFieldsEntry) bool {
		return f.Subresource != workload.ResizeSubresource || f.Time == nil
	})
	slices.SortFunc(resizes, func(a, b metav1.ManagedFieldsEntry) int { return b.Time.Compare(a.Time.Time) })
	return resizes
}

// changesOf describes who resized the pod, when, and after which decision.
func (e Evidence) changesOf(pod workload.Pod, resizes []metav1.ManagedFieldsEntry) (facts []string) {
	for _, f := range resizes {
		who, why := "field manager "+f.Manager, ""
		if f.Manager == ownership.Scalers {
			who = "the operator"
			if i := slices.IndexFunc(e.Scaler.Status.History, func(h v1beta1.HistoryEntry) bool { return !h.Time.After(f.Time.Add(time.Second)) }); i >= 0 {
				why = " The decision before that: " + e.Scaler.Status.History[i].Message + "."
			}
		}
		facts = append(facts, fmt.Sprintf("Resized by %s %s ago (%s).%s", who, Age(e.Now, f.Time.Time), f.Time.UTC().Format(time.RFC3339), why))
	}
	if len(resizes) > 0 {
		return facts
	}
	for _, c := range pod.Containers {
		if has, ok := e.template().Container(c.Name); ok && has.Resources != c.Resources {
			return []string{"Never resized: it was created with sizes other than its template's, by the operator's admission policy for new pods, or by another one."}
		}
	}
	return []string{"Never resized: it has the sizes of its template."}
}

// causeOf reports whether the operator has caused an OOM kill, because the container had less memory than in its original template.
// After a resize, the pod no longer shows the size of the kill: then the raise that followed has the request.
func (e Evidence) causeOf(kill workload.OOMKill, resizes []metav1.ManagedFieldsEntry) string {
	c, _ := e.template().Container(kill.Container)
	if e.Deployment != nil {
		c.Resources = scaler.Original(c, scaler.Originals(e.Scaler.Status.OriginalResources, e.Deployment.UID))
	}
	size, template := kill.HitBytes, cmp.Or(c.Limits.MemoryBytes, c.Requests.MemoryBytes)
	keepsLimit := c.Limits.MemoryBytes > 0 && scaler.LimitRule(e.Scaler.Spec.ResourcePolicy.For(kill.Container).ControlledValues) != model.LimitsFollow
	if size == 0 && keepsLimit {
		size = template
	} else if size == 0 {
		size, template = e.raisedFrom(kill), cmp.Or(c.Requests.MemoryBytes, c.Limits.MemoryBytes)
	}
	answer := "no, so not because of it"
	switch {
	case size == 0 || template == 0:
		answer = "not known, because the pod was resized since"
	case size < template && kill.HitBytes > 0 && len(resizes) > 0 && resizes[0].Manager != ownership.Scalers:
		answer = fmt.Sprintf("no, by field manager %s, so not because of the operator", resizes[0].Manager)
	case size < template:
		answer = "yes, so because of it"
	}
	at := "an unknown size"
	if size > 0 {
		at = formatAmount(amountOf(recommend.Memory, size))
	}
	return fmt.Sprintf("OOM-killed: container %s at %s, %s ago (%s). Its template gives %s. Lowered by the operator: %s.", kill.Container, at,
		Age(e.Now, kill.At), kill.At.UTC().Format(time.RFC3339), formatAmount(amountOf(recommend.Memory, template)), answer)
}

// raisedFrom is the memory request before the raise that answered a kill; 0 if the history does not have it.
func (e Evidence) raisedFrom(kill workload.OOMKill) int64 {
	for _, change := range slices.Backward(ChangesOf(e.Scaler.Status.History)) {
		if change.Cause.Cause != model.DecidedOOMKill || change.Time.Add(time.Second).Before(kill.At) {
			continue
		}
		if from := change.from(kill.Container, recommend.Memory); from > 0 {
			return from
		}
	}
	return 0
}

func (p Pod) write(line func(string, ...any), namespace, deployment string) {
	line("Pod %s/%s of Deployment %s", namespace, p.Name, deployment)
	for _, fact := range p.Facts {
		line("  %s", fact)
	}
	line("  To return to the requests of the template: %s", p.Restore)
	line("  To stop further changes: %s", p.Stop)
	line("")
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package modelcheck

import (
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// noon is the time of every reconcile. Remembered events have an age instead of a time.
var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

const container = "app"

// observed is how long usage has been observed: as long as counts.
const observed = 8 * 24 * time.Hour

// ago is the time of an event of that age.
func ago(a age) (at time.Time) {
	switch a {
	case fresh:
		return noon.Add(-2 * time.Second)
	case old:
		return noon.Add(-time.Hour)
	}
	return at
}

func ageOf(at time.Time) age {
	switch {
	case at.IsZero():
		return never
	case noon.Sub(at) < time.Minute:
		return fresh
	}
	return old
}

// creation is the creation time of the pod with that UID.
func creation(id identity) (at time.Time) {
	if id == 0 {
		return at
	}
	return noon.Add(-24 * time.Hour).Add(time.Duration(id) * time.Minute)
}

func identityAt(at time.Time) identity {
	if at.IsZero() {
		return 0
	}
	return identity(at.Sub(creation(1))/time.Minute) + 1
}

func bytesOf(l level) int64 {
	if l == 0 {
		return 0
	}
	return (64 << 20) << l
}

func levelOf(bytes int64) level {
	for l := range beyond + 1 {
		if bytesOf(l) == bytes {
			return l
		}
	}
	panic(fmt.Sprintf("%d bytes are no level of the model", bytes))
}

func memory(l level) resource.Quantity { return quantity.Memory(bytesOf(l)) }

func resourcesOf(l level) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": quantity.CPU(100), "memory": memory(l)},
		Limits:   corev1.ResourceList{"cpu": quantity.CPU(200), "memory": memory(l + 1)},
	}
}

func identityOf(uid types.UID) (id identity) {
	if _, err := fmt.Sscanf(string(uid), "uid-%d", &id); err != nil {
		panic(err)
	}
	return id
}

func uidOf(id identity) types.UID { return types.UID(fmt.Sprintf("uid-%d", id)) }

// readPod is the pod as the operator reads it.
func readPod(k int, p pod, template level) workload.Pod {
	object := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: podNames[k], UID: uidOf(p.uid), ResourceVersion: "1", Generation: 1, CreationTimestamp: metav1.NewTime(creation(p.uid)),
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: container, Resources: resourcesOf(p.spec)}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable, StartTime: ptr.To(metav1.NewTime(creation(p.uid))),
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(ago(old))}},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: container, Resources: ptr.To(resourcesOf(p.actual)), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(ago(old))}},
			}},
		},
	}
	if p.killed > 0 {
		object.Status.ContainerStatuses[0].RestartCount = 1
		object.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "OOMKilled", FinishedAt: metav1.NewTime(ago(p.killedAt))}
	}
	switch p.phase {
	case starting:
		object.Status.Phase = corev1.PodPending
		object.Status.Conditions[0].Status = corev1.ConditionFalse
	case terminating:
		object.DeletionTimestamp = ptr.To(metav1.NewTime(noon))
	}
	if p.resized != never {
		object.ManagedFields = []metav1.ManagedFieldsEntry{{Subresource: workload.ResizeSubresource, Time: ptr.To(metav1.NewTime(ago(p.resized)))}}
	}
	if reason := map[answer]string{deferred: corev1.PodReasonDeferred, infeasible: corev1.PodReasonInfeasible}[p.answer]; reason != "" {
		object.Status.Conditions = append(object.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: reason, ObservedGeneration: 1, LastTransitionTime: metav1.NewTime(ago(p.answered)),
		})
	}
	return workload.ReadPod(&object, p.born == template)
}

// rejectedOf is a resize that was withdrawn, as the plan is told of it.
func rejectedOf(k int, gone withdrawal) plan.RejectedResize {
	reason := v1beta1.ReasonDeferred
	if gone.says == infeasible {
		reason = v1beta1.ReasonInfeasible
	}
	asked := readPod(k, pod{uid: gone.uid, phase: ready, spec: gone.of, actual: gone.of}, small)
	return plan.RejectedResize{Sizes: []plan.Size{{Container: container, Resources: asked.Containers[0].Resources}}, Reason: reason, Message: "no room"}
}

// readDeployment is the Deployment as the operator reads it.
func readDeployment(d deployment) workload.Deployment {
	object := appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: uidOf(d.uid), ResourceVersion: "1", Generation: 1},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(pods)), Paused: d.paused,
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: container, Resources: resourcesOf(d.template)}}}},
		},
		Status: appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: pods, UpdatedReplicas: pods, AvailableReplicas: pods},
	}
	if d.rolling {
		object.Status.UpdatedReplicas--
	}
	return workload.ReadDeployment(&object)
}

// policyOf is the policy of a scaler, read from its spec.
func (m *machine) policyOf(most level) plan.Policy {
	vs := v1beta1.VerticalScaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: 1},
		Status:     v1beta1.VerticalScalerStatus{ObservedGeneration: 1},
	}
	vs.Spec.DeploymentName = "web"
	vs.Spec.UpdatePolicy = v1beta1.UpdatePolicy{UpdateMode: m.mode, Fallback: m.fallback, VerificationSeconds: ptr.To(int32(0))}
	if m.verifies {
		vs.Spec.UpdatePolicy.VerificationSeconds = nil // the default
	}
	vs.Spec.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{{
		ControlledValues: v1beta1.RequestsAndLimits, // with limits that only rise, a pod would also remember its largest request
		ContainerName:    container, ControlledResources: []v1beta1.ControlledResource{v1beta1.ControlledMemory},
		MinAllowed: &v1beta1.ResourceBounds{Memory: ptr.To(memory(small))}, MaxAllowed: &v1beta1.ResourceBounds{Memory: ptr.To(memory(most))},
	}}}
	return scaler.PlanPolicy(&vs, readDeployment(deployment{uid: 1, template: small}))
}

// recommendationOf is the recommendation for what is known of usage. Nothing below the peak or the
// floor is enough, so both bounds are the target. Raising is urgent, and lowering needs no more
// evidence than that the window has forgotten the peak.
func recommendationOf(h history) recommend.Container {
	of := func(l level) quantity.Amounts { return quantity.Amounts{MemoryBytes: bytesOf(l)} }
	out := recommend.Container{
		Name: container, Target: of(h.need()), LowerBound: of(h.need()), UpperBound: of(h.need()), Uncapped: of(h.need()),
		Observed: observed, OOMFloor: bytesOf(h.floor),
	}
	if h.peak > 0 {
		out.Reasons = []recommend.Reason{{Resource: recommend.Memory, Code: recommend.Peak, Value: bytesOf(h.peak)}}
	}
	return out
}

// decisionOf is the decision that a status records, read and written by the operator's own
// functions.
func decisionOf(st status) *plan.Decision {
	if st.decided == 0 {
		return nil
	}
	d := &plan.Decision{
		Time: ago(st.decidedAt), Reason: words.text(st.reason), Requests: map[string]quantity.Amounts{container: {MemoryBytes: bytesOf(st.decided)}},
		AppliedToTemplate: st.onTemplate, Reverts: int(st.reverts), LastRevert: ago(st.revertedAt),
	}
	if st.contested {
		d.ContestedBy = []string{"helm"}
	}
	if st.good > 0 {
		d.Verification = &plan.Verification{
			Began: ago(st.began), Good: map[string]quantity.Amounts{container: {MemoryBytes: bytesOf(st.good)}},
			ObservedSince: ago(st.observed), FirstPodsVerified: ago(st.passed),
		}
		for _, id := range st.unhealthy {
			if id > 0 {
				d.Verification.UnhealthyPods = append(d.Verification.UnhealthyPods, uidOf(id))
			}
		}
	}
	return scaler.Decision(scaler.APIDecision(d))
}

// withDecision is the status with another decision.
func (st status) withDecision(d *plan.Decision) status {
	d = scaler.Decision(scaler.APIDecision(d))
	st.decided, st.reason, st.decidedAt, st.onTemplate, st.reverts, st.revertedAt, st.contested = 0, 0, never, false, 0, never, false
	st.good, st.began, st.observed, st.passed, st.unhealthy = 0, never, never, never, [pods]identity{}
	if d == nil {
		return st
	}
	if v := d.Verification; v != nil {
		st.good, st.began = levelOf(v.Good[container].MemoryBytes), ageOf(v.Began)
		st.observed, st.passed = ageOf(v.ObservedSince), ageOf(v.FirstPodsVerified)
		for k, uid := range v.UnhealthyPods {
			st.unhealthy[k] = identityOf(uid)
		}
	}
	st.decided, st.reason, st.decidedAt = levelOf(d.Requests[container].MemoryBytes), words.of(d.Reason), ageOf(d.Time)
	st.onTemplate, st.reverts, st.revertedAt, st.contested = d.AppliedToTemplate, uint8(d.Reverts), ageOf(d.LastRevert), len(d.ContestedBy) > 0
	return st
}

// revertedOf is the change that was reverted, read and written like the decision.
func revertedOf(st status) []plan.RevertedChange {
	if st.failed == 0 {
		return nil
	}
	return scaler.RevertedChanges(scaler.APIRevertedChanges([]plan.RevertedChange{{
		Container: container, Resource: "memory", Value: bytesOf(st.failed), Good: bytesOf(st.failedGood),
		At: ago(st.failedAt), Observed: observed, Evidence: "evidence",
	}}))
}

// withReverted is the status with other reverted changes. In place, only a reduction is reverted, so
// there is at most one.
func (st status) withReverted(list []plan.RevertedChange) status {
	st.failed, st.failedGood, st.failedAt = 0, 0, never
	for _, c := range scaler.RevertedChanges(scaler.APIRevertedChanges(list)) {
		st.failed, st.failedGood, st.failedAt = levelOf(c.Value), levelOf(c.Good), ageOf(c.At)
	}
	return st
}

// originalsOf are the original values of the template that a status records.
func originalsOf(st status, d deployment) []plan.Original {
	if st.original == 0 || st.originalOf != d.uid {
		return nil
	}
	resources := readDeployment(deployment{uid: 1, template: st.original}).Containers[0].Resources
	return []plan.Original{{Container: container, Memory: true, Resources: workload.Resources{
		Requests: quantity.Amounts{MemoryBytes: resources.Requests.MemoryBytes}, Limits: quantity.Amounts{MemoryBytes: resources.Limits.MemoryBytes},
	}}}
}

// newPodsOf is the record of new pods in a status.
func newPodsOf(st status, asked age) plan.NewPods {
	out := plan.NewPods{AskedSince: ago(asked), EffectiveSince: creation(st.effective)}
	if st.newPods > 0 {
		out.Sizes = []plan.Size{{Container: container, Resources: workload.Resources{
			Requests: quantity.Amounts{MemoryBytes: bytesOf(st.newPods)}, Limits: quantity.Amounts{MemoryBytes: bytesOf(st.newPods + 1)},
		}}}
	}
	if st.ineffective > 0 {
		out.IneffectiveOnPod = podNames[st.ineffective-1]
	}
	return out
}

// withNewPods is the status with something else known of new pods.
func (st status) withNewPods(n plan.NewPods) status {
	n = scaler.NewPods(scaler.APINewPods(n))
	st.newPods, st.effective, st.ineffective = 0, identityAt(n.EffectiveSince), 0
	if len(n.Sizes) > 0 {
		st.newPods = levelOf(n.Sizes[0].Requests.MemoryBytes)
	}
	for k, name := range podNames {
		if n.IneffectiveOnPod == name {
			st.ineffective = uint8(k) + 1
		}
	}
	return st
}

// word is a short text of a status.
type word uint8

// wordList numbers texts. 0 is the empty one.
type wordList struct {
	sync.Mutex

	byText map[string]word
	texts  []string
}

var words = wordList{byText: map[string]word{"": 0}, texts: []string{""}}

func (l *wordList) of(text string) word {
	l.Lock()
	defer l.Unlock()
	w, ok := l.byText[text]
	if !ok {
		w = word(len(l.texts))
		l.byText[text], l.texts = w, append(l.texts, text)
	}
	return w
}

func (l *wordList) text(w word) string {
	l.Lock()
	defer l.Unlock()
	return l.texts[w]
}

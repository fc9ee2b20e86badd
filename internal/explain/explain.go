// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Evidence is the input of an explanation.
type Evidence struct {
	Scaler *v1beta1.VerticalScaler
	// Deployment is the scaler's; nil if it does not exist or the user may not read it.
	Deployment *appsv1.Deployment
	// Pods are the Deployment's running pods; nil if the user may not read them.
	Pods []workload.Pod
	// HPAs are the HorizontalPodAutoscalers of the namespace, if one is in conflict with the scaler and the user may read them.
	HPAs []autoscalingv2.HorizontalPodAutoscaler
	// Operators are the operators that run or ran, if known.
	Operators Operators
	// Now is the time, for the age of the operators' reports.
	Now time.Time
	// Missing lists the objects that could not be read, and why.
	Missing []string
	// Pod is the pod that the user asks about, and PodTemplate the template of its ReplicaSet; nil for none, or if unknown.
	Pod         *corev1.Pod
	PodTemplate *corev1.PodTemplateSpec
	// LimitRange has the bounds of the LimitRanges of the namespace, if the user may read them.
	LimitRange workload.Bounds
}

// Explanation is all that is known about a scaler.
type Explanation struct {
	// Row is the line of an overview. Its state is the first finding's.
	Row `json:",inline"`
	// Pod is the pod that the user asks about; nil for none.
	Pod *Pod `json:"pod,omitempty"`
	// Purpose describes the scaler's purpose in a sentence.
	Purpose string `json:"purpose"`
	// ModeMeans is the meaning of its update mode.
	ModeMeans string `json:"modeMeans"`
	// Origin is the policy that has created the scaler, if any.
	Origin *Origin `json:"origin,omitempty"`
	// CooldownSeconds is the minimum time between two changes.
	CooldownSeconds int32 `json:"cooldownSeconds"`
	// Applied reports whether the pods have the sizes: True, False or Unknown.
	Applied metav1.ConditionStatus `json:"applied"`
	// Operator is the operator that serves the scaler, if known.
	Operator *Operator `json:"operator,omitempty"`
	// Findings are the reasons for that, with meaning and advice, the most important first.
	Findings []Finding `json:"findings"`
	// Containers are the containers of the Deployment, with the steps to their targets.
	Containers []Container `json:"containers,omitempty"`
	// Decision is the last decision; nil before the first.
	Decision *Decision `json:"decision,omitempty"`
	// History are the last changes, newest first.
	History []v1beta1.HistoryEntry `json:"history,omitempty"`
	// Missing lists the objects that could not be read.
	Missing []string `json:"missing,omitempty"`

	sidecars []corev1.Container // and other init containers of the template
}

// Finding is a reason in the status.
type Finding struct {
	Reason `json:",inline"`
	// Condition is the type of the condition with that reason; empty without conditions.
	Condition string `json:"condition,omitempty"`
	// Message is the operator's own.
	Message string `json:"message,omitempty"`
	// Since is the start of the reason; nil if unknown.
	Since *metav1.Time `json:"since,omitempty"`
	// Waiting are the pods that wait for room on their nodes, the longest first.
	Waiting []WaitingPod `json:"waiting,omitempty"`
	// Apply lists commands that resolve it, or fields to edit, if known.
	Apply []string `json:"apply,omitempty"`
}

// Decision is the last decision and its cause.
type Decision struct {
	Cause `json:",inline"`
	Time  metav1.Time `json:"time"`
}

// Container explains one container.
type Container struct {
	Name string `json:"name"`
	// ObservedSeconds is the length of the usage that the targets are based on, when it was last written to the status.
	ObservedSeconds int64      `json:"observedSeconds,omitempty"`
	Resources       []Resource `json:"resources"`
}

// Resource is one resource of a container.
type Resource struct {
	// Resource is cpu or memory.
	Resource string `json:"resource"`
	// Unmanaged is the reason for which the scaler's policy excludes the resource, if it does.
	Unmanaged string `json:"unmanaged,omitempty"`
	// Target is the recommended request. A request outside of the bounds changes.
	Target     *Amount `json:"target,omitempty"`
	LowerBound *Amount `json:"lowerBound,omitempty"`
	UpperBound *Amount `json:"upperBound,omitempty"`
	// Steps lead from usage to the target.
	Steps []Step `json:"steps,omitempty"`
	// Recomputed is the result of the steps. It is the target, unless another writer
	// changed the status.
	Recomputed *Amount `json:"recomputed,omitempty"`
	Agrees     bool    `json:"agrees"`
	MinAllowed *Amount `json:"minAllowed,omitempty"`
	MaxAllowed *Amount `json:"maxAllowed,omitempty"`
	// LimitRangeMin and LimitRangeMax are the bounds of the namespace's LimitRanges, which win.
	LimitRangeMin *Amount `json:"limitRangeMin,omitempty"`
	LimitRangeMax *Amount `json:"limitRangeMax,omitempty"`
	limitRange    string
	// isPaced is true if a demand of minAllowed alone is met in steps.
	isPaced bool
	// Decided is the request of the last decision.
	Decided *Amount `json:"decided,omitempty"`
	// LastGood is the previous request, while the decided one is verified: it is restored if the
	// changed pods are clearly less healthy. VerifyingSince is the start of the verification.
	LastGood       *Amount      `json:"lastGood,omitempty"`
	VerifyingSince *metav1.Time `json:"verifyingSince,omitempty"`
	// Reverted are reverted requests, the last first.
	Reverted []Reverted `json:"reverted,omitempty"`
	// LoweredInSeconds is the estimated time until the request is lowered if usage stays the same. It is 0 if the
	// request does not wait for more usage, or if the time is unknown. LoweredAfterSeconds is the usage that must have
	// been observed until then, from its beginning.
	LoweredInSeconds    int64 `json:"loweredInSeconds,omitempty"`
	LoweredAfterSeconds int64 `json:"loweredAfterSeconds,omitempty"`
	// Floor is the reason why the request is not lowered for less usage, or not below some amount, if any.
	Floor string `json:"floor,omitempty"`
	floor int64
	// TolerancePercent is the smallest change, in percent of the request.
	TolerancePercent int32 `json:"tolerancePercent"`
	// Moves is true if requests are moved at all: the update mode is not Off, and the
	// resource is not left alone.
	Moves bool `json:"moves"`
	// Template is the size in the Deployment's pod template, and Pods are its pods' sizes.
	Template *Size  `json:"template,omitempty"`
	Pods     []Size `json:"pods,omitempty"`
}

// Reverted is a reverted request.
type Reverted struct {
	// Value was reverted to LastGood.
	Value    *Amount     `json:"value"`
	LastGood *Amount     `json:"lastGood"`
	Time     metav1.Time `json:"time"`
	// Message describes what happened, on which pods.
	Message string `json:"message,omitempty"`
}

// Size is a request and limit, and the number of pods that have it.
type Size struct {
	Request *Amount `json:"request,omitempty"`
	Limit   *Amount `json:"limit,omitempty"`
	// Pods is the number of pods that have it; 0 for the template.
	Pods int `json:"pods,omitempty"`
}

// Of explains a scaler.
func Of(e Evidence) Explanation {
	s, containers := e.Scaler, containersIn(e)
	found := findings(e, containers)
	out := Explanation{
		Row:             rowOf(e, found),
		Pod:             podOf(e),
		Purpose:         fmt.Sprintf("Keeps the CPU and memory of the pods of Deployment %s at what they need.", s.Spec.DeploymentName),
		ModeMeans:       modeMeans(s, e.Operators),
		CooldownSeconds: int32(scaler.Cooldown(&s.Spec) / time.Second),
		Applied:         metav1.ConditionUnknown,
		Origin:          OriginOf(s),
		Findings:        found,
		Containers:      containers,
		History:         s.Status.History,
		Missing:         e.Missing,
	}
	if e.Deployment != nil {
		out.sidecars = e.Deployment.Spec.Template.Spec.InitContainers
	}
	if c := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionApplied); c != nil {
		out.Applied = c.Status
	}
	if d := s.Status.Decision; d != nil {
		out.Decision = &Decision{Cause: CauseOf(d.Reason), Time: d.Time}
		if broken := brokenBounds(s.Status.History, containers); d.Reason == model.DecidedBounds && broken != "" {
			out.Decision.Means = broken
		}
	}
	if operator, ok := e.Operators.For(s.Namespace); ok {
		out.Operator = &operator
	}
	return out
}

// containersIn explains the containers.
func containersIn(e Evidence) (containers []Container) {
	for _, name := range containersOf(e) {
		containers = append(containers, containerOf(e, name))
	}
	return containers
}

// modeName is the mode in the spec, also if it is unknown to this version.
func modeName(s *v1beta1.VerticalScaler) string {
	if mode, ok := scaler.UnknownMode(&s.Spec); ok {
		return string(mode)
	}
	return string(scaler.Mode(&s.Spec))
}

// modeMeans describes the mode and its fallback.
func modeMeans(s *v1beta1.VerticalScaler, operators Operators) string {
	if _, ok := scaler.UnknownMode(&s.Spec); ok {
		return "this version does not know the mode, so nothing is changed"
	}
	switch fallback := operators.FallbackOf(s); scaler.Mode(&s.Spec) {
	case v1beta1.UpdateModeRecommend:
		return "only recommends, and changes nothing"
	case v1beta1.UpdateModeInitial:
		return "new pods start at the decided sizes, and running pods keep theirs"
	case v1beta1.UpdateModeInPlace:
		return "resizes running pods without a restart; " + map[v1beta1.Fallback]string{
			v1beta1.FallbackWait:     "a pod that cannot be resized keeps its size",
			v1beta1.FallbackRecreate: "evicts a pod that cannot be resized, if that hurts it, and its replacement starts at the decided size",
			v1beta1.FallbackRollout:  "if a pod cannot be resized, the Deployment rolls out the sizes in its pod template",
		}[fallback]
	case v1beta1.UpdateModeRollout:
		return "writes the sizes into the pod template, and the Deployment rolls them out"
	}
	return ""
}

// Reasons that no operator gives.
var (
	notObserved = Reason{
		"NotObserved", "No operator has observed the object yet.", ByUser,
		"Check that the operator runs, and that it watches this namespace (kubectl get pods -A -l app.kubernetes.io/name=verticalscaler-operator).",
	}
	operatorSilent = Reason{
		"OperatorSilent", "No operator holds the lease, or it has expired: nothing is observed or changed, and this status may be out of date.", ByUser,
		"Check that the operator runs (kubectl get pods -A -l app.kubernetes.io/name=verticalscaler-operator), and see its log.",
	}
	outdated = Reason{
		"Outdated", "The object was edited, and this status describes its previous spec.", ByItself,
		"Try again in a moment; if it stays, check that the operator runs.",
	}
	profileRemoved = Reason{
		"ProfileRemoved", "The scaler names a profile that this version does not have: Balanced applies.", ByUser,
		"Set spec.recommendationPolicy.profile to Balanced, Frugal or Safe.",
	}
	deleting = Reason{
		"Deleting", "The object is being deleted. The operator first restores or deletes what it has changed or created.", ByItself,
		"Wait; if it stays, check that the operator runs.",
	}
)

// doubts are reasons against relying on the status of an object, the most important first. observed is the status's
// generation.
func doubts(object metav1.Object, observed int64, operators Operators, now time.Time) (out []Finding) {
	if silent, ok := operators.nobody(object.GetNamespace(), now); ok {
		out = append(out, silent)
	}
	switch {
	case object.GetDeletionTimestamp() != nil:
		out = append(out, Finding{Reason: deleting, Since: object.GetDeletionTimestamp()})
	case observed < object.GetGeneration():
		out = append(out, Finding{Reason: outdated})
	}
	return out
}

// onlyActions removes the advice of findings that need no action if another one does.
func onlyActions(all []Finding) []Finding {
	if slices.ContainsFunc(all, func(f Finding) bool { return f.Ends != Fine }) {
		for i := range all {
			if all[i].Ends == Fine {
				all[i].Advice = ""
			}
		}
	}
	return all
}

// findings are the doubts about the status, the reason in short, and the reasons that block something, the most
// important first, and always the reason of Applied. Of reasons with the same advice, only the first is included.
func findings(e Evidence, containers []Container) (out []Finding) {
	s := e.Scaler
	short := scaler.InShort(s.Status.Conditions)
	if short == nil {
		out = doubts(s, s.Generation, e.Operators, e.Now)
		return append(out, Finding{Reason: notObserved})
	}
	out = doubts(s, s.Status.ObservedGeneration, e.Operators, e.Now)
	if len(out) == 0 && meta.IsStatusConditionTrue(s.Status.Conditions, v1beta1.ConditionReady) && hasPods(s) && e.Operators.areBlind(s.Namespace) {
		out = append(out, Finding{Reason: reasonFor(v1beta1.ReasonMetricsUnavailable), Condition: v1beta1.ConditionReady, Message: "Usage of nearly all pods is missing: metrics are down"})
	}
	add := func(kind string, isIncluded func(metav1.Condition) bool) {
		c := meta.FindStatusCondition(s.Status.Conditions, kind)
		if c == nil || !isIncluded(*c) {
			return
		}
		reason := reasonFor(c.Reason)
		reason.Advice = adviceFor(reason, s, containers)
		reason = forOrigin(reason, s)
		if !slices.ContainsFunc(out, func(f Finding) bool { return f.Advice == reason.Advice }) {
			out = append(out, Finding{Reason: reason, Condition: kind, Message: c.Message, Since: reasonTime(s, c.Reason), Waiting: waiting(e, c.Reason), Apply: averages(e, c.Reason)})
		}
	}
	isTrue := func(c metav1.Condition) bool { return c.Status == metav1.ConditionTrue }
	isNot := func(c metav1.Condition) bool { return !isTrue(c) }
	add(short.Type, func(metav1.Condition) bool { return true })
	add(v1beta1.ConditionStalled, isTrue)
	add(v1beta1.ConditionTargetFound, isNot)
	add(v1beta1.ConditionApplied, func(metav1.Condition) bool { return true })
	add(v1beta1.ConditionRecommendationProvided, func(c metav1.Condition) bool {
		return c.Reason != v1beta1.ReasonEnoughHistory && c.Status != metav1.ConditionUnknown // TargetFound reports that there is no pod to size.
	})
	add(v1beta1.ConditionContainersFound, isNot)
	add(v1beta1.ConditionReady, func(c metav1.Condition) bool { return isNot(c) || c.Reason == v1beta1.ReasonFrozen })
	add(v1beta1.ConditionClusterAccess, isNot)
	if p := s.Spec.RecommendationPolicy; p != nil && p.Profile != "" && string(p.Profile) != string(scaler.Profile(&s.Spec)) {
		out = append(out, Finding{Reason: forOrigin(profileRemoved, s), Message: fmt.Sprintf("The profile %s counts as Balanced", p.Profile)})
	}
	return onlyActions(out)
}

// WaitingPod is a pod whose resize is Deferred.
type WaitingPod struct {
	Pod   string      `json:"pod"`
	Node  string      `json:"node"`
	Since metav1.Time `json:"since"`
	// Message is the kubelet's report of what the node lacks, if any.
	Message string `json:"message,omitempty"`
}

// waiting are the pods whose resize is Deferred, if that is the reason.
func waiting(e Evidence, reason string) (pods []WaitingPod) {
	if reason != v1beta1.ReasonDeferred {
		return nil
	}
	for _, pod := range e.Pods {
		if pod.Resize.Deferred {
			pods = append(pods, WaitingPod{pod.Name, pod.Node, metav1.NewTime(pod.Resize.Since), pod.Resize.Message})
		}
	}
	slices.SortFunc(pods, func(a, b WaitingPod) int { return cmp.Or(a.Since.Compare(b.Since.Time), cmp.Compare(a.Pod, b.Pod)) })
	return pods
}

// averages are the absolute targets that keep the current behavior of the HPAs of a conflict.
func averages(e Evidence, reason string) []string {
	if reason != v1beta1.ReasonHPAConflict || e.Deployment == nil {
		return nil
	}
	return workload.AdviceOn(workload.AveragesOf(e.HPAs, e.Deployment), func(r corev1.ResourceName) bool {
		return slices.ContainsFunc(containersOf(e), func(name string) bool {
			return scaler.Controls(e.Scaler.Spec.ResourcePolicy.For(name), v1beta1.ControlledResource(r))
		})
	})
}

// hasPods reports whether pods of the scaler run, by its status.
func hasPods(s *v1beta1.VerticalScaler) bool {
	return s.Status.Summary != nil && s.Status.Summary.Pods != "" && s.Status.Summary.Pods != "0/0"
}

// reasonTime is the start of the reason; nil if unknown. The transition time of a condition is the start of its
// status, and not of its reason.
func reasonTime(s *v1beta1.VerticalScaler, reason string) *metav1.Time {
	if short := s.Status.Summary; short != nil && short.Reason == reason {
		return short.ReasonTime
	}
	return nil
}

// containersOf names the containers, in the template's order; without a template, in the status's.
func containersOf(e Evidence) (names []string) {
	if e.Deployment != nil {
		return workload.NamesOf(&e.Deployment.Spec.Template.Spec)
	}
	if r := e.Scaler.Status.Recommendation; r != nil {
		for _, c := range r.ContainerRecommendations {
			names = append(names, c.ContainerName)
		}
	}
	if d := e.Scaler.Status.Decision; d != nil {
		for _, c := range d.Containers {
			if !slices.Contains(names, c.ContainerName) {
				names = append(names, c.ContainerName)
			}
		}
	}
	return names
}

func containerOf(e Evidence, name string) Container {
	rec := ptr.Deref(scaler.PublishedRecommendation(e.Scaler.Status.Recommendation, name), recommend.Container{})
	rec.Phase = scaler.Share(e.Scaler.UID)
	out := Container{Name: name, ObservedSeconds: int64(rec.Observed / time.Second)}
	waits := waitsForEvidence(e)
	for _, resource := range []string{recommend.CPU, recommend.Memory} {
		r := resourceOf(e, name, resource, rec)
		if waits {
			r.estimateLowering(e, rec)
		}
		out.Resources = append(out.Resources, r)
	}
	return out
}

func resourceOf(e Evidence, container, resource string, rec recommend.Container) Resource {
	policy := e.Scaler.Spec.ResourcePolicy.For(container)
	amount := func(a quantity.Amounts) *Amount { return amountOf(resource, AmountOf(resource, a)) }
	out := Resource{
		Resource: resource, Unmanaged: unmanaged(policy, resource),
		Target: amount(rec.Target), LowerBound: amount(rec.LowerBound), UpperBound: amount(rec.UpperBound),
		MinAllowed: amount(scaler.Bounds(policy.MinAllowed)), MaxAllowed: amount(scaler.Bounds(policy.MaxAllowed)),
		LimitRangeMin: amount(e.LimitRange.ContainerMin), LimitRangeMax: amount(e.LimitRange.ContainerMax), limitRange: e.LimitRange.Name,
		isPaced: scaler.Mode(&e.Scaler.Spec) == v1beta1.UpdateModeInPlace && scaler.Cooldown(&e.Scaler.Spec) > 0,
	}
	out.TolerancePercent = scaler.TolerancePercent(&e.Scaler.Spec)
	out.Moves = out.Unmanaged == "" && scaler.Mode(&e.Scaler.Spec) != v1beta1.UpdateModeRecommend
	var values []recommend.Reason
	if out.Steps, values = stepsOf(rec, resource); len(values) > 0 {
		out.Recomputed = amountOf(resource, recommend.Recompute(values))
	}
	out.Agrees = len(values) == 0 || out.Target != nil && out.Recomputed != nil && *out.Target == *out.Recomputed
	if d := scaler.Decision(e.Scaler.Status.Decision); d != nil {
		out.Decided = amount(d.Requests[container])
		if v := d.Verification; v != nil && amount(v.Good[container]) != nil {
			out.LastGood, out.VerifyingSince = amount(v.Good[container]), timeOf(v.Began)
		}
	}
	for _, f := range scaler.RevertedChanges(e.Scaler.Status.RevertedChanges) {
		if f.Container == container && f.Resource == resource {
			out.Reverted = append(out.Reverted, Reverted{amountOf(resource, f.Value), amountOf(resource, f.Good), metav1.NewTime(f.At), f.Evidence})
		}
	}
	if e.Deployment != nil {
		if c, ok := workload.ReadDeployment(e.Deployment).Container(container); ok && !c.Unreadable {
			size := sizeOf(resource, c)
			out.Template = &size
		}
	}
	out.floor, out.Floor = floorOf(e, container, resource)
	out.Pods = sizesOf(e.Pods, container, resource)
	return out
}

// floorOf is the amount below which a request is not lowered, and the reason, if any.
func floorOf(e Evidence, container, resource string) (least int64, why string) {
	if scaler.IsRaiseOnly(&e.Scaler.Spec, v1beta1.ControlledResource(resource)) {
		return math.MaxInt64, "None is lowered for less usage: updatePolicy.scaleDown.controlledResources does not include " + resource + "."
	}
	if e.Deployment == nil || resource != recommend.Memory && scaler.ResizesPods(&e.Scaler.Spec) {
		return 0, ""
	}
	deployment, policy := workload.ReadDeployment(e.Deployment), e.Scaler.Spec.ResourcePolicy.For(container)
	isRaised := scaler.LimitRule(policy.ControlledValues) == model.LimitsRise && policy.Limits == nil
	if isRaised && workload.AreGuaranteed(deployment.Containers, e.Pods) {
		return math.MaxInt64, "None is lowered: the pods are Guaranteed, and the limit of a running container is not lowered. controlledValues RequestsAndLimits lowers both."
	}
	heap := deployment.Heaps[container]
	if heap.Bytes == 0 || resource != recommend.Memory {
		return 0, ""
	}
	return heap.Bytes, fmt.Sprintf("None is lowered below %s: %s.", Format(resource, heap.Bytes), heap.Flag)
}

func sizeOf(resource string, c workload.Container) Size {
	return Size{Request: amountOf(resource, AmountOf(resource, c.Requests)), Limit: amountOf(resource, AmountOf(resource, c.Limits))}
}

// sizesOf counts the pods by their size, the most frequent first.
func sizesOf(pods []workload.Pod, container, resource string) (sizes []Size) {
	same := func(a, b *Amount) bool { return a == b || a != nil && b != nil && *a == *b }
	for _, pod := range pods {
		c, ok := pod.Container(container)
		if !ok || c.Unreadable {
			continue
		}
		has := sizeOf(resource, c)
		i := slices.IndexFunc(sizes, func(s Size) bool { return same(s.Request, has.Request) && same(s.Limit, has.Limit) })
		if i < 0 {
			i, sizes = len(sizes), append(sizes, has)
		}
		sizes[i].Pods++
	}
	slices.SortFunc(sizes, func(a, b Size) int {
		return cmp.Or(cmp.Compare(b.Pods, a.Pods), cmp.Compare(b.Request.Value(), a.Request.Value()), cmp.Compare(b.Limit.Value(), a.Limit.Value()))
	})
	return sizes
}

func unmanaged(policy v1beta1.ContainerPolicy, resource string) string {
	switch {
	case scaler.Controls(policy, v1beta1.ControlledResource(resource)):
		return ""
	case policy.Mode == v1beta1.ContainerModeOff:
		return "the container's mode is Off"
	}
	return "controlledResources does not include it"
}

// observed is the length of the observed usage.
func (c Container) observed() time.Duration { return time.Duration(c.ObservedSeconds) * time.Second }

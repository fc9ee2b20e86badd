// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	fleets "github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// The Deployments of fleet.sh. Those of shop, billing and search are selected; legacyDeployments are not. A user sizes one
// of those that are selected.
const (
	selectedDeployments = 18 + 9 + 3
	legacyDeployments   = 5
	sizedByHand         = 1
)

// concurrentPercent is rollout.maxConcurrentPercent of the policy, once it is patched.
const concurrentPercent = 20

// fleet is what was read of all namespaces.
type fleet struct {
	policy  v1beta1.ClusterScalingPolicy // zero if there is none
	scalers map[types.NamespacedName]*v1beta1.VerticalScaler
	pods    map[types.UID]workload.Resources
	changes map[types.NamespacedName]int64 // the generations of Deployments
	// verifying is how many promoted scalers are being verified, by their annotations.
	verifying int
	// early are the pods that are not as in their template, although the scaler of the policy only recommends.
	early []string
}

// generated are the scalers of the policy.
func (f *fleet) generated() (names []types.NamespacedName) {
	for key, s := range f.scalers {
		if fleets.IsGenerated(s) {
			names = append(names, key)
		}
	}
	return names
}

// promoted is the number of promoted scalers.
func (f *fleet) promoted() (n int) {
	for _, key := range f.generated() {
		if fleets.IsPromoted(f.scalers[key]) {
			n++
		}
	}
	return n
}

// lookAtFleet reads a snapshot of all namespaces.
func (o *observer) lookAtFleet(ctx context.Context) (s snapshot, err error) {
	var (
		pods        corev1.PodList
		deployments appsv1.DeploymentList
		scalers     v1beta1.VerticalScalerList
		policies    v1beta1.ClusterScalingPolicyList
		events      eventsv1.EventList
	)
	// The pods first: what a scaler did to them is in the scaler.
	for _, list := range []client.ObjectList{&pods, &deployments, &scalers, &policies, &events} {
		if err := o.client.List(ctx, list); err != nil {
			return s, fmt.Errorf("listing %T: %w", list, err)
		}
	}
	s.at = time.Now()
	if len(policies.Items) > 0 {
		s.fleet.policy = policies.Items[0]
	}
	s.fleet.scalers = map[types.NamespacedName]*v1beta1.VerticalScaler{}
	for i := range scalers.Items {
		scaler := &scalers.Items[i]
		s.fleet.scalers[client.ObjectKeyFromObject(scaler)] = scaler
		if at := fleets.PromotedAt(scaler); s.at.Before(at.Add(fleets.RolloutOf(s.fleet.policy.Spec.Rollout).Verification)) {
			s.fleet.verifying++
		}
	}
	s.fleet.changes = map[types.NamespacedName]int64{}
	for i := range deployments.Items {
		s.fleet.changes[client.ObjectKeyFromObject(&deployments.Items[i])] = deployments.Items[i].Generation
	}
	s.fleet.pods = map[types.UID]workload.Resources{}
	for i := range pods.Items {
		s.fleet.add(&pods.Items[i])
		for _, c := range pods.Items[i].Status.ContainerStatuses {
			s.restarts += c.RestartCount
		}
	}
	s.events = slices.DeleteFunc(events.Items, func(e eventsv1.Event) bool { return e.Regarding.Kind != v1beta1.ClusterScalingPolicyKind })
	// Last, so that the audit log has every write whose effect is in the snapshot.
	err = o.audit.read()
	s.lastWrite, s.deletions = o.audit.lastWrite, o.audit.writes["delete deployments"]
	return s, err
}

// add adds a pod of a Deployment of fleet.sh.
func (f *fleet) add(pod *corev1.Pod) {
	read := workload.ReadPod(pod, true)
	if pod.Labels["app"] == "" {
		return
	}
	f.pods[pod.UID] = resources(read)
	scaler := f.scalers[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels["app"]}]
	asInTemplate := quantity.Amounts{CPUMillis: 300, MemoryBytes: 256 << 20}
	if now := resources(read).Requests; scaler != nil && !fleets.IsPromoted(scaler) && now != asInTemplate && now != (quantity.Amounts{}) {
		f.early = append(f.early, pod.Namespace+"/"+pod.Name)
	}
}

// fleetScenario is about a ClusterScalingPolicy.
var fleetScenario = scenario{
	without: "manager-rollout manager-scaled-deployment", // no right to change Deployments
	setup:   []string{"hack/demo/fleet.sh"},
	look:    (*observer).lookAtFleet,
	shown:   "kubectl get clusterscalingpolicies",
	writes: append(slices.Clip(scalerScenario.writes),
		"create verticalscalers", "update verticalscalers", "delete verticalscalers", "update clusterscalingpolicies/status"),
	steps: []step{
		{
			name: "apply", do: []string{"tail -n 6 config/samples/cluster_scaling_policy.yaml", "kubectl apply -f config/samples/cluster_scaling_policy.yaml"},
			missing: counts(selectedDeployments-sizedByHand, selectedDeployments),
			story: fmt.Sprintf("A policy of six lines selects %d Deployments in three namespaces. A user sizes %d of them. %d Deployments in a fourth namespace are not selected.",
				selectedDeployments, sizedByHand, legacyDeployments),
			claim: "each selected Deployment has a scaler that recommends", proof: all("Recommend"),
		},
		{
			name: "new", do: []string{"kubectl create deployment newcomer -n search --image=registry.example/newcomer:1"},
			missing: counts(selectedDeployments-sizedByHand+1, selectedDeployments+1),
			story:   "A Deployment is created in one of the namespaces.",
			claim:   "a new Deployment has a scaler",
		},
		{
			name: "exclude", do: []string{"kubectl annotate deployment app-3 -n billing " + v1beta1.ExcludeAnnotation + "=true"},
			missing: counts(selectedDeployments-sizedByHand, selectedDeployments),
			story:   "A user opts out with one annotation on a Deployment.",
			claim:   "an excluded Deployment has no scaler", proof: absent("billing", "app-3"),
		},
		{
			name: "by-hand", do: []string{"kubectl apply -f hack/demo/by-hand.yaml"},
			missing: counts(selectedDeployments-sizedByHand-1, selectedDeployments),
			story:   "A user writes a VerticalScaler for a Deployment that the policy sizes. The policy deletes its own.",
			claim:   "the scaler of a user wins", proof: absent("billing", "app-4"),
		},
		{
			name:    "revert",
			do:      []string{`kubectl patch vscaler app-5 -n billing --type=merge -p '{"spec":{"updatePolicy":{"cooldownSeconds":5}}}'`},
			missing: reverted,
			story:   "A user edits a VerticalScaler of the policy. The operator reverts that.",
			claim:   "an edit of a policy's scaler is reverted",
		},
		{
			name: "detach", do: []string{"kubectl annotate vscaler app-2 -n billing " + v1beta1.DetachedAnnotation + "=true"},
			missing: counts(selectedDeployments-sizedByHand-2, selectedDeployments),
			story:   "A user detaches another one. From now on, it is a VerticalScaler of that user.",
			claim:   "a detached scaler stays, without the policy", proof: detached,
		},
		{
			name: "first",
			do: []string{fmt.Sprintf(`kubectl patch cspolicy fleet --type=merge -p '{"spec":{"rollout":{"afterSeconds":0,"verificationSeconds":5,"maxConcurrentPercent":%d}}}'`,
				concurrentPercent)},
			missing: promotes(1),
			story:   fmt.Sprintf("Instead of a week of usage, any recommendation is enough from now on. At most %d %% of the scalers are verified at the same time.", concurrentPercent),
			claim:   "scalers are promoted", proof: fewAtOnce,
		},
		{
			name:    "all",
			missing: promotes(selectedDeployments - sizedByHand - 2),
			story:   "One group after the other is promoted to InPlace.",
			claim:   fmt.Sprintf("at most %d %% are verified at the same time, and no pod is resized before", concurrentPercent), proof: groupByGroup,
		},
		{
			name: "status", do: []string{"kubectl get cspolicy fleet -o yaml", "kubectl get vscaler -n billing"},
			missing: saves,
			story:   "Pods are resized in place. The status of the policy says how far that is, as counts.",
			claim:   "all promoted scalers apply what they recommend", proof: all("InPlace"),
		},
		{
			name: "delete", do: []string{"kubectl delete cspolicy fleet"},
			missing: func(p *progress) string {
				if n := len(p.end.fleet.generated()); n > 0 || p.end.fleet.policy.UID != "" {
					return fmt.Sprintf("the scalers of the policy to be deleted: %d exist", n)
				}
				return ""
			},
			story: "The policy is deleted. Its scalers are deleted with it, and no others. Pods stay.",
			claim: "the scalers of the policy are deleted, and no Deployment and no pod has changed", proof: onlyScalersAreGone,
		},
	},
}

// counts waits for the numbers in the status of the policy, and for as many scalers.
func counts(scaled, selected int) func(*progress) string {
	return func(p *progress) string {
		f := p.end.fleet
		if n := len(f.generated()); n != scaled {
			return fmt.Sprintf("%d VerticalScalers of the policy: there are %d", scaled, n)
		}
		want := fmt.Sprintf("%d/%d", scaled, selected)
		if summary := f.policy.Status.Summary; summary == nil || summary.Deployments != want {
			return "the status of the policy to say " + want
		}
		return ""
	}
}

// all proves that all scalers of the policy have an update mode, the name of their Deployment and the label of the policy.
func all(mode v1beta1.UpdateMode) func(*progress) (bool, string) {
	return func(p *progress) (bool, string) {
		f, namespaces := p.end.fleet, map[string]int{}
		for _, key := range f.generated() {
			s := f.scalers[key]
			if s.Spec.UpdatePolicy.UpdateMode != mode || s.Spec.DeploymentName != s.Name || s.Labels[v1beta1.PolicyLabel] != f.policy.Name || !metav1.IsControlledBy(s, &f.policy) {
				return false, "not VerticalScaler " + key.String()
			}
			namespaces[key.Namespace]++
		}
		return len(namespaces) == 3 && namespaces["legacy"] == 0,
			fmt.Sprintf("%d VerticalScalers after %.1fs, by namespace: %s", len(f.generated()), p.took().Seconds(), list(namespaces))
	}
}

// reverted waits for a scaler that was edited to be as it was.
func reverted(p *progress) string {
	key := types.NamespacedName{Namespace: "billing", Name: "app-5"}
	before, after := p.start.fleet.scalers[key], p.end.fleet.scalers[key]
	if before == nil || after == nil || after.Generation < before.Generation+2 || !equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		return fmt.Sprintf("VerticalScaler %s to be as it was", key)
	}
	return ""
}

// absent proves that there is no scaler of that name.
func absent(namespace, name string) func(*progress) (bool, string) {
	return func(p *progress) (bool, string) {
		key := types.NamespacedName{Namespace: namespace, Name: name}
		return p.start.fleet.scalers[key] != nil && p.end.fleet.scalers[key] == nil,
			fmt.Sprintf("VerticalScaler %s is gone after %.1fs", key, p.took().Seconds())
	}
}

// detached proves that a scaler is the same object without a policy.
func detached(p *progress) (bool, string) {
	key := types.NamespacedName{Namespace: "billing", Name: "app-2"}
	before, after := p.start.fleet.scalers[key], p.end.fleet.scalers[key]
	if before == nil || after == nil {
		return false, "there is no VerticalScaler " + key.String()
	}
	_, isLabeled := after.Labels[v1beta1.PolicyLabel]
	return before.UID == after.UID && !isLabeled && len(after.OwnerReferences) == 0, fmt.Sprintf("%d owners", len(after.OwnerReferences))
}

// promotes waits for promoted scalers.
func promotes(want int) func(*progress) string {
	return func(p *progress) string {
		if n := p.end.fleet.promoted(); n < want {
			c := condition(p.end.fleet.policy.Status.Conditions, v1beta1.ConditionPromoting)
			return fmt.Sprintf("%d promoted scalers: %s", want, c.Message)
		}
		return ""
	}
}

// fewAtOnce proves that no snapshot has more scalers that are being verified than the policy allows, and that no pod was
// resized before its scaler was promoted.
func fewAtOnce(p *progress) (bool, string) {
	most := (concurrentPercent*len(p.end.fleet.generated()) + 99) / 100
	return p.mostVerifying <= most && len(p.early) == 0,
		fmt.Sprintf("%d promoted after %.1fs, at most %d of %d at a time, resized before: %v", p.end.fleet.promoted(), p.took().Seconds(), p.mostVerifying, most, p.early)
}

// groupByGroup proves the same, and that some scalers were seen while they were being verified.
func groupByGroup(p *progress) (bool, string) {
	ok, seen := fewAtOnce(p)
	return ok && p.mostVerifying > 0, seen
}

// saves waits for all scalers to be promoted in the status, and for savings that are applied.
func saves(p *progress) string {
	status := p.end.fleet.policy.Status
	if c := condition(status.Conditions, v1beta1.ConditionPromoting); c.Reason != v1beta1.ReasonAllPromoted {
		return "the policy to report AllPromoted: " + c.Message
	}
	if status.Savings == nil || status.Savings.Applied.CPU == nil || status.Savings.Applied.CPU.Sign() <= 0 {
		return "savings"
	}
	return ""
}

// onlyScalersAreGone proves that the scalers of users exist, and that Deployments and pods are the same.
func onlyScalersAreGone(p *progress) (bool, string) {
	a, b := p.start.fleet, p.end.fleet
	left := slices.Sorted(maps.Keys(names(b.scalers)))
	users := len(a.scalers) - len(a.generated())
	return len(left) == users && maps.Equal(a.changes, b.changes) && maps.Equal(keys(a.pods), keys(b.pods)) && p.start.restarts == p.end.restarts,
		fmt.Sprintf("after %.1fs; %d pods; left are %v", p.took().Seconds(), len(b.pods), left)
}

func names(scalers map[types.NamespacedName]*v1beta1.VerticalScaler) map[string]bool {
	out := map[string]bool{}
	for key := range scalers {
		out[key.String()] = true
	}
	return out
}

func keys(pods map[types.UID]workload.Resources) map[types.UID]bool {
	out := map[types.UID]bool{}
	for uid := range pods {
		out[uid] = true
	}
	return out
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// The usage of the pods. It stays below the limits, as in a real container.
var (
	high = quantity.Amounts{CPUMillis: 180, MemoryBytes: 200 << 20}
	low  = quantity.Amounts{CPUMillis: 40, MemoryBytes: 60 << 20}
)

// scalerScenario is about a VerticalScaler.
var scalerScenario = scenario{
	without: "manager-rollout manager-scaled-deployment", // no right to change Deployments
	writes: []string{
		"patch pods/resize", "update verticalscalers/status", "create verticalscalercheckpoints", "update verticalscalercheckpoints",
		"create events", "patch events",
	},
	steps: []step{
		{
			name: "wait", do: []string{"kubectl apply -f hack/demo/scaler.yaml", waitFor("vscaler", v1beta1.ConditionTargetFound, v1beta1.ReasonDeploymentNotFound)},
			story: "A VerticalScaler is created before its Deployment. It waits for the Deployment.",
			claim: "a VerticalScaler waits for its Deployment",
		},
		{
			name: "find", do: []string{"kubectl apply -f hack/demo/workload.yaml", waitFor("vscaler", v1beta1.ConditionTargetFound, v1beta1.ReasonDeploymentFound)},
			story: "The Deployment is created, and a policy injects a sidecar into its pods. The VerticalScaler finds it.",
			claim: "the VerticalScaler finds the Deployment when it is created",
		},
		{
			name: "steady", missing: steady,
			story: "Three pods use nearly what they request. No change is needed.",
			claim: "a recommendation follows from the usage of all pods",
		},
		{
			name: "up", usage: high, missing: resized("that cover the usage", coversUsage),
			story: "All pods use more than they request, one less than the others. The operator scales them up without delay.",
			claim: "pods are resized up in place", proof: inPlace,
		},
		{
			name: "down", usage: low, missing: resized("that cover the usage and are a third lower", loweredByAThird),
			story: "All pods use much less. The operator scales them down when the memory peaks are older than the history.",
			claim: "pods are resized down in place", proof: inPlace,
		},
		{
			name: "oom", do: []string{"kubectl annotate pod $POD kwok.verticalscaler.io/oom=demo"},
			missing: resized("above the memory limit of the OOM-killed pod", aboveLimit),
			story:   "One pod is OOM-killed. The operator raises the memory of all pods above the limit of that pod.",
			claim:   "pods are resized up in place after an OOM kill", proof: inPlace,
		},
		{
			name: "freeze",
			do: []string{
				"kubectl create configmap verticalscaler-freeze -n verticalscaler-system --from-literal=reason='incident 42'",
				waitFor("vscaler", v1beta1.ConditionReady, v1beta1.ReasonFrozen), "kubectl vscaler status web",
				`kubectl get vscaler web -o jsonpath='{.status.conditions[?(@.type=="Ready")].message}{"\n"}'`,
				"kubectl delete configmap verticalscaler-freeze -n verticalscaler-system",
				waitFor("vscaler", v1beta1.ConditionReady, v1beta1.ReasonOperatingNormally),
			},
			story: "An administrator freezes all changes, and ends the freeze. The VerticalScaler shows it, although it is idle.",
			claim: "a freeze shows on an idle VerticalScaler",
		},
		{
			name: "quiet", do: []string{"kubectl vscaler explain web"}, missing: quiet,
			story: fmt.Sprintf("Nothing changes for %s. The operator writes nothing but its lease.", quietTime),
			claim: fmt.Sprintf("no write for %s while nothing changes", quietTime), proof: unchanged,
		},
	},
}

// ownedScenario is about a ScaledDeployment.
var ownedScenario = scenario{
	without: "manager-rollout", // which only the mode Rollout needs
	writes: append(slices.Clip(scalerScenario.writes),
		"patch deployments", "delete deployments", "patch verticalscalers", "update scaleddeployments/status"),
	steps: []step{
		{
			name: "create", do: []string{"kubectl apply -f hack/demo/owned.yaml"}, missing: both(reconciled("web", 2), steady),
			story: "A ScaledDeployment is created. The operator creates a Deployment and a VerticalScaler.",
			claim: "a ScaledDeployment controls a Deployment and a VerticalScaler",
		},
		{
			name: "drift", missing: reconciled("web", 2),
			do:    []string{"kubectl scale deployment web --replicas=9", "kubectl set image deployment web app=registry.example/other:1"},
			story: "A user scales the Deployment and changes its image. The operator reverts both.",
			claim: "drift is reverted",
			proof: func(p *progress) (bool, string) {
				before, after := p.start.target(), p.end.target()
				return before.UID == after.UID && after.Generation > before.Generation+2, fmt.Sprintf("Deployment generation %d -> %d", before.Generation, after.Generation)
			},
		},
		{
			name: "recreate", do: []string{"kubectl delete deployment web"}, missing: reconciled("web", 2),
			story: "A user deletes the Deployment. The operator creates it again.",
			claim: "a deleted Deployment is created again", proof: replaced,
		},
		{
			name: "scale", do: []string{"kubectl scale sdeploy web --replicas=3"}, missing: both(reconciled("web", 3), steady),
			story: "A user scales the ScaledDeployment. The operator scales its Deployment.",
			claim: "kubectl scale sdeploy scales the Deployment",
			proof: func(p *progress) (bool, string) {
				from, to := p.start.owner.Status.Replicas, p.end.owner.Status.Replicas
				return to == 3 && p.start.target().UID == p.end.target().UID, fmt.Sprintf("%d -> %d pods", from, to)
			},
		},
		{
			name: "up", usage: high, missing: both(resized("that cover the usage", coversUsage), reconciled("web", 3)),
			story: "All pods use more than they request. The operator resizes them and does not change the Deployment.",
			claim: "pods are resized in place, and the Deployment does not change", proof: inPlace,
		},
		{
			name: "rename", do: []string{rename("shop")}, missing: reconciled("shop", 3),
			story: "The Deployment gets another name. The operator deletes the old one before it creates the new one.",
			claim: "a renamed Deployment does not exist twice", proof: replaced,
		},
		{
			name: "refuse",
			do: []string{
				"kubectl create deployment legacy --image=registry.example/legacy:1", rename("legacy"),
				waitFor("sdeploy", v1beta1.ConditionStalled, v1beta1.ReasonNotControlled),
			},
			story: "The Deployment gets the name of a foreign Deployment. The operator changes neither of them.",
			claim: "a foreign Deployment is refused", proof: untouched,
		},
		{
			name: "take-over", do: []string{"kubectl delete deployment legacy"}, missing: reconciled("legacy", 3),
			story: "The foreign Deployment is deleted. The operator takes the name.",
			claim: "the name is taken when it is free", proof: replaced,
		},
		{
			name: "quiet", missing: quiet,
			story: fmt.Sprintf("Nothing changes for %s. The operator writes nothing but its lease.", quietTime),
			claim: fmt.Sprintf("no write for %s while nothing changes", quietTime), proof: unchanged,
		},
		{
			name: "delete", do: []string{"kubectl delete sdeploy web"}, missing: deleted,
			story: "The ScaledDeployment is deleted. The garbage collector deletes the rest.",
			claim: "the garbage collector deletes everything",
			proof: func(p *progress) (bool, string) {
				n := p.end.deletions - p.start.deletions
				return n == 0, fmt.Sprintf("%d deletions by the operator", n)
			},
		},
	},
}

func rename(to string) string {
	return `kubectl patch sdeploy web --type=merge -p '{"spec":{"deploymentName":"` + to + `"}}'`
}

func both(a, b func(*progress) string) func(*progress) string {
	return func(p *progress) string {
		if what := a(p); what != "" {
			return what
		}
		return b(p)
	}
}

// waitFor waits for an object to report a reason.
func waitFor(kind, condition, reason string) string {
	return fmt.Sprintf(`kubectl wait %s web --timeout=2m --for=jsonpath='{.status.conditions[?(@.type=="%s")].reason}'=%s`, kind, condition, reason)
}

// reconciled waits for the ScaledDeployment to have one Deployment, its VerticalScaler
// and its pods, and to report Ready.
func reconciled(deployment string, pods int) func(*progress) string {
	return func(p *progress) string {
		owner, scaler, d := p.end.owner, p.end.scaler, p.end.target()
		if d.Name != deployment || d.DeletionTimestamp != nil {
			return fmt.Sprintf("Deployment %s, and no other", deployment)
		}
		if want := ptr.Deref(owner.Spec.Replicas, 1); int(want) != pods || ptr.Deref(d.Spec.Replicas, 1) != want ||
			d.Spec.Template.Spec.Containers[0].Image != owner.Spec.Template.Spec.Containers[0].Image {
			return fmt.Sprintf("Deployment %s to match the ScaledDeployment", deployment)
		}
		if !metav1.IsControlledBy(&scaler, &owner) || scaler.Spec.DeploymentName != deployment ||
			condition(scaler.Status.Conditions, v1beta1.ConditionApplied).ObservedGeneration != scaler.Generation {
			return fmt.Sprintf("its VerticalScaler to target Deployment %s", deployment)
		}
		if ready := p.end.count(func(p workload.Pod) bool { return p.Ready }); ready != pods || len(p.end.pods) != pods {
			return fmt.Sprintf("%d ready pods: %d of %d", pods, ready, len(p.end.pods))
		}
		if c := condition(owner.Status.Conditions, v1beta1.ConditionReady); c.Status != metav1.ConditionTrue || c.ObservedGeneration != owner.Generation {
			return "the ScaledDeployment to report Ready"
		}
		return ""
	}
}

// replaced proves that the Deployment is a new one, and that no snapshot has two.
func replaced(p *progress) (bool, string) {
	before, after := p.start.target(), p.end.target()
	return after.UID != before.UID && p.mostAtOnce == 1, fmt.Sprintf("%s -> %s, at most %d at a time", before.Name, after.Name, p.mostAtOnce)
}

// untouched proves that the operator has changed neither its own nor the foreign
// Deployment.
func untouched(p *progress) (bool, string) {
	foreign := slices.ContainsFunc(p.end.deployments, func(d appsv1.Deployment) bool {
		return d.Name == "legacy" && d.Generation == 1 &&
			!slices.ContainsFunc(d.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == ownership.Owners })
	})
	own := *p
	own.end.replicaSets-- // of the foreign Deployment
	ok, details := unchanged(&own)
	return foreign && ok, details + "; " + condition(p.end.owner.Status.Conditions, v1beta1.ConditionStalled).Message
}

// deleted waits for all objects to be deleted.
func deleted(p *progress) string {
	if left := len(p.end.deployments) + p.end.replicaSets + len(p.end.pods); left > 0 || p.end.owner.UID != "" || p.end.scaler.UID != "" {
		return fmt.Sprintf("all objects to be deleted: %d Deployments, ReplicaSets and pods exist", left)
	}
	return ""
}

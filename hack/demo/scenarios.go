// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
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

// waitFor waits for an object to report a reason.
func waitFor(kind, condition, reason string) string {
	return fmt.Sprintf(`kubectl wait %s web --timeout=2m --for=jsonpath='{.status.conditions[?(@.type=="%s")].reason}'=%s`, kind, condition, reason)
}

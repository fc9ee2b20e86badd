#!/usr/bin/env bash
# Finding: kube-apiserver 1.37.1 spends a PodDisruptionBudget for an eviction that it then refuses.
#
# An eviction with a precondition on the resourceVersion of a pod, whose status has been written meanwhile, is answered with
# 409, and no pod is evicted. The budget has spent its disruption all the same, and lists the pod in disruptedPods. All other
# evictions, also those of a drain, get 429 until the disruption controller forgets the pod after two minutes. The same
# eviction as a dry run is answered with 409 as well, and spends nothing.
#
# The script uses none of the product's code. It ends with 1 if the behaviour has changed, and with 2 if it could not find
# out. CI does not run it.
. "$(dirname "${BASH_SOURCE[0]}")/control-plane.sh"

pods=/api/v1/namespaces/default/pods budgets=/apis/policy/v1/namespaces/default/poddisruptionbudgets
api POST $pods '{"metadata":{"name":"web","labels":{"app":"web"}},"spec":{"nodeName":"node","containers":[{"name":"app","image":"example.com/app:1"}]}}' >/dev/null ||
	unclear "no pod can be created"
status() { api PATCH $pods/web/status "{\"status\":{\"phase\":\"Running\",\"message\":\"$1\",\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}" >/dev/null; }
status "first" || unclear "the status of the pod cannot be written"
api POST $budgets '{"metadata":{"name":"web"},"spec":{"maxUnavailable":1,"selector":{"matchLabels":{"app":"web"}}}}' >/dev/null || unclear "no budget can be created"
api PATCH $budgets/web/status '{"status":{"observedGeneration":1,"disruptionsAllowed":1,"currentHealthy":1,"desiredHealthy":0,"expectedPods":1}}' >/dev/null ||
	unclear "the status of the budget cannot be written" # no disruption controller runs here

field() { sed -n "s/.*\"$1\": \"\{0,1\}\([^\",]*\).*/\1/p" | head -n 1; }
old=$(api GET $pods/web | field resourceVersion)
status "second" || unclear "the status of the pod cannot be written"
evict() { # [DRY RUN]
	api POST "$pods/web/eviction$1" "{\"apiVersion\":\"policy/v1\",\"kind\":\"Eviction\",\"metadata\":{\"name\":\"web\"},\"deleteOptions\":{\"preconditions\":{\"resourceVersion\":\"$old\"}}}" 2>/dev/null | field code
}
allowed() { api GET $budgets/web | field disruptionsAllowed; }

echo "kube-apiserver $(api GET /version | field gitVersion)"
tried=$(evict '?dryRun=All') after_trial=$(allowed)
echo "a dry run with an old resourceVersion: $tried, disruptionsAllowed $after_trial"
refused=$(evict '') after=$(allowed)
echo "the eviction:                          $refused, disruptionsAllowed $after"
api GET $pods/web >/dev/null || unclear "the pod is gone"
if [[ $tried != 409 || $refused != 409 ]]; then
	unclear "the eviction is not refused with 409"
elif [[ $after_trial == 1 && $after == 0 ]]; then
	echo "As found: the refused eviction has spent the budget, and the dry run has not."
else
	echo "CHANGED: after a refused eviction, $after of 1 disruption is allowed, and $after_trial after a dry run."
	exit 1
fi

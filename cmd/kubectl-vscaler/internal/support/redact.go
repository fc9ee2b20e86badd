// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package support writes an archive for a bug report.
//
// Objects keep only the fields that are listed here, so a new field is left out until it is added. Free text of other programs,
// which may have credentials in any form, is left out. In the operator's own texts, addresses are masked.
package support

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/kube"
)

// metadata are the fields that all objects keep. Of the annotations, only our own are kept.
var metadata = []string{
	"apiVersion", "kind", "metadata.name", "metadata.namespace", "metadata.uid", "metadata.generation", "metadata.resourceVersion",
	"metadata.creationTimestamp", "metadata.deletionTimestamp", "metadata.finalizers",
	"metadata.ownerReferences.kind", "metadata.ownerReferences.name", "metadata.ownerReferences.uid", "metadata.ownerReferences.controller",
	"metadata.managedFields.manager", "metadata.managedFields.operation", "metadata.managedFields.subresource", "metadata.managedFields.time",
}

var (
	resources = []string{"resources.requests", "resources.limits"} // of a container or a pod
	container = slices.Concat([]string{"name", "restartPolicy", "resizePolicy"}, resources)
	podSpec   = slices.Concat([]string{"overhead", "restartPolicy"}, resources, under("containers", container), under("initContainers", container))
	state     = []string{"running.startedAt", "waiting.reason", "terminated.reason", "terminated.exitCode", "terminated.startedAt", "terminated.finishedAt"}
	condition = []string{"type", "status", "reason", "lastTransitionTime", "observedGeneration"}

	containerStatus = slices.Concat([]string{"name", "ready", "started", "restartCount", "allocatedResources"}, resources,
		under("state", state), under("lastState", state))
	podStatus = slices.Concat([]string{"phase", "reason", "qosClass", "resize", "startTime", "observedGeneration", "allocatedResources"}, resources,
		under("conditions", condition), under("containerStatuses", containerStatus), under("initContainerStatuses", containerStatus))
)

// kept are the fields that objects of a kind keep, besides metadata. Everything below a kept field is kept, too.
var kept = map[string]fields{
	"VerticalScaler": tree("spec", "status"),
	// Selectors are in the spec: they decide what is sized.
	"ScalingPolicy":        tree("spec", "status"),
	"ClusterScalingPolicy": tree("spec", "status"),
	"ScaledDeployment":     tree(slices.Concat(under("spec.template.spec", podSpec), []string{"spec.replicas", "spec.deploymentName", "spec.scaling", "status"})...),
	"Deployment": tree(slices.Concat(under("spec.template.spec", podSpec), under("status.conditions", condition), []string{
		"spec.replicas", "spec.paused", "spec.strategy", "spec.minReadySeconds", "spec.progressDeadlineSeconds",
		"status.replicas", "status.updatedReplicas", "status.readyReplicas", "status.availableReplicas", "status.unavailableReplicas",
		"status.terminatingReplicas", "status.observedGeneration",
	})...),
	"Pod": tree(slices.Concat(under("spec", podSpec), under("status", podStatus))...),
	"HorizontalPodAutoscaler": tree(append(under("status.conditions", condition),
		"spec.scaleTargetRef", "spec.minReplicas", "spec.maxReplicas", "spec.metrics.type", "spec.metrics.resource", "spec.metrics.containerResource",
		"status.currentReplicas", "status.desiredReplicas")...),
	"VerticalPodAutoscaler": tree(append(under("status.conditions", condition), "spec", "status.recommendation")...),
	"LimitRange":            tree("spec"),
	"ResourceQuota":         tree("spec.hard", "status"),
	"Lease":                 tree("spec"),
	"Event": tree("type", "reason", "message", "count", "firstTimestamp", "lastTimestamp", "eventTime", "reportingComponent", "series",
		"involvedObject.kind", "involvedObject.name"),
}

// fields are the kept fields of an object, by name. Nil keeps all.
type fields map[string]fields

func tree(paths ...string) fields {
	out := fields{}
	for _, path := range append(paths, metadata...) {
		at := out
		names := strings.Split(path, ".")
		for _, name := range names[:len(names)-1] {
			if at[name] == nil {
				at[name] = fields{}
			}
			at = at[name]
		}
		at[names[len(names)-1]] = nil
	}
	return out
}

// under are paths below another one.
func under(path string, below []string) (out []string) {
	for _, one := range below {
		out = append(out, path+"."+one)
	}
	return out
}

// ownKinds are the kinds that only the operator writes events about.
var ownKinds = []string{string(kube.ScalerKind), string(kube.OwnerKind), v1beta1.ScalingPolicyKind, v1beta1.ClusterScalingPolicyKind}

// redactedObject is a copy of an object, as decoded from JSON, with what a bundle may have of its kind. It is nil for a kind that
// no bundle has.
func redactedObject(object map[string]any) map[string]any {
	kind, _ := object["kind"].(string)
	of, ok := kept[kind]
	if !ok {
		return nil
	}
	out, _ := redacted(object, of).(map[string]any) // a copy of a map is one
	if about, _, _ := unstructured.NestedString(object, "involvedObject", "kind"); kind == "Event" && !slices.Contains(ownKinds, about) {
		delete(out, "message") // of a kubelet, a webhook or a probe
	}
	annotations, _, _ := unstructured.NestedMap(object, "metadata", "annotations")
	maps.DeleteFunc(annotations, func(key string, _ any) bool { return !strings.HasPrefix(key, v1beta1.GroupVersion.Group+"/") })
	if into, ok := out["metadata"].(map[string]any); ok && len(annotations) > 0 {
		into["annotations"] = redacted(annotations, nil)
	}
	return out
}

// redacted is a copy of a value; nil if nothing of it is kept.
func redacted(value any, of fields) any {
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, below := range v {
			next, isKept := of[name]
			if of != nil && !isKept {
				continue
			}
			if one := redacted(below, next); one != nil {
				out[name] = one
			}
		}
		return out
	case []any:
		out := make([]any, 0, len(v))
		for _, below := range v {
			if one := redacted(below, of); one != nil {
				out = append(out, one)
			}
		}
		return out
	}
	if of != nil {
		return nil // the API has other fields here
	}
	if text, ok := value.(string); ok {
		return masked(text)
	}
	return value
}

// mask stands for an address.
const mask = "[masked]"

// addresses matches IPv4 and IPv6 addresses.
var addresses = regexp.MustCompile(`(?i)\b(?:[0-9]{1,3}\.){3}[0-9]{1,3}\b|\b(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}\b|\b[0-9a-f]{1,4}(?::[0-9a-f]{1,4})*::[0-9a-f:]*`)

// masked is text without addresses.
func masked(text string) string { return addresses.ReplaceAllString(text, mask) }

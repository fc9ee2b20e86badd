// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fromvpa turns VerticalPodAutoscalers into VerticalScalers, and reports for each field how
// it is converted.
//
// A field without an equivalent that protects the workload as well leads to updateMode Recommend: such a scaler changes
// nothing. Invalid values are left to the API server, which rejects them. The package is pure: values in, values out.
package fromvpa

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// Note reports the conversion of one field.
type Note struct {
	// Field is the path in the VerticalPodAutoscaler, such as "spec.updatePolicy.updateMode".
	Field string
	// Value is its value as JSON, if set.
	Value string
	// Result is the result of the conversion.
	Result string
}

// Import is the result of importing one VerticalPodAutoscaler.
type Import struct {
	Namespace string
	Name      string
	// Scaler is nil if there is no scaler for the target. Skipped is the reason.
	Scaler  *v1beta1.VerticalScaler
	Skipped string
	// Notes has an entry for each field of the spec that is set, sorted by their names, and for the update mode.
	Notes []Note
	// Doubts are the paths of fields that led to updateMode Recommend.
	Doubts []string
}

// maxName is the number of characters that the name of a scaler may have.
const maxName = 63

// vpaSpec is the part of a spec of version v1 that a scaler takes over.
type vpaSpec struct {
	TargetRef    struct{ APIVersion, Kind, Name string }
	UpdatePolicy struct {
		UpdateMode           *string
		MinReplicas          *int32
		EvictionRequirements []any
	}
	ResourcePolicy struct{ ContainerPolicies []containerPolicy }
	StartupBoost   *v1beta1.StartupBoost
}

type containerPolicy struct {
	ContainerName       string
	Mode                v1beta1.ContainerMode
	ControlledValues    v1beta1.ControlledValues
	ControlledResources *[]v1beta1.ControlledResource
	MinAllowed          map[string]resource.Quantity
	MaxAllowed          map[string]resource.Quantity
	StartupBoost        *v1beta1.StartupBoost
}

const (
	container = "resourcePolicy.containerPolicies[]."
	boosted   = "startupBoost, which maxAllowed bounds, too. Only updateMode InPlace applies it"
	bumps     = "not imported: the steps after OOM kills adapt to how quickly they follow each other"
	peaks     = "not imported: the operator keeps the peaks of the last days and weeks"
	noPod     = "not imported: no pod is evicted"
	limitsToo = "not set, which means RequestsAndLimits. Remove it, so that no limit of a running container is lowered"
)

// results are the default results for the fields of VPA 1.8. Nested fields are part of their value.
var results = map[string]string{
	"targetRef":                                    "deploymentName",
	"updatePolicy.updateMode":                      "updatePolicy",
	"updatePolicy.minReplicas":                     "updatePolicy.minReplicas",
	"updatePolicy.evictionRequirements":            noPod,
	"updatePolicy.evictAfterOOMSeconds":            "not imported: an OOM kill raises the memory of all pods at once, in place",
	"startupBoost.cpu":                             boosted,
	"recommenders":                                 "not imported: the operator has one recommender. Choose a profile in recommendationPolicy",
	container + "containerName":                    "containerPolicies",
	container + "mode":                             "mode",
	container + "controlledValues":                 "controlledValues",
	container + "controlledResources":              "controlledResources",
	container + "minAllowed.cpu":                   "minAllowed.cpu",
	container + "minAllowed.memory":                "minAllowed.memory",
	container + "maxAllowed.cpu":                   "maxAllowed.cpu",
	container + "maxAllowed.memory":                "maxAllowed.memory",
	container + "startupBoost.cpu":                 boosted,
	container + "oomBumpUpRatio":                   bumps,
	container + "oomMinBumpUp":                     bumps,
	container + "memoryAggregationIntervalSeconds": peaks,
	container + "memoryAggregationIntervalCount":   peaks,
}

// reader converts a spec, and records which fields were not imported.
type reader struct {
	Import
	results map[string]string // by path
}

// Of imports the spec of a VerticalPodAutoscaler, of version v1.
func Of(namespace, name string, spec map[string]any) Import {
	r := &reader{Import{Namespace: namespace, Name: name}, map[string]string{}}
	var vpa vpaSpec
	text, err := json.Marshal(spec)
	if err == nil {
		err = json.Unmarshal(text, &vpa)
	}
	switch r.Skipped = skipped(vpa); {
	case err != nil:
		r.Skipped = "its spec cannot be read: " + err.Error()
	case len(name) > maxName:
		r.Skipped = "its name has more than 63 characters, the most for a scaler: create one with another name"
	}
	if r.Skipped != "" {
		return r.Import
	}
	r.Scaler = &v1beta1.VerticalScaler{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: "VerticalScaler"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1beta1.VerticalScalerSpec{DeploymentName: vpa.TargetRef.Name},
	}
	r.updatePolicy(vpa, &r.Scaler.Spec.UpdatePolicy)
	r.resourcePolicy(vpa, &r.Scaler.Spec)
	r.note("spec", "", spec)
	if len(r.Doubts) > 0 {
		r.Scaler.Spec.UpdatePolicy.UpdateMode, r.Scaler.Spec.UpdatePolicy.Fallback = v1beta1.UpdateModeRecommend, ""
	}
	return r.Import
}

// doubt records the result for a field without which the scaler must not change anything.
func (r *reader) doubt(path, result string) {
	r.results[path] = result
	r.Doubts = append(r.Doubts, path)
}

// note records the result for a value, or for the values below it. The key is its path without "spec." and indexes.
func (r *reader) note(path, key string, value any) {
	result, ok := r.results[path]
	if !ok {
		result, ok = results[key]
	}
	if value != nil && ok {
		r.Notes = append(r.Notes, Note{path, encoded(value), result})
		return
	}
	switch v := value.(type) {
	case nil:
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			r.note(path+"."+name, strings.TrimPrefix(key+"."+name, "."), v[name])
		}
	case []any:
		for i, item := range v {
			r.note(fmt.Sprintf("%s[%d]", path, i), key+"[]", item)
		}
	default:
		r.doubt(path, "is not a known field, so it is not imported")
		r.Notes = append(r.Notes, Note{path, encoded(value), r.results[path]})
	}
}

// encoded is a value in one line.
func encoded(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return string(text)
}

// skipped is the reason why there is no scaler for the target, if any.
func skipped(vpa vpaSpec) string {
	const path = "spec.targetRef"
	ref := vpa.TargetRef
	group, _, _ := strings.Cut(ref.APIVersion, "/")
	switch {
	case ref.Kind == "":
		return path + " names nothing"
	case ref.Kind == "ScaledDeployment":
		return fmt.Sprintf("%s names ScaledDeployment %q: set its spec.scaling instead", path, ref.Name)
	case ref.Kind != "Deployment" || !slices.Contains([]string{"apps", "extensions", ""}, group):
		return fmt.Sprintf("%s names %q of %q: a scaler sizes Deployments only", path, ref.Kind, ref.APIVersion)
	case len(validation.IsDNS1123Subdomain(ref.Name)) > 0:
		return fmt.Sprintf("%s.name %q is not the name of a Deployment", path, ref.Name)
	}
	return ""
}

// mode is the result of an update mode.
type mode struct {
	mode     v1beta1.UpdateMode
	fallback v1beta1.Fallback
	result   string
}

const evicts = "updateMode InPlace with the fallback Recreate: pods are resized in place, and only those that cannot be are evicted. " +
	"Evictions need Kubernetes 1.36 and the components new-pods and recreate"

// modes are the update modes of VPA 1.8. The default is Recreate.
var modes = map[string]mode{
	"Off":               {v1beta1.UpdateModeRecommend, "", "updateMode Recommend"},
	"Initial":           {v1beta1.UpdateModeInitial, "", "updateMode Initial, which needs Kubernetes 1.36 and the component new-pods"},
	"Recreate":          {v1beta1.UpdateModeInPlace, v1beta1.FallbackRecreate, evicts},
	"Auto":              {v1beta1.UpdateModeInPlace, v1beta1.FallbackRecreate, "as Recreate: " + evicts},
	"InPlaceOrRecreate": {v1beta1.UpdateModeInPlace, v1beta1.FallbackRecreate, evicts},
	"InPlace":           {v1beta1.UpdateModeInPlace, v1beta1.FallbackWait, "updateMode InPlace"},
}

func (r *reader) updatePolicy(vpa vpaSpec, policy *v1beta1.UpdatePolicy) {
	const path = "spec.updatePolicy."
	of := vpa.UpdatePolicy
	m, isKnown := modes[ptr.Deref(of.UpdateMode, "Recreate")]
	switch {
	case of.UpdateMode == nil:
		r.Notes = append(r.Notes, Note{path + "updateMode", "", "not set, which means Recreate: " + m.result})
	case !isKnown:
		r.doubt(path+"updateMode", "is not known")
	default:
		r.results[path+"updateMode"] = m.result
	}
	policy.UpdateMode, policy.Fallback = m.mode, m.fallback
	if m.fallback == v1beta1.FallbackRecreate && len(of.EvictionRequirements) > 0 {
		policy.Fallback = v1beta1.FallbackWait
		r.results[path+"evictionRequirements"] = "no equivalent, so the fallback is Wait, and no pod is evicted"
	}
	if policy.Fallback == v1beta1.FallbackRecreate {
		policy.MinReplicas = of.MinReplicas
	} else {
		r.results[path+"minReplicas"] = noPod
	}
}

// resourcePolicy reads the policies of containers. Containers without a boost of their own get the spec's.
func (r *reader) resourcePolicy(vpa vpaSpec, spec *v1beta1.VerticalScalerSpec) {
	var policies []v1beta1.ContainerPolicy
	boost, isForAll := vpa.StartupBoost, false
	for i, of := range vpa.ResourcePolicy.ContainerPolicies {
		path := fmt.Sprintf("spec.resourcePolicy.containerPolicies[%d].", i)
		p := v1beta1.ContainerPolicy{ContainerName: of.ContainerName, Mode: of.Mode, ControlledValues: of.ControlledValues}
		if of.ControlledResources != nil {
			p.ControlledResources = slices.DeleteFunc(*of.ControlledResources, func(name v1beta1.ControlledResource) bool {
				return name != v1beta1.ControlledCPU && name != v1beta1.ControlledMemory
			})
			if len(p.ControlledResources) < len(*of.ControlledResources) {
				r.results[path+"controlledResources"] = "controlledResources, but only cpu and memory"
			}
			if len(p.ControlledResources) == 0 {
				p.ControlledResources, p.Mode = nil, v1beta1.ContainerModeOff
				r.results[path+"controlledResources"] = "mode Off: neither cpu nor memory is managed"
			}
		}
		p.MinAllowed, p.MaxAllowed = r.bounds(path+"minAllowed.", of.MinAllowed), r.bounds(path+"maxAllowed.", of.MaxAllowed)
		p.StartupBoost = boost.DeepCopy()
		if of.StartupBoost != nil {
			p.StartupBoost = of.StartupBoost
		}
		if p.Mode == v1beta1.ContainerModeOff || len(p.ControlledResources) > 0 && !slices.Contains(p.ControlledResources, v1beta1.ControlledCPU) {
			p.StartupBoost = nil
			r.results[path+"startupBoost"] = "not imported: CPU is not managed"
		}
		policies = append(policies, p)
		isForAll = isForAll || of.ContainerName == v1beta1.AnyContainer
	}
	if !isForAll {
		policies = append(policies, v1beta1.ContainerPolicy{ContainerName: v1beta1.AnyContainer, StartupBoost: boost})
	}
	if sizesLimits(policies) {
		r.Notes = append(r.Notes, Note{"spec.resourcePolicy.containerPolicies[].controlledValues", "", limitsToo})
	}
	spec.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: policies}
}

// sizesLimits sets controlledValues where it is unset, because the default of a VPA differs. It reports whether it did.
func sizesLimits(policies []v1beta1.ContainerPolicy) (isChanged bool) {
	for i, p := range policies {
		if p.ControlledValues == "" && p.Mode != v1beta1.ContainerModeOff {
			policies[i].ControlledValues, isChanged = v1beta1.RequestsAndLimits, true
		}
	}
	return isChanged
}

// minMemory is the least amount of memory that a bound may be, in bytes.
const minMemory = 1 << 10

// bounds are rounded up to amounts that a scaler may have; nil without any.
func (r *reader) bounds(path string, list map[string]resource.Quantity) *v1beta1.ResourceBounds {
	var out quantity.Amounts
	for _, name := range slices.Sorted(maps.Keys(list)) {
		var err error
		q := list[name]
		switch name {
		case "cpu":
			out.CPUMillis, err = quantity.CPUMillis(q)
		case "memory":
			if out.MemoryBytes, err = quantity.MemoryBytes(q); out.MemoryBytes > 0 {
				out.MemoryBytes = max(out.MemoryBytes, minMemory)
			}
		default:
			r.results[path+name] = "not imported: only cpu and memory are managed"
		}
		if err != nil {
			r.doubt(path+name, "not imported: it is out of range")
		} else if q.IsZero() {
			r.results[path+name] = "not imported: 0 means no bound"
		}
	}
	return scaler.BoundsOf(out)
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fromvpa turns VerticalPodAutoscalers into VerticalScalers, and says for each field how
// it is converted.
//
// What cannot be read, or has no equivalent that protects the workload as well, leads to updateMode
// Recommend: such a scaler changes nothing. The package is pure: values in, values out.
package fromvpa

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// Note says what becomes of one field.
type Note struct {
	// Field is the path in the VerticalPodAutoscaler, such as "spec.updatePolicy.updateMode".
	Field string
	// Value is its value as JSON; empty if it is not set.
	Value string
	// Result says how it is converted.
	Result string
}

// Import is what becomes of one VerticalPodAutoscaler.
type Import struct {
	Namespace string
	Name      string
	// Scaler is nil if there is no scaler for the target. Skipped says why.
	Scaler  *v1beta1.VerticalScaler
	Skipped string
	// Notes has an entry for each field of the spec that is set, and for the update mode.
	Notes []Note
	// Doubts are the paths of fields that have made the scaler one that only recommends.
	Doubts []string
}

// maxName is the number of characters that the name of a scaler may have.
const maxName = 63

// Of imports the spec of a VerticalPodAutoscaler, of version v1.
func Of(namespace, name string, spec map[string]any) Import {
	r := &reader{Import: Import{Namespace: namespace, Name: name}}
	fields := r.object("spec", spec)
	deployment, skipped := r.target(fields)
	if len(name) > maxName {
		skipped = "its name has more than 63 characters, the most for a scaler: create one with another name"
	}
	if skipped != "" {
		return Import{Namespace: namespace, Name: name, Skipped: skipped}
	}
	scaler := &v1beta1.VerticalScaler{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: "VerticalScaler"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1beta1.VerticalScalerSpec{DeploymentName: deployment},
	}
	r.updatePolicy(fields, &scaler.Spec.UpdatePolicy)
	boost := r.boost(fields, "startupBoost")
	scaler.Spec.ResourcePolicy = r.resourcePolicy(fields, boost)
	r.recommenders(fields)
	r.unknown(fields)
	if len(r.Doubts) > 0 {
		scaler.Spec.UpdatePolicy.UpdateMode, scaler.Spec.UpdatePolicy.Fallback = v1beta1.UpdateModeRecommend, ""
	}
	r.Scaler = scaler
	return r.Import
}

// reader reads fields and notes what becomes of them.
type reader struct{ Import }

// fields are those of one object that have not been read yet.
type fields struct {
	path string
	left map[string]any
}

func (f *fields) of(name string) string { return f.path + "." + name }

func (r *reader) object(path string, value map[string]any) *fields {
	return &fields{path, maps.Clone(value)}
}

// take removes a field and reads it. ok is false if it is not set, or if it cannot be read, which
// is a doubt.
func take[T any](r *reader, f *fields, name string) (out T, ok bool) {
	value, isSet := f.left[name]
	delete(f.left, name)
	if !isSet || value == nil {
		return out, false
	}
	if err := decode(value, &out); err != nil {
		r.doubt(f.of(name), encoded(value), "cannot be read, so it is not imported")
		return out, false
	}
	return out, true
}

func decode(value, into any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encoding a value: %w", err)
	}
	return json.Unmarshal(text, into)
}

// encoded is a value in one line.
func encoded(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return string(text)
}

func (r *reader) note(path, value, result string) {
	r.Notes = append(r.Notes, Note{path, value, result})
}

// doubt notes a field, without which the scaler must not change anything.
func (r *reader) doubt(path, value, result string) {
	r.note(path, value, result)
	r.Doubts = append(r.Doubts, path)
}

// unknown notes the fields that nothing has read.
func (r *reader) unknown(f *fields) {
	for _, name := range slices.Sorted(maps.Keys(f.left)) {
		r.doubt(f.of(name), encoded(f.left[name]), "is not a known field, so it is not imported")
	}
}

// unused notes a field that has no equivalent and needs none.
func (r *reader) unused(f *fields, name, result string) {
	value, isSet := f.left[name]
	delete(f.left, name)
	if isSet && value != nil {
		r.note(f.of(name), encoded(value), "not imported: "+result)
	}
}

// target is the name of the Deployment, or why there is no scaler.
func (r *reader) target(f *fields) (deployment, skipped string) {
	path := f.of("targetRef")
	ref, ok := take[map[string]any](r, f, "targetRef")
	if !ok {
		return "", path + " names nothing"
	}
	kind, _ := ref["kind"].(string)
	name, _ := ref["name"].(string)
	version, _ := ref["apiVersion"].(string)
	group, _, _ := strings.Cut(version, "/")
	switch {
	case kind == "ScaledDeployment":
		return "", fmt.Sprintf("%s names ScaledDeployment %q: set its spec.scaling instead", path, name)
	case kind != "Deployment" || !slices.Contains([]string{"apps", "extensions", ""}, group):
		return "", fmt.Sprintf("%s names %q of %q: a scaler sizes Deployments only", path, kind, version)
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		return "", fmt.Sprintf("%s.name %q is not the name of a Deployment", path, name)
	}
	r.note(path, encoded(ref), "deploymentName")
	return name, ""
}

// mode is what an update mode becomes.
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

func (r *reader) updatePolicy(spec *fields, policy *v1beta1.UpdatePolicy) {
	path := spec.of("updatePolicy")
	value, _ := take[map[string]any](r, spec, "updatePolicy")
	f := r.object(path, value)
	m := modes["Recreate"]
	name, isSet := take[string](r, f, "updateMode")
	switch known, ok := modes[name]; {
	case !isSet:
		r.note(f.of("updateMode"), "", "not set, which means Recreate: "+m.result)
	case !ok:
		r.doubt(f.of("updateMode"), encoded(name), "is not known")
	default:
		m = known
		r.note(f.of("updateMode"), encoded(name), m.result)
	}
	policy.UpdateMode, policy.Fallback = m.mode, m.fallback
	if least, ok := take[int32](r, f, "minReplicas"); ok {
		switch {
		case m.fallback != v1beta1.FallbackRecreate:
			r.note(f.of("minReplicas"), encoded(least), "not imported: no pod is evicted")
		case least < 1 || least > 1000:
			r.doubt(f.of("minReplicas"), encoded(least), "not imported: it is not from 1 to 1000")
		default:
			policy.MinReplicas = ptr.To(least)
			r.note(f.of("minReplicas"), encoded(least), "updatePolicy.minReplicas")
		}
	}
	if needs, ok := take[[]any](r, f, "evictionRequirements"); ok && len(needs) > 0 {
		result := "not imported: no pod is evicted"
		if m.fallback == v1beta1.FallbackRecreate {
			policy.Fallback = v1beta1.FallbackWait
			policy.MinReplicas = nil
			result = "no equivalent, so the fallback is Wait, and no pod is evicted"
		}
		r.note(f.of("evictionRequirements"), encoded(needs), result)
	}
	r.unused(f, "evictAfterOOMSeconds", "an OOM kill raises the memory of all pods at once, in place")
	r.unknown(f)
}

func (r *reader) recommenders(spec *fields) {
	names, ok := take[[]struct {
		Name string `json:"name"`
	}](r, spec, "recommenders")
	if !ok || len(names) == 0 {
		return
	}
	r.note(spec.of("recommenders"), encoded(names), "not imported: the operator has one recommender. Choose a profile in recommendationPolicy")
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/objects"
)

// warning are the policies that warn, by the kind of the written object.
func warning(t *testing.T) map[string][]*policy {
	t.Helper()
	specs, targets := compiled(t, "warnings.yaml"), compiled(t, "warnings_target.yaml")
	return map[string][]*policy{"verticalscalers": {specs, targets}, "scaleddeployments": {specs}}
}

// containersOfWeb are the containers of the Deployment, or of the ScaledDeployment: app and
// proxy have limits, batch has none. cache is a native sidecar, and migrate an init container that ends.
func containersOfWeb() (containers, initContainers []corev1.Container) {
	app, proxy, batch, cache := objects.Container("app"), objects.Container("proxy"), objects.Container("batch"), objects.Container("cache")
	migrate := objects.Container("migrate")
	delete(proxy.Resources.Limits, "cpu")
	batch.Resources.Limits = nil
	cache.Resources.Limits["cpu"] = resource.MustParse("3")
	cache.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	return []corev1.Container{app, proxy, batch}, []corev1.Container{migrate, cache}
}

// podOfWeb is the pod spec of web, as in JSON.
func podOfWeb(t *testing.T) map[string]any {
	t.Helper()
	pod := corev1.PodSpec{}
	pod.Containers, pod.InitContainers = containersOfWeb()
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&pod)
	must.Succeed(t, err)
	return out
}

// sizing is the part of a spec that a scaler and a ScaledDeployment share, from YAML, with
// the policies of containers.
func sizing(t *testing.T, policies string) map[string]any {
	t.Helper()
	var list []any
	must.Succeed(t, yaml.Unmarshal([]byte(policies), &list))
	return map[string]any{"resourcePolicy": map[string]any{"containerPolicies": list}}
}

// writing returns an object of the kind with these policies. No policies mean no object.
func writing(t *testing.T, kind, policies string) runtime.Object {
	t.Helper()
	if policies == "" {
		return nil
	}
	spec := sizing(t, policies)
	if kind == "verticalscalers" {
		spec["deploymentName"] = "web"
	} else {
		spec = map[string]any{"scaling": spec, "template": map[string]any{"spec": podOfWeb(t)}}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "autoscaling.verticalscaler.io/v1beta1", "metadata": map[string]any{"namespace": "shop", "name": "web"}, "spec": spec,
	}}
}

// deploymentNamed is the Deployment web under a name, as the API server passes parameters.
func deploymentNamed(name string) runtime.Object {
	d := objects.Deployment("shop", name)
	d.TypeMeta = metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}
	d.Spec.Template.Spec.Containers, d.Spec.Template.Spec.InitContainers = containersOfWeb()
	return d
}

// warned returns the warnings for a request, in a namespace with two Deployments.
func warned(t *testing.T, by []*policy, r request) (out []string) {
	t.Helper()
	if r.user == "" {
		r.user = "someone"
	}
	for _, p := range by {
		if p.spec.ParamKind == nil {
			_, _, messages := p.answers(t, r)
			out = append(out, messages...)
			continue
		}
		for _, name := range []string{"api", "web"} {
			r.params = deploymentNamed(name)
			_, _, messages := p.answers(t, r)
			out = append(out, messages...)
		}
	}
	return out
}

// A warning says what is wrong with which container, and nothing else is warned about.
func TestWarnings(t *testing.T) {
	t.Parallel()
	policies := warning(t)
	const (
		cpu     = "Implausible bounds: %s. CPU is in cores: 500m is half a core"
		memory  = "Implausible bounds: %s. Memory without a unit is in bytes: 512Mi is half of 1Gi"
		nobody  = "has no container %s"
		limited = "requests stay at or below the limits"
	)
	bounds := func(format string, list ...string) string { return fmt.Sprintf(format, strings.Join(list, ", ")) }
	for name, c := range map[string]struct {
		before, after string // container policies; none for no object
		warnings      []string
	}{
		"no policy":           {after: `[]`},
		"plausible bounds":    {after: `[{containerName: app, minAllowed: {cpu: 10m, memory: 16Mi}, maxAllowed: {cpu: 4, memory: 8Gi}}]`},
		"the widest bounds":   {after: `[{containerName: app, minAllowed: {cpu: 1m, memory: 1Mi}, maxAllowed: {cpu: 399, memory: 1023Gi}}]`},
		"the highest minimum": {after: `[{containerName: app, minAllowed: {cpu: "49", memory: 255Gi}}]`},
		"the lowest maximum":  {after: `[{containerName: app, maxAllowed: {cpu: 10m, memory: 1048576}}]`},
		"cores for millicores": {
			after: `[{containerName: app, minAllowed: {cpu: 400}}]`, warnings: []string{bounds(cpu, "minAllowed.cpu 400 of container app")},
		},
		"cores for millicores in a string, for any container": {
			after: `[{containerName: "*", minAllowed: {cpu: "50"}}]`, warnings: []string{bounds(cpu, "minAllowed.cpu 50 of container *")},
		},
		"cores for millicores, twice in each of two containers": {
			after: `[{containerName: app, minAllowed: {cpu: 100}, maxAllowed: {cpu: 500}}, {containerName: proxy, maxAllowed: {cpu: 1k}, startupBoost: {cpu: {type: Quantity, quantity: 200}}}]`,
			warnings: []string{bounds(cpu, "minAllowed.cpu 100 of container app", "maxAllowed.cpu 500 of container app",
				"maxAllowed.cpu 1k of container proxy", "startupBoost.cpu.quantity 200 of container proxy")},
		},
		"millicores for cores": {
			after: `[{containerName: app, maxAllowed: {cpu: 4m}}]`, warnings: []string{bounds(cpu, "maxAllowed.cpu 4m of container app")},
		},
		"memory without a unit": {
			after:    `[{containerName: app, minAllowed: {memory: 2048}, maxAllowed: {memory: "8192"}}]`,
			warnings: []string{bounds(memory, "minAllowed.memory 2048 of container app", "maxAllowed.memory 8192 of container app")},
		},
		"memory in Gi for Mi": {
			after:    `[{containerName: app, minAllowed: {memory: 512Gi}, maxAllowed: {memory: 1024Gi}}]`,
			warnings: []string{bounds(memory, "minAllowed.memory 512Gi of container app", "maxAllowed.memory 1024Gi of container app")},
		},
		"both, in the bounds of limits": {
			after: `[{containerName: app, limits: {minAllowed: {cpu: 200, memory: 4096}, maxAllowed: {cpu: 800, memory: 2Ti}}}]`,
			warnings: []string{
				bounds(cpu, "limits.minAllowed.cpu 200 of container app", "limits.maxAllowed.cpu 800 of container app"),
				bounds(memory, "limits.minAllowed.memory 4096 of container app", "limits.maxAllowed.memory 2Ti of container app"),
			},
		},
		"bounds of a container that is left alone": {after: `[{containerName: app, mode: "Off", minAllowed: {cpu: 400}}]`},
		"bounds that stay": {
			before: `[{containerName: app, minAllowed: {cpu: 400}}]`, after: `[{containerName: app, minAllowed: {cpu: 400}}, {containerName: proxy, mode: "Off"}]`,
		},
		"a policy that changes beside its bounds": {
			before: `[{containerName: app, minAllowed: {cpu: 400}}]`, after: `[{containerName: app, minAllowed: {cpu: 400}, maxAllowed: {cpu: 410m}}]`,
			warnings: []string{bounds(cpu, "minAllowed.cpu 400 of container app")},
		},
		"containers that exist": {after: `[{containerName: app}, {containerName: cache}, {containerName: "*"}]`},
		"containers that do not exist": {
			before: `[{containerName: ap}]`, after: `[{containerName: ap}, {containerName: b}]`, warnings: []string{fmt.Sprintf(nobody, "ap, b")},
		},
		"an init container that ends, which is not sized": {
			after: `[{containerName: migrate}]`, warnings: []string{fmt.Sprintf(nobody, "migrate")},
		},
		"one that a webhook adds, and that is left alone": {after: `[{containerName: istio-proxy, mode: "Off"}]`},
		"limits that stay": {
			after: `[{containerName: app, controlledValues: RequestsOnly}]`, warnings: []string{limited + "|app cpu 200m, app memory 256Mi."},
		},
		"limits that stay, of any container": {
			after: `[{containerName: "*", controlledValues: RequestsOnly}]`, warnings: []string{limited + "|app cpu 200m, app memory 256Mi, proxy memory 256Mi, cache cpu 3, cache memory 256Mi."},
		},
		"limits that stay, of any other container": {
			after: `[{containerName: app}, {containerName: "*", controlledValues: RequestsOnly}]`, warnings: []string{limited + "|: proxy memory 256Mi, cache cpu 3, cache memory 256Mi."},
		},
		"limits of an unmanaged resource":     {after: `[{containerName: proxy, controlledValues: RequestsOnly, controlledResources: [cpu]}]`},
		"limits that the maximum respects":    {after: `[{containerName: app, controlledValues: RequestsOnly, maxAllowed: {cpu: 0.2, memory: 128Mi}}]`},
		"a maximum above the limit":           {after: `[{containerName: proxy, controlledValues: RequestsOnly, maxAllowed: {memory: 257Mi}}]`, warnings: []string{limited + "|: proxy memory 256Mi."}},
		"no limits":                           {after: `[{containerName: batch, controlledValues: RequestsOnly}]`},
		"limits of an unmanaged container":    {after: `[{containerName: app, controlledValues: RequestsOnly, mode: "Off"}]`},
		"limits that follow":                  {after: `[{containerName: app, controlledValues: RequestsAndLimits}]`},
		"limits that stayed, and stay so":     {before: `[{containerName: app, controlledValues: RequestsOnly}]`, after: `[{containerName: app, controlledValues: RequestsOnly}, {containerName: batch}]`},
		"RequestsOnly, and a foreign wording": {after: `[{containerName: nobody, controlledValues: RequestsOnly}]`, warnings: []string{fmt.Sprintf(nobody, "nobody")}},
	} {
		for kind, by := range policies {
			t.Run(name+", "+kind, func(t *testing.T) {
				r := request{resource: kind, before: writing(t, kind, c.before), after: writing(t, kind, c.after)}
				got := warned(t, by, r)
				if len(got) != len(c.warnings) {
					t.Fatalf("got %q, want %q", got, c.warnings)
				}
				for i, words := range c.warnings {
					for word := range strings.SplitSeq(words, "|") {
						if !strings.Contains(got[i], word) {
							t.Errorf("got %q, want %q", got[i], word)
						}
					}
					if len(got[i]) > 5<<10 || strings.Contains(got[i], "\n") {
						t.Errorf("the API server does not show %q", got[i])
					}
				}
				r.user = operator
				if got := warned(t, by, r); len(got) > 0 {
					t.Errorf("the operator is warned: %q", got)
				}
			})
		}
	}
}

// An edit that a policy reverts names the policy, and an annotation or label of ours that is misspelt is named.
func TestEditsWithoutEffectAreWarnedAbout(t *testing.T) {
	t.Parallel()
	by := warning(t)["verticalscalers"]
	const policies, edited, prefix = `[]`, `[{containerName: app, minAllowed: {cpu: 10m}}]`, "autoscaling.verticalscaler.io/"
	scaler := func(policies, owner string, annotations, labels map[string]string) runtime.Object {
		s := writing(t, "verticalscalers", policies).(*unstructured.Unstructured)
		s.SetAnnotations(annotations)
		s.SetLabels(labels)
		if owner != "" {
			s.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: prefix + "v1beta1", Kind: owner, Name: "fleet", Controller: ptr.To(true)}})
		}
		return s
	}
	typo := map[string]string{prefix + "pause": "true"}
	deployment := func(annotations map[string]string) runtime.Object {
		d := objects.Deployment("shop", "web")
		d.Annotations = annotations
		return d
	}
	namespace := func(labels map[string]string) runtime.Object {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: labels}}
	}
	for name, c := range map[string]struct {
		before, after runtime.Object
		warnings      string
	}{
		"of a policy": {
			scaler(policies, "ClusterScalingPolicy", nil, nil), scaler(edited, "ClusterScalingPolicy", nil, nil),
			"ClusterScalingPolicy fleet has created this scaler, and reverts the edit. Edit spec.template of ClusterScalingPolicy fleet",
		},
		"of a policy, detached": {
			scaler(policies, "ScalingPolicy", nil, nil), scaler(edited, "ScalingPolicy", map[string]string{prefix + "detached": "true"}, nil), "",
		},
		"of a policy, and paused":   {scaler(policies, "ScalingPolicy", nil, nil), scaler(policies, "ScalingPolicy", map[string]string{prefix + "paused": "true"}, nil), ""},
		"of a ScaledDeployment":     {scaler(policies, "ScaledDeployment", nil, nil), scaler(edited, "ScaledDeployment", nil, nil), ""},
		"a misspelt annotation":     {scaler(policies, "", nil, nil), scaler(policies, "", typo, nil), "The operator does not know " + prefix + "pause, which has no effect"},
		"a misspelt label":          {nil, scaler(policies, "", nil, typo), "The operator does not know " + prefix + "pause, which has no effect"},
		"an annotation that stays":  {scaler(policies, "", typo, nil), scaler(edited, "", typo, nil), ""},
		"an annotation of another":  {nil, scaler(policies, "", map[string]string{"example.com/pause": "true"}, nil), ""},
		"the label of a policy":     {nil, scaler(policies, "", nil, map[string]string{prefix + "policy": "fleet"}), ""},
		"of a Deployment":           {nil, deployment(typo), "The operator does not know " + prefix + "pause"},
		"of a namespace":            {namespace(nil), namespace(typo), "The operator does not know " + prefix + "pause"},
		"an excluded Deployment":    {nil, deployment(map[string]string{prefix + "exclude": "true"}), ""},
		"a Deployment without keys": {nil, deployment(nil), ""},
		"the mark of a rolled back": {nil, scaler(policies, "", map[string]string{prefix + "rolled-back": "{}"}, nil), ""},
	} {
		resource := "verticalscalers"
		switch after := c.after.(type) {
		case *appsv1.Deployment:
			resource = "deployments"
			if looks, _ := by[0].asks(t, request{user: "someone", resource: resource, after: after}); looks != (len(after.Annotations) > 0) {
				t.Errorf("%s: evaluated: %t", name, looks)
			}
		case *corev1.Namespace:
			resource = "namespaces"
		}
		if got := strings.Join(warned(t, by, request{resource: resource, before: c.before, after: c.after}), "; "); !strings.HasPrefix(got, c.warnings) || (c.warnings == "") != (got == "") {
			t.Errorf("%s: %q, want %q", name, got, c.warnings)
		}
	}
}

// The deletion of a scaler is warned about if its policy creates it again, or if pods keep their sizes.
func TestDeletionsAreWarnedAbout(t *testing.T) {
	t.Parallel()
	by := compiled(t, "warnings_deletion.yaml")
	const again, kept = "ScalingPolicy fleet has created this scaler, and creates it again", "Running pods of Deployment web keep their sizes until they are replaced"
	scaler := func(mode, owner string, isDecided bool) *unstructured.Unstructured {
		s := writing(t, "verticalscalers", `[]`).(*unstructured.Unstructured)
		if mode != "" {
			must.Succeed(t, unstructured.SetNestedField(s.Object, mode, "spec", "updatePolicy", "updateMode"))
		}
		if isDecided {
			must.Succeed(t, unstructured.SetNestedField(s.Object, "ScaleUp", "status", "decision", "reason"))
		}
		if owner != "" {
			s.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "autoscaling.verticalscaler.io/v1beta1", Kind: owner, Name: "fleet", Controller: ptr.To(true)}})
		}
		return s
	}
	detached := scaler("", "ScalingPolicy", true)
	detached.SetAnnotations(map[string]string{"autoscaling.verticalscaler.io/detached": "true"})
	const collector, namespaces, mine = "system:serviceaccount:kube-system:generic-garbage-collector", "system:serviceaccount:kube-system:namespace-controller", "someone"
	for name, c := range map[string]struct {
		user, want string
		before     *unstructured.Unstructured
	}{
		"of a policy":                          {mine, again, scaler("", "ScalingPolicy", true)},
		"of a policy, in the mode Recommend":   {mine, again, scaler("Recommend", "ScalingPolicy", false)},
		"of a policy, detached":                {mine, "", detached},
		"of a policy that is being collected":  {collector, "", scaler("", "ScalingPolicy", true)},
		"of a ScaledDeployment":                {mine, "", scaler("", "ScaledDeployment", true)},
		"of a user":                            {mine, kept, scaler("", "", true)},
		"in the mode Initial":                  {mine, kept, scaler("Initial", "", true)},
		"in the mode Rollout":                  {mine, "", scaler("Rollout", "", true)},
		"in the mode Recommend":                {mine, "", scaler("Recommend", "", true)},
		"without a decision":                   {mine, "", scaler("", "", false)},
		"in a namespace that is being deleted": {namespaces, "", scaler("", "", true)},
		"by the operator":                      {operator, "", scaler("", "", true)},
		"of all, before each":                  {mine, "", nil},
	} {
		r := request{user: c.user, resource: "verticalscalers", isDeletion: true}
		if c.before != nil {
			r.before = c.before
		}
		if got := strings.Join(warned(t, []*policy{by}, r), "; "); !strings.HasPrefix(got, c.want) || (c.want == "") != (got == "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The largest specs that the API server accepts are evaluated within its budget.
func TestTheLargestSpecsAreWarnedAbout(t *testing.T) {
	t.Parallel()
	var policies []string
	for i := range 32 { // the most that the CRD allows
		name := fmt.Sprintf("container-with-a-name-of-sixty-three-characters-%015d", i)
		policies = append(policies, fmt.Sprintf(`{containerName: %s, controlledValues: RequestsOnly, minAllowed: {cpu: 100, memory: 2048},
			maxAllowed: {cpu: 1k, memory: 4096}, limits: {minAllowed: {cpu: 100, memory: 2048}, maxAllowed: {cpu: 1k, memory: 4096}}}`, name))
	}
	all := "[" + strings.Join(policies, ",") + "]"
	for kind, by := range warning(t) {
		for i, p := range by {
			looks, refuses, messages := p.answers(t, request{user: "someone", resource: kind, after: writing(t, kind, all), params: deploymentNamed("web")})
			if !looks || len(refuses) == 0 {
				t.Errorf("policy %d looks at %s: %t, and warns %d times", i, kind, looks, len(refuses))
			}
			if i := slices.IndexFunc(messages, func(s string) bool { return strings.Contains(s, "budget") || strings.Contains(s, "exceed") }); i >= 0 {
				t.Error(messages[i])
			}
		}
	}
}

// Values that are deprecated are warned about where they are written, also in the template of a policy.
func TestWarningsAboutDeprecatedValues(t *testing.T) {
	t.Parallel()
	p := compiled(t, "warnings.yaml")
	for kind, at := range map[string]string{"verticalscalers": "", "scaleddeployments": "scaling", "scalingpolicies": "template", "clusterscalingpolicies": "template"} {
		for _, tc := range []struct{ in, field, value, want string }{
			{"recommendationPolicy", "profile", "", ""},
			{"recommendationPolicy", "profile", "Balanced", ""},
			{"recommendationPolicy", "profile", "Safe", ""},
			{"recommendationPolicy", "profile", "Calm", "The profile Calm is deprecated and means Balanced"},
			{"updatePolicy", "fallback", "Recreate", ""},
			{"updatePolicy", "fallback", "RecreateUnderPressure", "The fallback RecreateUnderPressure is deprecated and means Recreate"},
		} {
			spec := map[string]any{}
			if tc.value != "" {
				spec[tc.in] = map[string]any{tc.field: tc.value}
			}
			switch at {
			case "":
				spec["deploymentName"] = "web"
			case "scaling":
				spec = map[string]any{at: spec, "template": map[string]any{"spec": podOfWeb(t)}}
			default:
				spec = map[string]any{at: spec, "deploymentSelector": map[string]any{"matchLabels": map[string]any{"a": "b"}}}
			}
			after := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "autoscaling.verticalscaler.io/v1beta1", "metadata": map[string]any{"namespace": "shop", "name": "web"}, "spec": spec,
			}}
			got := warned(t, []*policy{p}, request{resource: kind, after: after})
			if (len(got) > 0) != (tc.want != "") || tc.want != "" && !strings.Contains(got[0], tc.want) {
				t.Errorf("%s with the %s %q: %q", kind, tc.field, tc.value, got)
			}
		}
	}
}

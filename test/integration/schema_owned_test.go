// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// The same for ScaledDeployments. A template's own schema is that of Kubernetes' Go
// types; what it does not say is the API server's to refuse, once there is a Deployment.

const aTemplate = `{spec: {containers: [{name: app, image: "example.com/app:1"}]}}`

func ownerWith(t *testing.T, namespace, spec string) *unstructured.Unstructured {
	t.Helper()
	return objectWith(t, "ScaledDeployment", namespace, spec)
}

// judge creates the owner, in a dry run, and compares the server's verdict.
func judge(t *testing.T, owner *unstructured.Unstructured, want refusal) {
	t.Helper()
	err := env.Client.Create(t.Context(), owner, client.DryRunAll)
	if want == (refusal{}) {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	refusedWith(t, err, want)
}

func TestScaledDeploymentSpec(t *testing.T) {
	with := func(fields string) string { return `{template: ` + aTemplate + `, ` + fields + `}` }
	template := func(containers string) string { return `{template: {spec: {containers: ` + containers + `}}}` }
	const (
		mustBeName  = "must be a valid name of a Deployment: use lowercase letters, digits, '-' and '.', and start and end with a letter or digit"
		atLeastOne  = "must have at least one container"
		noContainer = "spec.template.spec"
	)
	cases := map[string]struct {
		spec string
		want refusal
	}{
		"a template is enough":               {spec: `{template: ` + aTemplate + `}`},
		"no spec is refused":                 {spec: `null`, want: refusal{"spec", "Required value"}},
		"no template is refused":             {spec: `{}`, want: refusal{"spec.template", "Required value"}},
		"a null template is refused":         {spec: `{template: null}`, want: refusal{"spec.template", "Required value"}},
		"an empty template is refused":       {spec: `{template: {}}`, want: refusal{noContainer, atLeastOne}},
		"a template without a spec":          {spec: `{template: {metadata: {labels: {a: b}}}}`, want: refusal{noContainer, atLeastOne}},
		"no containers are refused":          {spec: `{template: {spec: {}}}`, want: refusal{"spec.template.spec.containers", "Required value"}},
		"empty containers are refused":       {spec: template(`[]`), want: refusal{noContainer, atLeastOne}},
		"null containers are refused":        {spec: template(`null`), want: refusal{"spec.template.spec.containers", "Required value"}},
		"init containers alone are refused":  {spec: `{template: {spec: {initContainers: [{name: app}], containers: []}}}`, want: refusal{noContainer, atLeastOne}},
		"a container without a name":         {spec: template(`[{image: x}]`), want: refusal{"spec.template.spec.containers[0].name", "Required value"}},
		"a container twice is refused":       {spec: template(`[{name: a}, {name: a}]`), want: refusal{"spec.template.spec.containers[1]", `Duplicate value: {"name":"a"}`}},
		"a variable twice is refused":        {spec: template(`[{name: a, env: [{name: X}, {name: X}]}]`), want: refusal{"spec.template.spec.containers[0].env[1]", `Duplicate value: {"name":"X"}`}},
		"a port twice is refused":            {spec: template(`[{name: a, ports: [{containerPort: 80}, {containerPort: 80}]}]`), want: refusal{"spec.template.spec.containers[0].ports[1]", "Duplicate value"}},
		"a word as a port is refused":        {spec: template(`[{name: a, ports: [{containerPort: http}]}]`), want: refusal{"spec.template.spec.containers[0].ports[0].containerPort", "must be of type integer"}},
		"a quantity that is none is refused": {spec: template(`[{name: a, resources: {requests: {cpu: lots}}}]`), want: refusal{"spec.template.spec.containers[0].resources.requests.cpu", "should match"}},

		"replicas 0 are accepted":         {spec: with(`replicas: 0`)},
		"many replicas are accepted":      {spec: with(`replicas: 1000`)},
		"negative replicas are refused":   {spec: with(`replicas: -1`), want: refusal{"spec.replicas", "should be greater than or equal to 0"}},
		"a word as replicas is refused":   {spec: with(`replicas: "3"`), want: refusal{"spec.replicas", `must be of type integer: "string"`}},
		"half a replica is refused":       {spec: with(`replicas: 0.5`), want: refusal{"spec.replicas", "must be of type int32"}},
		"too many replicas for an int32":  {spec: with(`replicas: 3000000000`), want: refusal{".spec.replicas", "should be less than or equal to 2147483647"}},
		"a deploymentName is accepted":    {spec: with(`deploymentName: web.v2-b`)},
		"an empty deploymentName":         {spec: with(`deploymentName: ""`), want: refusal{"spec.deploymentName", "should be at least 1 chars long"}},
		"an upper case deploymentName":    {spec: with(`deploymentName: Web`), want: refusal{"spec.deploymentName", mustBeName}},
		"a deploymentName is no path":     {spec: with(`deploymentName: a/b`), want: refusal{"spec.deploymentName", mustBeName}},
		"a deploymentName with a line":    {spec: with(`deploymentName: "a\nb"`), want: refusal{"spec.deploymentName", mustBeName}},
		"a deploymentName ends with none": {spec: with(`deploymentName: web-`), want: refusal{"spec.deploymentName", mustBeName}},
		"a deploymentName of 253":         {spec: with(`deploymentName: ` + strings.Repeat("a", 253))},
		"a deploymentName of 254":         {spec: with(`deploymentName: ` + strings.Repeat("a", 254)), want: refusal{"spec.deploymentName", "may not be more than 253"}},
		"a number as deploymentName":      {spec: with(`deploymentName: 3`), want: refusal{"spec.deploymentName", "must be of type string"}},

		"a selector is accepted":             {spec: with(`selector: {matchLabels: {a: b}}`)},
		"a selector of expressions":          {spec: with(`selector: {matchExpressions: [{key: a, operator: In, values: [b]}]}`)},
		"a selector without a key":           {spec: with(`selector: {matchExpressions: [{operator: Exists}]}`), want: refusal{"spec.selector.matchExpressions[0].key", "Required value"}},
		"scaling without anything":           {spec: with(`scaling: {}`)},
		"scaling has modes":                  {spec: with(`scaling: {updatePolicy: {updateMode: Rollout}}`)},
		"an unknown mode is refused":         {spec: with(`scaling: {updatePolicy: {updateMode: Recreate}}`), want: refusal{"spec.scaling.updatePolicy.updateMode", `supported values: "Recommend", "Initial", "InPlace", "Rollout"`}},
		"a cooldown below 0 is refused":      {spec: with(`scaling: {updatePolicy: {cooldownSeconds: -1}}`), want: refusal{"spec.scaling.updatePolicy.cooldownSeconds", "should be greater than or equal to 0"}},
		"a margin above 500 is refused":      {spec: with(`scaling: {recommendationPolicy: {safetyMarginPercent: 501}}`), want: refusal{"spec.scaling.recommendationPolicy.safetyMarginPercent", "should be less than or equal to 500"}},
		"bounds are accepted":                {spec: with(`scaling: {resourcePolicy: {containerPolicies: [{containerName: app, minAllowed: {cpu: 100m}, maxAllowed: {cpu: 2}}]}}`)},
		"bounds the wrong way round":         {spec: with(`scaling: {resourcePolicy: {containerPolicies: [{containerName: app, minAllowed: {cpu: 2}, maxAllowed: {cpu: 100m}}]}}`), want: refusal{"spec.scaling.resourcePolicy.containerPolicies[0].minAllowed", "minAllowed.cpu must be at most maxAllowed.cpu"}},
		"a bound that is no quantity":        {spec: with(`scaling: {resourcePolicy: {containerPolicies: [{containerName: app, minAllowed: {cpu: lots}}]}}`), want: refusal{"spec.scaling.resourcePolicy.containerPolicies[0].minAllowed.cpu", mustBeCPU}},
		"a bound of memory in thousandths":   {spec: with(`scaling: {resourcePolicy: {containerPolicies: [{containerName: app, maxAllowed: {memory: 512m}}]}}`), want: refusal{"spec.scaling.resourcePolicy.containerPolicies[0].maxAllowed.memory", mustBeMemory}},
		"two policies for one container":     {spec: with(`scaling: {resourcePolicy: {containerPolicies: [{containerName: a}, {containerName: a}]}}`), want: refusal{"spec.scaling.resourcePolicy.containerPolicies[1]", `Duplicate value: {"containerName":"a"}`}},
		"a policy for a container's pattern": {spec: with(`scaling: {resourcePolicy: {containerPolicies: [{containerName: "app-*"}]}}`), want: refusal{"spec.scaling.resourcePolicy.containerPolicies[0].containerName", mustBeContainer}},
	}
	namespace := env.Namespace(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { judge(t, ownerWith(t, namespace, tc.spec), tc.want) })
	}
}

func TestScaledDeploymentName(t *testing.T) {
	namespace := env.Namespace(t)
	for name, tc := range map[string]struct {
		name string
		want refusal
	}{
		"a usual name":                       {name: "checkout-v2"},
		"a name of 63 characters":            {name: strings.Repeat("a", 63)},
		"a name of 64 characters is refused": {name: strings.Repeat("a", 64), want: refusal{"<nil>", "metadata.name must have at most 63 characters: it is used as a label value"}},
		"an upper case name is refused":      {name: "Checkout", want: refusal{"metadata.name", "a lowercase RFC 1123 subdomain must consist of"}},
	} {
		t.Run(name, func(t *testing.T) {
			owner := ownerWith(t, namespace, `{template: `+aTemplate+`}`)
			owner.SetName(tc.name)
			judge(t, owner, tc.want)
		})
	}
}

// A Deployment's selector never changes, so nor does its owner's.
func TestTheSelectorStays(t *testing.T) {
	const (
		changed  = "must not be changed: the selector of a Deployment is immutable"
		not      = "must not be added or removed: the selector of a Deployment is immutable"
		selector = `{matchLabels: {a: b}}`
	)
	cases := map[string]struct {
		before, after string
		want          refusal
	}{
		"the same":        {selector, selector, refusal{}},
		"none at all":     {`null`, `null`, refusal{}},
		"another":         {selector, `{matchLabels: {a: c}}`, refusal{"spec.selector", changed}},
		"one label more":  {selector, `{matchLabels: {a: b, c: d}}`, refusal{"spec.selector", changed}},
		"none any more":   {selector, `null`, refusal{"spec.selector", not}},
		"one, after none": {`null`, selector, refusal{"spec.selector", not}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			owner := ownerWith(t, env.Namespace(t), `{template: `+aTemplate+`, selector: `+tc.before+`}`)
			if err := env.Client.Create(t.Context(), owner); err != nil {
				t.Fatal(err)
			}
			setField(t, owner, fromYAML(t, `{template: `+aTemplate+`, replicas: 5, deploymentName: other, selector: `+tc.after+`}`), "spec")
			err := env.Client.Update(t.Context(), owner, client.DryRunAll)
			if tc.want != (refusal{}) {
				refusedWith(t, err, tc.want)
			} else if err != nil {
				t.Errorf("refused: %v", err)
			}
		})
	}
}

func TestScaledDeploymentDefaults(t *testing.T) {
	namespace := env.Namespace(t)
	for name, tc := range map[string]struct{ spec, want string }{
		"one pod, and no scaling": {
			spec: `{template: ` + aTemplate + `}`,
			want: `{replicas: 1, template: ` + aTemplate + `}`,
		},
		"0 is a value, not a gap": {
			spec: `{replicas: 0, template: ` + aTemplate + `}`,
			want: `{replicas: 0, template: ` + aTemplate + `}`,
		},
		"null stands for the default": {
			spec: `{replicas: null, template: ` + aTemplate + `}`,
			want: `{replicas: 1, template: ` + aTemplate + `}`,
		},
		"scaling is filled in as a scaler's spec is": {
			spec: `{template: ` + aTemplate + `, scaling: {resourcePolicy: {containerPolicies: [{containerName: "*"}]}, recommendationPolicy: {}}}`,
			want: `{replicas: 1, template: ` + aTemplate + `, scaling: {updatePolicy: {updateMode: InPlace, fallback: Wait, newPods: Sized, cooldownSeconds: 300, tolerancePercent: 10, verificationSeconds: 120, minReplicas: 2}, recommendationPolicy: {profile: Balanced, safetyMarginPercent: 0},
				resourcePolicy: {containerPolicies: [{containerName: "*", mode: Auto, controlledValues: RequestsAndLimits}]}}}`,
		},
		"labels and annotations of the pods are kept": {
			spec: `{template: {metadata: {labels: {a: b}, annotations: {c: d}}, spec: {containers: [{name: app}]}}}`,
			want: `{replicas: 1, template: {metadata: {labels: {a: b}, annotations: {c: d}}, spec: {containers: [{name: app}]}}}`,
		},
		"a port has a protocol": {
			spec: `{template: {spec: {containers: [{name: app, ports: [{containerPort: 80}]}]}}}`,
			want: `{replicas: 1, template: {spec: {containers: [{name: app, ports: [{containerPort: 80, protocol: TCP}]}]}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			created := ownerWith(t, namespace, tc.spec)
			if err := env.Client.Create(t.Context(), created, client.DryRunAll); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(fromYAML(t, tc.want), created.Object["spec"]); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]any{"observedGeneration": int64(-1), "replicas": int64(0)}, withReplicas(created.Object["status"])); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

// withReplicas is a status as a client reads it, to whom no replicas are 0.
func withReplicas(status any) any {
	m, _ := status.(map[string]any)
	m = maps.Clone(m)
	if _, ok := m["replicas"]; !ok && m != nil {
		m["replicas"] = int64(0)
	}
	return m
}

// To decode 1e-99999999, a Go client works for twenty minutes. If such a template were stored, no
// operator could list ScaledDeployments again.
func TestAHugeExponentInATemplateIsRejected(t *testing.T) {
	namespace := env.Namespace(t)
	for name, tc := range map[string]struct{ spec, field string }{
		"a request":                   {`{containers: [{name: app, image: x, resources: {requests: {cpu: "%s"}}}]}`, ".containers[0].resources.requests.cpu"},
		"a limit of a sidecar":        {`{containers: [{name: app, image: x}], initContainers: [{name: proxy, image: x, resources: {limits: {memory: "%s"}}}]}`, ".initContainers[0].resources.limits.memory"},
		"resources of a pod":          {`{containers: [{name: app, image: x}], resources: {requests: {cpu: "%s"}}}`, ".resources.requests.cpu"},
		"the size of a volume":        {`{containers: [{name: app, image: x}], volumes: [{name: tmp, emptyDir: {sizeLimit: "%s"}}]}`, ".volumes[0].emptyDir.sizeLimit"},
		"the overhead":                {`{containers: [{name: app, image: x}], overhead: {cpu: "%s"}}`, ".overhead.cpu"},
		"a divisor":                   {`{containers: [{name: app, image: x, env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: "%s"}}}]}]}`, ".containers[0].env[0].valueFrom.resourceFieldRef.divisor"},
		"resources of a volume claim": {`{containers: [{name: app, image: x}], volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {resources: {requests: {storage: "%s"}}}}}}]}`, ".volumes[0].ephemeral.volumeClaimTemplate.spec.resources.requests.storage"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, absurd := range []string{"1e-99999999", "1E+99999999", "1e100", "1e-" + strings.Repeat("0", 100) + "1", strings.Repeat("9", 100)} {
				judge(t, ownerWith(t, namespace, `{template: {spec: `+fmt.Sprintf(tc.spec, absurd)+`}}`), refusal{"spec.template.spec" + tc.field, ""})
			}
			for _, usual := range []string{"1", "100m", "1.5", "1e3", "1E-03", "2Ei", "3E", "+1.50Gi"} {
				judge(t, ownerWith(t, namespace, `{template: {spec: `+fmt.Sprintf(tc.spec, usual)+`}}`), refusal{})
			}
		})
	}
}

// What the schema does not know is dropped without a word, unless the user asks for one.
func TestUnknownFieldsOfATemplate(t *testing.T) {
	namespace := env.Namespace(t)
	const spec = `{template: {spec: {containers: [{name: app, imagge: x}]}}}`
	strict := ownerWith(t, namespace, spec)
	if err := env.Client.Create(t.Context(), strict, client.DryRunAll, client.FieldValidation("Strict")); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), `unknown field "spec.template.spec.containers[0].imagge"`) {
		t.Errorf("Create() = %v", err)
	}
	lax := ownerWith(t, namespace, spec)
	if err := env.Client.Create(t.Context(), lax, client.DryRunAll, client.FieldValidation("Ignore")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fromYAML(t, `{replicas: 1, template: {spec: {containers: [{name: app}]}}}`), lax.Object["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

func TestTheScaleOfAScaledDeployment(t *testing.T) {
	namespace := env.Namespace(t)
	owner := ownerWith(t, namespace, `{replicas: 3, template: `+aTemplate+`}`)
	if err := env.Client.Create(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	setField(t, owner, fromYAML(t, `{observedGeneration: 1, replicas: 2, selector: "a=b"}`), "status")
	if err := env.Client.Status().Update(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	scale := &unstructured.Unstructured{}
	if err := env.Client.SubResource("scale").Get(t.Context(), owner, scale); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fromYAML(t, `{replicas: 2, selector: "a=b"}`), scale.Object["status"]); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	setField(t, scale, int64(7), "spec", "replicas")
	if err := env.Client.SubResource("scale").Update(t.Context(), owner, client.WithSubResourceBody(scale)); err != nil {
		t.Fatal(err)
	}
	var now v1beta1.ScaledDeployment
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(owner), &now); err != nil {
		t.Fatal(err)
	}
	if *now.Spec.Replicas != 7 || now.Generation != 2 {
		t.Errorf("%d replicas, generation %d", *now.Spec.Replicas, now.Generation)
	}
	setField(t, scale, int64(-1), "spec", "replicas")
	if err := env.Client.SubResource("scale").Update(t.Context(), owner, client.WithSubResourceBody(scale)); !apierrors.IsInvalid(err) {
		t.Errorf("-1 replicas: %v", err)
	}
}

// kubectl explain shows our fields, and names of all of Kubernetes' below the template.
func TestAScaledDeploymentExplainsItself(t *testing.T) {
	seen := map[string]bool{}
	explain(openAPI(t, "ScaledDeployment"), "", func(path, name, description string) {
		seen[path] = true
		isKubernetes := strings.HasPrefix(path, "spec.template.") || strings.HasPrefix(path, "spec.selector.") || strings.HasPrefix(path, "status.conditions[].")
		if isKubernetes {
			return
		}
		if !strings.HasPrefix(description, name+" ") || !strings.HasSuffix(description, ".") {
			t.Errorf("%s is explained by %q", path, description)
		}
	})
	for _, path := range []string{
		"spec", "spec.replicas", "spec.selector", "spec.template", "spec.template.spec.containers[].livenessProbe.httpGet.port", "spec.template.metadata.labels",
		"spec.deploymentName", "spec.scaling.updatePolicy.updateMode", "status.replicas", "status.selector", "status.conditions",
	} {
		if !seen[path] {
			t.Errorf("%s is not there; there are %d fields, such as %v", path, len(seen), slices.Sorted(maps.Keys(seen))[:5])
		}
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
		"a template is enough":              {spec: `{template: ` + aTemplate + `}`},
		"no spec is refused":                {spec: `null`, want: refusal{"spec", "Required value"}},
		"no template is refused":            {spec: `{}`, want: refusal{"spec.template", "Required value"}},
		"a null template is refused":        {spec: `{template: null}`, want: refusal{"spec.template", "Required value"}},
		"an empty template is refused":      {spec: `{template: {}}`, want: refusal{noContainer, atLeastOne}},
		"a template without a spec":         {spec: `{template: {metadata: {labels: {a: b}}}}`, want: refusal{noContainer, atLeastOne}},
		"no containers are refused":         {spec: `{template: {spec: {}}}`, want: refusal{"spec.template.spec.containers", "Required value"}},
		"empty containers are refused":      {spec: template(`[]`), want: refusal{noContainer, atLeastOne}},
		"null containers are refused":       {spec: template(`null`), want: refusal{"spec.template.spec.containers", "Required value"}},
		"init containers alone are refused": {spec: `{template: {spec: {initContainers: [{name: app}], containers: []}}}`, want: refusal{noContainer, atLeastOne}},
		"a container twice is refused":      {spec: template(`[{name: a}, {name: a}]`), want: refusal{"spec.template.spec.containers[1]", `Duplicate value: {"name":"a"}`}},

		"replicas 0 are accepted":         {spec: with(`replicas: 0`)},
		"negative replicas are refused":   {spec: with(`replicas: -1`), want: refusal{"spec.replicas", "should be greater than or equal to 0"}},
		"too many replicas for an int32":  {spec: with(`replicas: 3000000000`), want: refusal{".spec.replicas", "should be less than or equal to 2147483647"}},
		"a deploymentName is accepted":    {spec: with(`deploymentName: web.v2-b`)},
		"an empty deploymentName":         {spec: with(`deploymentName: ""`), want: refusal{"spec.deploymentName", "should be at least 1 chars long"}},
		"an upper case deploymentName":    {spec: with(`deploymentName: Web`), want: refusal{"spec.deploymentName", mustBeName}},
		"a deploymentName is no path":     {spec: with(`deploymentName: a/b`), want: refusal{"spec.deploymentName", mustBeName}},
		"a deploymentName with a line":    {spec: with(`deploymentName: "a\nb"`), want: refusal{"spec.deploymentName", mustBeName}},
		"a deploymentName ends with none": {spec: with(`deploymentName: web-`), want: refusal{"spec.deploymentName", mustBeName}},
		"a deploymentName of 253":         {spec: with(`deploymentName: ` + strings.Repeat("a", 253))},
		"a deploymentName of 254":         {spec: with(`deploymentName: ` + strings.Repeat("a", 254)), want: refusal{"spec.deploymentName", "may not be more than 253"}},

		"a selector is accepted":     {spec: with(`selector: {matchLabels: {a: b}}`)},
		"a selector of expressions":  {spec: with(`selector: {matchExpressions: [{key: a, operator: In, values: [b]}]}`)},
		"a selector without a key":   {spec: with(`selector: {matchExpressions: [{operator: Exists}]}`), want: refusal{"spec.selector.matchExpressions[0].key", "Required value"}},
		"scaling without anything":   {spec: with(`scaling: {}`)},
		"scaling has modes":          {spec: with(`scaling: {updatePolicy: {updateMode: Rollout}}`)},
		"bounds the wrong way round": {spec: with(`scaling: {resourcePolicy: {containerPolicies: [{containerName: app, minAllowed: {cpu: 2}, maxAllowed: {cpu: 100m}}]}}`), want: refusal{"spec.scaling.resourcePolicy.containerPolicies[0].minAllowed", "minAllowed.cpu must be at most maxAllowed.cpu"}},
	}
	namespace := env.Namespace(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { judge(t, ownerWith(t, namespace, tc.spec), tc.want) })
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

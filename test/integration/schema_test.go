// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// These tests check what the API server accepts, and how it rejects the rest. Objects are
// written in YAML, as users write them, because Go types cannot express half of the values.
// Only the tests that say so store objects: a dry run validates in the same way.
const (
	mustBeDeployment = "must be the name of a Deployment in this namespace: use lowercase letters, digits, '-' and '.', and start and end with a letter or digit"
	mustBeName       = "must be a valid name of a Deployment: use lowercase letters, digits, '-' and '.', and start and end with a letter or digit"
	mustBeContainer  = "must be '*' or the name of a container: use lowercase letters, digits and '-', and start and end with a letter or digit"
	mustBeCPU        = "must be a quantity of CPU from 1m to 10k, such as 250m or 2"
	mustBeMillis     = "must be in whole millicores, such as 250m or 0.25"
	mustBeMemory     = "must be a quantity of memory from 1Ki to 1Pi, such as 512Mi; the suffix m means thousandths, not mega"
	mustBeShort      = "Too long: may not be more than 32 bytes"
	mustBeSchedule   = "must be a cron expression of five fields, such as '0 2 * * SAT': minute, hour, day of month, month, day of week"
	mustBeZone       = "must be the IANA name of a time zone, such as Europe/Berlin or UTC"
	aTemplate        = `{spec: {containers: [{name: app, image: "example.com/app:1"}]}}`
	inPolicy         = "spec.resourcePolicy.containerPolicies[0]"
)

// refusal is the field and the reason of a rejection. The zero value stands for an accepted
// object.
type refusal struct {
	field string
	why   string // a part of the message
}

// inContainer is the spec of a scaler with a policy for the container app.
func inContainer(fields string) string {
	return `{deploymentName: web, resourcePolicy: {containerPolicies: [{containerName: app, ` + fields + `}]}}`
}

func inUpdate(fields string) string { return `{deploymentName: web, updatePolicy: {` + fields + `}}` }

func inWindow(fields string) string { return inUpdate(`windows: [{` + fields + `}]`) }

// Together with the largest objects, the accepted specs have each enumerated value, and both ends of each range.
func TestAcceptedSpecs(t *testing.T) {
	namespace := env.Namespace(t)
	for kind, specs := range map[string][]string{
		"VerticalScaler": {
			`{deploymentName: web}`,
			`{deploymentName: web.v2-b, updatePolicy: {updateMode: Recommend, scaleUp: {}, scaleDown: {controlledResources: [cpu]}}, recommendationPolicy: {profile: Balanced}, resourcePolicy: {containerPolicies: []}}`,
			`{deploymentName: "42", suspend: true, updatePolicy: {updateMode: Initial, fallback: Rollout, minReplicas: 1, cooldownSeconds: 0, tolerancePercent: 0, verificationSeconds: 0,
				scaleUp: {cooldownSeconds: 0, maxStepPercent: 1}}, recommendationPolicy: {profile: Frugal, safetyMarginPercent: 0}}`,
			`{deploymentName: web, updatePolicy: {updateMode: InPlace, fallback: Recreate, minReplicas: 1000}, recommendationPolicy: {profile: Safe}, resourcePolicy: {containerPolicies: [
				{containerName: "*", mode: "Off"}, {containerName: a, controlledValues: RequestsOnly, controlledResources: [memory]},
				{containerName: b, controlledResources: [cpu], startupBoost: {cpu: {type: Factor, factor: 1}}, limits: {headroomPercent: {cpu: 0, memory: 1000}}},
				{containerName: c, startupBoost: {cpu: {type: Factor, factor: 100, durationSeconds: 3600}}, limits: {minAllowed: {cpu: 1000m}, maxAllowed: {cpu: 1}}}]}}`,
			`{deploymentName: web, recommendationPolicy: {profile: Calm, safetyMarginPercent: 500}}`,
			inWindow(`schedule: "0 2 * * *", durationMinutes: 1, directions: [ScaleDown]`),
			inContainer(`minAllowed: {cpu: "9", memory: 1000M}, maxAllowed: {cpu: "10", memory: 1Gi}`), // not compared as words
			inContainer(`minAllowed: {cpu: 2, memory: 1024Mi}, maxAllowed: {cpu: 2000m, memory: 1073741824}`),
			inContainer(`minAllowed: {cpu: 2}, maxAllowed: {memory: 1Gi}`),
		},
		"ScaledDeployment": {
			`{template: ` + aTemplate + `}`,
			`{template: ` + aTemplate + `, replicas: 0, deploymentName: web.v2-b, selector: {matchLabels: {a: b}}, scaling: {}}`,
			`{template: ` + aTemplate + `, deploymentName: ` + strings.Repeat("a", 253) + `, selector: {matchExpressions: [{key: a, operator: In, values: [b]}]}, scaling: {updatePolicy: {updateMode: Rollout}}}`,
		},
		"VerticalScalerCheckpoint": {`{deploymentName: web, saveTime: "2026-03-01T12:00:00Z", containers: []}`},
		"ScalingPolicy":            {`{}`},
		"ClusterScalingPolicy":     {`{namespaceSelector: {matchLabels: {env: live}}}`},
	} {
		for _, spec := range specs {
			t.Run(kind+" "+spec, func(t *testing.T) { verdictOn(t, objectWith(t, kind, namespace, spec), refusal{}) })
		}
	}
}

// Each rule refuses an object, with a message that says what to write instead.
func TestRefusedSpecs(t *testing.T) {
	with := func(fields string) string { return `{template: ` + aTemplate + `, ` + fields + `}` }
	checkpoint := func(fields string) string {
		return `{deploymentName: web, saveTime: "2026-03-01T12:00:00Z", containers: [{` + fields + `}]}`
	}
	long := strings.Repeat("a", 254)
	const (
		emptyNamespaces  = "must not be empty: select namespaces by their labels, or all of them with {matchExpressions: [{key: kubernetes.io/metadata.name, operator: Exists}]}"
		emptyDeployments = "must not be empty: select Deployments by their labels, or leave deploymentSelector out to select all"
		update           = "spec.updatePolicy."
		limits           = inPolicy + ".limits"
		boost            = inPolicy + ".startupBoost"
		managed          = "must be unset unless cpu is managed: set mode to Auto and add cpu to controlledResources"
	)
	namespace := env.Namespace(t)
	for kind, cases := range map[string][]struct{ spec, field, why string }{
		"VerticalScaler": {
			{`null`, "spec", "Required value"},
			{`{}`, "spec.deploymentName", "Required value"},
			{`{deploymentName: ""}`, "spec.deploymentName", mustBeDeployment},
			{`{deploymentName: Web}`, "spec.deploymentName", mustBeDeployment},
			{`{deploymentName: ns/name}`, "spec.deploymentName", mustBeDeployment},
			{`{deploymentName: web-}`, "spec.deploymentName", mustBeDeployment},
			{`{deploymentName: "web\nb"}`, "spec.deploymentName", mustBeDeployment},
			{`{deploymentName: ` + long + `}`, "spec.deploymentName", "may not be more than 253"},
			{inUpdate(`updateMode: "Off"`), update + "updateMode", `Unsupported value: "Off": supported values: "Recommend", "Initial", "InPlace", "Rollout"`},
			{inUpdate(`fallback: Evict`), update + "fallback", `Unsupported value: "Evict": supported values: "Wait", "RecreateUnderPressure", "Recreate", "Rollout"`},
			{inUpdate(`minReplicas: 0`), update + "minReplicas", "should be greater than or equal to 1"},
			{inUpdate(`minReplicas: 1001`), update + "minReplicas", "should be less than or equal to 1000"},
			{inUpdate(`cooldownSeconds: -1`), update + "cooldownSeconds", "should be greater than or equal to 0"},
			{inUpdate(`cooldownSeconds: 86401`), update + "cooldownSeconds", "should be less than or equal to 86400"},
			{inUpdate(`cooldownSeconds: 5m`), update + "cooldownSeconds", `must be of type integer: "string"`},
			{inUpdate(`verificationSeconds: -1`), update + "verificationSeconds", "should be greater than or equal to 0"},
			{inUpdate(`verificationSeconds: 3601`), update + "verificationSeconds", "should be less than or equal to 3600"},
			{inUpdate(`tolerancePercent: -1`), update + "tolerancePercent", "should be greater than or equal to 0"},
			{inUpdate(`tolerancePercent: 51`), update + "tolerancePercent", "should be less than or equal to 50"},
			{inUpdate(`scaleUp: {cooldownSeconds: -1}`), update + "scaleUp.cooldownSeconds", "should be greater than or equal to 0"},
			{inUpdate(`scaleDown: {cooldownSeconds: 86401}`), update + "scaleDown.cooldownSeconds", "should be less than or equal to 86400"},
			{inUpdate(`scaleUp: {maxStepPercent: 0}`), update + "scaleUp.maxStepPercent", "should be greater than or equal to 1"},
			{inUpdate(`scaleUp: {maxStepPercent: 1001}`), update + "scaleUp.maxStepPercent", "should be less than or equal to 1000"},
			{inUpdate(`scaleDown: {maxStepPercent: 100}`), update + "scaleDown.maxStepPercent", "must be below 100 in scaleDown: a request cannot be lowered by 100 percent"},
			{inUpdate(`scaleDown: {controlledResources: []}`), update + "scaleDown.controlledResources", "should have at least 1 items"},
			{inUpdate(`scaleUp: {controlledResources: [cpu]}`), update + "scaleUp.controlledResources", "must be unset in scaleUp: a request that stays too small ends in OOM kills or throttling"},
			{inWindow(`durationMinutes: 60`), update + "windows[0].schedule", "Required value"},
			{inWindow(`schedule: "0 2 * * *"`), update + "windows[0].durationMinutes", "Required value"},
			{inWindow(`schedule: "0 2 * * *", durationMinutes: 10081`), update + "windows[0].durationMinutes", "should be less than or equal to 10080"},
			{inWindow(`schedule: "0 2 * * *", durationMinutes: -1`), update + "windows[0].durationMinutes", "should be greater than or equal to 1"},
			{inWindow(`schedule: "0 2 * * *", durationMinutes: 60, directions: [Sideways]`), update + "windows[0].directions[0]", `supported values: "ScaleUp", "ScaleDown"`},
			{inWindow(`schedule: "0 2 * * *", durationMinutes: 60, directions: []`), update + "windows[0].directions", "should have at least 1 items"},
			{inUpdate(`windows: [` + strings.Repeat(`{schedule: "0 2 * * *", durationMinutes: 60},`, 17) + `]`), update + "windows", "must have at most 16 items"},
			{`{deploymentName: web, recommendationPolicy: {profile: Bold}}`, "spec.recommendationPolicy.profile", `supported values: "Balanced", "Frugal", "Safe", "Calm"`},
			{`{deploymentName: web, recommendationPolicy: {safetyMarginPercent: -1}}`, "spec.recommendationPolicy.safetyMarginPercent", "should be greater than or equal to 0"},
			{`{deploymentName: web, recommendationPolicy: {safetyMarginPercent: 501}}`, "spec.recommendationPolicy.safetyMarginPercent", "should be less than or equal to 500"},
			{`{deploymentName: web, resourcePolicy: {containerPolicies: [{mode: Auto}]}}`, inPolicy + ".containerName", "Required value"},
			{`{deploymentName: web, resourcePolicy: {containerPolicies: [{containerName: ""}]}}`, inPolicy + ".containerName", mustBeContainer},
			{`{deploymentName: web, resourcePolicy: {containerPolicies: [{containerName: "app-*"}]}}`, inPolicy + ".containerName", mustBeContainer},
			{`{deploymentName: web, resourcePolicy: {containerPolicies: [{containerName: a.b}]}}`, inPolicy + ".containerName", mustBeContainer},
			{`{deploymentName: web, resourcePolicy: {containerPolicies: [{containerName: ` + long[:64] + `}]}}`, inPolicy + ".containerName", "may not be more than 63"},
			{`{deploymentName: web, resourcePolicy: {containerPolicies: [{containerName: a}, {containerName: b}, {containerName: a}]}}`, "spec.resourcePolicy.containerPolicies[2]", `Duplicate value: {"containerName":"a"}`},
			{inContainer(`mode: Off`), inPolicy + ".mode", `Unsupported value: false: supported values: "Auto", "Off"`},
			{inContainer(`controlledValues: LimitsOnly`), inPolicy + ".controlledValues", `supported values: "RequestsAndLimitRaises", "RequestsAndLimits", "RequestsOnly"`},
			{inContainer(`controlledResources: []`), inPolicy + ".controlledResources", "should have at least 1 items"},
			{inContainer(`controlledResources: [cpu, cpu]`), inPolicy + ".controlledResources[1]", `Duplicate value: "cpu"`},
			{inContainer(`controlledResources: [disk]`), inPolicy + ".controlledResources[0]", `Unsupported value: "disk": supported values: "cpu", "memory"`},
			{inContainer(`controlledResources: [cpu, memory, cpu]`), inPolicy + ".controlledResources", "must have at most 2 items"},
			{inContainer(`limits: {headroomPercent: {cpu: -1}}`), limits + ".headroomPercent.cpu", "should be greater than or equal to 0"},
			{inContainer(`limits: {headroomPercent: {memory: 1001}}`), limits + ".headroomPercent.memory", "should be less than or equal to 1000"},
			{inContainer(`limits: {minAllowed: {cpu: 2}, maxAllowed: {cpu: 1}}`), limits + ".minAllowed", "minAllowed.cpu must be at most maxAllowed.cpu"},
			{inContainer(`limits: {minAllowed: {memory: 2Gi}, maxAllowed: {memory: 1Gi}}`), limits + ".minAllowed", "minAllowed.memory must be at most maxAllowed.memory"},
			{inContainer(`limits: {maxAllowed: {cpu: "1e999"}}`), limits + ".maxAllowed.cpu", mustBeCPU},
			{inContainer(`minAllowed: {cpu: 2}, limits: {maxAllowed: {cpu: 1}}`), inPolicy + ".minAllowed", "minAllowed.cpu must be at most limits.maxAllowed.cpu"},
			{inContainer(`minAllowed: {memory: 2Gi}, limits: {maxAllowed: {memory: 1Gi}}`), inPolicy + ".minAllowed", "minAllowed.memory must be at most limits.maxAllowed.memory"},
			{inContainer(`minAllowed: {cpu: "2"}, maxAllowed: {cpu: 1500m}`), inPolicy + ".minAllowed", "minAllowed.cpu must be at most maxAllowed.cpu"},
			{inContainer(`minAllowed: {cpu: 1, memory: 1Gi}, maxAllowed: {cpu: 2, memory: 1073741823}`), inPolicy + ".minAllowed", "minAllowed.memory must be at most maxAllowed.memory"},
			{inContainer(`minAllowed: {cpu: "1e99999999"}, maxAllowed: {cpu: 1}`), inPolicy + ".minAllowed.cpu", mustBeCPU},
			{inContainer(`minAllowed: {memory: 1Gi}, maxAllowed: {memory: "1e99999999"}`), inPolicy + ".maxAllowed.memory", mustBeMemory},
			{inContainer(`controlledValues: RequestsOnly, limits: {headroomPercent: {cpu: 10}}`), limits, "must be unset with controlledValues RequestsOnly, which leaves limits as they are"},
			{inContainer(`startupBoost: {}`), boost + ".cpu", "Required value"},
			{inContainer(`startupBoost: {cpu: {factor: 2}}`), boost + ".cpu.type", "Required value"},
			{inContainer(`startupBoost: {cpu: {type: Percent, factor: 2}}`), boost + ".cpu.type", `supported values: "Factor", "Quantity"`},
			{inContainer(`startupBoost: {cpu: {type: Factor}}`), boost + ".cpu.factor", "must be set if type is Factor, and unset otherwise"},
			{inContainer(`startupBoost: {cpu: {type: Quantity}}`), boost + ".cpu.quantity", "must be set if type is Quantity, and unset otherwise"},
			{inContainer(`startupBoost: {cpu: {type: Factor, factor: 2, quantity: 1}}`), boost + ".cpu.quantity", "must be set if type is Quantity, and unset otherwise"},
			{inContainer(`startupBoost: {cpu: {type: Factor, factor: 0}}`), boost + ".cpu.factor", "should be greater than or equal to 1"},
			{inContainer(`startupBoost: {cpu: {type: Factor, factor: 101}}`), boost + ".cpu.factor", "should be less than or equal to 100"},
			{inContainer(`startupBoost: {cpu: {type: Quantity, quantity: "1e999"}}`), boost + ".cpu.quantity", mustBeCPU},
			{inContainer(`startupBoost: {cpu: {type: Quantity, quantity: 1500u}}`), boost + ".cpu.quantity", mustBeMillis},
			{inContainer(`startupBoost: {cpu: {type: Factor, factor: 2, durationSeconds: -1}}`), boost + ".cpu.durationSeconds", "should be greater than or equal to 0"},
			{inContainer(`startupBoost: {cpu: {type: Factor, factor: 2, durationSeconds: 7200}}`), boost + ".cpu.durationSeconds", "should be less than or equal to 3600"},
			{inContainer(`mode: "Off", startupBoost: {cpu: {type: Factor, factor: 2}}`), boost, managed},
			{inContainer(`controlledResources: [memory], startupBoost: {cpu: {type: Factor, factor: 2}}`), boost, managed},
			{fullSpec(33), "spec.resourcePolicy.containerPolicies", "must have at most 32 items"},
			{fullSpec(3_000), "spec.resourcePolicy.containerPolicies", "must have at most 32 items"},
		},
		// A template's own schema is the schema of Kubernetes' Go types. The API server rejects other errors once there is
		// a Deployment.
		"ScaledDeployment": {
			{`null`, "spec", "Required value"},
			{`{template: null}`, "spec.template", "Required value"},
			{`{template: {}}`, "spec.template.spec", "must have at least one container"},
			{`{template: {spec: {}}}`, "spec.template.spec.containers", "Required value"},
			{`{template: {spec: {initContainers: [{name: app}], containers: []}}}`, "spec.template.spec", "must have at least one container"},
			{`{template: {spec: {containers: [{name: a}, {name: a}]}}}`, "spec.template.spec.containers[1]", `Duplicate value: {"name":"a"}`},
			{with(`replicas: -1`), "spec.replicas", "should be greater than or equal to 0"},
			{with(`replicas: 3000000000`), ".spec.replicas", "should be less than or equal to 2147483647"},
			{with(`deploymentName: ""`), "spec.deploymentName", "should be at least 1 chars long"},
			{with(`deploymentName: Web`), "spec.deploymentName", mustBeName},
			{with(`deploymentName: a/b`), "spec.deploymentName", mustBeName},
			{with(`deploymentName: "a\nb"`), "spec.deploymentName", mustBeName},
			{with(`deploymentName: ` + long), "spec.deploymentName", "may not be more than 253"},
			{with(`selector: {matchExpressions: [{operator: Exists}]}`), "spec.selector.matchExpressions[0].key", "Required value"},
			{with(`scaling: {resourcePolicy: {containerPolicies: [{containerName: app, minAllowed: {cpu: 2}, maxAllowed: {cpu: 100m}}]}}`), "spec.scaling.resourcePolicy.containerPolicies[0].minAllowed", "minAllowed.cpu must be at most maxAllowed.cpu"},
		},
		"VerticalScalerCheckpoint": {
			{`null`, "spec", "Required value"},
			{`{saveTime: "2026-03-01T12:00:00Z"}`, "spec.deploymentName", "Required value"},
			{`{deploymentName: "", saveTime: "2026-03-01T12:00:00Z"}`, "spec.deploymentName", "should be at least 1 chars long"},
			{`{deploymentName: ` + long + `, saveTime: "2026-03-01T12:00:00Z"}`, "spec.deploymentName", "may not be more than 253"},
			{`{deploymentName: web}`, "spec.saveTime", "Required value"},
			{`{deploymentName: web, saveTime: noon}`, "spec.saveTime", "must be of type date-time"},
			{checkpoint(`containerName: a, version: 1, data: AQ==}, {containerName: a, version: 1, data: AQ==`), "spec.containers[1]", `Duplicate value: {"containerName":"a"}`},
			{checkpoint(strings.Repeat(`containerName: a, version: 1, data: AQ==}, {`, 64)), "spec.containers", "must have at most 64 items"},
			{checkpoint(`version: 1, data: AQ==`), "spec.containers[0].containerName", "Required value"},
			{checkpoint(`containerName: "", version: 1, data: AQ==`), "spec.containers[0].containerName", "should be at least 1 chars long"},
			{checkpoint(`containerName: ` + long[:64] + `, version: 1, data: AQ==`), "spec.containers[0].containerName", "may not be more than 63"},
			{checkpoint(`containerName: a, data: AQ==`), "spec.containers[0].version", "Required value"},
			{checkpoint(`containerName: a, version: 0, data: AQ==`), "spec.containers[0].version", "should be greater than or equal to 1"},
			{checkpoint(`containerName: a, version: 1`), "spec.containers[0].data", "Required value"},
			{checkpoint(`containerName: a, version: 1, data: ""`), "spec.containers[0].data", "should be at least 1 chars long"},
			{checkpoint(`containerName: a, version: 1, data: "{}"`), "spec.containers[0].data", "must be of type byte"},
			{checkpoint(`containerName: a, version: 1, data: ` + base64.StdEncoding.EncodeToString(make([]byte, 8<<10+2))), "spec.containers[0].data", "may not be more than 10924"},
		},
		"ScalingPolicy": {
			{`null`, "spec", "Required value"},
			{`{deploymentSelector: {}}`, "spec.deploymentSelector", emptyDeployments},
			{`{exclude: {deploymentSelector: {}}}`, "spec.exclude.deploymentSelector", "must not be empty: an empty selector would exclude all Deployments"},
			{`{rollout: {start: Auto}}`, "spec.rollout.start", `Unsupported value: "Auto": supported values: "Recommend", "Initial", "InPlace", "Rollout"`},
			{`{rollout: {maxConcurrentPercent: 0}}`, "spec.rollout.maxConcurrentPercent", "should be greater than or equal to 1"},
			{`{priority: 1001}`, "spec.priority", "should be less than or equal to 1000"},
			{`{exclude: {deployments: [""]}}`, "spec.exclude.deployments[0]", "should be at least 1 chars long"},
			{`{exclude: {deployments: [web, web]}}`, "spec.exclude.deployments[1]", "Duplicate value"},
			// A template has the rules of a scaler.
			{`{template: {updatePolicy: {tolerancePercent: 101}}}`, "spec.template.updatePolicy.tolerancePercent", "should be less than or equal to 50"},
			{`{template: {resourcePolicy: {containerPolicies: [{containerName: app, minAllowed: {cpu: 2}, maxAllowed: {cpu: 1}}]}}}`, "spec.template.resourcePolicy.containerPolicies[0].minAllowed", "minAllowed.cpu must be at most maxAllowed.cpu"},
		},
		"ClusterScalingPolicy": {
			{`{}`, "spec.namespaceSelector", "Required value"},
			{`{namespaceSelector: {matchLabels: {}, matchExpressions: []}}`, "spec.namespaceSelector", emptyNamespaces},
			{`{namespaceSelector: {matchLabels: {a: b}}, deploymentSelector: {matchLabels: {}}}`, "spec.deploymentSelector", emptyDeployments},
			{`{namespaceSelector: {matchLabels: {a: b}}, systemNamespaces: Some}`, "spec.systemNamespaces", `Unsupported value: "Some": supported values: "Exclude", "Include"`},
			{`{namespaceSelector: {matchLabels: {a: b}}, template: {resourcePolicy: {containerPolicies: [{containerName: app, minAllowed: {cpu: 100u}}]}}}`, "spec.template.resourcePolicy.containerPolicies[0].minAllowed.cpu", mustBeMillis},
		},
	} {
		for _, tc := range cases {
			t.Run(kind+" "+tc.spec[:min(len(tc.spec), 100)], func(t *testing.T) {
				refusedWith(t, env.Client.Create(t.Context(), objectWith(t, kind, namespace, tc.spec), client.DryRunAll), refusal{tc.field, tc.why})
			})
		}
	}
}

func TestBoundsAreQuantities(t *testing.T) {
	cases := map[string]struct {
		cpu, memory []string // values as in YAML
		want        string   // a part of the message; empty: accepted
	}{
		"what Kubernetes users write is accepted": {
			cpu:    []string{`250m`, `"2"`, `2`, `"0.25"`, `"1.5"`, `"1e3"`, `5k`, `"5."`, `".5"`, `"+2"`, `"500e-3"`},
			memory: []string{`512Mi`, `536870912`, `"536870912"`, `1.5Gi`, `1.1Gi`, `"1e9"`, `600M`, `"1024.5"`},
		},
		"both ends of what is allowed are accepted": {
			cpu:    []string{`1m`, `"0.001"`, `10k`, `10000`},
			memory: []string{`1Ki`, `1024`, `1Pi`, `1125899906842624`},
		},
		"nothing is no bound, so null is accepted": {
			cpu: []string{`null`}, memory: []string{`null`},
		},
		// To compare quantities, the API server expands their digits. If it did not check the exponent first, one request with
		// 10 characters would keep it busy for minutes.
		"a huge exponent is refused": {
			cpu:  []string{`"1e99999999"`, `"1e-99999999"`, `"1E+99999999"`},
			want: mustBeCPU,
		},
		"a huge exponent of memory is refused": {
			memory: []string{`"1e99999999"`, `"1e-99999999"`, `"1E+99999999"`},
			want:   mustBeMemory,
		},
		"too little CPU is refused": {
			cpu:  []string{`"0"`, `0`, `"-1"`, `-1`, `1n`, `0.5m`, `"0.0001"`, `999999n`, `"1e-30"`},
			want: mustBeCPU,
		},
		"too much CPU is refused": {
			cpu:  []string{`10001`, `10000001m`, `"1e18"`, `1000000000000000000`, `"1e19"`, `"1e999"`, `10Ei`, `1E`, `9223372036854775807`},
			want: mustBeCPU,
		},
		"parts of a millicore are refused": {
			cpu:  []string{`1n`, `187500u`, `0.5m`, `100.5m`, `1.m`, `"0.2505"`, `"15e-4"`, `"1.5e-3"`, `"12345E-4"`, `"5e-30"`},
			want: mustBeMillis,
		},
		"too little memory is refused": {
			memory: []string{`"0"`, `0`, `"-1"`, `-1`, `1n`, `187500u`, `0.5m`, `100.5m`, `1500m`, `512m`, `1023`, `0.5Ki`},
			want:   mustBeMemory,
		},
		"too much memory is refused": {
			memory: []string{`"1e18"`, `1000000000000000000`, `"1e19"`, `"1e999"`, `10Ei`, `1025Ti`, `1125899906842625`, `9223372036854775807`},
			want:   mustBeMemory,
		},
		"CPU that is no quantity is refused": {
			cpu:  []string{`NaN`, `Inf`, `lots`, `""`, `" 2"`, `"2 "`, `2 cores`, `"0x10"`, `"1,5"`, `1e1e1`, `250M m`},
			want: mustBeCPU,
		},
		"memory that is no quantity is refused": {
			memory: []string{`NaN`, `Inf`, `lots`, `""`, `" 1Gi"`, `1GB`, `1 Gi`, `1gi`, `"0x10"`, `1e1e1`},
			want:   mustBeMemory,
		},
		"more digits than anybody needs are refused": {
			cpu:    []string{`"0.10000000000000000000000000000000000000"`},
			memory: []string{`"1073741824.00000000000000000000000000000"`},
			want:   mustBeShort,
		},
		"a decimal number must be a string": {
			cpu: []string{`0.25`}, memory: []string{`1024.5`},
			want: `must be of type integer,string: "number"`,
		},
		"a boolean is refused": {
			cpu: []string{`true`}, memory: []string{`true`},
			want: `must be of type integer,string: "boolean"`,
		},
	}
	namespace := env.Namespace(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for resource, values := range map[string][]string{"cpu": tc.cpu, "memory": tc.memory} {
				for _, value := range values {
					for _, end := range []string{"minAllowed", "maxAllowed"} {
						bound := fmt.Sprintf("%s: {%s: %s}", end, resource, value)
						t.Run(bound, func(t *testing.T) {
							spec := inContainer(bound)
							want := refusal{}
							if tc.want != "" {
								want = refusal{inPolicy + "." + end + "." + resource, tc.want}
							}
							verdictOn(t, scalerWith(t, namespace, spec), want)
						})
					}
				}
			}
		})
	}
}

// The schema checks the format of a schedule. The controller reports other invalid
// schedules with the reason InvalidWindow.
func TestSchedulesAndZones(t *testing.T) {
	namespace := env.Namespace(t)
	check := func(fields, field, why string, ok bool) {
		t.Run(fmt.Sprintf("%s %t", fields, ok), func(t *testing.T) {
			want := refusal{}
			if !ok {
				want = refusal{"spec.updatePolicy.windows[0]." + field, why}
			}
			verdictOn(t, scalerWith(t, namespace, inWindow(`durationMinutes: 60, `+fields)), want)
		})
	}
	for schedule, ok := range map[string]bool{
		"* * * * *": true, "*/5 0-6,22 1,15 JAN-MAR MON-FRI": true, "59 23 31 12 6": true, "0 2 ? * sat": true,
		"00 02 01 01 0": true, "0  2  *  *  *": true, "10-50/10 */2 * * *": true, "60 * * * *": true,
		"* * * * ": false, "0 2 * *": false, "0 0 2 * * *": false, "@daily * * * *": false, "TZ=UTC 0 2 * *": false,
		"0 2 * * * ": false, " 0 2 * * *": false, "0 2 * * *\n": false, "0 2 *\t* *": false, "0 2 * * éé": false,
	} {
		check(fmt.Sprintf(`schedule: %q`, schedule), "schedule", mustBeSchedule, ok)
	}
	for zone, ok := range map[string]bool{
		"UTC": true, "Europe/Berlin": true, "America/Argentina/Buenos_Aires": true, "Etc/GMT+5": true,
		"Mars/Olympus": false, "Local": false, "+02:00": false, "../etc/passwd": false, "": false, "02:00": false, "Europe/Berlin!": false,
	} {
		check(fmt.Sprintf(`schedule: "0 2 * * *", timeZone: %q`, zone), "timeZone", mustBeZone, ok)
	}
}

func TestDefaults(t *testing.T) {
	const updatePolicy = `updatePolicy: {updateMode: InPlace, newPods: Sized, minReplicas: 2, cooldownSeconds: 300, tolerancePercent: 10, verificationSeconds: 120}`
	namespace := env.Namespace(t)
	for kind, cases := range map[string]map[string]string{
		"VerticalScaler": {
			`{deploymentName: web}`: `{deploymentName: web, ` + updatePolicy + `}`,
			// 0 is a value, not a gap.
			`{deploymentName: web, updatePolicy: {cooldownSeconds: 0}, recommendationPolicy: {safetyMarginPercent: 0}}`: `{deploymentName: web, ` + strings.Replace(updatePolicy, "300", "0", 1) + `, recommendationPolicy: {profile: Balanced, safetyMarginPercent: 0}}`,
			inWindow(`schedule: "0 2 * * *", durationMinutes: 60`):                                                      `{deploymentName: web, ` + strings.TrimSuffix(updatePolicy, "}") + `, windows: [{schedule: "0 2 * * *", timeZone: UTC, durationMinutes: 60, directions: [ScaleUp, ScaleDown]}]}}`,
			// Quantities stay as they were written.
			inContainer(`minAllowed: {cpu: 2, memory: 1024Mi}, maxAllowed: {cpu: "2.50"}`): `{deploymentName: web, ` + updatePolicy + `,
				resourcePolicy: {containerPolicies: [{containerName: app, mode: Auto, controlledValues: RequestsAndLimitRaises, minAllowed: {cpu: 2, memory: 1024Mi}, maxAllowed: {cpu: "2.50"}}]}}`,
		},
		"ScaledDeployment": {
			`{replicas: null, template: ` + aTemplate + `}`: `{replicas: 1, template: ` + aTemplate + `}`,
			`{replicas: 0, template: ` + aTemplate + `}`:    `{replicas: 0, template: ` + aTemplate + `}`,
			`{template: ` + aTemplate + `, scaling: {resourcePolicy: {containerPolicies: [{containerName: "*"}]}, recommendationPolicy: {}}}`: `{replicas: 1, template: ` + aTemplate + `, scaling: {` + updatePolicy + `,
				recommendationPolicy: {profile: Balanced, safetyMarginPercent: 0}, resourcePolicy: {containerPolicies: [{containerName: "*", mode: Auto, controlledValues: RequestsAndLimitRaises}]}}}`,
			`{template: {metadata: {labels: {a: b}, annotations: {c: d}}, spec: {containers: [{name: app, ports: [{containerPort: 80}]}]}}}`: `{replicas: 1, template: {metadata: {labels: {a: b}, annotations: {c: d}}, spec: {containers: [{name: app, ports: [{containerPort: 80, protocol: TCP}]}]}}}`,
		},
	} {
		for spec, want := range cases {
			t.Run(kind+" "+spec, func(t *testing.T) {
				created := objectWith(t, kind, namespace, spec)
				must.Succeed(t, env.Client.Create(t.Context(), created, client.DryRunAll))
				assert.Equal(t, "spec", fromYAML(t, want), created.Object["spec"])
				if observed, _, _ := unstructured.NestedInt64(created.Object, "status", "observedGeneration"); observed != -1 {
					t.Errorf("the status is %v", created.Object["status"])
				}
			})
		}
	}
}

// The names of objects of all these kinds are the values of labels.
func TestNamesAreLabelValues(t *testing.T) {
	namespace := env.Namespace(t)
	for kind, spec := range map[string]string{
		"VerticalScaler": `{deploymentName: web}`, "ScaledDeployment": `{template: ` + aTemplate + `}`,
		"ScalingPolicy": `{}`, "ClusterScalingPolicy": `{namespaceSelector: {matchLabels: {env: live}}}`,
	} {
		for name, want := range map[string]refusal{
			"checkout.v2":           {},
			strings.Repeat("a", 63): {},
			strings.Repeat("a", 64): {"<nil>", "metadata.name must have at most 63 characters: it is used as a label value"},
			"Checkout":              {"metadata.name", "a lowercase RFC 1123 subdomain must consist of"},
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				object := objectWith(t, kind, namespace, spec)
				object.SetName(name)
				verdictOn(t, object, want)
			})
		}
	}
}

// fullSpec has n policies in which everything has its maximum length.
func fullSpec(n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{deploymentName: %s, suspend: true, updatePolicy: {updateMode: Rollout, fallback: Wait, minReplicas: 2, cooldownSeconds: 86400, tolerancePercent: 50, verificationSeconds: 3600,
		scaleUp: {cooldownSeconds: 86400, maxStepPercent: 1000}, scaleDown: {cooldownSeconds: 86400, maxStepPercent: 99, controlledResources: [cpu, memory]}, windows: [%s]},
		recommendationPolicy: {safetyMarginPercent: 500}, resourcePolicy: {containerPolicies: [`, strings.Repeat("d", 253),
		strings.Repeat(`{schedule: "`+strings.Repeat("1,", 45)+`1 2 * * *", timeZone: America/Argentina/ComodRivadavia, durationMinutes: 10080},`, 16))
	for i := range n {
		fmt.Fprintf(&b, `{containerName: %s, mode: Auto, controlledResources: [cpu, memory], controlledValues: RequestsAndLimits,
			minAllowed: {cpu: "%[2]s01m", memory: "%[2]s1Mi"}, maxAllowed: {cpu: "%[2]s10k", memory: "%[2]s1Pi"},
			limits: {headroomPercent: {cpu: 1000, memory: 1000}, minAllowed: {cpu: "%[2]s01m", memory: "%[2]s1Mi"}, maxAllowed: {cpu: "%[2]s10k", memory: "%[2]s1Pi"}},
			startupBoost: {cpu: {type: Quantity, quantity: "%[2]s01m", durationSeconds: 3600}}},`,
			fmt.Sprintf("c%062d", i), strings.Repeat("0", 29))
	}
	b.WriteString(`]}}`)
	return b.String()
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
			owner := objectWith(t, "ScaledDeployment", env.Namespace(t), `{template: `+aTemplate+`, selector: `+tc.before+`}`)
			env.Create(t, owner)
			setField(t, owner, fromYAML(t, `{template: `+aTemplate+`, replicas: 5, deploymentName: other, selector: `+tc.after+`}`), "spec")
			if err := env.Client.Update(t.Context(), owner, client.DryRunAll); err != nil || tc.want != (refusal{}) {
				refusedWith(t, err, tc.want)
			}
		})
	}
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
				verdictOn(t, objectWith(t, "ScaledDeployment", namespace, `{template: {spec: `+fmt.Sprintf(tc.spec, absurd)+`}}`), refusal{"spec.template.spec" + tc.field, ""})
			}
			for _, usual := range []string{"1", "100m", "1.5", "1e3", "1E-03", "2Ei", "3E", "+1.50Gi"} {
				verdictOn(t, objectWith(t, "ScaledDeployment", namespace, `{template: {spec: `+fmt.Sprintf(tc.spec, usual)+`}}`), refusal{})
			}
		})
	}
}

func TestScalerStatus(t *testing.T) {
	// list has n items, with their indexes instead of #.
	list := func(n int, item string) string {
		items := make([]string, n)
		for i := range items {
			items[i] = strings.ReplaceAll(item, "#", fmt.Sprint(i))
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	const (
		now         = `time: "2026-03-01T12:00:00Z"`
		condition   = `{type: T#, status: "True", reason: Fine, message: "", lastTransitionTime: "2026-03-01T12:00:00Z"}`
		recommended = "status.recommendation.containerRecommendations"
	)
	recommend := func(fields string) string {
		return `{recommendation: {containerRecommendations: [{containerName: c, ` + fields + `}]}}`
	}
	scaler := scalerWith(t, env.Namespace(t), `{deploymentName: web}`)
	env.Create(t, scaler)
	for _, tc := range []struct{ status, field, why string }{
		// TestTheLargestScalerIsStored has the rest.
		{`{conditions: ` + list(16, condition) + `, summary: {cpu: 500m->310m, memory: 640Mi, pods: 6/6}, target: {uid: u, generation: 1, replicas: 0, updatedReplicas: 0},
			decision: {` + now + `, reason: ScaleUp, reverts: 2, lastRevertTime: "2026-03-01T12:00:00Z", contestedBy: ` + list(8, `helm-# (Update)`) + `},
			revertedChanges: [{containerName: c, resource: cpu, value: 1, lastGood: 2, ` + now + `, message: restarts}],
			newPods: {replicaSetUID: u, containers: [{containerName: c, requests: {cpu: 1}, limits: {cpu: 2}}], ineffectiveOnPod: web-1, failureTime: "2026-03-01T12:00:00Z", failureMessage: denied}}`, "", ""},
		{`{conditions: ` + list(17, condition) + `}`, "status.conditions", "must have at most 16 items"},
		{`{conditions: ` + list(2, strings.Replace(condition, "#", "", 1)) + `}`, "status.conditions[1]", `Duplicate value: {"type":"T"}`},
		{`{conditions: [` + strings.Replace(condition, "Fine", `""`, 1) + `]}`, "status.conditions[0].reason", "should be at least 1 chars long"},
		{`{history: ` + list(11, `{`+now+`, message: Raised}`) + `}`, "status.history", "must have at most 10 items"},
		{`{history: [{` + now + `, message: ` + strings.Repeat("a", 1025) + `}]}`, "status.history[0].message", "may not be more than 1024"},
		{`{history: [{message: Raised}]}`, "status.history[0].time", "Required value"},
		{`{recommendation: {containerRecommendations: ` + list(65, `{containerName: c#}`) + `}}`, recommended, "must have at most 64 items"},
		{`{recommendation: {containerRecommendations: [{target: {cpu: 1}}]}}`, recommended + "[0].containerName", "Required value"},
		{`{recommendation: {containerRecommendations: [{containerName: ` + strings.Repeat("a", 64) + `}]}}`, recommended + "[0].containerName", "may not be more than 63"},
		{recommend(`target: {cpu: "1e999"}`), recommended + "[0].target.cpu", "must have an exponent of at most two digits"},
		{recommend(`reasons: ` + list(17, `{resource: cpu, code: RecentPeak, value: 270m}`)), recommended + "[0].reasons", "must have at most 16 items"},
		{recommend(`reasons: [{resource: disk, code: Peak, value: 1}]`), recommended + "[0].reasons[0].resource", `supported values: "cpu", "memory"`},
		{recommend(`reasons: [{resource: cpu, value: 1}]`), recommended + "[0].reasons[0].code", "Required value"},
		{`{decision: {reason: ScaleUp}}`, "status.decision.time", "Required value"},
		{`{decision: {` + now + `, reason: ScaleUp, containers: ` + list(65, `{containerName: c#, requests: {cpu: 310m}}`) + `}}`, "status.decision.containers", "must have at most 64 items"},
		{`{decision: {` + now + `, reason: ScaleUp, contestedBy: ` + list(9, `helm-#`) + `}}`, "status.decision.contestedBy", "must have at most 8 items"},
		{`{decision: {` + now + `, reason: ScaleUp, contestedBy: [` + strings.Repeat("a", 257) + `]}}`, "status.decision.contestedBy[0]", "may not be more than 256"},
		{`{originalResources: {deploymentName: web, uid: u, containers: ` + list(65, `{containerName: c#, requests: {cpu: 0}}`) + `}}`, "status.originalResources.containers", "must have at most 64 items"},
		{`{originalResources: {uid: u}}`, "status.originalResources.deploymentName", "Required value"},
		{`{summary: {cpu: ""}}`, "status.summary.cpu", "should be at least 1 chars long"},
		{`{revertedChanges: [{containerName: c, resource: cpu, lastGood: 2, ` + now + `}]}`, "status.revertedChanges[0].value", "Required value"},
		{`{newPods: {containers: [{containerName: c}]}}`, "status.newPods.containers[0].requests", "Required value"},
		{`{newPods: {replicaSetUID: ""}}`, "status.newPods.replicaSetUID", "should be at least 1 chars long"},
		{`{newPods: {failureTime: "2026-03-01T12:00:00Z", failureMessage: ""}}`, "status.newPods.failureMessage", "should be at least 1 chars long"},
		{`{target: {generation: 1, replicas: 0, updatedReplicas: 0}}`, "status.target.uid", "Required value"},
	} {
		t.Run(tc.field+" "+tc.why, func(t *testing.T) {
			updated := scaler.DeepCopy()
			setField(t, updated, fromYAML(t, tc.status), "status")
			if err := env.Client.Status().Update(t.Context(), updated, client.DryRunAll); err != nil || tc.field != "" {
				refusedWith(t, err, refusal{tc.field, tc.why})
			}
		})
	}
}

// The API server estimates the cost of a rule when the CRD is created, and counts it when the rule runs. The largest scaler
// that the schema allows must not exceed the limit per request. Its largest status must fit into etcd: otherwise, every
// write of it would fail with an internal error.
func TestTheLargestScalerIsStored(t *testing.T) {
	scaler := scalerWith(t, env.Namespace(t), fullSpec(32))
	if err := env.Client.Create(t.Context(), scaler); err != nil {
		t.Fatalf("a scaler with 32 full policies: %v", err)
	}
	scaler.SetAnnotations(map[string]string{"touched": "true"})
	if err := env.Client.Update(t.Context(), scaler); err != nil {
		t.Errorf("updating it: %v", err)
	}
	const amounts = `{cpu: 9999999m, memory: 1125899906842623}`
	name := func(i int) string { return fmt.Sprintf("c%062d", i) }
	var recommendations, decided, held, history []string
	for i := range 64 {
		reasons := strings.Repeat(`{resource: memory, code: SafetyMargin, value: 1125899906842623}, `, 16)
		recommendations = append(recommendations, fmt.Sprintf(`{containerName: %q, target: %[2]s, lowerBound: %[2]s, upperBound: %[2]s, uncappedTarget: %[2]s, observedSeconds: 691200, reasons: [%[3]s]}`, name(i), amounts, reasons))
		decided = append(decided, fmt.Sprintf(`{containerName: %q, requests: %s}`, name(i), amounts))
		held = append(held, fmt.Sprintf(`{containerName: %q, requests: %[2]s, limits: %[2]s}`, name(i), amounts))
	}
	for range 10 {
		history = append(history, fmt.Sprintf(`{time: "2026-03-01T12:00:00Z", message: %s}`, strings.Repeat("a", 1024)))
	}
	setField(t, scaler, fromYAML(t, fmt.Sprintf(`{recommendation: {containerRecommendations: [%s]}, history: [%s],
		decision: {time: "2026-03-01T12:00:00Z", reason: ScaleUp, containers: [%s]},
		originalResources: {deploymentName: web, uid: u, containers: [%s]}}`,
		strings.Join(recommendations, ", "), strings.Join(history, ", "), strings.Join(decided, ", "), strings.Join(held, ", "))), "status")
	must.Succeed(t, env.Client.Status().Update(t.Context(), scaler))
}

func TestScalersAreSelectedByFields(t *testing.T) {
	namespace := env.Namespace(t)
	for name, spec := range map[string]string{"a": "deploymentName: web", "b": "deploymentName: api, updatePolicy: {updateMode: Recommend}", "c": "deploymentName: web"} {
		scaler := scalerWith(t, namespace, `{`+spec+`}`)
		scaler.SetName(name)
		env.Create(t, scaler)
	}
	for selector, want := range map[string][]string{
		"spec.deploymentName=web":                {"a", "c"},
		"spec.updatePolicy.updateMode=Recommend": {"b"},
		"spec.updatePolicy.updateMode=InPlace":   {"a", "c"}, // the default
	} {
		t.Run(selector, func(t *testing.T) {
			var scalers v1beta1.VerticalScalerList
			err := env.Client.List(t.Context(), &scalers, client.InNamespace(namespace),
				client.MatchingFieldsSelector{Selector: fields.ParseSelectorOrDie(selector)})
			must.Succeed(t, err)
			var got []string
			for i := range scalers.Items {
				got = append(got, scalers.Items[i].Name)
			}
			slices.Sort(got)
			assert.Equal(t, "selected", want, got)
		})
	}
}

// The largest checkpoint must fit into etcd, not only into the schema.
func TestTheLargestCheckpointIsStored(t *testing.T) {
	checkpoint := &v1beta1.VerticalScalerCheckpoint{
		ObjectMeta: metav1.ObjectMeta{Namespace: env.Namespace(t), Name: "web"},
		Spec:       v1beta1.VerticalScalerCheckpointSpec{DeploymentName: "web", SaveTime: metav1.Now()},
	}
	for i := range 64 {
		checkpoint.Spec.Containers = append(checkpoint.Spec.Containers, v1beta1.ContainerCheckpoint{
			ContainerName: fmt.Sprintf("c%062d", i), Version: 1, Data: make([]byte, 8<<10),
		})
	}
	env.Create(t, checkpoint)
}

// verdictOn creates the object in a dry run, and compares the API server's verdict. An
// accepted object must also be accepted in the form that a Go client writes, with other
// quantity formats. Otherwise, users could not update each other's objects.
func verdictOn(t *testing.T, object *unstructured.Unstructured, want refusal) {
	t.Helper()
	data, err := object.MarshalJSON()
	must.Succeed(t, err)
	err = env.Client.Create(t.Context(), object, client.DryRunAll)
	if want != (refusal{}) {
		refusedWith(t, err, want)
		return
	}
	if err != nil {
		t.Fatalf("refused: %v", err)
	}
	typed, err := env.Client.Scheme().New(object.GroupVersionKind())
	must.Succeed(t, err)
	if err := json.Unmarshal(data, typed); err != nil {
		t.Fatalf("accepted, but the operator cannot read it: %v", err)
	}
	if err := env.Client.Create(t.Context(), typed.(client.Object), client.DryRunAll); err != nil {
		t.Fatalf("accepted as written, refused as a Go client writes it: %v", err)
	}
}

// refusedWith compares the reason of a rejection.
func refusedWith(t *testing.T, err error, want refusal) {
	t.Helper()
	if err == nil {
		t.Fatalf("accepted, want %q at %s", want.why, want.field)
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) || status.Status().Details == nil {
		t.Fatalf("failed with %v, want %q at %s", err, want.why, want.field)
	}
	isWanted := func(c metav1.StatusCause) bool { return c.Field == want.field && strings.Contains(c.Message, want.why) }
	if !slices.ContainsFunc(status.Status().Details.Causes, isWanted) {
		t.Fatalf("refused, but not with %q at %s:\n%s", want.why, want.field, err)
	}
}

func scalerWith(t *testing.T, namespace, spec string) *unstructured.Unstructured {
	t.Helper()
	return objectWith(t, "VerticalScaler", namespace, spec)
}

func objectWith(t *testing.T, kind, namespace, spec string) *unstructured.Unstructured {
	t.Helper()
	if kind == v1beta1.ClusterScalingPolicyKind {
		namespace = ""
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "autoscaling.verticalscaler.io/v1beta1",
		"kind":       kind,
		"metadata":   map[string]any{"namespace": namespace, "name": "web"},
		"spec":       fromYAML(t, spec),
	}}
}

// fromYAML decodes as kubectl does: 2 is an integer and "2" a string.
func fromYAML(t *testing.T, text string) any {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(`{"kind": "Any", "value": ` + text + `}`))
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	var u unstructured.Unstructured
	must.Succeed(t, u.UnmarshalJSON(data))
	return u.Object["value"]
}

func setField(t *testing.T, obj *unstructured.Unstructured, value any, path ...string) {
	t.Helper()
	must.Succeed(t, unstructured.SetNestedField(obj.Object, value, path...))
}

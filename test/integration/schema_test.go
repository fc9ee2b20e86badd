// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// These tests check what the API server accepts, and how it rejects the rest. Objects are
// written in YAML, as users write them, because Go types cannot express half of the values.
// Only the tests that say so store objects: a dry run validates in the same way.

const (
	mustBeDeployment = "must be the name of a Deployment in this namespace: use lowercase letters, digits, '-' and '.', and start and end with a letter or digit"
	mustBeContainer  = "must be '*' or the name of a container: use lowercase letters, digits and '-', and start and end with a letter or digit"
	mustBeCPU        = "must be a quantity of CPU from 1m to 10k, such as 250m or 2"
	mustBeMillis     = "must be in whole millicores, such as 250m or 0.25"
	mustBeMemory     = "must be a quantity of memory from 1Ki to 1Pi, such as 512Mi; the suffix m means thousandths, not mega"
	mustBeShort      = "Too long: may not be more than 32 bytes"
)

// refusal is the field and the reason of a rejection. The zero value stands for an accepted
// object.
type refusal struct {
	field string
	why   string // a part of the message
}

func TestScalerSpec(t *testing.T) {
	policy := func(fields string) string {
		return `{deploymentName: web, resourcePolicy: {containerPolicies: [{containerName: app, ` + fields + `}]}}`
	}
	const inPolicy = "spec.resourcePolicy.containerPolicies[0]"
	cases := map[string]struct {
		spec string
		want refusal
	}{
		"a deploymentName is enough":                    {spec: `{deploymentName: web}`},
		"no spec is refused":                            {spec: `null`, want: refusal{"spec", "Required value"}},
		"no deploymentName is refused":                  {spec: `{}`, want: refusal{"spec.deploymentName", "Required value"}},
		"a null deploymentName is refused":              {spec: `{deploymentName: null}`, want: refusal{"spec.deploymentName", "Required value"}},
		"an empty deploymentName is refused":            {spec: `{deploymentName: ""}`, want: refusal{"spec.deploymentName", mustBeDeployment}},
		"a number as deploymentName is refused":         {spec: `{deploymentName: 3}`, want: refusal{"spec.deploymentName", `must be of type string`}},
		"a deploymentName may have dots":                {spec: `{deploymentName: web.v2-b}`},
		"a deploymentName of digits is accepted":        {spec: `{deploymentName: "42"}`},
		"an upper case deploymentName is refused":       {spec: `{deploymentName: Web}`, want: refusal{"spec.deploymentName", mustBeDeployment}},
		"a deploymentName is no path":                   {spec: `{deploymentName: ../x}`, want: refusal{"spec.deploymentName", mustBeDeployment}},
		"a deploymentName has no namespace":             {spec: `{deploymentName: ns/name}`, want: refusal{"spec.deploymentName", mustBeDeployment}},
		"a deploymentName does not end with a dash":     {spec: `{deploymentName: web-}`, want: refusal{"spec.deploymentName", mustBeDeployment}},
		"a deploymentName has no line break":            {spec: `{deploymentName: "web\nb"}`, want: refusal{"spec.deploymentName", mustBeDeployment}},
		"a deploymentName of 253 characters is enough":  {spec: `{deploymentName: ` + strings.Repeat("a", 253) + `}`},
		"a deploymentName of 254 characters is refused": {spec: `{deploymentName: ` + strings.Repeat("a", 254) + `}`, want: refusal{"spec.deploymentName", "may not be more than 253"}},

		"suspend is accepted":                    {spec: `{deploymentName: web, suspend: true}`},
		"a word as suspend is refused":           {spec: `{deploymentName: web, suspend: "yes"}`, want: refusal{"spec.suspend", "must be of type boolean"}},
		"updateMode Recommend is accepted":       {spec: `{deploymentName: web, updatePolicy: {updateMode: "Recommend"}}`},
		"updateMode InPlace is accepted":         {spec: `{deploymentName: web, updatePolicy: {updateMode: InPlace}}`},
		"updateMode Rollout is accepted":         {spec: `{deploymentName: web, updatePolicy: {updateMode: Rollout}}`},
		"updateMode Initial is accepted":         {spec: `{deploymentName: web, updatePolicy: {updateMode: Initial}}`},
		"updateMode Recreate is refused":         {spec: `{deploymentName: web, updatePolicy: {updateMode: Recreate}}`, want: refusal{"spec.updatePolicy.updateMode", `Unsupported value: "Recreate": supported values: "Recommend", "Initial", "InPlace", "Rollout"`}},
		"updateMode in lower case is refused":    {spec: `{deploymentName: web, updatePolicy: {updateMode: inplace}}`, want: refusal{"spec.updatePolicy.updateMode", `supported values: "Recommend", "Initial", "InPlace", "Rollout"`}},
		"an empty updateMode is refused":         {spec: `{deploymentName: web, updatePolicy: {updateMode: ""}}`, want: refusal{"spec.updatePolicy.updateMode", `supported values: "Recommend", "Initial", "InPlace", "Rollout"`}},
		"updateMode Off is refused":              {spec: `{deploymentName: web, updatePolicy: {updateMode: "Off"}}`, want: refusal{"spec.updatePolicy.updateMode", `Unsupported value: "Off": supported values: "Recommend", "Initial", "InPlace", "Rollout"`}},
		"fallback Wait is accepted":              {spec: `{deploymentName: web, updatePolicy: {fallback: Wait}}`},
		"fallback Rollout is accepted":           {spec: `{deploymentName: web, updatePolicy: {fallback: Rollout}}`},
		"fallback Recreate is accepted":          {spec: `{deploymentName: web, updatePolicy: {fallback: Recreate, minReplicas: 1}}`},
		"fallback Evict is refused":              {spec: `{deploymentName: web, updatePolicy: {fallback: Evict}}`, want: refusal{"spec.updatePolicy.fallback", `Unsupported value: "Evict": supported values: "Wait", "Recreate", "Rollout"`}},
		"minReplicas of 1000 is accepted":        {spec: `{deploymentName: web, updatePolicy: {minReplicas: 1000}}`},
		"minReplicas of 0 is refused":            {spec: `{deploymentName: web, updatePolicy: {minReplicas: 0}}`, want: refusal{"spec.updatePolicy.minReplicas", "should be greater than or equal to 1"}},
		"minReplicas of 1001 is refused":         {spec: `{deploymentName: web, updatePolicy: {minReplicas: 1001}}`, want: refusal{"spec.updatePolicy.minReplicas", "should be less than or equal to 1000"}},
		"cooldownSeconds 0 is accepted":          {spec: `{deploymentName: web, updatePolicy: {cooldownSeconds: 0}}`},
		"cooldownSeconds of a day is accepted":   {spec: `{deploymentName: web, updatePolicy: {cooldownSeconds: 86400}}`},
		"cooldownSeconds below 0 is refused":     {spec: `{deploymentName: web, updatePolicy: {cooldownSeconds: -1}}`, want: refusal{"spec.updatePolicy.cooldownSeconds", "should be greater than or equal to 0"}},
		"cooldownSeconds above a day is refused": {spec: `{deploymentName: web, updatePolicy: {cooldownSeconds: 86401}}`, want: refusal{"spec.updatePolicy.cooldownSeconds", "should be less than or equal to 86400"}},
		"cooldownSeconds is no duration":         {spec: `{deploymentName: web, updatePolicy: {cooldownSeconds: 5m}}`, want: refusal{"spec.updatePolicy.cooldownSeconds", `must be of type integer: "string"`}},

		"the profile Calm is accepted":               {spec: `{deploymentName: web, recommendationPolicy: {profile: Calm}}`},
		"another profile is refused":                 {spec: `{deploymentName: web, recommendationPolicy: {profile: Bold}}`, want: refusal{"spec.recommendationPolicy.profile", `supported values: "Balanced", "Frugal", "Safe", "Calm"`}},
		"safetyMarginPercent 0 is accepted":          {spec: `{deploymentName: web, recommendationPolicy: {safetyMarginPercent: 0}}`},
		"safetyMarginPercent 500 is accepted":        {spec: `{deploymentName: web, recommendationPolicy: {safetyMarginPercent: 500}}`},
		"safetyMarginPercent below 0 is refused":     {spec: `{deploymentName: web, recommendationPolicy: {safetyMarginPercent: -1}}`, want: refusal{"spec.recommendationPolicy.safetyMarginPercent", "should be greater than or equal to 0"}},
		"safetyMarginPercent above 500 is refused":   {spec: `{deploymentName: web, recommendationPolicy: {safetyMarginPercent: 501}}`, want: refusal{"spec.recommendationPolicy.safetyMarginPercent", "should be less than or equal to 500"}},
		"safetyMarginPercent with a half is refused": {spec: `{deploymentName: web, recommendationPolicy: {safetyMarginPercent: 1.5}}`, want: refusal{"spec.recommendationPolicy.safetyMarginPercent", "must be of type int32"}},

		"a policy for all containers is accepted":        {spec: `{deploymentName: web, resourcePolicy: {containerPolicies: [{containerName: "*"}]}}`},
		"a policy without containerName is refused":      {spec: `{deploymentName: web, resourcePolicy: {containerPolicies: [{mode: Auto}]}}`, want: refusal{inPolicy + ".containerName", "Required value"}},
		"an empty containerName is refused":              {spec: `{deploymentName: web, resourcePolicy: {containerPolicies: [{containerName: ""}]}}`, want: refusal{inPolicy + ".containerName", mustBeContainer}},
		"an upper case containerName is refused":         {spec: `{deploymentName: web, resourcePolicy: {containerPolicies: [{containerName: App}]}}`, want: refusal{inPolicy + ".containerName", mustBeContainer}},
		"a containerName is no pattern":                  {spec: `{deploymentName: web, resourcePolicy: {containerPolicies: [{containerName: "app-*"}]}}`, want: refusal{inPolicy + ".containerName", mustBeContainer}},
		"a containerName has no dots":                    {spec: `{deploymentName: web, resourcePolicy: {containerPolicies: [{containerName: a.b}]}}`, want: refusal{inPolicy + ".containerName", mustBeContainer}},
		"a containerName of 63 characters is accepted":   {spec: `{deploymentName: web, resourcePolicy: {containerPolicies: [{containerName: ` + strings.Repeat("a", 63) + `}]}}`},
		"a containerName of 64 characters is refused":    {spec: `{deploymentName: web, resourcePolicy: {containerPolicies: [{containerName: ` + strings.Repeat("a", 64) + `}]}}`, want: refusal{inPolicy + ".containerName", "may not be more than 63"}},
		"two policies for one container are refused":     {spec: `{deploymentName: web, resourcePolicy: {containerPolicies: [{containerName: a}, {containerName: b}, {containerName: a}]}}`, want: refusal{"spec.resourcePolicy.containerPolicies[2]", `Duplicate value: {"containerName":"a"}`}},
		"no policies are accepted":                       {spec: `{deploymentName: web, resourcePolicy: {containerPolicies: []}}`},
		"mode Off is accepted":                           {spec: policy(`mode: "Off"`)},
		"Off without quotes is false, so refused":        {spec: policy(`mode: Off`), want: refusal{inPolicy + ".mode", `Unsupported value: false: supported values: "Auto", "Off"`}},
		"an unknown mode is refused":                     {spec: policy(`mode: Initial`), want: refusal{inPolicy + ".mode", `Unsupported value: "Initial": supported values: "Auto", "Off"`}},
		"controlledValues RequestsOnly is accepted":      {spec: policy(`controlledValues: RequestsOnly`)},
		"unknown controlledValues are refused":           {spec: policy(`controlledValues: LimitsOnly`), want: refusal{inPolicy + ".controlledValues", `supported values: "RequestsAndLimits", "RequestsOnly"`}},
		"one controlled resource is accepted":            {spec: policy(`controlledResources: [memory]`)},
		"both controlled resources are accepted":         {spec: policy(`controlledResources: [memory, cpu]`)},
		"empty controlledResources are refused":          {spec: policy(`controlledResources: []`), want: refusal{inPolicy + ".controlledResources", "should have at least 1 items"}},
		"a controlled resource named twice is refused":   {spec: policy(`controlledResources: [cpu, cpu]`), want: refusal{inPolicy + ".controlledResources[1]", `Duplicate value: "cpu"`}},
		"an unknown controlled resource is refused":      {spec: policy(`controlledResources: [disk]`), want: refusal{inPolicy + ".controlledResources[0]", `Unsupported value: "disk": supported values: "cpu", "memory"`}},
		"more than two controlled resources are refused": {spec: policy(`controlledResources: [cpu, memory, cpu]`), want: refusal{inPolicy + ".controlledResources", "must have at most 2 items"}},
	}
	namespace := env.Namespace(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			verdictOn(t, scalerWith(t, namespace, tc.spec), tc.want)
		})
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
							spec := `{deploymentName: web, resourcePolicy: {containerPolicies: [{containerName: app, ` + bound + `}]}}`
							want := refusal{}
							if tc.want != "" {
								want = refusal{"spec.resourcePolicy.containerPolicies[0]." + end + "." + resource, tc.want}
							}
							verdictOn(t, scalerWith(t, namespace, spec), want)
						})
					}
				}
			}
		})
	}
}

// To compare quantities, the API server expands their digits. If it did not check the
// exponent first, one request with 10 characters would keep it busy for minutes.
func TestAHugeExponentIsRejectedAtOnce(t *testing.T) {
	const absurd = `"1e99999999"`
	namespace := env.Namespace(t)
	for resource, usual := range map[string]string{"cpu": "2", "memory": "1Gi"} {
		for name, bounds := range map[string]string{
			"the least":                    `minAllowed: {` + resource + `: ` + absurd + `}`,
			"the most":                     `maxAllowed: {` + resource + `: ` + absurd + `}`,
			"the least, with a usual most": `minAllowed: {` + resource + `: ` + absurd + `}, maxAllowed: {` + resource + `: ` + usual + `}`,
			"the most, with a usual least": `minAllowed: {` + resource + `: ` + usual + `}, maxAllowed: {` + resource + `: ` + absurd + `}`,
			"both":                         `minAllowed: {` + resource + `: ` + absurd + `}, maxAllowed: {` + resource + `: ` + absurd + `}`,
			"a part as small":              `minAllowed: {` + resource + `: "1e-99999999"}`,
			"in capitals":                  `minAllowed: {` + resource + `: "1E+99999999"}`,
		} {
			t.Run(resource+": "+name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				spec := `{deploymentName: web, resourcePolicy: {containerPolicies: [{containerName: app, ` + bounds + `}]}}`
				err := env.Client.Create(ctx, scalerWith(t, namespace, spec), client.DryRunAll)
				if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "must be a quantity of ") {
					t.Errorf("Create() = %v, want it refused within 5 s", err)
				}
			})
		}
	}
}

func TestMinAllowedIsAtMostMaxAllowed(t *testing.T) {
	const (
		field  = "spec.resourcePolicy.containerPolicies[0].minAllowed"
		cpu    = "minAllowed.cpu must be at most maxAllowed.cpu"
		memory = "minAllowed.memory must be at most maxAllowed.memory"
	)
	cases := map[string]struct {
		bounds string
		want   refusal
	}{
		"CPU below is accepted":                         {bounds: `minAllowed: {cpu: 250m}, maxAllowed: {cpu: "2"}`},
		"CPU above is refused":                          {bounds: `minAllowed: {cpu: "2"}, maxAllowed: {cpu: 1500m}`, want: refusal{field, cpu}},
		"CPU above by a millicore is refused":           {bounds: `minAllowed: {cpu: 2001m}, maxAllowed: {cpu: 2}`, want: refusal{field, cpu}},
		"equal CPU is accepted":                         {bounds: `minAllowed: {cpu: "2"}, maxAllowed: {cpu: "2"}`},
		"equal CPU in other words is accepted":          {bounds: `minAllowed: {cpu: 2}, maxAllowed: {cpu: 2000m}`},
		"an integer is compared with a string":          {bounds: `minAllowed: {cpu: 2}, maxAllowed: {cpu: 1500m}`, want: refusal{field, cpu}},
		"a string is compared with an integer":          {bounds: `minAllowed: {cpu: 2500m}, maxAllowed: {cpu: 2}`, want: refusal{field, cpu}},
		"numbers are not compared as words":             {bounds: `minAllowed: {cpu: "9"}, maxAllowed: {cpu: "10"}`},
		"memory below is accepted":                      {bounds: `minAllowed: {memory: 1000M}, maxAllowed: {memory: 1Gi}`},
		"memory above is refused":                       {bounds: `minAllowed: {memory: 1Gi}, maxAllowed: {memory: 1000M}`, want: refusal{field, memory}},
		"memory above an integer is refused":            {bounds: `minAllowed: {memory: 1Gi}, maxAllowed: {memory: 1073741823}`, want: refusal{field, memory}},
		"equal memory in other words is accepted":       {bounds: `minAllowed: {memory: 1024Mi}, maxAllowed: {memory: 1073741824}`},
		"each resource has its own rule":                {bounds: `minAllowed: {cpu: 1, memory: 2Gi}, maxAllowed: {cpu: 2, memory: 1Gi}`, want: refusal{field, memory}},
		"bounds of different resources do not meet":     {bounds: `minAllowed: {cpu: 2}, maxAllowed: {memory: 1Gi}`},
		"one end alone is accepted":                     {bounds: `minAllowed: {cpu: 2, memory: 1Gi}`},
		"an end without amounts is accepted":            {bounds: `minAllowed: {cpu: 2, memory: 1Gi}, maxAllowed: {}`},
		"a later policy is checked as well":             {bounds: `mode: Auto}, {containerName: b, minAllowed: {cpu: 2}, maxAllowed: {cpu: 1}`, want: refusal{"spec.resourcePolicy.containerPolicies[1].minAllowed", cpu}},
		"an unreadable end is refused for being that":   {bounds: `minAllowed: {cpu: lots}, maxAllowed: {cpu: 1}`, want: refusal{field + ".cpu", mustBeCPU}},
		"an unreadable other end is refused like it":    {bounds: `minAllowed: {memory: 1Gi}, maxAllowed: {memory: lots}`, want: refusal{"spec.resourcePolicy.containerPolicies[0].maxAllowed.memory", mustBeMemory}},
		"an impossible end is refused for being absurd": {bounds: `minAllowed: {cpu: "1e999"}, maxAllowed: {cpu: 1}`, want: refusal{field + ".cpu", mustBeCPU}},
	}
	namespace := env.Namespace(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			spec := `{deploymentName: web, resourcePolicy: {containerPolicies: [{containerName: app, ` + tc.bounds + `}]}}`
			causes := verdictOn(t, scalerWith(t, namespace, spec), tc.want)
			for _, cause := range causes {
				if strings.Contains(cause.Message, "evaluating rule") {
					t.Errorf("a rule could not be evaluated: %s", cause.Message)
				}
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	cases := map[string]struct {
		spec string
		want string
	}{
		"an update policy is filled in": {
			spec: `{deploymentName: web}`,
			want: `{deploymentName: web, updatePolicy: {updateMode: InPlace, fallback: Wait, newPods: Sized, minReplicas: 2, cooldownSeconds: 300, tolerancePercent: 10, verificationSeconds: 120}}`,
		},
		"0 is a value, not a gap": {
			spec: `{deploymentName: web, updatePolicy: {cooldownSeconds: 0}, recommendationPolicy: {safetyMarginPercent: 0}}`,
			want: `{deploymentName: web, updatePolicy: {updateMode: InPlace, fallback: Wait, newPods: Sized, minReplicas: 2, cooldownSeconds: 0, tolerancePercent: 10, verificationSeconds: 120}, recommendationPolicy: {profile: Balanced, safetyMarginPercent: 0}}`,
		},
		"a window is completed": {
			spec: `{deploymentName: web, updatePolicy: {windows: [{schedule: "0 2 * * *", durationMinutes: 60}]}}`,
			want: `{deploymentName: web, updatePolicy: {updateMode: InPlace, fallback: Wait, newPods: Sized, minReplicas: 2, cooldownSeconds: 300, tolerancePercent: 10, verificationSeconds: 120,
				windows: [{schedule: "0 2 * * *", timeZone: UTC, durationMinutes: 60, directions: [ScaleUp, ScaleDown]}]}}`,
		},
		"a container's policy is completed": {
			spec: `{deploymentName: web, resourcePolicy: {containerPolicies: [{containerName: "*"}]}}`,
			want: `{deploymentName: web, updatePolicy: {updateMode: InPlace, fallback: Wait, newPods: Sized, minReplicas: 2, cooldownSeconds: 300, tolerancePercent: 10, verificationSeconds: 120},
				resourcePolicy: {containerPolicies: [{containerName: "*", mode: Auto, controlledValues: RequestsAndLimits}]}}`,
		},
		"quantities stay as they were written": {
			spec: `{deploymentName: web, resourcePolicy: {containerPolicies: [{containerName: app, minAllowed: {cpu: 2, memory: 1024Mi}, maxAllowed: {cpu: "2.50"}}]}}`,
			want: `{deploymentName: web, updatePolicy: {updateMode: InPlace, fallback: Wait, newPods: Sized, minReplicas: 2, cooldownSeconds: 300, tolerancePercent: 10, verificationSeconds: 120},
				resourcePolicy: {containerPolicies: [{containerName: app, mode: Auto, controlledValues: RequestsAndLimits, minAllowed: {cpu: 2, memory: 1024Mi}, maxAllowed: {cpu: "2.50"}}]}}`,
		},
	}
	namespace := env.Namespace(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			created := scalerWith(t, namespace, tc.spec)
			if err := env.Client.Create(t.Context(), created, client.DryRunAll); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(scalerWith(t, namespace, tc.want).Object["spec"], created.Object["spec"]); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]any{"observedGeneration": int64(-1)}, created.Object["status"]); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

const (
	mustBeSchedule = "must be a cron expression of five fields, such as '0 2 * * SAT': minute, hour, day of month, month, day of week"
	mustBeZone     = "must be the IANA name of a time zone, such as Europe/Berlin or UTC"
)

func TestUpdatePolicy(t *testing.T) {
	policy := func(fields string) string { return `{deploymentName: web, updatePolicy: {` + fields + `}}` }
	window := func(fields string) string { return policy(`windows: [{` + fields + `}]`) }
	const in, inWindow = "spec.updatePolicy.", "spec.updatePolicy.windows[0]"
	cases := map[string]struct {
		spec string
		want refusal
	}{
		"verificationSeconds 0 is accepted":            {spec: policy(`verificationSeconds: 0`)},
		"verificationSeconds 3600 is accepted":         {spec: policy(`verificationSeconds: 3600`)},
		"verificationSeconds below 0 is refused":       {spec: policy(`verificationSeconds: -1`), want: refusal{in + "verificationSeconds", "should be greater than or equal to 0"}},
		"verificationSeconds above an hour is refused": {spec: policy(`verificationSeconds: 3601`), want: refusal{in + "verificationSeconds", "should be less than or equal to 3600"}},
		"tolerancePercent 0 is accepted":               {spec: policy(`tolerancePercent: 0`)},
		"tolerancePercent 50 is accepted":              {spec: policy(`tolerancePercent: 50`)},
		"tolerancePercent below 0 is refused":          {spec: policy(`tolerancePercent: -1`), want: refusal{in + "tolerancePercent", "should be greater than or equal to 0"}},
		"tolerancePercent above 50 is refused":         {spec: policy(`tolerancePercent: 51`), want: refusal{in + "tolerancePercent", "should be less than or equal to 50"}},

		"a pace for each direction is accepted":    {spec: policy(`scaleUp: {cooldownSeconds: 0, maxStepPercent: 1000}, scaleDown: {cooldownSeconds: 86400, maxStepPercent: 99}`)},
		"directions without a pace are accepted":   {spec: policy(`scaleUp: {}, scaleDown: {}`)},
		"a cooldown below 0 is refused":            {spec: policy(`scaleUp: {cooldownSeconds: -1}`), want: refusal{in + "scaleUp.cooldownSeconds", "should be greater than or equal to 0"}},
		"a cooldown above a day is refused":        {spec: policy(`scaleDown: {cooldownSeconds: 86401}`), want: refusal{in + "scaleDown.cooldownSeconds", "should be less than or equal to 86400"}},
		"a step of nothing is refused":             {spec: policy(`scaleUp: {maxStepPercent: 0}`), want: refusal{in + "scaleUp.maxStepPercent", "should be greater than or equal to 1"}},
		"a step above eleven times is refused":     {spec: policy(`scaleUp: {maxStepPercent: 1001}`), want: refusal{in + "scaleUp.maxStepPercent", "should be less than or equal to 1000"}},
		"lowering by all there is is refused":      {spec: policy(`scaleDown: {maxStepPercent: 100}`), want: refusal{in + "scaleDown.maxStepPercent", "must be below 100 in scaleDown: a request cannot be lowered by 100 percent"}},
		"a window needs a schedule and a duration": {spec: window(`schedule: "0 2 * * SAT", durationMinutes: 60`)},
		"no schedule is refused":                   {spec: window(`durationMinutes: 60`), want: refusal{inWindow + ".schedule", "Required value"}},
		"no duration is refused":                   {spec: window(`schedule: "0 2 * * *"`), want: refusal{inWindow + ".durationMinutes", "Required value"}},
		"a week is the longest duration":           {spec: window(`schedule: "0 2 * * *", durationMinutes: 10080`)},
		"more than a week is refused":              {spec: window(`schedule: "0 2 * * *", durationMinutes: 10081`), want: refusal{inWindow + ".durationMinutes", "should be less than or equal to 10080"}},
		"less than a minute is refused":            {spec: window(`schedule: "0 2 * * *", durationMinutes: -1`), want: refusal{inWindow + ".durationMinutes", "should be greater than or equal to 1"}},
		"one direction is accepted":                {spec: window(`schedule: "0 2 * * *", durationMinutes: 60, directions: [ScaleDown]`)},
		"an unknown direction is refused":          {spec: window(`schedule: "0 2 * * *", durationMinutes: 60, directions: [Sideways]`), want: refusal{inWindow + ".directions[0]", `supported values: "ScaleUp", "ScaleDown"`}},
		"no directions are refused":                {spec: window(`schedule: "0 2 * * *", durationMinutes: 60, directions: []`), want: refusal{inWindow + ".directions", "should have at least 1 items"}},
		"16 windows are accepted":                  {spec: policy(`windows: [` + strings.Repeat(`{schedule: "0 2 * * *", durationMinutes: 60},`, 16) + `]`)},
		"17 windows are refused":                   {spec: policy(`windows: [` + strings.Repeat(`{schedule: "0 2 * * *", durationMinutes: 60},`, 17) + `]`), want: refusal{in + "windows", "must have at most 16 items"}},
	}
	// The schema checks the format of a schedule. The controller reports other invalid
	// schedules with the reason InvalidWindow.
	for schedule, ok := range map[string]bool{
		"* * * * *": true, "*/5 0-6,22 1,15 JAN-MAR MON-FRI": true, "59 23 31 12 6": true, "0 2 ? * sat": true,
		"00 02 01 01 0": true, "0  2  *  *  *": true, "10-50/10 */2 * * *": true, "60 * * * *": true,
		"* * * * ": false, "0 2 * *": false, "0 0 2 * * *": false, "@daily * * * *": false, "TZ=UTC 0 2 * *": false,
		"0 2 * * * ": false, " 0 2 * * *": false, "0 2 * * *\n": false, "0 2 *\t* *": false, "0 2 * * éé": false,
	} {
		want := refusal{}
		if !ok {
			want = refusal{inWindow + ".schedule", mustBeSchedule}
		}
		cases[fmt.Sprintf("the schedule %q is accepted: %t", schedule, ok)] = struct {
			spec string
			want refusal
		}{window(fmt.Sprintf(`schedule: %q, durationMinutes: 60`, schedule)), want}
	}
	for zone, ok := range map[string]bool{
		"UTC": true, "Europe/Berlin": true, "America/Argentina/Buenos_Aires": true, "Etc/GMT+5": true,
		"Mars/Olympus": false, "Local": false, "+02:00": false, "../etc/passwd": false, "": false, "02:00": false, "Europe/Berlin!": false,
	} {
		want := refusal{}
		if !ok {
			want = refusal{inWindow + ".timeZone", mustBeZone}
		}
		cases[fmt.Sprintf("the zone %q is accepted: %t", zone, ok)] = struct {
			spec string
			want refusal
		}{window(fmt.Sprintf(`schedule: "0 2 * * *", durationMinutes: 60, timeZone: %q`, zone)), want}
	}
	namespace := env.Namespace(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			verdictOn(t, scalerWith(t, namespace, tc.spec), tc.want)
		})
	}
}

func TestLimitPolicy(t *testing.T) {
	policy := func(fields string) string {
		return `{deploymentName: web, resourcePolicy: {containerPolicies: [{containerName: app, ` + fields + `}]}}`
	}
	const in = "spec.resourcePolicy.containerPolicies[0]"
	cases := map[string]struct {
		spec string
		want refusal
	}{
		"headroom for each resource is accepted":      {spec: policy(`limits: {headroomPercent: {cpu: 0, memory: 1000}}`)},
		"headroom for one resource is accepted":       {spec: policy(`limits: {headroomPercent: {memory: 20}}`)},
		"headroom below 0 is refused":                 {spec: policy(`limits: {headroomPercent: {cpu: -1}}`), want: refusal{in + ".limits.headroomPercent.cpu", "should be greater than or equal to 0"}},
		"headroom above 1000 is refused":              {spec: policy(`limits: {headroomPercent: {memory: 1001}}`), want: refusal{in + ".limits.headroomPercent.memory", "should be less than or equal to 1000"}},
		"bounds are accepted":                         {spec: policy(`limits: {minAllowed: {cpu: 100m}, maxAllowed: {cpu: "4", memory: 8Gi}}`)},
		"equal bounds are accepted":                   {spec: policy(`limits: {minAllowed: {cpu: 1000m}, maxAllowed: {cpu: 1}}`)},
		"crossed bounds of cpu are refused":           {spec: policy(`limits: {minAllowed: {cpu: 2}, maxAllowed: {cpu: 1}}`), want: refusal{in + ".limits.minAllowed", "minAllowed.cpu must be at most maxAllowed.cpu"}},
		"crossed bounds of memory are refused":        {spec: policy(`limits: {minAllowed: {memory: 2Gi}, maxAllowed: {memory: 1Gi}}`), want: refusal{in + ".limits.minAllowed", "minAllowed.memory must be at most maxAllowed.memory"}},
		"an absurd bound is refused":                  {spec: policy(`limits: {maxAllowed: {cpu: "1e999"}}`), want: refusal{in + ".limits.maxAllowed.cpu", mustBeCPU}},
		"a request above the limit's most is refused": {spec: policy(`minAllowed: {cpu: 2}, limits: {maxAllowed: {cpu: 1}}`), want: refusal{in + ".minAllowed", "minAllowed.cpu must be at most limits.maxAllowed.cpu"}},
		"likewise of memory":                          {spec: policy(`minAllowed: {memory: 2Gi}, limits: {maxAllowed: {memory: 1Gi}}`), want: refusal{in + ".minAllowed", "minAllowed.memory must be at most limits.maxAllowed.memory"}},
		"limits that are left alone have no policy":   {spec: policy(`controlledValues: RequestsOnly, limits: {headroomPercent: {cpu: 10}}`), want: refusal{in + ".limits", "must be unset with controlledValues RequestsOnly, which leaves limits as they are"}},
		"limits that follow have one":                 {spec: policy(`controlledValues: RequestsAndLimits, limits: {headroomPercent: {cpu: 10}}`)},
	}
	namespace := env.Namespace(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			verdictOn(t, scalerWith(t, namespace, tc.spec), tc.want)
		})
	}
}

func TestStartupBoost(t *testing.T) {
	policy := func(fields string) string {
		return `{deploymentName: web, resourcePolicy: {containerPolicies: [{containerName: app, ` + fields + `}]}}`
	}
	const (
		in      = "spec.resourcePolicy.containerPolicies[0].startupBoost"
		managed = "must be unset unless cpu is managed: set mode to Auto and add cpu to controlledResources"
	)
	cases := map[string]struct {
		spec string
		want refusal
	}{
		"a factor is accepted":               {spec: policy(`startupBoost: {cpu: {type: Factor, factor: 2, durationSeconds: 60}}`)},
		"a quantity is accepted":             {spec: policy(`startupBoost: {cpu: {type: Quantity, quantity: 500m}}`)},
		"the greatest of all is accepted":    {spec: policy(`startupBoost: {cpu: {type: Factor, factor: 100, durationSeconds: 3600}}`)},
		"cpu alone may be managed":           {spec: policy(`controlledResources: [cpu], startupBoost: {cpu: {type: Factor, factor: 1}}`)},
		"no boost is refused":                {spec: policy(`startupBoost: {}`), want: refusal{in + ".cpu", "Required value"}},
		"no type is refused":                 {spec: policy(`startupBoost: {cpu: {factor: 2}}`), want: refusal{in + ".cpu.type", "Required value"}},
		"an unknown type is refused":         {spec: policy(`startupBoost: {cpu: {type: Percent, factor: 2}}`), want: refusal{in + ".cpu.type", "supported values: \"Factor\", \"Quantity\""}},
		"no factor is refused":               {spec: policy(`startupBoost: {cpu: {type: Factor}}`), want: refusal{in + ".cpu.factor", "must be set if type is Factor, and unset otherwise"}},
		"no quantity is refused":             {spec: policy(`startupBoost: {cpu: {type: Quantity}}`), want: refusal{in + ".cpu.quantity", "must be set if type is Quantity, and unset otherwise"}},
		"both are refused":                   {spec: policy(`startupBoost: {cpu: {type: Factor, factor: 2, quantity: 1}}`), want: refusal{in + ".cpu.quantity", "must be set if type is Quantity, and unset otherwise"}},
		"a factor below 1 is refused":        {spec: policy(`startupBoost: {cpu: {type: Factor, factor: 0}}`), want: refusal{in + ".cpu.factor", "should be greater than or equal to 1"}},
		"a factor above 100 is refused":      {spec: policy(`startupBoost: {cpu: {type: Factor, factor: 101}}`), want: refusal{in + ".cpu.factor", "should be less than or equal to 100"}},
		"an absurd quantity is refused":      {spec: policy(`startupBoost: {cpu: {type: Quantity, quantity: "1e999"}}`), want: refusal{in + ".cpu.quantity", mustBeCPU}},
		"parts of a millicore are refused":   {spec: policy(`startupBoost: {cpu: {type: Quantity, quantity: 1500u}}`), want: refusal{in + ".cpu.quantity", "must be in whole millicores, such as 250m or 0.25"}},
		"a duration below 0 is refused":      {spec: policy(`startupBoost: {cpu: {type: Factor, factor: 2, durationSeconds: -1}}`), want: refusal{in + ".cpu.durationSeconds", "should be greater than or equal to 0"}},
		"a duration of two hours is refused": {spec: policy(`startupBoost: {cpu: {type: Factor, factor: 2, durationSeconds: 7200}}`), want: refusal{in + ".cpu.durationSeconds", "should be less than or equal to 3600"}},
		"a container that is left alone":     {spec: policy(`mode: "Off", startupBoost: {cpu: {type: Factor, factor: 2}}`), want: refusal{in, managed}},
		"cpu that is left alone":             {spec: policy(`controlledResources: [memory], startupBoost: {cpu: {type: Factor, factor: 2}}`), want: refusal{in, managed}},
	}
	namespace := env.Namespace(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			verdictOn(t, scalerWith(t, namespace, tc.spec), tc.want)
		})
	}
}

// The names of objects of all these kinds are the values of labels.
func TestNamesAreLabelValues(t *testing.T) {
	namespace := env.Namespace(t)
	for kind, spec := range map[string]string{"VerticalScaler": `{deploymentName: web}`, "ScaledDeployment": `{template: ` + aTemplate + `}`} {
		for name, want := range map[string]refusal{
			"checkout.v2":           {},
			strings.Repeat("a", 63): {},
			strings.Repeat("a", 64): {"<nil>", "metadata.name must have at most 63 characters: it is used as a label value"},
			"Checkout":              {"metadata.name", "a lowercase RFC 1123 subdomain must consist of"},
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				object := objectWith(t, kind, namespace, spec)
				object.SetName(name)
				judge(t, object, want)
			})
		}
	}
}

// The API server estimates the cost of a rule when the CRD is created, and counts it when
// the rule runs. The largest object that the schema allows must not exceed the limit per
// request.
func TestTheLargestScalerIsAccepted(t *testing.T) {
	namespace := env.Namespace(t)
	scaler := scalerWith(t, namespace, fullSpec(32))
	if err := env.Client.Create(t.Context(), scaler); err != nil {
		t.Fatalf("a scaler with 32 full policies: %v", err)
	}
	scaler.SetAnnotations(map[string]string{"touched": "true"})
	if err := env.Client.Update(t.Context(), scaler); err != nil {
		t.Errorf("updating it: %v", err)
	}
	for _, n := range []int{33, 3_000} {
		verdictOn(t, scalerWith(t, namespace, fullSpec(n)), refusal{"spec.resourcePolicy.containerPolicies", "must have at most 32 items"})
	}
}

// fullSpec has n policies in which everything has its maximum length.
func fullSpec(n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{deploymentName: %s, suspend: true, updatePolicy: {updateMode: Rollout, fallback: Wait, minReplicas: 2, cooldownSeconds: 86400, tolerancePercent: 50, verificationSeconds: 3600,
		scaleUp: {cooldownSeconds: 86400, maxStepPercent: 1000}, scaleDown: {cooldownSeconds: 86400, maxStepPercent: 99}, windows: [%s]},
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

func TestStatusIsForTheOperatorAlone(t *testing.T) {
	namespace := env.Namespace(t)
	status := map[string]any{
		"observedGeneration": int64(7),
		"annotations":        map[string]any{"autoscaling.verticalscaler.io/deployment": namespace + "/other"},
	}
	unset := map[string]any{"observedGeneration": int64(-1)}

	scaler := scalerWith(t, namespace, `{deploymentName: web}`)
	setField(t, scaler, status, "status")
	if err := env.Client.Create(t.Context(), scaler); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(unset, scaler.Object["status"]); diff != "" {
		t.Errorf("a status came with a creation (-want +got):\n%s", diff)
	}

	setField(t, scaler, status, "status")
	if err := env.Client.Update(t.Context(), scaler); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(unset, scaler.Object["status"]); diff != "" {
		t.Errorf("a status came with an update of the spec (-want +got):\n%s", diff)
	}

	setField(t, scaler, status, "status")
	setField(t, scaler, "other", "spec", "deploymentName")
	if err := env.Client.Status().Update(t.Context(), scaler); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(status, scaler.Object["status"]); diff != "" {
		t.Errorf("the status after its own update (-want +got):\n%s", diff)
	}
	if got, _, _ := unstructured.NestedString(scaler.Object, "spec", "deploymentName"); got != "web" {
		t.Errorf("an update of the status made deploymentName %q", got)
	}
	if got := scaler.GetGeneration(); got != 1 {
		t.Errorf("the generation is %d, want 1: the status is not part of it", got)
	}
}

func TestScalerStatus(t *testing.T) {
	list := func(n int, item func(i int) string) string {
		items := make([]string, n)
		for i := range items {
			items[i] = item(i)
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	condition := func(i int) string {
		return fmt.Sprintf(`{type: T%d, status: "True", reason: Fine, message: "", lastTransitionTime: "2026-03-01T12:00:00Z"}`, i)
	}
	entry := func(int) string { return `{time: "2026-03-01T12:00:00Z", message: Raised}` }
	recommended := func(i int) string { return fmt.Sprintf(`{containerName: c%d, target: {cpu: 310m, memory: 640Mi}}`, i) }
	reason := func(int) string { return `{resource: cpu, code: RecentPeak, value: 270m}` }
	decided := func(i int) string { return fmt.Sprintf(`{containerName: c%d, requests: {cpu: 310m}}`, i) }
	held := func(i int) string { return fmt.Sprintf(`{containerName: c%d, requests: {cpu: 0}}`, i) }
	writer := func(i int) string { return fmt.Sprintf(`helm-%d (Update)`, i) }

	cases := map[string]struct {
		status string
		want   refusal
	}{
		"16 conditions are accepted":   {status: `{conditions: ` + list(16, condition) + `}`},
		"17 conditions are refused":    {status: `{conditions: ` + list(17, condition) + `}`, want: refusal{"status.conditions", "must have at most 16 items"}},
		"a condition twice is refused": {status: `{conditions: [` + condition(1) + `, ` + condition(1) + `]}`, want: refusal{"status.conditions[1]", `Duplicate value: {"type":"T1"}`}},
		"a condition without reason is refused": {
			status: `{conditions: [{type: Ready, status: "True", reason: "", message: "", lastTransitionTime: "2026-03-01T12:00:00Z"}]}`,
			want:   refusal{"status.conditions[0].reason", "should be at least 1 chars long"},
		},
		"10 lines of history are accepted":    {status: `{history: ` + list(10, entry) + `}`},
		"11 lines of history are refused":     {status: `{history: ` + list(11, entry) + `}`, want: refusal{"status.history", "must have at most 10 items"}},
		"a line of 1024 bytes is accepted":    {status: `{history: [{time: "2026-03-01T12:00:00Z", message: ` + strings.Repeat("a", 1024) + `}]}`},
		"a longer line is refused":            {status: `{history: [{time: "2026-03-01T12:00:00Z", message: ` + strings.Repeat("a", 1025) + `}]}`, want: refusal{"status.history[0].message", "may not be more than 1024"}},
		"a line without time is refused":      {status: `{history: [{message: Raised}]}`, want: refusal{"status.history[0].time", "Required value"}},
		"64 recommendations are accepted":     {status: `{recommendation: {containerRecommendations: ` + list(64, recommended) + `}}`},
		"65 recommendations are refused":      {status: `{recommendation: {containerRecommendations: ` + list(65, recommended) + `}}`, want: refusal{"status.recommendation.containerRecommendations", "must have at most 64 items"}},
		"16 reasons are accepted":             {status: `{recommendation: {containerRecommendations: [{containerName: c, reasons: ` + list(16, reason) + `}]}}`},
		"17 reasons are refused":              {status: `{recommendation: {containerRecommendations: [{containerName: c, reasons: ` + list(17, reason) + `}]}}`, want: refusal{"status.recommendation.containerRecommendations[0].reasons", "must have at most 16 items"}},
		"a reason for disk is refused":        {status: `{recommendation: {containerRecommendations: [{containerName: c, reasons: [{resource: disk, code: Peak, value: 1}]}]}}`, want: refusal{"status.recommendation.containerRecommendations[0].reasons[0].resource", `supported values: "cpu", "memory"`}},
		"a decision for 64 is accepted":       {status: `{decision: {time: "2026-03-01T12:00:00Z", reason: ScaleUp, containers: ` + list(64, decided) + `}}`},
		"a decision for 65 is refused":        {status: `{decision: {time: "2026-03-01T12:00:00Z", reason: ScaleUp, containers: ` + list(65, decided) + `}}`, want: refusal{"status.decision.containers", "must have at most 64 items"}},
		"a decision without a time":           {status: `{decision: {reason: ScaleUp}}`, want: refusal{"status.decision.time", "Required value"}},
		"8 who contest it are accepted":       {status: `{decision: {time: "2026-03-01T12:00:00Z", reason: ScaleUp, reverts: 2, lastRevertTime: "2026-03-01T12:00:00Z", contestedBy: ` + list(8, writer) + `}}`},
		"9 who contest it are refused":        {status: `{decision: {time: "2026-03-01T12:00:00Z", reason: ScaleUp, contestedBy: ` + list(9, writer) + `}}`, want: refusal{"status.decision.contestedBy", "must have at most 8 items"}},
		"a writer of 257 bytes is refused":    {status: `{decision: {time: "2026-03-01T12:00:00Z", reason: ScaleUp, contestedBy: [` + strings.Repeat("a", 257) + `]}}`, want: refusal{"status.decision.contestedBy[0]", "may not be more than 256"}},
		"64 held containers are accepted":     {status: `{originalResources: {deploymentName: web, uid: u, containers: ` + list(64, held) + `}}`},
		"65 held containers are refused":      {status: `{originalResources: {deploymentName: web, uid: u, containers: ` + list(65, held) + `}}`, want: refusal{"status.originalResources.containers", "must have at most 64 items"}},
		"held values without their owner":     {status: `{originalResources: {uid: u}}`, want: refusal{"status.originalResources.deploymentName", "Required value"}},
		"a recommendation without a name":     {status: `{recommendation: {containerRecommendations: [{target: {cpu: 1}}]}}`, want: refusal{"status.recommendation.containerRecommendations[0].containerName", "Required value"}},
		"a name of 64 characters":             {status: `{recommendation: {containerRecommendations: [{containerName: ` + strings.Repeat("a", 64) + `}]}}`, want: refusal{"status.recommendation.containerRecommendations[0].containerName", "may not be more than 63"}},
		"an absurd exponent is refused":       {status: `{recommendation: {containerRecommendations: [{containerName: c, target: {cpu: "1e999"}}]}}`, want: refusal{"status.recommendation.containerRecommendations[0].target.cpu", "must have an exponent of at most two digits"}},
		"a reason without a code":             {status: `{recommendation: {containerRecommendations: [{containerName: c, reasons: [{resource: cpu, value: 1}]}]}}`, want: refusal{"status.recommendation.containerRecommendations[0].reasons[0].code", "Required value"}},
		"a summary is accepted":               {status: `{summary: {cpu: 500m->310m, memory: 640Mi, pods: 6/6}}`},
		"an empty summary is refused":         {status: `{summary: {cpu: ""}}`, want: refusal{"status.summary.cpu", "should be at least 1 chars long"}},
		"a reverted change is accepted":       {status: `{revertedChanges: [{containerName: c, resource: cpu, value: 1, lastGood: 2, time: "2026-03-01T12:00:00Z", message: restarts}]}`},
		"a reverted change has a value":       {status: `{revertedChanges: [{containerName: c, resource: cpu, lastGood: 2, time: "2026-03-01T12:00:00Z"}]}`, want: refusal{"status.revertedChanges[0].value", "Required value"}},
		"new pods are accepted":               {status: `{newPods: {containers: [{containerName: c, requests: {cpu: 1}, limits: {cpu: 2}}], ineffectiveOnPod: web-1}}`},
		"new pods without requests":           {status: `{newPods: {containers: [{containerName: c}]}}`, want: refusal{"status.newPods.containers[0].requests", "Required value"}},
		"new pods of a ReplicaSet":            {status: `{newPods: {replicaSetUID: u, containers: [{containerName: c, requests: {cpu: 1}}]}}`},
		"new pods of an unnamed ReplicaSet":   {status: `{newPods: {replicaSetUID: ""}}`, want: refusal{"status.newPods.replicaSetUID", "should be at least 1 chars long"}},
		"new pods that were refused":          {status: `{newPods: {failureTime: "2026-03-01T12:00:00Z", failureMessage: denied}}`},
		"new pods that were refused silently": {status: `{newPods: {failureTime: "2026-03-01T12:00:00Z", failureMessage: ""}}`, want: refusal{"status.newPods.failureMessage", "should be at least 1 chars long"}},
		"a target is accepted":                {status: `{target: {uid: u, generation: 1, replicas: 0, updatedReplicas: 0}}`},
		"a target without a UID is refused":   {status: `{target: {generation: 1, replicas: 0, updatedReplicas: 0}}`, want: refusal{"status.target.uid", "Required value"}},
	}
	scaler := scalerWith(t, env.Namespace(t), `{deploymentName: web}`)
	if err := env.Client.Create(t.Context(), scaler); err != nil {
		t.Fatal(err)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			updated := scaler.DeepCopy()
			setField(t, updated, fromYAML(t, tc.status), "status")
			err := env.Client.Status().Update(t.Context(), updated, client.DryRunAll)
			if tc.want == (refusal{}) {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			refusedWith(t, err, tc.want)
		})
	}
}

// The largest status that the schema allows must fit into etcd. Otherwise, every write of
// it would fail with an internal error.
func TestTheLargestStatusIsStored(t *testing.T) {
	scaler := scalerWith(t, env.Namespace(t), fullSpec(32))
	if err := env.Client.Create(t.Context(), scaler); err != nil {
		t.Fatal(err)
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
	if err := env.Client.Status().Update(t.Context(), scaler); err != nil {
		t.Error(err)
	}
}

func TestScalersAreSelectedByFields(t *testing.T) {
	namespace := env.Namespace(t)
	for name, spec := range map[string]string{"a": "deploymentName: web", "b": "deploymentName: api, updatePolicy: {updateMode: Recommend}", "c": "deploymentName: web"} {
		scaler := scalerWith(t, namespace, `{`+spec+`}`)
		scaler.SetName(name)
		if err := env.Client.Create(t.Context(), scaler); err != nil {
			t.Fatal(err)
		}
	}
	for selector, want := range map[string][]string{
		"spec.deploymentName=web":                  {"a", "c"},
		"spec.deploymentName!=web":                 {"b"},
		"spec.deploymentName=none":                 nil,
		"spec.deploymentName=web,metadata.name!=a": {"c"},
		"spec.updatePolicy.updateMode=Recommend":   {"b"},
		"spec.updatePolicy.updateMode=InPlace":     {"a", "c"}, // the default
	} {
		t.Run(selector, func(t *testing.T) {
			var scalers v1beta1.VerticalScalerList
			err := env.Client.List(t.Context(), &scalers, client.InNamespace(namespace),
				client.MatchingFieldsSelector{Selector: fields.ParseSelectorOrDie(selector)})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i := range scalers.Items {
				got = append(got, scalers.Items[i].Name)
			}
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("selected (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("other fields are not selectable", func(t *testing.T) {
		var scalers v1beta1.VerticalScalerList
		err := env.Client.List(t.Context(), &scalers, client.InNamespace(namespace), client.MatchingFieldsSelector{Selector: fields.ParseSelectorOrDie("spec.suspend=true")})
		if !apierrors.IsBadRequest(err) {
			t.Errorf("List() = %v, want a bad request", err)
		}
	})
}

func TestCheckpoint(t *testing.T) {
	data := func(n int) string { return base64.StdEncoding.EncodeToString(make([]byte, n)) }
	container := func(name string) string { return fmt.Sprintf(`{containerName: %s, version: 1, data: AQ==}`, name) }
	containers := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, container(fmt.Sprintf("c%d", i)))
		}
		return strings.Join(all, ", ")
	}
	spec := func(containers string) string {
		return `{deploymentName: web, saveTime: "2026-03-01T12:00:00Z", containers: [` + containers + `]}`
	}
	const first = "spec.containers[0]"
	cases := map[string]struct {
		spec string
		want refusal
	}{
		"a checkpoint is accepted":                 {spec: spec(container("app"))},
		"no containers are accepted":               {spec: spec("")},
		"no spec is refused":                       {spec: `null`, want: refusal{"spec", "Required value"}},
		"no deploymentName is refused":             {spec: `{saveTime: "2026-03-01T12:00:00Z"}`, want: refusal{"spec.deploymentName", "Required value"}},
		"an empty deploymentName is refused":       {spec: `{deploymentName: "", saveTime: "2026-03-01T12:00:00Z"}`, want: refusal{"spec.deploymentName", "should be at least 1 chars long"}},
		"a long deploymentName is refused":         {spec: `{deploymentName: ` + strings.Repeat("a", 254) + `, saveTime: "2026-03-01T12:00:00Z"}`, want: refusal{"spec.deploymentName", "may not be more than 253"}},
		"no saveTime is refused":                   {spec: `{deploymentName: web}`, want: refusal{"spec.saveTime", "Required value"}},
		"a saveTime in words is refused":           {spec: `{deploymentName: web, saveTime: noon}`, want: refusal{"spec.saveTime", "must be of type date-time"}},
		"a container twice is refused":             {spec: spec(container("app") + `, ` + container("app")), want: refusal{"spec.containers[1]", `Duplicate value: {"containerName":"app"}`}},
		"64 containers are accepted":               {spec: spec(containers(64))},
		"65 containers are refused":                {spec: spec(containers(65)), want: refusal{"spec.containers", "must have at most 64 items"}},
		"no containerName is refused":              {spec: spec(`{version: 1, data: AQ==}`), want: refusal{first + ".containerName", "Required value"}},
		"an empty containerName is refused":        {spec: spec(container(`""`)), want: refusal{first + ".containerName", "should be at least 1 chars long"}},
		"a containerName of 63 is accepted":        {spec: spec(container(strings.Repeat("a", 63)))},
		"a containerName of 64 is refused":         {spec: spec(container(strings.Repeat("a", 64))), want: refusal{first + ".containerName", "may not be more than 63"}},
		"no version is refused":                    {spec: spec(`{containerName: app, data: AQ==}`), want: refusal{first + ".version", "Required value"}},
		"version 0 is refused":                     {spec: spec(`{containerName: app, version: 0, data: AQ==}`), want: refusal{first + ".version", "should be greater than or equal to 1"}},
		"no data is refused":                       {spec: spec(`{containerName: app, version: 1}`), want: refusal{first + ".data", "Required value"}},
		"empty data is refused":                    {spec: spec(`{containerName: app, version: 1, data: ""}`), want: refusal{first + ".data", "should be at least 1 chars long"}},
		"data that is not base64 is refused":       {spec: spec(`{containerName: app, version: 1, data: "{}"}`), want: refusal{first + ".data", "must be of type byte"}},
		"8 KiB of data are accepted":               {spec: spec(`{containerName: app, version: 1, data: ` + data(8<<10) + `}`)},
		"more data is refused":                     {spec: spec(`{containerName: app, version: 1, data: ` + data(8<<10+2) + `}`), want: refusal{first + ".data", "may not be more than 10924"}},
		"a megabyte of data is refused":            {spec: spec(`{containerName: app, version: 1, data: ` + data(1<<20) + `}`), want: refusal{first + ".data", "may not be more than 10924"}},
		"all of it at its greatest is accepted":    {spec: spec(strings.ReplaceAll(containers(64), "AQ==", data(8<<10)))},
		"a number where a word belongs is refused": {spec: `{deploymentName: 3, saveTime: "2026-03-01T12:00:00Z"}`, want: refusal{"spec.deploymentName", "must be of type string"}},
	}
	namespace := env.Namespace(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			checkpoint := objectWith(t, "VerticalScalerCheckpoint", namespace, tc.spec)
			err := env.Client.Create(t.Context(), checkpoint, client.DryRunAll)
			if tc.want == (refusal{}) {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			refusedWith(t, err, tc.want)
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
	if err := env.Client.Create(t.Context(), checkpoint); err != nil {
		t.Error(err)
	}
}

// verdictOn creates the scaler in a dry run, and compares the API server's verdict. An
// accepted scaler must also be accepted in the form that a Go client writes, with other
// quantity formats. Otherwise, users could not update each other's scalers.
func verdictOn(t *testing.T, scaler *unstructured.Unstructured, want refusal) []metav1.StatusCause {
	t.Helper()
	asWritten := scaler.DeepCopy()
	err := env.Client.Create(t.Context(), scaler, client.DryRunAll)
	if want != (refusal{}) {
		return refusedWith(t, err, want)
	}
	if err != nil {
		t.Fatalf("refused: %v", err)
	}
	data, err := asWritten.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var typed v1beta1.VerticalScaler
	if err := json.Unmarshal(data, &typed); err != nil {
		t.Fatalf("accepted, but the operator cannot read it: %v", err)
	}
	if err := env.Client.Create(t.Context(), &typed, client.DryRunAll); err != nil {
		t.Fatalf("accepted as written, refused as a Go client writes it: %v", err)
	}
	return nil
}

// refusedWith compares the reason of a rejection.
func refusedWith(t *testing.T, err error, want refusal) []metav1.StatusCause {
	t.Helper()
	if err == nil {
		t.Fatalf("accepted, want %q at %s", want.why, want.field)
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) || status.Status().Details == nil {
		t.Fatalf("failed with %v, want %q at %s", err, want.why, want.field)
	}
	causes := status.Status().Details.Causes
	for _, cause := range causes {
		if cause.Field == want.field && strings.Contains(cause.Message, want.why) {
			return causes
		}
	}
	t.Fatalf("refused, but not with %q at %s:\n%s", want.why, want.field, err)
	return nil
}

func scalerWith(t *testing.T, namespace, spec string) *unstructured.Unstructured {
	t.Helper()
	return objectWith(t, "VerticalScaler", namespace, spec)
}

func objectWith(t *testing.T, kind, namespace, spec string) *unstructured.Unstructured {
	t.Helper()
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
	if err := u.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return u.Object["value"]
}

func setField(t *testing.T, obj *unstructured.Unstructured, value any, path ...string) {
	t.Helper()
	if err := unstructured.SetNestedField(obj.Object, value, path...); err != nil {
		t.Fatal(err)
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"encoding/json"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

func TestSizedBy(t *testing.T) {
	deployment := rolledOut(func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "log"})
	})
	const web = `"targetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"web"}`
	both := workload.Scaled{CPU: "v", Memory: "v"}
	cases := map[string]struct {
		specs map[string]string // by name
		want  map[string]workload.Scaled
	}{
		"all containers by default":  {map[string]string{"v": `{` + web + `}`}, map[string]workload.Scaled{"app": both, "log": both}},
		"none if it only recommends": {map[string]string{"v": `{` + web + `,"updatePolicy":{"updateMode":"Off"}}`}, nil},
		"all containers, even if only in new pods": {
			map[string]string{"v": `{` + web + `,"updatePolicy":{"updateMode":"Initial"}}`}, map[string]workload.Scaled{"app": both, "log": both},
		},
		"all containers in an unknown mode": {
			map[string]string{"v": `{` + web + `,"updatePolicy":{"updateMode":"Other"}}`}, map[string]workload.Scaled{"app": both, "log": both},
		},
		"all containers if the policy has no mode": {
			map[string]string{"v": `{` + web + `,"updatePolicy":{"minReplicas":1}}`}, map[string]workload.Scaled{"app": both, "log": both},
		},
		"memory only": {
			map[string]string{"v": `{` + web + `,"resourcePolicy":{"containerPolicies":[{"containerName":"*","controlledResources":["memory"]}]}}`},
			map[string]workload.Scaled{"app": {Memory: "v"}, "log": {Memory: "v"}},
		},
		"nothing if the list is empty": {
			map[string]string{"v": `{` + web + `,"resourcePolicy":{"containerPolicies":[{"containerName":"*","controlledResources":[]}]}}`}, nil,
		},
		"all but one that is off": {
			map[string]string{"v": `{` + web + `,"resourcePolicy":{"containerPolicies":[{"containerName":"app","mode":"Off"}]}}`},
			map[string]workload.Scaled{"log": both},
		},
		"one if the others are off": {
			map[string]string{"v": `{` + web + `,"resourcePolicy":{"containerPolicies":[{"containerName":"*","mode":"Off"},{"containerName":"app","mode":"Auto","controlledResources":["cpu"]}]}}`},
			map[string]workload.Scaled{"app": {CPU: "v"}},
		},
		"two scalers": {
			map[string]string{
				"a": `{` + web + `,"resourcePolicy":{"containerPolicies":[{"containerName":"*","controlledResources":["memory"]}]}}`,
				"b": `{` + web + `}`,
			},
			map[string]workload.Scaled{"app": {CPU: "b", Memory: "a"}, "log": {CPU: "b", Memory: "a"}},
		},
		"none of another Deployment": {map[string]string{"v": `{"targetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"api"}}`}, nil},
		"none of a StatefulSet":      {map[string]string{"v": `{"targetRef":{"apiVersion":"apps/v1","kind":"StatefulSet","name":"web"}}`}, nil},
		"none without a target":      {map[string]string{"v": `{}`}, nil},
		"none of a ScaledDeployment that does not control it": {
			map[string]string{"v": `{"targetRef":{"apiVersion":"autoscaling.verticalscaler.io/v1beta1","kind":"ScaledDeployment","name":"web"}}`}, nil,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var vpas []workload.VPA
			for name, text := range tc.specs {
				var spec workload.VPASpec
				must.Succeed(t, json.Unmarshal([]byte(text), &spec))
				vpas = append(vpas, workload.ReadVPA("shop", name, spec))
			}
			assert.Equal(t, "SizedBy()", tc.want, workload.SizedBy(vpas, deployment))
		})
	}
}

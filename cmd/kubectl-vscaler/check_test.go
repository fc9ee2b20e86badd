// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiversion "k8s.io/apimachinery/pkg/version"
)

func TestCheck(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*apiServer)
		args   []string
		code   int
		line   string // of the table
		err    string
	}{
		"a version":          {line: "Kubernetes OK v1.37.1"},
		"an older version":   {change: func(s *apiServer) { s.answer("/version", apiversion.Info{GitVersion: "v1.35.2-eks"}) }, line: "Kubernetes WARN v1.35.2-eks: the mode Initial and the fallback Recreate need 1.36"},
		"too old":            {change: func(s *apiServer) { s.answer("/version", apiversion.Info{GitVersion: "v1.33.9"}) }, code: 3, line: "Kubernetes FAIL v1.33.9 is older than 1.34"},
		"a strange version":  {change: func(s *apiServer) { s.answer("/version", apiversion.Info{GitVersion: "latest"}) }, line: "Kubernetes UNKNOWN the version latest cannot be read"},
		"the API":            {line: "VerticalScaler API OK autoscaling.verticalscaler.io/v1beta1 is served"},
		"no API":             {args: []string{"-n", "elsewhere"}, code: 3, line: "VerticalScaler API FAIL autoscaling.verticalscaler.io/v1beta1 is not served: install the operator with kubectl apply --server-side -f https://github.com/verticalscaler/verticalscaler-operator/releases/latest/download/install.yaml"},
		"the operator":       {line: "Operator OK The operator in namespace verticalscaler-system was last heard of "},
		"a dead operator":    {change: func(s *apiServer) { s.lastHeard(time.Hour) }, code: 3, line: "Operator FAIL The operator in namespace verticalscaler-system was last heard of 60m ago"},
		"no lease":           {args: []string{"--operator-namespace", "ops"}, line: "Operator WARN no lease is found, so it is not known whether the operator runs"},
		"no operator":        {args: []string{"--operator-namespace", "ops", "-n", "empty"}, code: 3, line: "Operator FAIL no lease is found: no operator runs, or without leader election"},
		"no right to leases": {change: func(s *apiServer) { s.forbidden = []string{coordination} }, line: "Operator UNKNOWN reading the lease in namespace verticalscaler-system: you may not; reading the lease in namespace shop: you may not"},
		"no version":         {line: "Versions UNKNOWN the plugin is devel, and the operator does not tell its version"},
		"another version":    {change: func(s *apiServer) { s.lastHeardOf("v0.3.0", 0) }, line: "Versions UNKNOWN the plugin is devel, the operator is v0.3.0, which cannot be compared"},
		"no operator's":      {args: []string{"--operator-namespace", "ops"}, line: "Usage"},
		"usage":              {line: "Usage (metrics.k8s.io) OK the usage of pods is served"},
		"no usage":           {change: func(s *apiServer) { s.forget(metricsPath) }, code: 3, line: "Usage (metrics.k8s.io) FAIL metrics.k8s.io is not served: install metrics-server"},
		"no right to usage":  {change: func(s *apiServer) { s.forbidden = []string{usageAPI} }, line: "Usage (metrics.k8s.io) UNKNOWN you may not"},
		"policies":           {line: "Admission policies OK they are installed"},
		"other policies": {change: func(s *apiServer) {
			s.forget(policies)
			s.put(&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
		}, line: "Admission policies WARN none is installed, so users can size what they may not change: kubectl apply --server-side -f https://github.com/verticalscaler/verticalscaler-operator/releases/latest/download/admission-policies.yaml"},
		"no VPAs":    {line: "VerticalPodAutoscalers OK there are none in namespace shop"},
		"VPAs":       {change: vpas, line: "VerticalPodAutoscalers WARN there are 3 in namespace shop: a scaler leaves alone what they size"},
		"scalers":    {line: "Scalers OK 2 in namespace shop, all Ready"},
		"a right":    {line: "Right to patch pods/resize OK in namespace shop"},
		"no right":   {change: func(s *apiServer) { s.may(false) }, line: "Right to create verticalscalers WARN not in namespace shop: you can only look: ask for the ClusterRole verticalscaler-editor"},
		"no reviews": {change: func(s *apiServer) { s.forbidden = []string{reviews} }, line: "Right to patch deployments UNKNOWN you may not"},
		"no API server": {
			change: func(s *apiServer) { s.forbidden = []string{"/"} }, code: 1,
			err: "asking the API server for its version: unknown",
		},
		"an argument": {args: []string{"web"}, code: 2, err: `unexpected argument "web": see "kubectl vscaler check --help"`},
	} {
		t.Run(name, func(t *testing.T) {
			server := newAPIServer(t)
			if tc.change != nil {
				tc.change(server)
			}
			if tc.code == 3 {
				tc.err = "a check failed"
			}
			out, errOut, code := run(t, nil, append([]string{"check"}, tc.args...)...)
			if code != tc.code || errOut != tc.err || tc.line != "" && !strings.Contains("\n"+strings.Join(words(out), "\n")+"\n", "\n"+tc.line) {
				t.Errorf("exit code %d, want %d: %q, want %q\n%swant\n%s", code, tc.code, errOut, tc.err, out, tc.line)
			}
		})
	}
}

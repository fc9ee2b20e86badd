// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// vpas has three of them: web sizes a Deployment, db something else, odd has a field that is not known.
func vpas(s *apiServer) {
	for name, kind := range map[string]string{"web": "Deployment", "db": "StatefulSet", "odd": "Deployment"} {
		spec := map[string]any{"targetRef": map[string]any{"apiVersion": "apps/v1", "kind": kind, "name": name}, "updatePolicy": map[string]any{"updateMode": "InPlace"}}
		if name == "odd" {
			spec["later"] = true
		}
		s.put(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": map[string]any{"namespace": "shop", "name": name}, "spec": spec,
		}})
	}
}

func TestImportVPA(t *testing.T) {
	const (
		skipped = `warning: VerticalPodAutoscaler shop/db is skipped: spec.targetRef names "StatefulSet" of "apps/v1": a scaler sizes Deployments only` + "\n"
		doubted = "warning: VerticalPodAutoscaler shop/odd is imported with updateMode Recommend: not imported are spec.later\n"
	)
	for name, tc := range map[string]struct {
		args      string
		forbidden string
		code      int
		scalers   string // the names of Deployments and the modes
		err       string
	}{
		"a namespace":              {args: "", scalers: "odd Recommend web InPlace", err: skipped + doubted},
		"all namespaces":           {args: "-A", scalers: "odd Recommend web InPlace", err: skipped + doubted},
		"a name":                   {args: "web web", scalers: "web InPlace"},
		"a name that nobody has":   {args: "web who", code: 1, scalers: "web InPlace", err: "VerticalPodAutoscaler shop/who not found"},
		"an empty namespace":       {args: "-n empty", err: "No VerticalPodAutoscalers found in namespace empty.\n"},
		"not installed":            {args: "-n elsewhere", code: 1, err: "the API server does not serve VerticalPodAutoscalers"},
		"no rights":                {args: "", forbidden: vpaAPI, code: 1, err: "listing VerticalPodAutoscalers: you may not"},
		"no rights for one":        {args: "web", forbidden: vpaAPI, code: 1, err: "reading VerticalPodAutoscaler shop/web: you may not"},
		"a name everywhere":        {args: "web -A", code: 2, err: "a name cannot be combined with --all-namespaces"},
		"a kind that is not known": {args: "hpa", code: 1, err: "VerticalPodAutoscaler shop/hpa not found"},
	} {
		t.Run(name, func(t *testing.T) {
			server := newAPIServer(t)
			vpas(server)
			if tc.forbidden != "" {
				server.forbidden = []string{tc.forbidden}
			}
			out, errOut, code := run(t, nil, append([]string{"import", "vpa"}, strings.Fields(tc.args)...)...)
			var scalers []string
			for line := range strings.Lines(out) {
				if words := strings.Fields(line); len(words) == 2 && (words[0] == "deploymentName:" || words[0] == "updateMode:") {
					scalers = append(scalers, words[1])
				}
			}
			if got := strings.Join(scalers, " "); code != tc.code || got != tc.scalers || errOut != tc.err {
				t.Errorf("exit code %d, want %d: %q, want %q\n%s\nwant %s", code, tc.code, errOut, tc.err, out, tc.scalers)
			}
			if got, want := fmt.Sprint(server.written), "[]"; got != want {
				t.Errorf("written %s", got)
			}
		})
	}
	newAPIServer(t)
	if _, errOut, code := run(t, nil, "import", "hpa"); code != 2 || !strings.HasPrefix(errOut, `unknown command "hpa"`) {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}

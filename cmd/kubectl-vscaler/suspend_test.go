// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

func TestSuspendAndResume(t *testing.T) {
	const (
		group  = ".autoscaling.verticalscaler.io/"
		ofWeb  = "PATCH " + ours + "/namespaces/shop/verticalscalers/web?fieldManager=kubectl-vscaler "
		ofLate = "PATCH " + ours + "/namespaces/shop/scaleddeployments/late?fieldManager=kubectl-vscaler "
		dryRun = "PATCH " + ours + "/namespaces/shop/verticalscalers/web?dryRun=All&fieldManager=kubectl-vscaler "
		yes    = `{"spec":{"suspend":true}}`
		no     = `{"spec":{"suspend":false}}`
	)
	for name, tc := range map[string]struct {
		args      string
		suspended bool // already
		paused    string
		forbidden string
		code      int
		out, err  string
		written   []string
	}{
		"a scaler":                  {args: "suspend web", out: "verticalscaler" + group + "web suspended\n", written: []string{ofWeb + yes}},
		"the scaler of an owner":    {args: "suspend sdeploy/late", out: "scaleddeployment" + group + "late suspended\n", written: []string{ofLate + `{"spec":{"scaling":{"suspend":true}}}`}},
		"the scaler's own name":     {args: "suspend late", out: "scaleddeployment" + group + "late suspended\n", written: []string{ofLate + `{"spec":{"scaling":{"suspend":true}}}`}},
		"a Deployment":              {args: "suspend deploy/web", out: "verticalscaler" + group + "web suspended\n", written: []string{ofWeb + yes}},
		"all":                       {args: "suspend --all", out: "scaleddeployment" + group + "late suspended\nverticalscaler" + group + "web suspended\n", written: []string{ofLate + `{"spec":{"scaling":{"suspend":true}}}`, ofWeb + yes}},
		"labels":                    {args: "suspend -l team=shop --dry-run=client", out: "scaleddeployment" + group + "late suspended (dry run)\nverticalscaler" + group + "web suspended (dry run)\n"},
		"nothing is sent":           {args: "suspend web --dry-run=client", out: "verticalscaler" + group + "web suspended (dry run)\n"},
		"the server checks":         {args: "suspend web --dry-run", out: "verticalscaler" + group + "web suspended (server dry run)\n", written: []string{dryRun + yes}},
		"suspended already":         {args: "suspend web", suspended: true, out: "verticalscaler" + group + "web suspended (unchanged)\n"},
		"resumed":                   {args: "resume web", suspended: true, out: "verticalscaler" + group + "web resumed\n", written: []string{ofWeb + no}},
		"resumed already":           {args: "resume web", out: "verticalscaler" + group + "web resumed (unchanged)\n"},
		"resumed, but paused":       {args: "resume web", suspended: true, paused: "incident 42", out: "verticalscaler" + group + "web resumed\n", written: []string{ofWeb + no}, err: "warning: VerticalScaler shop/web is still paused: remove its annotation autoscaling.verticalscaler.io/paused\n"},
		"not paused any more":       {args: "resume web", suspended: true, paused: "false", out: "verticalscaler" + group + "web resumed\n", written: []string{ofWeb + no}},
		"nobody by that name":       {args: "suspend web who", code: 1, err: "VerticalScaler shop/who not found"},
		"forbidden":                 {args: "suspend web", forbidden: ours + "/namespaces/shop/verticalscalers/web", code: 1, err: "patching verticalscaler" + group + "web in namespace shop: you may not"},
		"one that fails of several": {args: "suspend --all", forbidden: ours + "/namespaces/shop/scaleddeployments/late", code: 1, err: "patching scaleddeployment" + group + "late in namespace shop: you may not", out: "verticalscaler" + group + "web suspended\n", written: []string{ofWeb + yes}},
		"an empty namespace":        {args: "suspend --all -n empty", err: "No VerticalScalers found in namespace empty.\n"},
		"not installed":             {args: "suspend --all -n elsewhere", code: 1, err: "the API server does not serve VerticalScalers: is the operator installed?"},
		"nothing is named":          {args: "suspend", code: 2, err: "give names, --selector or --all: one of them"},
		"too much is named":         {args: "resume web --all", code: 2, err: "give names, --selector or --all: one of them"},
	} {
		t.Run(name, func(t *testing.T) {
			server := newAPIServer(t)
			server.edit("late", func(s *v1beta1.VerticalScaler) {
				s.OwnerReferences = []metav1.OwnerReference{controller("ScaledDeployment", "late")}
			})
			server.edit("web", func(s *v1beta1.VerticalScaler) {
				if s.Spec.Suspend = tc.suspended; tc.paused != "" {
					s.Annotations = map[string]string{v1beta1.PausedAnnotation: tc.paused}
				}
			})
			if tc.forbidden != "" {
				server.forbidden = []string{tc.forbidden}
			}
			out, errOut, code := run(t, nil, strings.Fields(tc.args)...)
			if out != tc.out || errOut != tc.err || code != tc.code {
				t.Errorf("exit code %d, want %d: %q, want %q\n%swant\n%s", code, tc.code, errOut, tc.err, out, tc.out)
			}
			if got, want := fmt.Sprint(server.written), fmt.Sprint(tc.written); got != want {
				t.Errorf("written %s, want %s", got, want)
			}
		})
	}
}

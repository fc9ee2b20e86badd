// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/rollback"
)

func TestRollback(t *testing.T) {
	const (
		group = ".autoscaling.verticalscaler.io/"
		ofWeb = "PATCH " + ours + "/namespaces/shop/verticalscalers/web?"
		owned = "PATCH " + ours + "/namespaces/shop/scaleddeployments/late?"
		floor = `"spec":{"resourcePolicy":{"containerPolicies":[{"containerName":"app","minAllowed":{"cpu":"400m"}}]},"updatePolicy":{"updateMode":"InPlace"}}`
	)
	before := rollback.Spec{UpdateMode: v1beta1.UpdateModeInPlace}
	rolledBack := func(s *v1beta1.VerticalScaler) {
		s.Spec.UpdatePolicy.UpdateMode = v1beta1.UpdateModeInPlace
		plan, err := rollback.Of(s, nil, rollback.Previous)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(rollback.Record{To: rollback.Previous, Before: before, After: plan.Spec})
		if err != nil {
			t.Fatal(err)
		}
		s.Annotations = map[string]string{rollback.Annotation: string(text)}
		s.Spec.ResourcePolicy = plan.Spec.ResourcePolicy
	}
	for name, tc := range map[string]struct {
		args      string
		change    func(*v1beta1.VerticalScaler)
		forbidden string
		silent    bool
		conflicts int
		code      int
		out, err  string
		path      string // of the only request that writes, with its query
		body      string // a part of it
	}{
		"the last change": {args: "web", out: "  app cpu 230m->400m (minAllowed)\nverticalscaler" + group + "web rolled back\n", path: ofWeb + "fieldManager=kubectl-vscaler", body: floor},
		"while the operator writes the status": {
			args: "web --to=original", conflicts: 1, out: "  app cpu 230m->500m (minAllowed)\n  app memory 480Mi->1024Mi (minAllowed)\nverticalscaler" + group + "web rolled back\n",
			path: ofWeb + "fieldManager=kubectl-vscaler", body: `"minAllowed":{"cpu":"500m","memory":"1Gi"}`,
		},
		"while somebody writes all the time": {args: "web --to=original", conflicts: 99, code: 1, err: "patching verticalscaler" + group + "web in namespace shop: the object has been modified"},
		"by its Deployment":                  {args: "deploy/web", out: "  app cpu 230m->400m (minAllowed)\nverticalscaler" + group + "web rolled back\n", path: ofWeb + "fieldManager=kubectl-vscaler", body: floor},
		"a dry run of the server":            {args: "web --dry-run", out: "  app cpu 230m->400m (minAllowed)\nverticalscaler" + group + "web rolled back (server dry run)\n", path: ofWeb + "dryRun=All&fieldManager=kubectl-vscaler", body: floor},
		"a dry run of the client":            {args: "web --dry-run=client", out: "  app cpu 230m->400m (minAllowed)\nverticalscaler" + group + "web rolled back (dry run)\n"},
		"the template": {
			args: "web --to=original", path: ofWeb + "fieldManager=kubectl-vscaler", body: `"minAllowed":{"cpu":"500m","memory":"1Gi"}`,
			out: "  app cpu 230m->500m (minAllowed)\n  app memory 480Mi->1024Mi (minAllowed)\nverticalscaler" + group + "web rolled back\n",
		},
		"a template that was taken over": {
			args: "web --to=original", change: func(s *v1beta1.VerticalScaler) {
				s.Status.OriginalResources = &v1beta1.OriginalResources{DeploymentName: "web", UID: "uid"}
			},
			out: "  updateMode Recommend: the operator restores the pod template of Deployment web\nverticalscaler" + group + "web rolled back\n", path: ofWeb + "fieldManager=kubectl-vscaler", body: `"updatePolicy":{"updateMode":"Recommend"}`,
		},
		"rolled back already": {args: "web", change: rolledBack, out: "verticalscaler" + group + "web rolled back (unchanged)\n"},
		"further back": {
			args: "web --to=original", change: rolledBack, out: "  app cpu 230m->500m (minAllowed)\n  app memory 480Mi->1024Mi (minAllowed)\nverticalscaler" + group + "web rolled back\n",
			path: ofWeb + "fieldManager=kubectl-vscaler", body: `\"before\":{\"updateMode\":\"InPlace\"},\"after\"`,
		},
		"undone":          {args: "web --undo", change: rolledBack, out: "verticalscaler" + group + "web no longer rolled back\n", path: ofWeb + "fieldManager=kubectl-vscaler", body: `{"metadata":{"annotations":{"` + rollback.Annotation + `":null},"resourceVersion":"1"},"spec":{"resourcePolicy":null,"updatePolicy":{"updateMode":"InPlace"}}}`},
		"nothing to undo": {args: "web --undo", out: "verticalscaler" + group + "web not rolled back (unchanged)\n"},
		"edited since": {
			args: "web --undo", code: 1, err: "verticalscaler" + group + "web in namespace shop was edited after its rollback: correct its bounds, and remove its annotation " + rollback.Annotation,
			change: func(s *v1beta1.VerticalScaler) { rolledBack(s); s.Spec.ResourcePolicy = nil },
		},
		"of an owner": {
			args: "web", out: "  app cpu 230m->400m (minAllowed)\nscaleddeployment" + group + "late rolled back\n", path: owned + "fieldManager=kubectl-vscaler", body: `"spec":{"scaling":{"resourcePolicy":`,
			change: func(s *v1beta1.VerticalScaler) {
				s.OwnerReferences = []metav1.OwnerReference{controller("ScaledDeployment", "late")}
			},
		},
		"suspended": {
			args: "web", change: func(s *v1beta1.VerticalScaler) { s.Spec.Suspend = true }, out: "  app cpu 230m->400m (minAllowed)\nverticalscaler" + group + "web rolled back\n", path: ofWeb + "fieldManager=kubectl-vscaler",
			err: "warning: the pods of VerticalScaler shop/web stay as they are: it is suspended: resume it\n",
		},
		"without an operator": {
			args: "web", silent: true, out: "  app cpu 230m->400m (minAllowed)\nverticalscaler" + group + "web rolled back\n", path: ofWeb + "fieldManager=kubectl-vscaler",
			err: "warning: nothing changes until the operator runs: The operator in namespace verticalscaler-system was last heard of 60m ago\n",
		},
		"nothing decided":  {args: "late", code: 1, err: "VerticalScaler shop/late is not rolled back: the operator has decided nothing for it"},
		"no right":         {args: "web", forbidden: ours + "/namespaces/shop/verticalscalers/web", code: 1, err: "patching verticalscaler" + group + "web in namespace shop: you may not"},
		"no Deployment":    {args: "web --to=original", forbidden: apps, code: 1, err: "reading Deployment shop/web: you may not"},
		"nobody":           {args: "who", code: 1, err: "VerticalScaler shop/who not found"},
		"nothing named":    {args: "", code: 2, err: "name the scalers to roll back: NAME or TYPE/NAME"},
		"undo of no sense": {args: "web --undo --to=original", code: 2, err: "--undo cannot be combined with --to"},
	} {
		t.Run(name, func(t *testing.T) {
			server := newAPIServer(t)
			server.edit("web", func(s *v1beta1.VerticalScaler) {
				s.Status.History = []v1beta1.HistoryEntry{{Message: "ScaleDown: app cpu 400m->230m"}}
				if tc.change != nil {
					tc.change(s)
				}
			})
			if tc.silent {
				server.lastHeard(time.Hour)
			}
			server.conflicts = tc.conflicts
			if tc.forbidden != "" {
				server.forbidden = []string{tc.forbidden}
			}
			out, errOut, code := run(t, nil, append([]string{"rollback"}, strings.Fields(tc.args)...)...)
			if out != tc.out || errOut != tc.err || code != tc.code {
				t.Errorf("exit code %d, want %d: %q, want %q\n%swant\n%s", code, tc.code, errOut, tc.err, out, tc.out)
			}
			written := strings.Join(server.written, "\n")
			if path, body, _ := strings.Cut(written, " {"); path != tc.path || len(server.written) > 1 || !strings.Contains("{"+body, tc.body) {
				t.Errorf("written %s, want %s with %s", written, tc.path, tc.body)
			}
		})
	}
}

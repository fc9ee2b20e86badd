// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/change"
)

// ofPolicy makes web a scaler of the ClusterScalingPolicy fleet, which is Ready as it is told. There is a ScalingPolicy of
// another name in the namespace, and a ClusterScalingPolicy that has created nothing there.
func (s *apiServer) ofPolicy(ready metav1.ConditionStatus, change func(*v1beta1.VerticalScaler)) {
	s.edit("web", func(web *v1beta1.VerticalScaler) {
		web.OwnerReferences = []metav1.OwnerReference{controller(v1beta1.ClusterScalingPolicyKind, "fleet")}
		web.Labels = map[string]string{v1beta1.PolicyLabel: "fleet"}
		web.Status.History = []v1beta1.HistoryEntry{{Message: "ScaleDown: app cpu 400m->230m"}}
		if change != nil {
			change(web)
		}
	})
	var rules v1beta1.PolicyRules
	rules.Rollout.Start, rules.Template.UpdatePolicy.UpdateMode = "Recommend", "InPlace"
	status := v1beta1.ScalingPolicyStatus{
		Summary:    &v1beta1.PolicySummary{Deployments: "1/2", Promoted: "1/1"},
		Conditions: []metav1.Condition{{Type: "Ready", Status: "True", Reason: "OperatingNormally"}, {Type: "Promoting", Status: "True", Reason: "AllPromoted"}},
	}
	own := &v1beta1.ScalingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "own"}, Spec: v1beta1.ScalingPolicySpec{PolicyRules: rules}, Status: status}
	fleet := &v1beta1.ClusterScalingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}, Spec: v1beta1.ClusterScalingPolicySpec{PolicyRules: rules}, Status: *status.DeepCopy()}
	other := fleet.DeepCopy()
	other.Name = "other"
	if ready == "False" {
		fleet.Status.Conditions[0].Status, fleet.Status.Conditions[0].Reason = ready, "ScalersRejected"
	}
	s.put(own, fleet, other)
}

func TestStatusOfPolicies(t *testing.T) {
	const (
		header   = "NAME DEPLOYMENT MODE CPU MEMORY PODS READY REASON"
		web      = "web web InPlace 230m 480Mi 2/2 True Applied"
		late     = "late late InPlace - - - True WaitingForDeployment"
		owners   = "SCALEDDEPLOYMENT DEPLOYMENT AVAILABLE READY REASON SIZED"
		owner    = "late late 0/1 False NotControlled -"
		policies = "POLICY MODE DEPLOYMENTS PROMOTED READY REASON"
		fleet    = "ClusterScalingPolicy/fleet InPlace 1/2 1/1 True AllPromoted"
		broken   = "ClusterScalingPolicy/fleet InPlace 1/2 1/1 False ScalersRejected"
		other    = "ClusterScalingPolicy/other InPlace 1/2 1/1 True AllPromoted"
		own      = "ScalingPolicy/own InPlace 1/2 1/1 True AllPromoted"
	)
	for name, tc := range map[string]struct {
		args      string
		ready     metav1.ConditionStatus
		forbidden []string
		silent    bool
		code      int
		out       []string
		err       string
	}{
		"a namespace":               {args: "", out: []string{header, late, web, "", owners, owner, "", policies, fleet, own}},
		"all namespaces":            {args: "-A --no-headers", out: []string{"shop " + late, "shop " + web, "", "shop " + owner, "", "- " + fleet, "- " + other, "shop " + own}},
		"a name":                    {args: "web", out: []string{header, web}},
		"a cluster policy":          {args: "cspolicy/fleet", out: []string{header, web, "", policies, fleet}},
		"one that is not used here": {args: "clusterscalingpolicies.autoscaling.verticalscaler.io/other", out: []string{policies, other}},
		"a policy of the namespace": {args: "spolicy/own", out: []string{policies, own}},
		"a policy without a type":   {args: "own", code: 1, err: "VerticalScaler shop/own not found"},
		"no such policy":            {args: "spolicy/fleet", code: 1, err: "no ScalingPolicy shop/fleet and no VerticalScaler of it found"},
		"no such cluster policy":    {args: "cspolicy/own", code: 1, err: "no ClusterScalingPolicy own and no VerticalScaler of it found in namespace shop"},
		"checked and Ready":         {args: "web cspolicy/fleet --check --no-headers", out: []string{web, "", fleet}},
		"checked and not Ready":     {args: "web cspolicy/fleet --check --no-headers", ready: "False", code: 3, out: []string{web, "", broken}, err: "not all scalers are Ready"},
		"without rights on those of the cluster": {
			args: "--no-headers", forbidden: []string{clusterPolicies}, out: []string{late, web, "", owner, "", own},
		},
		"without rights on any": {args: "--no-headers", forbidden: []string{clusterPolicies, ours + "/namespaces/shop/scalingpolicies"}, out: []string{late, web, "", owner}},
		"a silent operator": {
			args: "cspolicy/other --no-headers", silent: true, out: []string{"ClusterScalingPolicy/other InPlace 1/2 1/1 Unknown OperatorSilent"},
			err: "warning: the states may be out of date: The operator in namespace verticalscaler-system was last heard of 5m ago\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := newAPIServer(t)
			if tc.ready == "" {
				tc.ready = "True"
			}
			server.ofPolicy(tc.ready, nil)
			server.forbidden = tc.forbidden
			if tc.silent {
				server.lastHeard(5 * time.Minute)
			}
			out, errOut, code := run(t, nil, append([]string{"status"}, strings.Fields(tc.args)...)...)
			if diff := gocmp.Diff(tc.out, words(out)); diff != "" || code != tc.code || errOut != tc.err {
				t.Errorf("exit code %d, want %d: %q, want %q\n%s", code, tc.code, errOut, tc.err, diff)
			}
		})
	}
}

func TestStatusNamesThePolicyOfAScaler(t *testing.T) {
	newAPIServer(t).ofPolicy("True", nil)
	for _, output := range []string{"wide", "csv", "json"} {
		if out, errOut, code := run(t, nil, "status", "web", "-o", output); code != 0 || !strings.Contains(out, "ClusterScalingPolicy/fleet") {
			t.Errorf("%s: exit code %d: %s%s", output, code, errOut, out)
		}
	}
}

func TestExplainPolicies(t *testing.T) {
	for name, tc := range map[string]struct {
		args      string
		forbidden string
		code      int
		out       []string // are in the output
		err       string
	}{
		"a cluster policy":           {args: "explain clusterscalingpolicy/fleet", out: []string{"ClusterScalingPolicy fleet\n", "  AllPromoted\n"}},
		"by its short name":          {args: "explain cspolicy/fleet -o json", out: []string{`"kind": "ClusterScalingPolicy"`, `"deployments": "1/2"`}},
		"a policy of the namespace":  {args: "explain spolicy/own", out: []string{"ScalingPolicy shop/own\n"}},
		"none":                       {args: "explain spolicy/fleet", code: 1, err: "ScalingPolicy shop/fleet not found"},
		"none of the cluster":        {args: "explain cspolicy/own", code: 1, err: "ClusterScalingPolicy own not found"},
		"without the right":          {args: "explain cspolicy/fleet", forbidden: clusterPolicies, code: 1, err: "reading ClusterScalingPolicy fleet: you may not"},
		"its scaler":                 {args: "explain web", out: []string{"  Created by ClusterScalingPolicy fleet. It does not wait to be promoted.\n"}},
		"a policy in a view of pods": {args: "top spolicy/own --once", code: 2, err: `ScalingPolicy/own is a policy, and not a scaler: name one of its scalers, or see it with "kubectl vscaler explain ScalingPolicy/own"`},
	} {
		t.Run(name, func(t *testing.T) {
			server := newAPIServer(t)
			server.ofPolicy("True", nil)
			if tc.forbidden != "" {
				server.forbidden = []string{tc.forbidden}
			}
			out, errOut, code := run(t, nil, strings.Fields(tc.args)...)
			if code != tc.code || errOut != tc.err {
				t.Errorf("exit code %d, want %d: %q, want %q", code, tc.code, errOut, tc.err)
			}
			for _, want := range tc.out {
				if !strings.Contains(out, want) {
					t.Errorf("the output has no %q:\n%s", want, out)
				}
			}
		})
	}
}

// A policy reverts edits of its scalers: they are suspended by an annotation, and rolled back only if they are detached.
func TestScalersOfPoliciesAreNotEdited(t *testing.T) {
	const (
		name   = "verticalscaler.autoscaling.verticalscaler.io/web"
		paused = `{"metadata":{"annotations":{"autoscaling.verticalscaler.io/paused":"suspended by kubectl vscaler"}}}`
		free   = `{"metadata":{"annotations":{"autoscaling.verticalscaler.io/paused":null}}}`
		detach = `{"metadata":{"annotations":{"autoscaling.verticalscaler.io/detached":"true"}}}`
		edit   = `"spec":{"resourcePolicy"`
		no     = "VerticalScaler shop/web is not rolled back: ClusterScalingPolicy/fleet has created it, and would revert the change. Detach it with --detach, or exclude Deployment web with its annotation autoscaling.verticalscaler.io/exclude"
	)
	annotated := func(key, value string) func(*v1beta1.VerticalScaler) {
		return func(s *v1beta1.VerticalScaler) { s.Annotations = map[string]string{key: value} }
	}
	for title, tc := range map[string]struct {
		args     string
		change   func(*v1beta1.VerticalScaler)
		code     int
		out, err string
		writes   []string // a part of each
	}{
		"suspended":                    {args: "suspend web", out: name + " suspended\n", writes: []string{paused}},
		"all of a policy":              {args: "suspend cspolicy/fleet --dry-run", out: name + " suspended (server dry run)\n", writes: []string{paused}},
		"nothing is sent":              {args: "suspend web --dry-run=client", out: name + " suspended (dry run)\n"},
		"paused already":               {args: "suspend web", change: annotated(v1beta1.PausedAnnotation, "incident 42"), out: name + " suspended (unchanged)\n"},
		"not paused any more":          {args: "suspend web", change: annotated(v1beta1.PausedAnnotation, "false"), out: name + " suspended\n", writes: []string{paused}},
		"suspended by its policy":      {args: "suspend web", change: func(s *v1beta1.VerticalScaler) { s.Spec.Suspend = true }, out: name + " suspended (unchanged)\n"},
		"resumed":                      {args: "resume web", change: annotated(v1beta1.PausedAnnotation, change.SuspendedByPlugin), out: name + " resumed\n", writes: []string{free}},
		"resumed already":              {args: "resume web", out: name + " resumed (unchanged)\n"},
		"paused by someone else":       {args: "resume web", change: annotated(v1beta1.PausedAnnotation, "incident 42"), out: name + " resumed (unchanged)\n", err: "warning: VerticalScaler shop/web is still paused: remove its annotation autoscaling.verticalscaler.io/paused\n"},
		"still suspended":              {args: "resume web", change: func(s *v1beta1.VerticalScaler) { s.Spec.Suspend = true }, out: name + " resumed (unchanged)\n", err: "warning: VerticalScaler shop/web is still suspended: set spec.template.suspend of ClusterScalingPolicy/fleet to false\n"},
		"about to be a user's":         {args: "suspend web", change: annotated(v1beta1.DetachedAnnotation, "true"), out: name + " suspended\n", writes: []string{`{"spec":{"suspend":true}}`}},
		"rolled back":                  {args: "rollback web", code: 1, err: no},
		"rolled back and detached":     {args: "rollback web --detach", out: name + " detached from ClusterScalingPolicy/fleet\n  app cpu 230m->400m (minAllowed)\n" + name + " rolled back\n", writes: []string{detach, edit}},
		"a dry run of that":            {args: "rollback web --detach --dry-run", out: name + " detached from ClusterScalingPolicy/fleet (server dry run)\n  app cpu 230m->400m (minAllowed)\n" + name + " rolled back (server dry run)\n", writes: []string{detach, edit}},
		"rolled back after detaching":  {args: "rollback web", change: annotated(v1beta1.DetachedAnnotation, ""), out: "  app cpu 230m->400m (minAllowed)\n" + name + " rolled back\n", writes: []string{edit}},
		"detached, and nothing undone": {args: "rollback web --undo --detach", code: 2, err: "--undo cannot be combined with --detach"},
	} {
		t.Run(title, func(t *testing.T) {
			server := newAPIServer(t)
			server.ofPolicy("True", tc.change)
			out, errOut, code := run(t, nil, strings.Fields(tc.args)...)
			if out != tc.out || errOut != tc.err || code != tc.code {
				t.Errorf("exit code %d, want %d: %q, want %q\n%swant\n%s", code, tc.code, errOut, tc.err, out, tc.out)
			}
			if len(server.written) != len(tc.writes) {
				t.Fatalf("written %q, want %q", server.written, tc.writes)
			}
			for i, want := range tc.writes {
				if !strings.Contains(server.written[i], want) || strings.Contains(tc.args, "--dry-run") != strings.Contains(server.written[i], "dryRun=All") {
					t.Errorf("written %s, want %s", server.written[i], want)
				}
			}
		})
	}
}

// A bundle has the policies that the user may read, and their explanations.
func TestSupportBundleHasPolicies(t *testing.T) {
	server := newAPIServer(t)
	server.supported()
	server.put(&v1beta1.ScalingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "own", Annotations: map[string]string{"a": "canary", v1beta1.PausedAnnotation: "incident"}}},
		&v1beta1.ClusterScalingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "fleet", Labels: map[string]string{"a": "canary"}}})
	for _, mayReadAll := range []bool{true, false} {
		if !mayReadAll {
			server.forbidden = []string{clusterPolicies}
		}
		out, errOut, code := run(t, nil, "support-bundle", "-o", "-")
		if code != 0 || errOut != "" {
			t.Fatalf("exit code %d: %s", code, errOut)
		}
		files := unpacked(t, strings.NewReader(out))
		policies := files["policies.yaml"]
		if !strings.Contains(policies, "kind: ScalingPolicy\n") || !strings.Contains(policies, "paused: incident") || strings.Contains(policies, "canary") ||
			!strings.Contains(files["policies/ScalingPolicy-own.txt"], "ScalingPolicy shop/own\n") {
			t.Errorf("policies.yaml:\n%s\n%v", policies, files["policies/ScalingPolicy-own.txt"])
		}
		if strings.Contains(policies, "kind: ClusterScalingPolicy\n") != mayReadAll || (files["policies/ClusterScalingPolicy-fleet.txt"] != "") != mayReadAll ||
			strings.Contains(files["README.txt"], "ClusterScalingPolicies: you may not") == mayReadAll {
			t.Errorf("may read all: %t: %s", mayReadAll, fmt.Sprint(files["README.txt"], policies))
		}
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/kube"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/snapshot"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/top/render"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// stateIn is the line of a scaler that an overview writes for programs: Ready, the reason, since when, and who must act.
func stateIn(t *testing.T, row explain.Row) (ready, reason, since, ends string) {
	t.Helper()
	records, err := csv.NewReader(strings.NewReader(explain.Overview{Scalers: []explain.Row{row}}.CSV(true))).ReadAll()
	if err != nil || len(records) != 2 {
		t.Fatalf("%v: %v", records, err)
	}
	of := map[string]string{}
	for i, column := range records[0] {
		of[column] = records[1][i]
	}
	return of["ready"], of["reason"], of["since"], of["ends"]
}

// checked are the cases for which a check runs: it takes many requests.
var checked = []string{"Applied", "Paused", "QoSChange", "MetricsIncomplete", "deleted", "no operator is in charge"}

// All views have the same state of a scaler, since when it is in it, and who must act, for each reason, and while the
// status cannot be relied on.
func TestAllViewsAgreeAboutAScaler(t *testing.T) {
	s := newAPIServer(t)
	s.forget(ofShop + "/verticalscalers/late")
	address, _ := startDashboard(t)
	type view = func(*v1beta1.VerticalScaler)
	cases := map[string]view{
		"deleted": func(web *v1beta1.VerticalScaler) {
			web.Generation, web.DeletionTimestamp = 9, ptr.To(metav1.NewTime(time.Now().Add(-90*time.Minute)))
		},
		"edited":       func(web *v1beta1.VerticalScaler) { web.Generation = 9 },
		"not observed": func(web *v1beta1.VerticalScaler) { web.Status.Conditions = nil },
	}
	for _, r := range explain.Reasons {
		cases[r.Reason] = func(web *v1beta1.VerticalScaler) {
			kind, ready := "Applied", metav1.ConditionTrue
			if r.Ends == explain.ByUser {
				kind, ready = "Ready", metav1.ConditionFalse
			}
			web.Status.Conditions = []metav1.Condition{
				{Type: "Ready", Status: ready, Reason: v1beta1.ReasonOperatingNormally},
				{Type: "Applied", Status: "True", Reason: v1beta1.ReasonApplied},
				{Type: "RecommendationProvided", Status: "True", Reason: v1beta1.ReasonEnoughHistory},
			}
			for i, c := range web.Status.Conditions {
				if c.Type == kind {
					web.Status.Conditions[i].Reason = r.Reason
				}
			}
			web.Status.Summary.Reason, web.Status.Summary.ReasonTime = r.Reason, ptr.To(metav1.NewTime(time.Now().Add(-90*time.Minute)))
		}
	}
	colors := map[string]string{"Fine": "fine", "ByItself": "moving", "ByUser": "blocked"}
	resolved := map[string]string{"ByItself": "    resolved  by itself\n", "ByUser": "    resolved  by user\n"}
	untouched := s.objects[ofShop+"/verticalscalers/web"].DeepCopyObject().(*v1beta1.VerticalScaler)
	for _, isInCharge := range []bool{true, false} {
		if !isInCharge {
			s.lastHeard(90 * time.Minute)
			cases = map[string]view{"no operator is in charge": cases[v1beta1.ReasonQoSChange]}
		}
		for name, change := range cases {
			web := untouched.DeepCopy()
			change(web)
			s.put(web)
			now := time.Now()
			lease := *s.objects[coordination+"/namespaces/"+kube.DefaultOperatorNamespace+"/leases/"+v1beta1.LeaseName].(*coordinationv1.Lease)
			e := explain.Evidence{Scaler: web, Operators: explain.OperatorsOf([]coordinationv1.Lease{lease}), Now: now}
			ready, reason, since, ends := stateIn(t, explain.RowOf(e))
			age := ""
			if since != "" {
				age = "90m"
			}

			explained := explain.Of(e)
			text := explained.Text(now)
			first := explained.Findings[0]
			line := "\n  " + reason
			if age != "" {
				line += ", for " + age
			}
			_, finding, ok := strings.Cut(text, line+"\n")
			finding, _, _ = strings.Cut(finding, "    action")
			if !ok || first.Reason.Reason != reason || string(first.Ends) != ends || !strings.Contains(finding, resolved[ends]) {
				t.Errorf("%s: explain does not have %q, %s:\n%s", name, line, ends, text)
			}
			if strings.Contains(text, "No action needed") && ends != "Fine" {
				t.Errorf("%s: explain says that no action is needed:\n%s", name, text)
			}

			shown := snapshot.Of(e, nil, "", now)
			title := "\n" + reason
			if age != "" {
				title += " for " + age
			}
			if got := ansi.Strip(strings.Join(render.Scaler(shown, &snapshot.Record{}, 100), "\n")); !strings.Contains(got, title) {
				t.Errorf("%s: top does not have %q:\n%s", name, title, got)
			}
			fleet := snapshot.Table{At: now, Rows: []snapshot.Row{snapshot.RowOf(shown)}}
			lines, _ := render.Table(fleet, 80, false)
			tally := fleet.Overview().Tally()
			if got := ansi.Strip(strings.Join(lines, "\n")); !strings.Contains(got, "web   "+reason) || !strings.Contains(got, tally.String()) || (tally.NeedUser == 1) != (ends == "ByUser") || (tally.NotReady == 0) != (ready == "True") {
				t.Errorf("%s: top does not have %s of %q:\n%s", name, reason, tally, got)
			}

			_, page := pageAt(t, address+"scalers/shop/web")
			if want := fmt.Sprintf(`<span class="tag %s" id="state">%s</span>`, colors[ends], reason); !strings.Contains(page, want) {
				t.Errorf("%s: the dashboard does not have %s", name, want)
			}
			if isFine := strings.Contains(page, "No action needed"); isFine && ends != "Fine" {
				t.Errorf("%s: the dashboard says that no action is needed", name)
			}

			if !slices.Contains(checked, name) {
				continue
			}
			checks, _, _ := run(t, nil, "check")
			if isNamed := strings.Contains(checks, "not Ready: web ("+reason+")"); isNamed != (ready != "True") {
				t.Errorf("%s is %s %s:\n%s", name, ready, reason, checks)
			}
		}
	}
}

// All views have the same state of a policy and of a ScaledDeployment, and count alike. The metric has the policies that a user must act on.
func TestAllViewsAgreeAboutPoliciesAndScaledDeployments(t *testing.T) {
	s := newAPIServer(t)
	s.ofPolicy("")
	s.forget(ofShop + "/verticalscalers/late")
	condition := func(kind, reason string, isTrue bool) metav1.Condition {
		return metav1.Condition{Type: kind, Reason: reason, Message: "Because", Status: map[bool]metav1.ConditionStatus{true: "True", false: "False"}[isTrue]}
	}
	policy := s.objects[clusterPolicies+"/fleet"].(*v1beta1.ClusterScalingPolicy)
	owner := s.objects[ofShop+"/scaleddeployments/late"].(*v1beta1.ScaledDeployment)
	for name, tc := range map[string]struct {
		ready    bool
		policy   []metav1.Condition
		blind    int32
		owner    string
		wantUser int
	}{
		v1beta1.ReasonForbidden:           {owner: v1beta1.ReasonForbidden, wantUser: 2},
		v1beta1.ReasonInvalidSelector:     {owner: v1beta1.ReasonNotControlled, wantUser: 2},
		v1beta1.ReasonTooManyPolicies:     {owner: v1beta1.ReasonNotControlled, wantUser: 2},
		v1beta1.ReasonScalersRejected:     {owner: v1beta1.ReasonRollingOut, wantUser: 1},
		v1beta1.ReasonPromotionHalted:     {policy: []metav1.Condition{condition("Promoting", v1beta1.ReasonPromotionHalted, false)}, owner: v1beta1.ReasonRollingOut, wantUser: 1},
		v1beta1.ReasonPaused:              {ready: true, policy: []metav1.Condition{condition("Promoting", v1beta1.ReasonPaused, false)}},
		v1beta1.ReasonFrozen:              {ready: true, policy: []metav1.Condition{condition("Promoting", v1beta1.ReasonFrozen, false)}},
		v1beta1.ReasonCreatingScalers:     {ready: true, policy: []metav1.Condition{condition("Reconciling", v1beta1.ReasonCreatingScalers, true)}},
		v1beta1.ReasonPromotionInProgress: {ready: true, policy: []metav1.Condition{condition("Promoting", v1beta1.ReasonPromotionInProgress, true)}},
		v1beta1.ReasonMetricsIncomplete:   {ready: true, blind: 10, wantUser: 1},
	} {
		of := map[bool]string{true: v1beta1.ReasonOperatingNormally, false: name}[tc.ready && name != v1beta1.ReasonPaused]
		if name == v1beta1.ReasonPaused {
			of = name
		}
		policy.Status.Scaled, policy.Status.States = 10, []v1beta1.PolicyCount{{Reason: v1beta1.ReasonMetricsIncomplete, Count: tc.blind}}
		policy.Status.Conditions = slices.Concat(tc.policy, []metav1.Condition{condition("Ready", of, tc.ready)})
		owner.Status.Conditions = []metav1.Condition{condition("Ready", cmp.Or(tc.owner, v1beta1.ReasonOperatingNormally), tc.owner == "")}
		s.put(policy, owner)

		action := ""
		if row := explain.PolicyRowOf(explain.PolicyOf(policy), nil, time.Now()); row.Ends == explain.ByUser {
			action = name
		}
		if got := scaler.ActionOf(policy.Status); got != action {
			t.Errorf("%s: the metric has %q, want %q", name, got, action)
		}
		table, errOut, code := run(t, nil, "status", "-A", "--check")
		isReady := tc.ready && tc.blind == 0 && tc.owner == ""
		if line := strings.Join(words(table), "\n"); !strings.Contains(line, " "+name) || (code == 0) != isReady {
			t.Errorf("%s: exit code %d: %s%s", name, code, table, errOut)
		}
		top, _, _ := run(t, nil, "top", "-A")
		address, _ := startDashboard(t) // another one keeps what it has read
		_, page := pageAt(t, address)
		_, tally, isCounted := strings.Cut(strings.TrimSpace(errOut), "error: ")
		require := "none requires action"
		if tc.wantUser > 0 {
			require = explain.Counted(tc.wantUser, "requires action", "require action")
		}
		for view, text := range map[string]string{"top": top, "the dashboard": page} {
			isNamed := strings.Contains(text, "ClusterScalingPolicy/fleet: "+name+": Because") || tc.blind > 0 && strings.Contains(text, "ClusterScalingPolicy/fleet: "+name)
			if !strings.Contains(text, require) || isCounted && !strings.Contains(text, tally) || isNamed != (action != "") {
				t.Errorf("%s: %s does not have %q or the policy:\n%s", name, view, require, text)
			}
		}
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/jsonpath"
	testclock "k8s.io/utils/clock/testing"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/kube"
)

func TestTopPrintsOnce(t *testing.T) {
	cases := map[string]struct {
		args      []string
		forbidden []string
		code      int
		want      []string // lines of the output
		err       string
	}{
		"a scaler": {[]string{"web"}, nil, 0, []string{
			"Deployment web, InPlace, profile Balanced", "Applied; 2 of 2 pods at the decided size", "cpu 41m 230m - - - 18% ████················",
			"memory 60Mi 480Mi - - - 12% ███·················", "a no 41m/230m 60Mi/480Mi - 0", "b no -/230m -/480Mi - 0", "No usage is known of 1 of 2 pods.",
		}, ""},
		"a scaler without a Deployment": {[]string{"late"}, nil, 0, []string{"WaitingForDeployment", "No containers are known."}, ""},
		"a Deployment":                  {[]string{"deploy/web"}, nil, 0, []string{"Applied; 2 of 2 pods at the decided size"}, ""},
		"a namespace": {nil, nil, 0, []string{
			"web Applied 2/2 41m 460m - 60Mi 960Mi -", "cpu 460m requested, 41m used",
		}, ""},
		"all namespaces": {[]string{"-A", "--sort-by=name"}, nil, 0, []string{"shop web Applied 2/2 41m 460m - 60Mi 960Mi -", "shop late WaitingForDeployment - - - - - - -"}, ""},
		"no usage":       {[]string{"web"}, []string{metricsPath}, 0, []string{`No usage: reading the usage of namespace "shop": you may not`, "cpu - 230m - - - -"}, ""},
		"no metrics API": {[]string{"web", "-n", "shop"}, []string{"none"}, 0, []string{"cpu 41m 230m - - - 18% ████················"}, ""},
		"no pods":        {[]string{"web"}, []string{"/api/v1"}, 0, []string{"The pods of Deployment shop/web: you may not", "cpu - - - - - -"}, ""},
		"no pods of all": {nil, []string{"/api/v1", apps, metricsPath}, 0, []string{
			"The Deployments: you may not", "The pods: you may not", `The usage of 1 of 1 namespaces: reading the usage of namespace "shop": you may not`, "web Applied 2/2 - - - - - -",
		}, ""},
		"nothing":              {[]string{"-n", "empty"}, nil, 0, nil, "No VerticalScalers found in namespace empty.\n"},
		"no scalers":           {nil, []string{ours}, 1, nil, "listing VerticalScalers: you may not"},
		"not installed":        {[]string{"-n", "elsewhere"}, nil, 1, nil, "the API server does not serve VerticalScalers: is the operator installed?"},
		"not found":            {[]string{"who"}, nil, 1, nil, "VerticalScaler shop/who not found"},
		"a name everywhere":    {[]string{"web", "-A"}, nil, 2, nil, "a name cannot be combined with --all-namespaces"},
		"two names":            {[]string{"web", "late"}, nil, 2, nil, "name one VerticalScaler, or none for all of them"},
		"an order of one":      {[]string{"web", "--sort-by=name"}, nil, 2, nil, "--sort-by requires several scalers: leave the name out"},
		"too often":            {[]string{"--interval=1ms"}, nil, 2, nil, "--interval must be 1s or more"},
		"history of all":       {[]string{"--prometheus=http://p"}, nil, 2, nil, "--prometheus requires the name of a scaler"},
		"history from nowhere": {[]string{"web", "--since=1h"}, nil, 2, nil, "--since requires --prometheus"},
		"too much history":     {[]string{"web", "--prometheus=http://p", "--since=9000h"}, nil, 2, nil, "--since must be from 5m0s to 2160h0m0s"},
		"history as data":      {[]string{"web", "-o", "json", "--prometheus=http://p"}, nil, 2, nil, "--prometheus cannot be combined with --output"},
		"a bad Prometheus":     {[]string{"web", "--prometheus=p"}, nil, 2, nil, "--prometheus: the address of Prometheus must be an http or https URL"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			newAPIServer(t).forbidden = tc.forbidden
			out, errOut, code := run(t, nil, append([]string{"top"}, tc.args...)...)
			if code != tc.code || !strings.HasPrefix(errOut, tc.err) || tc.err == "" && errOut != "" {
				t.Errorf("exit code %d, want %d: %q, want %q", code, tc.code, errOut, tc.err)
			}
			if len(tc.args) == 0 && len(tc.forbidden) == 0 && !strings.HasPrefix(out, "2 scalers, 1 requires action ") {
				t.Errorf("no sum: %s", out)
			}
			if strings.Contains(out, "\x1b") || tc.want == nil && out != "" {
				t.Errorf("no terminal gets no escape sequences, and an error no output: %q", out)
			}
			got := map[string]bool{}
			for _, line := range words(out) {
				got[line] = true
			}
			for _, want := range tc.want {
				if !got[want] {
					t.Errorf("no line %q in\n%s", want, out)
				}
			}
		})
	}
}

// What cannot be read is absent, and named.
func TestTopAsData(t *testing.T) {
	for name, tc := range map[string]struct {
		args, forbidden []string
		want            map[string]string // by JSON path; "" for what is absent
	}{
		"a scaler": {[]string{"web"}, nil, map[string]string{
			"{.scaler.name}": "web", "{.scaler.reason}": "Applied", "{.findings[0].reason}": "Applied", "{.missing}": "",
			"{.containers[0].resources[0].usage}":           `{"least":"41m","most":"41m","pods":1,"total":"41m"}`,
			"{.containers[0].resources[0].request.total}":   "460m",
			"{.containers[0].resources[0].busiest.pod}":     "a",
			"{.containers[0].resources[0].target}":          "",
			"{.containers[0].resources[1].decided}":         "480Mi",
			"{.pods[0].containers[0].usage.memory}":         "60Mi",
			"{.pods[1].containers[0].usage}":                "",
			"{.pods[1].containers[0].requests}":             `{"cpu":"230m","memory":"480Mi"}`,
			"{.containers[0].resources[0].busiest.percent}": "17.8",
		}},
		"a scaler without rights": {[]string{"deployment/web"}, []string{"/api/v1", apps, metricsPath}, map[string]string{
			"{.scaler.name}": "web", "{.pods}": "[]", "{.containers[0].resources[0]}": `{"decided":"230m","resource":"cpu"}`,
			"{.missing[1]}": "The pod template and the pods of Deployment shop/web: you may not",
			"{.missing[0]}": `Usage: reading the usage of namespace "shop": you may not`,
		}},
		"all scalers": {[]string{"-A", "--sort-by=name"}, nil, map[string]string{
			"{.scalers[*].name}": "late web", "{.resources.cpu.usage}": "41m", "{.resources.memory.request}": "960Mi", "{.resources.cpu.above}": "",
			"{.scalers[1].resources.cpu}": `{"request":"460m","usage":"41m"}`, "{.scalers[0].resources.cpu}": "{}",
		}},
		"no scalers": {[]string{"-n", "empty"}, nil, map[string]string{"{.scalers}": "[]", "{.resources.cpu}": "{}"}},
	} {
		newAPIServer(t).forbidden = tc.forbidden
		asJSON, errOut, code := run(t, nil, append([]string{"top", "-o", "json"}, tc.args...)...)
		var fromJSON map[string]any
		if err := json.Unmarshal([]byte(asJSON), &fromJSON); err != nil || code != 0 || errOut != "" {
			t.Fatalf("%s: exit code %d: %s%v", name, code, errOut, err)
		}
		for path, want := range tc.want {
			parsed, got := jsonpath.New(path).AllowMissingKeys(true), strings.Builder{}
			if err := parsed.Parse(path); err != nil {
				t.Fatal(err)
			}
			if err := parsed.Execute(&got, fromJSON); err != nil && want != "" || got.String() != want {
				t.Errorf("%s: %s is %q, want %q (%v):\n%s", name, path, got.String(), want, err, asJSON)
			}
		}
	}
}

func TestTopHonorsTheWidth(t *testing.T) {
	newAPIServer(t)
	for _, width := range []int{30, 64, 200} {
		t.Setenv("COLUMNS", fmt.Sprint(width))
		widest := 0
		for _, args := range [][]string{{"top", "-A"}, {"top", "web"}} {
			out, errOut, _ := run(t, nil, args...)
			for line := range strings.Lines(out + errOut) {
				widest = max(widest, ansi.StringWidth(strings.TrimRight(line, "\n")))
			}
		}
		if widest > width || width < 100 && widest < width-10 {
			t.Errorf("COLUMNS=%d: the widest line has %d columns", width, widest)
		}
	}
}

func TestTopShowsThePast(t *testing.T) {
	newAPIServer(t)
	prometheus := serve(t, answer)
	out, errOut, code := run(t, nil, "top", "web", "--once", "--prometheus="+prometheus, "--since=3h")
	if code != 0 || !strings.Contains(out, "cpu usage      ██████") || !strings.Contains(out, "-179m") || !strings.Contains(out, "full height 300m") {
		t.Errorf("exit code %d: %s%s", code, errOut, out)
	}
}

// A large fleet is read with few requests, however many scalers it has.
func TestAFleetIsReadWithFewRequests(t *testing.T) {
	server := newAPIServer(t)
	if _, errOut, code := run(t, nil, "top", "-A"); code != 0 {
		t.Fatal(errOut)
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	want := map[string]int{ours + "/verticalscalers": 1, apps + "/deployments": 1, "/api/v1/pods": 1, metricsPath + "/namespaces/shop/pods": 1, coordination + "/leases": 1}
	if !maps.Equal(server.asked, want) {
		t.Errorf("requests %v, want %v", server.asked, want)
	}
}

// Each page of pods counts, and pods of a Deployment with two scalers count once.
func TestPodsCountOnce(t *testing.T) {
	server := newAPIServer(t)
	second := server.objects[ofShop+"/verticalscalers/web"].DeepCopyObject().(*v1beta1.VerticalScaler)
	second.Name, second.CreationTimestamp.Time = "second", second.CreationTimestamp.Add(time.Minute)
	server.put(second)
	server.pageSize = 1
	out, errOut, code := run(t, nil, "top", "-A")
	text := strings.Join(words(out), "\n")
	if code != 0 || !strings.Contains(text, "cpu 460m requested, 41m used\n") || !strings.Contains(text, "web Applied 2/2 41m 460m") || !strings.Contains(text, "second Applied 2/2 - -") {
		t.Errorf("exit code %d: %s%s", code, errOut, out)
	}
}

// metrics-server has no new usage within seconds, so it is not asked again.
func TestUsageIsNotReadAgainAtOnce(t *testing.T) {
	server := newAPIServer(t)
	cluster, clock := kube.New(&cobra.Command{}), testclock.NewFakeClock(time.Now())
	cluster.Clock = clock
	r, err := cluster.OpenLive()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{1, 1, 2} {
		if _, err := r.Scaler(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}); err != nil {
			t.Fatal(err)
		}
		if got := server.count(metricsPath + "/namespaces/shop/pods"); got != want {
			t.Errorf("after read %d: %d requests for usage, want %d", i+1, got, want)
		}
		clock.SetTime(clock.Now().Add(3 * time.Second))
	}
}

// What a dead operator has reported is not shown as if it were true.
func TestTopShowsADeadOperator(t *testing.T) {
	server := newAPIServer(t)
	server.lastHeard(5 * time.Minute)
	for _, args := range [][]string{{"top", "web"}, {"top", "-A"}} {
		out, errOut, code := run(t, nil, args...)
		if code != 0 || !strings.Contains(out, "OperatorSilent") || strings.Contains(out, " Applied") {
			t.Errorf("%v: exit code %d: %s%s", args, code, errOut, out)
		}
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/kube"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

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
	assert.Contains(t, "top", printed(t, "top", "web", "--once", "--prometheus="+prometheus, "--since=3h"),
		"cpu usage      ██████", "-179m", "full height 300m")
}

// A spreadsheet can calculate with all amounts: none is text.
func TestDataHasNumbers(t *testing.T) {
	newAPIServer(t).ofPolicy("")
	for _, command := range []string{"status -A", "top -A", "top web", "explain web", "explain cspolicy/fleet", "explain sdeploy/late"} {
		out, errOut, code := run(t, nil, append(strings.Fields(command), "-o=json")...)
		texts := regexp.MustCompile(`"([^"]*)",?\n`).FindAllStringSubmatch(out, -1)
		if code != 0 || len(texts) == 0 || command == "top -A" && !strings.Contains(out, `"kind": "ClusterScalingPolicy"`) {
			t.Errorf("%s: exit code %d: %s%s", command, code, errOut, out)
		}
		for _, text := range texts {
			if q, err := resource.ParseQuantity(text[1]); err == nil {
				t.Errorf("%s has the text %s", command, &q)
			}
		}
	}
}

// A large fleet is read with few requests, however many scalers it has.
func TestAFleetIsReadWithFewRequests(t *testing.T) {
	server := newAPIServer(t)
	printed(t, "top", "-A")
	server.mu.Lock()
	defer server.mu.Unlock()
	want := map[string]int{
		clusterPolicies: 1, ours + "/scalingpolicies": 1, ours + "/scaleddeployments": 1,
		ours + "/verticalscalers": 1, apps + "/deployments": 1, "/api/v1/pods": 1, metricsPath + "/namespaces/shop/pods": 1, coordination + "/leases": 1,
		"/api/v1/namespaces/verticalscaler-system/configmaps/verticalscaler-freeze": 1,
	}
	assert.Equal(t, "requests", want, server.asked)
}

// Each page of pods counts, and pods of a Deployment with two scalers count once.
func TestPodsCountOnce(t *testing.T) {
	server := newAPIServer(t)
	second := server.objects[ofShop+"/verticalscalers/web"].DeepCopyObject().(*v1beta1.VerticalScaler)
	second.Name, second.CreationTimestamp.Time = "second", second.CreationTimestamp.Add(time.Minute)
	server.put(second)
	server.pageSize = 1
	text := strings.Join(words(printed(t, "top", "-A")), "\n")
	assert.Contains(t, "top", text, "cpu in cores: 0.46 requested, 0.04 used\n", "web Applied 2/2 41m 460m", "second Applied 2/2 - -")
}

// metrics-server has no new usage within seconds, so it is not asked again.
func TestUsageIsNotReadAgainAtOnce(t *testing.T) {
	server := newAPIServer(t)
	cluster, clock := kube.New(&cobra.Command{}), testclock.NewFakeClock(time.Now())
	cluster.Clock = clock
	r, err := cluster.OpenSnapshots()
	must.Succeed(t, err)
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

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/dashboard"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/dashboard/pages"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/kube"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/past"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/snapshot"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

const (
	otherTeam = 6
	otherApps = 300
)

// newFleetServer has the scaler web in the namespace shop: it lowers pods, and verifies the first. One
// of the pods has no usage. 300 others are in 6 namespaces, in all states.
func newFleetServer(t *testing.T) *apiServer {
	t.Helper()
	s, q, now := startServer(t), resource.MustParse, time.Now()
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	web := newScaler("shop", "web", metav1.Condition{Status: "False", Reason: "Verifying", Message: "1 of 3 pods is verified at 310m, the others follow", LastTransitionTime: ago(80 * time.Second)})
	web.Status.Summary = &v1beta1.Summary{CPU: "500m->310m", Memory: "640Mi", Pods: "1/3", Reason: "Verifying", ReasonTime: ptr.To(ago(80 * time.Second))}
	web.Status.Recommendation = &v1beta1.Recommendation{ContainerRecommendations: []v1beta1.ContainerRecommendation{{
		ContainerName: "app", ObservedSeconds: 8 * 24 * 3600,
		Target: amounts("310m", "640Mi"), LowerBound: amounts("270m", "600Mi"), UpperBound: amounts("380m", "760Mi"),
		Reasons: []v1beta1.RecommendationReason{
			{Resource: "cpu", Code: "RecentPeak", Value: q("269m")},
			{Resource: "cpu", Code: "SafetyMargin", Margin: "15%", Value: q("310m")},
			{Resource: "memory", Code: "Peak", Value: q("540Mi")},
			{Resource: "memory", Code: "OOMFloor", Value: q("640Mi")},
		},
	}}}
	web.Status.Decision = &v1beta1.Decision{
		Time: ago(2 * time.Minute), Reason: "ScaleDown",
		Containers:   []v1beta1.ContainerDecision{{ContainerName: "app", Requests: amounts("310m", "640Mi")}},
		Verification: &v1beta1.Verification{StartTime: ago(80 * time.Second), LastGood: []v1beta1.ContainerDecision{{ContainerName: "app", Requests: amounts("500m", "")}}},
	}
	web.Status.RevertedChanges = []v1beta1.RevertedChange{{ContainerName: "app", Resource: "memory", Value: q("512Mi"), LastGood: q("640Mi"), Time: ago(30 * time.Hour), Message: "pod web-1 was OOM-killed"}}
	web.Status.History = []v1beta1.HistoryEntry{
		{Time: ago(2 * time.Minute), Message: "ScaleDown: app cpu 500m->310m"}, {Time: ago(31 * time.Hour), Message: "OOMKill: app memory 512Mi->640Mi"},
	}
	s.put(web, newDeployment("shop", "web", 3, "500m", "1Gi", ""))
	for i, cpu := range []string{"310m", "500m", "500m"} {
		pod := newPod("shop", fmt.Sprintf("web-5d4f8b9c4-%d", i), "web", cpu, "640Mi", "1Gi")
		if s.put(pod); i < 2 {
			s.put(usageOf(pod, fmt.Sprintf("%dm", 120+200*i), "410Mi"))
		}
	}
	states := []metav1.Condition{
		{Status: "True", Reason: "Applied"}, {Status: "False", Reason: "Resizing"}, {Status: "False", Reason: "QoSChange"}, {Status: "Unknown", Reason: "DeploymentNotFound"}, {Status: "False", Reason: "OfANewerVersion"},
	}
	for i := range otherApps {
		namespace, name := fmt.Sprintf("team-%d", i%otherTeam), fmt.Sprintf("app-with-a-rather-long-name-%03d", i)
		applied := states[i%len(states)]
		applied.Message = "A message of the operator about " + name
		other := newScaler(namespace, name, applied)
		other.Status.Summary = &v1beta1.Summary{CPU: fmt.Sprintf("%dm->200m", 100+i), Memory: "1Gi", Pods: "1/1"}
		other.Status.Recommendation = &v1beta1.Recommendation{ContainerRecommendations: []v1beta1.ContainerRecommendation{{ContainerName: "app", Target: amounts("200m", "1Gi")}}}
		pod := newPod(namespace, name+"-0", name, fmt.Sprintf("%dm", 100+i), "1Gi", "1Gi")
		s.put(other, pod, usageOf(pod, "150m", "900Mi"))
	}
	return s
}

// startDashboard runs the command until stop is called or the test ends, and returns its address.
func startDashboard(t *testing.T, args ...string) (address string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out := make(chan string, 10)
	root, _ := newRoot(genericiooptions.IOStreams{
		Out:    writer(func(p []byte) { out <- string(p) }),
		ErrOut: io.Discard,
	})
	root.SetArgs(append([]string{"dashboard"}, args...))
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("the dashboard has ended: %v", err)
		}
	})
	select {
	case line := <-out:
		return strings.TrimSpace(line), stop
	case err := <-done:
		stopped = true
		t.Fatalf("the dashboard has not started: %v", err)
	}
	return "", nil
}

func pageAt(t *testing.T, address string) (code int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	must.Succeed(t, err)
	response, err := http.DefaultClient.Do(request)
	must.Succeed(t, err)
	defer response.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(response.Body)
	must.Succeed(t, err)
	return response.StatusCode, string(body)
}

func TestTheDashboardShowsWhatTheUserMaySee(t *testing.T) {
	for name, tc := range map[string]struct {
		forbidden      []string
		fleet, details []string // what the pages say
		absent         string
	}{
		"everything": {
			nil,
			[]string{"301 of 301 scalers", "team-3/app-with-a-rather-long-name-", "Verifying", "QoSChange"},
			[]string{"ScaleDown: app cpu 500m-&gt;310m", "15 % more", "120m to 320m", "310m to 500m", "verified at 310m", "512Mi was reverted to 640Mi", "is restored if the changed pods"},
			"Not included",
		},
		"no usage": {[]string{metricsPath}, []string{"301 of 301 scalers", "The usage of 7 of 7 namespaces: "}, []string{"Usage: ", "310m to 500m", "No usage is known yet"}, "120m"},
		"no pods":  {[]string{"/api/v1"}, []string{"301 of 301 scalers", "The pods: you may not"}, []string{"Not included", "The pods of Deployment shop/web: you may not", "Target"}, "310m to 500m"},
		"nothing but scalers": {
			[]string{"/api/v1", apps, metricsPath},
			[]string{"301 of 301 scalers", "The Deployments: you may not"},
			[]string{"The pod template and the pods of Deployment shop/web: you may not", "Target"},
			"310m to 500m",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFleetServer(t)
			s.forbid(tc.forbidden...)
			address, _ := startDashboard(t, "-A")
			code, text := pageAt(t, address)
			expect(t, "the fleet", code, text, tc.fleet)
			code, text = pageAt(t, address+"scalers/shop/web")
			expect(t, "the scaler", code, text, tc.details)
			if strings.Contains(text, tc.absent) {
				t.Errorf("the scaler: there is %q in:\n%s", tc.absent, text)
			}
		})
	}
}

func expect(t *testing.T, what string, code int, text string, want []string) {
	t.Helper()
	if code != http.StatusOK {
		t.Fatalf("%s: status %d: %s", what, code, text)
	}
	assert.Contains(t, what, text, want...)
}

// The dashboard and explain print the same sizes. The patch has them indented.
func TestTheDashboardHasTheResourcesOfThePatch(t *testing.T) {
	newFleetServer(t)
	address, _ := startDashboard(t, "-A")
	_, page := pageAt(t, address+"scalers/shop/web")
	for class, output := range map[string]string{"Burstable": "patch", "Guaranteed": "patch-guaranteed"} {
		patch, _, _ := run(t, nil, "explain", "web", "-n", "shop", "-o", output)
		_, block, _ := strings.Cut(page, `<pre id="c0-`+class+`-yaml">`)
		block, _, _ = strings.Cut(block, "</pre>")
		_, want, _ := strings.Cut(patch, "        resources:\n")
		if diff := cmp.Diff("resources:\n"+strings.ReplaceAll(want, "          ", "  "), block); diff != "" {
			t.Errorf("%s (-explain +dashboard):\n%s", class, diff)
		}
	}
}

func TestTheDashboardShowsOneNamespace(t *testing.T) {
	newFleetServer(t)
	address, stop := startDashboard(t, "-n", "shop")
	if _, text := pageAt(t, address); !strings.Contains(text, "1 of 1 scalers") || !strings.Contains(text, "namespace <b>shop</b>") {
		t.Error(text)
	}
	if code, _ := pageAt(t, address+"scalers/team-0/app-with-a-rather-long-name-000"); code != http.StatusNotFound {
		t.Errorf("a scaler of another namespace: status %d", code)
	}
	if code, _ := pageAt(t, address+"scalers/shop/who"); code != http.StatusNotFound {
		t.Errorf("a scaler that does not exist: status %d", code)
	}
	if code, text := pageAt(t, address+"scalers/shop/web/backtest"); code != http.StatusBadGateway || !strings.Contains(text, "start the command with --prometheus") {
		t.Errorf("a backtest without Prometheus: status %d", code)
	}
	if !strings.HasPrefix(address, "http://127.0.0.1:") {
		t.Errorf("other machines can connect to %s", address)
	}
	must.Succeed(t, stop())
}

// Many open pages read the fleet once.
func TestTheFleetIsReadOnceForAllPages(t *testing.T) {
	s := newFleetServer(t)
	address, _ := startDashboard(t, "-A")
	for range 5 {
		pageAt(t, address)
	}
	if n := s.count(ours + "/verticalscalers"); n != 1 {
		t.Errorf("the scalers were listed %d times", n)
	}
}

// newSource is a source for all namespaces, with a clock of its own.
func newSource(t *testing.T, past past.Options) (*dashboard.Source, *testclock.FakeClock) {
	t.Helper()
	cluster, clock := kube.New(&cobra.Command{}), testclock.NewFakeClock(time.Now())
	cluster.Clock = clock
	reader, err := cluster.OpenSnapshots()
	must.Succeed(t, err)
	return dashboard.NewSource(cluster, reader, past, ""), clock
}

var webName = types.NamespacedName{Namespace: "shop", Name: "web"}

func TestAPlotRemembersWhatWasSeen(t *testing.T) {
	newFleetServer(t)
	source, clock := newSource(t, past.Options{})
	for range 4 {
		d, err := source.Scaler(t.Context(), webName, pages.Week)
		if err != nil || d.Span != pages.Live {
			t.Fatalf("span %s without Prometheus: %v", d.Span, err)
		}
		clock.SetTime(clock.Now().Add(5 * time.Second))
	}
	d, err := source.Scaler(t.Context(), webName, pages.Live)
	if n := len(d.Record.Series("app", "cpu")); err != nil || n != 5 || d.Record.Series("app", "cpu")[n-1].Used != 320 || d.Record.Series("app", "cpu")[n-1].Request != 500 {
		t.Errorf("%v: %+v", err, d.Record.Series("app", "cpu"))
	}
}

func TestThePastIsAskedForOnce(t *testing.T) {
	newFleetServer(t)
	asked, broken := 0, true
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked++
		if broken {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		answer(w, r)
	})
	source, clock := newSource(t, past.Options{Address: address})
	look := func() pages.Details {
		t.Helper()
		d, err := source.Scaler(t.Context(), webName, pages.Day)
		must.Succeed(t, err)
		clock.SetTime(clock.Now().Add(5 * time.Second))
		return d
	}
	if d := look(); len(d.Missing) != 1 || !strings.HasPrefix(d.Missing[0], "Usage of the past: ") {
		t.Errorf("Prometheus is down, and missing is %q", d.Missing)
	}
	before := asked
	if d := look(); asked != before || len(d.Missing) != 1 {
		t.Errorf("Prometheus is asked %d times more within seconds; missing is %q", asked-before, d.Missing)
	}
	broken = false
	clock.SetTime(clock.Now().Add(30 * time.Second))
	d := look()
	if n := len(d.Record.Series("app", "cpu")); len(d.Missing) != 0 || n < 280 {
		t.Errorf("%d points of a day; missing is %q", n, d.Missing)
	}
	before = asked
	for range 5 {
		clock.SetTime(clock.Now().Add(150 * time.Second))
		look()
	}
	if asked != before {
		t.Errorf("while the page is open, Prometheus is asked %d times", asked-before)
	}
	clock.SetTime(clock.Now().Add(10 * time.Minute))
	if look(); asked == before {
		t.Error("after nobody looked for a while, Prometheus is not asked")
	}
}

func TestTheDashboardBacktests(t *testing.T) {
	newFleetCluster(t).put(newScaler("shop", "web", metav1.Condition{}))
	source, _ := newSource(t, past.Options{Address: serve(t, fleetPrometheus)})
	var page strings.Builder
	must.Succeed(t, source.Backtest(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, &page))
	if text := page.String(); !strings.Contains(text, "<h2>shop/web/app</h2>") || strings.Count(text, `class="plot"`) != 2 {
		t.Error(text)
	}
}

// A scaler whose operator has stopped looks fine in its own status.
func TestTheDashboardShowsThatTheOperatorIsSilent(t *testing.T) {
	s := newFleetServer(t)
	s.lastHeard(90 * time.Second)
	address, _ := startDashboard(t, "-A")
	code, text := pageAt(t, address)
	expect(t, "the fleet", code, text, []string{`id="state-OperatorSilent"`, "not Ready"})
	code, text = pageAt(t, address+"scalers/shop/web")
	expect(t, "the scaler", code, text, []string{`id="state">OperatorSilent<`, "No operator holds the lease"})
}

// pastServer is a Prometheus with 8 days of the pods of the Deployment web. For a day in the middle, there are none. Requests
// go down from 1 core to 500m on the second day, and in the last hours to 310m on one of the pods. The CPU limit is removed on
// the fifth day. sizes is the source of the requests and limits: "kube-state-metrics", "operator", or another value for none. A
// "broken" server reports usage only.
func pastServer(t *testing.T, sizes string) string {
	t.Helper()
	now := time.Now()
	const gone = -1
	usage := map[string]func(days float64) float64{
		"container_cpu_usage":          func(days float64) float64 { return 0.2 + 0.1*math.Sin(2*math.Pi*days) },
		"container_memory_working_set": func(days float64) float64 { return 400*mebi + 100*mebi*math.Sin(2*math.Pi*days) },
	}
	declared := []struct {
		metric, resource string
		least, most      func(days float64) float64
	}{
		{"requests", "cpu", func(days float64) float64 {
			switch {
			case days < 1.5:
				return 1
			case days < 7.9:
				return 0.5
			}
			return 0.31
		}, func(days float64) float64 {
			if days < 1.5 {
				return 1
			}
			return 0.5
		}},
		{"requests", "memory", func(float64) float64 { return 640 * mebi }, func(float64) float64 { return 640 * mebi }},
		{"limits", "cpu", func(days float64) float64 {
			if days < 4.5 {
				return 1.5
			}
			return gone
		}, nil},
		{"limits", "memory", func(float64) float64 { return 1024 * mebi }, nil},
	}
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		query := r.FormValue("query")
		var streams []string
		add := func(labels string, amount func(days float64) float64) {
			var points []string
			for at := number(r, "start"); at <= number(r, "end"); at += number(r, "step") {
				days := 8 - now.Sub(time.Unix(at, 0)).Hours()/24
				if value := amount(days); value != gone && (days < 2.5 || days > 3.5) {
					points = append(points, fmt.Sprintf("[%d,%q]", at, fmt.Sprint(value)))
				}
			}
			streams = append(streams, fmt.Sprintf(`{"metric":{%s},"values":[%s]}`, labels, strings.Join(points, ",")))
		}
		for metric, amount := range usage {
			if strings.Contains(query, metric) {
				add(`"namespace":"shop","pod":"web-5d4f8b9c4-bcdfg","container":"app"`, amount)
			}
		}
		isOfPods, isOfOperator := strings.Contains(query, "kube_pod_(init_)?container_resource"), strings.Contains(query, "verticalscaler_container_request")
		if sizes == "broken" && (isOfPods || isOfOperator) {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		for _, of := range declared {
			amount := of.least
			if strings.HasPrefix(query, "max") && of.most != nil {
				amount = of.most
			}
			switch {
			case isOfPods && sizes == "kube-state-metrics":
				add(fmt.Sprintf(`"__name__":"kube_pod_container_resource_%s","container":"app","resource":%q`, of.metric, of.resource), amount)
			case isOfOperator && sizes == "operator" && of.metric == "requests":
				add(fmt.Sprintf(`"target_container":"app","resource":%q`, of.resource), amount)
			}
		}
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[%s]}}`, strings.Join(streams, ","))
	})
}

func TestThePastHasRequestsAndLimits(t *testing.T) {
	for sizes, tc := range map[string]struct {
		past    pages.Past
		cpu     []string // request and limit in millicores, at the end of each day
		missing string
	}{
		"kube-state-metrics": {pages.Past{HasRequests: true, HasLimits: true}, []string{"1000/1500", "500/1500", "0/0", "500/1500", "500/0", "500/0", "500/0", "500/0"}, ""},
		"operator":           {pages.Past{HasRequests: true}, []string{"1000/-1", "500/-1", "0/-1", "500/-1", "500/-1", "500/-1", "500/-1", "500/0"}, ""},
		"nobody":             {pages.Past{}, []string{"-1/-1", "-1/-1", "-1/-1", "-1/-1", "-1/-1", "-1/-1", "-1/-1", "500/0"}, ""},
		"broken":             {pages.Past{}, []string{"-1/-1", "-1/-1", "-1/-1", "-1/-1", "-1/-1", "-1/-1", "-1/-1", "500/0"}, "Requests and limits of the past: asking Prometheus at http://"},
	} {
		t.Run(sizes, func(t *testing.T) {
			newFleetServer(t)
			source, clock := newSource(t, past.Options{Address: pastServer(t, sizes)})
			d, err := source.Scaler(t.Context(), webName, pages.Week)
			if err != nil || d.Past != tc.past {
				t.Fatalf("%+v: %v", d.Past, err)
			}
			if missing := strings.Join(d.Missing, "\n"); !strings.HasPrefix(missing, tc.missing) || tc.missing == "" && missing != "" {
				t.Errorf("missing is %q", missing)
			}
			columns := snapshot.Columns(d.Record.Series("app", "cpu"), clock.Now().Add(-8*24*time.Hour), clock.Now(), 8)
			var got []string
			for _, c := range columns {
				got = append(got, fmt.Sprintf("%d/%d", c.Request, c.Limit))
			}
			assert.Equal(t, "requests and limits", tc.cpu, got)
			if used := columns[0].Used; used != 300 {
				t.Errorf("%d millicores were used at most on the first day, want 300", used)
			}
		})
	}
}

// waitForEvidence makes scaler web keep 230m for 256 observed minutes. Its status has 116.
func waitForEvidence(s *apiServer, written time.Time) {
	s.edit("web", func(web *v1beta1.VerticalScaler) {
		web.UID = "" // its evidence doubles at 64, 128, 256 minutes
		web.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "operator", Subresource: "status", Time: ptr.To(metav1.NewTime(written))}}
		applied := &web.Status.Conditions[1]
		applied.Reason, applied.Message = v1beta1.ReasonWithinBounds, "app cpu: 230m stays until the upper bound of 437m falls below it"
		web.Status.Recommendation = &v1beta1.Recommendation{ContainerRecommendations: []v1beta1.ContainerRecommendation{{
			ContainerName: "app", ObservedSeconds: 116 * 60, Target: amounts("66m", ""), LowerBound: amounts("60m", ""), UpperBound: amounts("437m", ""),
		}}}
	})
}

func TestEveryViewReportsWhenARequestIsLowered(t *testing.T) {
	s := newAPIServer(t)
	waitForEvidence(s, time.Now())
	const want = "app cpu is lowered in about 2h20m, after about 4h16m of observed time"
	views := map[string]string{}
	for _, args := range [][]string{
		{"status", "-o", "wide"}, {"status", "-o", "json"}, {"explain", "web"}, {"top", "web", "--once"}, {"top", "web", "-o", "yaml"}, {"top", "-A", "-o", "json"},
	} {
		out, errOut, code := run(t, nil, args...)
		if code != 0 {
			t.Errorf("%v: exit code %d: %s", args, code, errOut)
		}
		views[strings.Join(args, " ")] = out
	}
	address, _ := startDashboard(t, "-A")
	_, views["dashboard"] = pageAt(t, address+"scalers/shop/web")
	for view, out := range views {
		if got := strings.Join(strings.Fields(out), " "); !strings.Contains(got, want) {
			t.Errorf("%s does not say %q:\n%s", view, want, out)
		}
	}
	waitForEvidence(s, time.Now().Add(-10*time.Minute))
	s.lastHeard(5 * time.Minute)
	for _, args := range [][]string{{"status", "-o", "wide"}, {"explain", "web"}, {"top", "web", "--once"}} {
		if out, _, _ := run(t, nil, args...); strings.Contains(out, "in about") {
			t.Errorf("%v: a silent operator lowers nothing:\n%s", args, out)
		}
	}
}

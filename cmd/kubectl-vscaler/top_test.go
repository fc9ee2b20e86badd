// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/jsonpath"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain/live"
)

const metricsPath = "/apis/metrics.k8s.io/v1beta1"

// newUsedServer is newAPIServer with usage, also of a pod that is not of the Deployment. Pod b is
// silent.
func newUsedServer(t *testing.T) *apiServer {
	t.Helper()
	s := newAPIServer(t)
	pods := s.objects["/api/v1/namespaces/shop/pods"].(corev1.PodList)
	for i := range pods.Items {
		pods.Items[i].Labels = map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: "5d4f8b9c4"}
		pods.Items[i].OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-5d4f8b9c4", Controller: ptr.To(true)}}
	}
	stray := *pods.Items[0].DeepCopy()
	stray.Name, stray.OwnerReferences[0].Name = "stray", "web-other-5d4f8b9c4"
	elsewhere := *pods.Items[0].DeepCopy()
	elsewhere.Namespace = "other"
	pods.Items = append(pods.Items, stray, elsewhere)
	s.objects["/api/v1/pods"] = pods
	item := func(pod string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"shop"},"timestamp":%q,"window":"20s","containers":[{"name":"app","usage":{"cpu":"41m","memory":"60Mi"}}]}`,
			pod, time.Now().UTC().Format(time.RFC3339))
	}
	s.set(metricsPath+"/namespaces/shop/pods", rawJSON(`{"kind":"PodMetricsList","items":[`+item("a")+`,`+item("stray")+`]}`))
	return s
}

// rawJSON is an object as text.
type rawJSON string

func (r rawJSON) MarshalJSON() ([]byte, error) { return []byte(r), nil }

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
		"a bad order":          {[]string{"--sort-by=age"}, nil, 2, nil, `--sort-by "age" is not one of gap, waste, lack, name`},
		"an order of one":      {[]string{"web", "--sort-by=name"}, nil, 2, nil, "--sort-by requires several scalers: leave the name out"},
		"too often":            {[]string{"--interval=1ms"}, nil, 2, nil, "--interval must be 1s or more"},
		"history of all":       {[]string{"--prometheus=http://p"}, nil, 2, nil, "--prometheus requires the name of a scaler"},
		"history from nowhere": {[]string{"web", "--since=1h"}, nil, 2, nil, "--since requires --prometheus"},
		"too much history":     {[]string{"web", "--prometheus=http://p", "--since=9000h"}, nil, 2, nil, "--since must be from 5m0s to 2160h0m0s"},
		"a bad output":         {[]string{"web", "-o", "csv"}, nil, 2, nil, `--output "csv" is not one of json, yaml`},
		"no output":            {[]string{"web", "-o", ""}, nil, 2, nil, `--output "" is not one of json, yaml`},
		"history as data":      {[]string{"web", "-o", "json", "--prometheus=http://p"}, nil, 2, nil, "--prometheus cannot be combined with --output"},
		"a bad Prometheus":     {[]string{"web", "--prometheus=p"}, nil, 2, nil, "--prometheus: the address of Prometheus must be an http or https URL"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			newUsedServer(t).forbidden = tc.forbidden
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
		newUsedServer(t).forbidden = tc.forbidden
		asJSON, errOut, code := run(t, nil, append([]string{"top", "-o", "json"}, tc.args...)...)
		var fromJSON, fromYAML map[string]any
		if err := json.Unmarshal([]byte(asJSON), &fromJSON); err != nil || code != 0 || errOut != "" {
			t.Fatalf("%s: exit code %d: %s%v", name, code, errOut, err)
		}
		asYAML, _, _ := run(t, nil, append([]string{"top", "-o", "yaml"}, tc.args...)...)
		if err := yaml.Unmarshal([]byte(asYAML), &fromYAML); err != nil {
			t.Fatal(err)
		}
		delete(fromJSON, "time")
		delete(fromYAML, "time")
		if diff := cmp.Diff(fromJSON, fromYAML); diff != "" {
			t.Errorf("%s: JSON and YAML differ:\n%s", name, diff)
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
	newUsedServer(t)
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
	newUsedServer(t)
	prometheus := serve(t, answer)
	out, errOut, code := run(t, nil, "top", "web", "--once", "--prometheus="+prometheus, "--since=3h")
	if code != 0 || !strings.Contains(out, "cpu usage      ██████") || !strings.Contains(out, "-179m") || !strings.Contains(out, "full height 300m") {
		t.Errorf("exit code %d: %s%s", code, errOut, out)
	}
}

// shop is a source with two scalers, of which some reads fail.
type shop struct {
	at     time.Time
	failed error
	shift  int // of the gaps
}

func (s *shop) Scaler(_ context.Context, name types.NamespacedName) (live.Scaler, error) {
	if s.failed != nil {
		return live.Scaler{}, s.failed
	}
	row := explain.Row{Namespace: name.Namespace, Name: name.Name, Deployment: name.Name, Reason: v1beta1.ReasonApplied, Ends: explain.Fine}
	return live.Scaler{At: s.at, State: row, Changes: slices.Repeat([]v1beta1.HistoryEntry{{Message: "ScaleDown"}}, 40)}, nil
}

func (s *shop) Fleet(context.Context, string) (live.Fleet, error) {
	if s.failed != nil {
		return live.Fleet{}, s.failed
	}
	f := live.Fleet{At: s.at}
	for i := range 200 {
		r := live.Row{Row: explain.Row{Namespace: "shop", Name: fmt.Sprintf("svc-%03d", i), Reason: v1beta1.ReasonApplied, Ends: explain.Fine}}
		r.CPU = live.Resource{Resource: "cpu", HasTarget: true, Over: int64((i + s.shift) % 200), Request: live.Spread{Pods: 1, Total: 1000}}
		f.Rows = append(f.Rows, r)
	}
	return f, nil
}

// pressed is the view after keys, with what they have read.
func pressed(t *testing.T, v view, keys ...string) view {
	t.Helper()
	codes := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "down": tea.KeyDown, "up": tea.KeyUp, "end": tea.KeyEnd, "pgdown": tea.KeyPgDown, "home": tea.KeyHome}
	for _, key := range keys {
		press := tea.KeyPressMsg{Code: codes[key]}
		if codes[key] == 0 {
			press = tea.KeyPressMsg{Code: rune(key[0]), Text: key}
		}
		next, cmd := v.Update(press)
		v = next.(view)
		if cmd != nil {
			next, _ = v.Update(cmd())
			v = next.(view)
		}
	}
	return v
}

// openedView has read a fleet on a terminal of 80 by 24.
func openedView(t *testing.T, source *shop) view {
	t.Helper()
	v := view{ctx: t.Context(), source: source, order: live.ByGap}
	next, _ := v.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	next, _ = next.(view).Update(v.Init()())
	return next.(view)
}

func textOf(v view) string { return ansi.Strip(v.View().Content) }

func TestAScalerIsOpenedFromTheFleet(t *testing.T) {
	source := &shop{at: time.Unix(1767225600, 0)}
	v := openedView(t, source)
	if text := textOf(v); !strings.Contains(text, "200 scalers") || strings.Index(text, "svc-199") > strings.Index(text, "svc-198") || strings.Count(text, "\n") != 23 {
		t.Errorf("the largest gap is first, on 24 lines:\n%s", text)
	}
	v = pressed(t, v, "down", "down", "down", "up", "enter")
	if text := textOf(v); !strings.HasPrefix(text, "shop/svc-197") || !strings.Contains(text, "Esc: back") {
		t.Errorf("the third is opened:\n%s", text)
	}
	before := textOf(v)
	if v = pressed(t, v, "end"); !strings.Contains(textOf(v), "ScaleDown") || textOf(v) == before || strings.Count(textOf(v), "\n") != 23 {
		t.Errorf("the end is not shown:\n%s", textOf(v))
	}
	if v = pressed(t, v, "home"); textOf(v) != before {
		t.Errorf("the beginning is not shown:\n%s", textOf(v))
	}
	if v = pressed(t, v, "esc"); !strings.Contains(textOf(v), "200 scalers") || v.selected().Name != "svc-197" {
		t.Errorf("back, with the same scaler chosen:\n%s", textOf(v))
	}
	source.shift = 50
	next, _ := v.Update(v.read(t.Context()))
	if v = next.(view); v.selected().Name != "svc-197" || !strings.Contains(textOf(v), "svc-197") {
		t.Errorf("the scaler that was chosen moves, and the choice does not follow:\n%s", textOf(v))
	}
	v = pressed(t, v, "s", "s", "s")
	if v.order != live.ByName || v.selected().Name != "svc-197" || !strings.Contains(textOf(v), "svc-197") {
		t.Errorf("the order changes, and the choice does not: %s\n%s", v.order, textOf(v))
	}
	if v = pressed(t, v, "end"); v.selected().Name != "svc-199" || !strings.Contains(textOf(v), "svc-199") {
		t.Errorf("the last is chosen and shown:\n%s", textOf(v))
	}
}

// What was read stays, and the view says how old it is.
func TestALostConnectionIsShown(t *testing.T) {
	source := &shop{at: time.Unix(1767225600, 0)}
	v := openedView(t, source)
	source.failed = errors.New("connection refused")
	next, cmd := v.Update(tick{at: source.at.Add(42 * time.Second)})
	next, _ = next.(view).Update(cmd())
	v = next.(view)
	if text := textOf(v); !strings.Contains(text, "Not read for 42s: connection refused") || !strings.Contains(text, "svc-199") || strings.Count(text, "\n") != 23 {
		t.Errorf("%s", text)
	}
	source.failed, source.at = nil, source.at.Add(time.Minute)
	next, cmd = v.Update(tick{at: source.at})
	next, _ = next.(view).Update(cmd())
	if text := textOf(next.(view)); strings.Contains(text, "Not read") {
		t.Errorf("it is read again:\n%s", text)
	}

	never := view{ctx: t.Context(), source: &shop{failed: errors.New("no route")}, width: 80, height: 24}
	next, _ = never.Update(never.Init()())
	if text := textOf(next.(view)); !strings.Contains(text, "Cannot be read: no route") {
		t.Errorf("%s", text)
	}
}

// There is always one read, or one wait for the next.
func TestOldAnswersAreLeftOut(t *testing.T) {
	v := openedView(t, &shop{at: time.Unix(1767225600, 0)})
	late, old := v.read(t.Context()), tick{shown: v.shown}
	v = pressed(t, v, "enter")
	for _, msg := range []tea.Msg{late, old} {
		next, cmd := v.Update(msg)
		if cmd != nil || !strings.HasPrefix(textOf(next.(view)), "shop/svc-199") {
			t.Errorf("%T of the fleet counts for a scaler", msg)
		}
	}
}

// The program ends at q, and leaves the alternate screen.
func TestTheProgramEnds(t *testing.T) {
	in, keys := io.Pipe()
	seen := make(chan struct{})
	var all strings.Builder
	o := &topOptions{environ: []string{"TERM=xterm-256color"}, IOStreams: genericiooptions.IOStreams{In: in, Out: writer(func(p []byte) {
		before := all.Len()
		all.Write(p)
		if before < 20 && all.Len() >= 20 {
			close(seen)
		}
	})}}
	done := make(chan error)
	go func() {
		done <- o.show(t.Context(), view{source: &shop{at: time.Unix(1767225600, 0)}, order: live.ByGap, width: 80, height: 24})
	}()
	<-seen
	if _, err := keys.Write([]byte("q")); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if text := all.String(); !strings.Contains(text, "\x1b[?1049h") || !strings.Contains(text, "\x1b[?1049l") {
		t.Errorf("%q", text)
	}
}

// Colors are left out on request, and the text says the same.
func TestColors(t *testing.T) {
	v := openedView(t, &shop{at: time.Unix(1767225600, 0)})
	content := v.View().Content
	if !strings.Contains(content, "\x1b[") {
		t.Error("there are no colors")
	}
	for _, environ := range [][]string{{"NO_COLOR=1"}, {"TERM=dumb"}} {
		var b strings.Builder
		o := &topOptions{environ: environ, IOStreams: genericiooptions.IOStreams{Out: &b}}
		if err := o.print(t.Context(), view{source: &shop{}, order: live.ByGap}); err != nil || strings.Contains(b.String(), "\x1b") {
			t.Errorf("%v: %v: %q", environ, err, b.String())
		}
	}
}

// 500 scalers with ten pods each, in one namespace.
func TestALargeFleetIsSummedUp(t *testing.T) {
	const scalers, podsOfEach = 500, 10
	server := newUsedServer(t)
	all := server.objects[ours+"/verticalscalers"].(v1beta1.VerticalScalerList)
	web, items := all.Items[1], []string{}
	pods := server.objects["/api/v1/pods"].(corev1.PodList)
	pod := pods.Items[0]
	all.Items, pods.Items = nil, nil
	for i := range scalers {
		s := *web.DeepCopy()
		s.Name, s.Spec.DeploymentName = fmt.Sprintf("svc-%03d", i), fmt.Sprintf("svc-%03d", i)
		amounts := v1beta1.Amounts{CPU: ptr.To(resource.MustParse("100m")), Memory: ptr.To(resource.MustParse("480Mi"))}
		s.Status.Recommendation = &v1beta1.Recommendation{ContainerRecommendations: []v1beta1.ContainerRecommendation{{ContainerName: "app", Target: amounts}}}
		all.Items = append(all.Items, s)
		for n := range podsOfEach {
			p := *pod.DeepCopy()
			p.Name, p.OwnerReferences[0].Name = fmt.Sprintf("svc-%03d-%d", i, n), s.Name+"-5d4f8b9c4"
			pods.Items = append(pods.Items, p)
			items = append(items, fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"shop"},"timestamp":%q,"window":"20s","containers":[{"name":"app","usage":{"cpu":"41m","memory":"60Mi"}}]}`,
				p.Name, time.Now().UTC().Format(time.RFC3339)))
		}
	}
	server.set(ours+"/verticalscalers", all)
	server.set("/api/v1/pods", pods)
	server.set(metricsPath+"/namespaces/shop/pods", rawJSON(`{"kind":"PodMetricsList","items":[`+strings.Join(items, ",")+`]}`))
	began := time.Now()
	out, errOut, code := run(t, nil, "top", "-A")
	took := time.Since(began)
	if code != 0 || !strings.Contains(out, "500 scalers") || !strings.Contains(out, "205 used, 650 above the targets") {
		t.Errorf("exit code %d: %s%.300s", code, errOut, out)
	}
	t.Logf("read and drawn in %s", took)
}

// A large fleet is read with few requests, however many scalers it has.
func TestAFleetIsReadWithFewRequests(t *testing.T) {
	server := newUsedServer(t)
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
	server := newUsedServer(t)
	all := server.objects[ours+"/verticalscalers"].(v1beta1.VerticalScalerList)
	second := *all.Items[1].DeepCopy()
	second.Name = "second"
	second.Status.Conditions = append(second.Status.Conditions, metav1.Condition{Type: v1beta1.ConditionTargetFound, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonConflict})
	all.Items = append(all.Items, second)
	server.set(ours+"/verticalscalers", all)
	pods := server.objects["/api/v1/pods"].(corev1.PodList)
	server.set("/api/v1/pods", func(r *http.Request) any {
		page := pods
		page.Items = pods.Items[:1]
		page.Continue = "more"
		if r.URL.Query().Get("continue") == "more" {
			page.Items, page.Continue = pods.Items[1:], ""
		}
		return page
	})
	out, errOut, code := run(t, nil, "top", "-A")
	text := strings.Join(words(out), "\n")
	if code != 0 || !strings.Contains(text, "cpu 460m requested, 41m used\n") || !strings.Contains(text, "web Applied 2/2 41m 460m") || !strings.Contains(text, "second Applied 2/2 - -") {
		t.Errorf("exit code %d: %s%s", code, errOut, out)
	}
}

// metrics-server has no new usage within seconds, so it is not asked again.
func TestUsageIsNotReadAgainAtOnce(t *testing.T) {
	server := newUsedServer(t)
	r, err := newCluster(&cobra.Command{}).openLive()
	if err != nil {
		t.Fatal(err)
	}
	clock := testclock.NewFakePassiveClock(time.Now())
	r.clock = clock
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
	server := newUsedServer(t)
	server.lastHeard(5 * time.Minute)
	for _, args := range [][]string{{"top", "web"}, {"top", "-A"}} {
		out, errOut, code := run(t, nil, args...)
		if code != 0 || !strings.Contains(out, "OperatorSilent") || strings.Contains(out, " Applied") {
			t.Errorf("%v: exit code %d: %s%s", args, code, errOut, out)
		}
	}
}

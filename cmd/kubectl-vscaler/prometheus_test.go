// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

const mebi = 1 << 20

func TestThePodThatUsesMostCounts(t *testing.T) {
	at := func(minute int) time.Time { return time.Unix(1767225600, 0).Add(time.Duration(minute) * time.Minute) }
	used := peaks{}
	used.add([]usage.Sample{
		{Pod: "a", Container: "app", Time: at(5), CPUMillis: 1300, MemoryBytes: 500},
		{Pod: "b", Container: "app", Time: at(5), CPUMillis: 100, MemoryBytes: 900},
		{Pod: "c", Container: "app", Time: at(5), CPUMillis: 50, MemoryBytes: 50},
		{Pod: "a", Container: "proxy", Time: at(5), CPUMillis: 7, MemoryBytes: 8},
	}, 5*time.Minute)
	used.add([]usage.Sample{{Pod: "b", Container: "app", Time: at(10), CPUMillis: 5, MemoryBytes: 6}}, 5*time.Minute)
	var got strings.Builder
	series := func(container string) string { return "shop/web/" + container }
	used.write(&got, series)
	writeSizes(&got, []sized{{"app", quantity.Amounts{CPUMillis: 2001, MemoryBytes: mebi}}}, 5*time.Minute, series)
	want := `series,timestamp,cpu_cores,memory_bytes
shop/web/app,1767225600,1.300,900
shop/web/app,1767225900,0.005,6
shop/web/proxy,1767225600,0.007,8
series,step_s,init_cpu,init_mem
shop/web/app,300,2.001,1048576
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("tables (-want +got):\n%s", diff)
	}
}

// answer answers for two pods of the Deployment web: one uses more CPU, the other more
// memory.
func answer(w http.ResponseWriter, r *http.Request) {
	start, end, step := number(r, "start"), number(r, "end"), number(r, "step")
	values := [2]string{"0.1", "0.3"}
	if strings.Contains(r.FormValue("query"), "memory") {
		values = [2]string{strconv.Itoa(200 * mebi), strconv.Itoa(50 * mebi)}
	}
	var streams []string
	for i, pod := range []string{"web-5d4f8b9c4-bcdfg", "web-5d4f8b9c4-x2z9k"} {
		for _, container := range []string{"app", "proxy"} {
			if !strings.Contains(r.FormValue("query"), container) {
				continue
			}
			var points []string
			for at := start; at <= end; at += step {
				points = append(points, fmt.Sprintf("[%d,%q]", at, values[i]))
			}
			streams = append(streams, fmt.Sprintf(`{"metric":{"pod":%q,"container":%q},"values":[%s]}`, pod, container, strings.Join(points, ",")))
		}
	}
	fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[%s]}}`, strings.Join(streams, ","))
}

// number is a parameter in whole seconds, which all of the tests' are.
func number(r *http.Request, name string) int64 {
	seconds, err := strconv.ParseFloat(r.FormValue(name), 64)
	if err != nil {
		panic(err) // the server tells
	}
	return int64(seconds)
}

func serve(t *testing.T, f http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return server.URL
}

// newKubeconfig is for a cluster that knows the Deployment web in the namespace shop,
// two scalers of it, four pods, and the Deployment bare without any.
func newKubeconfig(t *testing.T) string {
	t.Helper()
	const requests = `"resources":{"requests":{"cpu":%q,"memory":%q}}`
	container := func(name, cpu, memory string) string {
		return fmt.Sprintf(`{"name":%q,`+requests+`}`, name, cpu, memory)
	}
	pod := func(name, phase string, containers ...string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"shop"},"spec":{"containers":[%s]},"status":{"phase":%q}}`, name, strings.Join(containers, ","), phase)
	}
	scaler := func(name string) string {
		return fmt.Sprintf(`{"apiVersion":"autoscaling.verticalscaler.io/v1beta1","kind":"VerticalScaler","metadata":{"name":%q,"namespace":"shop"},"spec":{"deploymentName":"web"}}`, name)
	}
	objects := map[string]string{
		"/apis/autoscaling.verticalscaler.io/v1beta1/namespaces/shop/verticalscalers/sizer": scaler("sizer"),
		"/apis/autoscaling.verticalscaler.io/v1beta1/namespaces/shop/verticalscalers/web":   scaler("web"),
		"/apis/apps/v1/namespaces/shop/deployments/web": `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},
			"spec":{"selector":{"matchLabels":{"app":"web"}},"template":{"spec":{"containers":[` +
			container("app", "1", "1Gi") + `,` + container("proxy", "50m", "64Mi") + `]}}}}`,
		"/apis/apps/v1/namespaces/shop/deployments/bare": `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"bare","namespace":"shop"},
			"spec":{"selector":{"matchLabels":{"app":"bare"}},"template":{"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":"2"}}}]}}}}`,
		"/api/v1/namespaces/shop/pods?app=web": `{"apiVersion":"v1","kind":"PodList","items":[` + strings.Join([]string{
			pod("web-5d4f8b9c4-bcdfg", "Running", container("app", "250m", "600Mi"), container("proxy", "20m", "32Mi")),
			pod("web-5d4f8b9c4-x2z9k", "Running", container("app", "400m", "512Mi"), container("proxy", "20m", "32Mi")),
			pod("web-5d4f8b9c4-small", "Pending", container("app", "1m", "1Mi"), container("proxy", "1m", "1Mi")),
			pod("web-5d4f8b9c4-gone5", "Failed", container("app", "9", "9Gi"), container("proxy", "9", "9Gi")),
		}, ",") + `]}`,
		"/api/v1/namespaces/shop/pods?app=bare": `{"apiVersion":"v1","kind":"PodList","items":[]}`,
	}
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		key := r.URL.Path
		if selector := r.URL.Query().Get("labelSelector"); selector != "" {
			key += "?" + selector
		}
		w.Header().Set("Content-Type", "application/json")
		object, ok := objects[key]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			object = fmt.Sprintf(`{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404,"message":"%s not found"}`, filepath.Base(r.URL.Path))
		}
		fmt.Fprint(w, object)
	})
	path := filepath.Join(t.TempDir(), "kubeconfig")
	config := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","namespace":"shop"}}],
		"clusters":[{"name":"c","cluster":{"server":%q}}]}`, address)
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Today's requests are those of the pods; the namespace is the context's.
func TestBacktestFromPrometheusAndACluster(t *testing.T) {
	prometheus, kubeconfig := serve(t, answer), newKubeconfig(t)
	saved := filepath.Join(t.TempDir(), "usage")
	for _, of := range []string{"--scaler=sizer", "--deployment=web"} {
		out, errOut, code := run(t, nil, "backtest", "--prometheus="+prometheus, "--kubeconfig="+kubeconfig, of, "--save="+saved, "-o=json")
		if code != 0 || errOut != "" {
			t.Fatalf("%s: exit code %d: %s", of, code, errOut)
		}
		sizes, err := os.ReadFile(filepath.Join(saved, "shop_web_series.csv"))
		if err != nil {
			t.Fatal(err)
		}
		want := "series,step_s,init_cpu,init_mem\nshop/web/app,300,0.400,629145600\nshop/web/proxy,300,0.020,33554432\n"
		if diff := cmp.Diff(want, string(sizes)); diff != "" {
			t.Errorf("%s: sizes (-want +got):\n%s", of, diff)
		}
		amounts, err := os.ReadFile(filepath.Join(saved, "shop_web.csv"))
		if err != nil {
			t.Fatal(err)
		}
		rows := strings.Split(strings.TrimSpace(string(amounts)), "\n")
		// The first moment is there where now is at the end of an interval.
		if n := len(rows) - 1; n < 2*8*288 || n > 2*(8*288+1) {
			t.Errorf("%s: %d rows of 8 days for two containers", of, n)
		}
		for _, row := range rows[1:] {
			if !strings.HasSuffix(row, ",0.300,209715200") {
				t.Fatalf("%s: row %s", of, row)
			}
		}
		if replayed, _, _ := run(t, nil, "backtest", saved, "-o=json"); replayed != out {
			t.Errorf("%s: what was saved leads to another report:\n%s\nwant\n%s", of, replayed, out)
		}
	}
}

func TestBacktestFromPrometheusAlone(t *testing.T) {
	prometheus := serve(t, answer)
	withoutCluster(t)
	out, errOut, code := run(t, nil, "backtest", "--prometheus="+prometheus, "--deployment=web", "-n=shop",
		"--requests=app=500m/1Gi,proxy=1/64Mi", "--policy=static", "-o=wide", "--since=24h", "--warm-up=1h", "--step=1m")
	for _, want := range []string{"shop/web/app     static   0.500", "shop/web/proxy   static   1.000"} {
		if code != 0 || errOut != "" || !strings.Contains(out, want) {
			t.Errorf("exit code %d: %s\n%s\nwant %s", code, errOut, out, want)
		}
	}
}

// withoutCluster has kubectl know of none.
func withoutCluster(t *testing.T) {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
}

func TestLabelsAndIntervalsAreAskedFor(t *testing.T) {
	withoutCluster(t)
	asked := map[string]bool{}
	until := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	prometheus := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked[r.FormValue("query")] = true
		if start, end := number(r, "start"), number(r, "end"); start != until.Add(-time.Hour).Unix() || end != until.Unix() {
			t.Errorf("asked from %d to %d", start, end)
		}
		answer(w, r)
	})
	if _, errOut, code := run(t, nil, "backtest", "--prometheus="+prometheus, "--deployment=web", "-n=shop", "--requests=app=1/1Gi",
		"--policy=static", "--since=1h", "--until="+until.Format(time.RFC3339), "--warm-up=0", "--step=2m", "--prometheus-label=cluster=east"); code != 0 {
		t.Fatal(errOut)
	}
	const selector = `{namespace="shop",pod=~"web-[4-9bcdf]{6,10}-[bcdfghjklmnpqrstvwxz2456789]{5}",container=~"app",container!="",container!="POD",cluster="east"}`
	want := map[string]bool{
		"max by (pod,container) (rate(container_cpu_usage_seconds_total" + selector + "[4m]))":           true,
		"max by (pod,container) (max_over_time(container_memory_working_set_bytes" + selector + "[2m]))": true,
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

func TestWhatPrometheusLeavesOutIsTold(t *testing.T) {
	withoutCluster(t)
	prometheus := serve(t, func(w http.ResponseWriter, r *http.Request) {
		r.Form.Set("query", strings.ReplaceAll(r.FormValue("query"), "|proxy", ""))
		answer(w, r)
	})
	_, errOut, code := run(t, nil, "backtest", "--prometheus="+prometheus, "--deployment=web", "--requests=app=1/1Gi,proxy=1/1Gi", "--policy=static")
	if want := "warning: Prometheus knows no usage of container \"proxy\"; the backtest leaves it out\n"; code != 0 || errOut != want {
		t.Errorf("exit code %d: %q, want %q", code, errOut, want)
	}
}

func TestBacktestFromPrometheusRefuses(t *testing.T) {
	const nothing = `{"status":"success","data":{"resultType":"matrix","result":[]}}`
	good, empty := serve(t, answer), serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, nothing) })
	refusing := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	redirecting := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, good, http.StatusFound) })
	closed := httptest.NewServer(nil)
	closed.Close()
	kubeconfig := newKubeconfig(t)
	t.Setenv("KUBECONFIG", kubeconfig)
	missing := filepath.Join(t.TempDir(), "missing")

	from := func(address string, more ...string) []string {
		return append([]string{"--prometheus=" + address, "--deployment=web"}, more...)
	}
	cases := map[string]struct {
		args []string
		code int
		want string
	}{
		"files as well":        {from(good, folder), 2, "use either --prometheus or files, not both"},
		"an end in words":      {from(good, "--until=yesterday"), 2, `--until "yesterday" is not like 2026-11-23T12:00:00Z`},
		"no Prometheus":        {[]string{folder, "--deployment=web"}, 2, "--deployment requires --prometheus"},
		"an empty address":     {from(""), 2, "--prometheus: the address of Prometheus must be an http or https URL"},
		"a bad address":        {from("localhost:9090"), 2, "--prometheus: the address of Prometheus must be an http or https URL"},
		"a password in it":     {from("https://me:hush@p"), 2, "without credentials"},
		"a secret in it":       {from("https://p/?token=hush"), 2, "--prometheus must be a URL without ? and #"},
		"a token in the clear": {from("http://p", "--prometheus-token-file=token"), 2, "credentials for Prometheus require https"},
		"no Deployment":        {[]string{"--prometheus=" + good}, 2, "--prometheus requires either --deployment or --scaler"},
		"both":                 {from(good, "--scaler=web"), 2, "--prometheus requires either --deployment or --scaler"},
		"a scaler by hand":     {[]string{"--prometheus=" + good, "--scaler=web", "--requests=app=1/1Gi"}, 2, "--requests requires --deployment: a scaler can only be read from the cluster"},
		"bad requests":         {from(good, "--requests=app=1"), 2, `--requests "app=1" is not like app=500m/1Gi`},
		"a bad request":        {from(good, "--requests=app=1/much"), 2, `--requests "much": quantities must match`},
		"requests twice":       {from(good, "--requests=app=1/1,app=2/2"), 2, "--requests names container app twice"},
		"a bad label":          {from(good, `--prometheus-label=a"=b`), 2, `is not a valid label name`},
		"a short step":         {from(good, "--step=1s"), 2, "--step must be from 1m to 1h, in whole seconds"},
		"a long time":          {from(good, "--since=9999h"), 2, "--since must be from two steps to 2160h0m0s"},
		"all of it warm-up":    {from(good, "--since=24h"), 2, "--since 24h0m0s is not longer than --warm-up 72h0m0s: nothing would be measured"},

		"no such Deployment":   {[]string{"--prometheus=" + good, "--deployment=none"}, 1, "reading Deployment shop/none: none not found"},
		"no such scaler":       {[]string{"--prometheus=" + good, "--scaler=none"}, 1, "reading VerticalScaler shop/none: none not found"},
		"no requests":          {[]string{"--prometheus=" + good, "--deployment=bare"}, 1, `container "app" of Deployment shop/bare: it has no memory request: set --memory-request to compare with`},
		"no cluster":           {from(good, "--kubeconfig="+missing), 1, missing + ": no such file"},
		"no name":              {[]string{"--prometheus=" + good, "--deployment=We b", "--requests=app=1/1Gi"}, 1, `"We b" is not a valid Deployment name`},
		"Prometheus is down":   {from(closed.URL), 1, "connection refused"},
		"no token":             {from(refusing), 1, "asking Prometheus at " + refusing + ": the credentials were rejected (--prometheus-token-file): client_error (HTTP status 401)"},
		"a redirect":           {from(redirecting), 1, "redirects are not followed"},
		"a page":               {from(serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") })), 1, "the response is not from Prometheus"},
		"no file with a token": {from("https://127.0.0.1:1", "--prometheus-token-file="+missing), 1, "reading a certificate or credential: open " + missing},
		"no file with a CA":    {from("https://127.0.0.1:1", "--prometheus-ca-file="+missing), 1, "reading a certificate or credential: open " + missing},
		"nothing known":        {from(empty), 1, "Prometheus at " + empty + " knows no usage of Deployment shop/web since "},
		"what was asked for":   {from(empty), 1, "\n  max by (pod,container) (rate(container_cpu_usage_seconds_total{namespace=\"shop\",pod=~\"web-"},
		"a file for a folder":  {from(good, "--save="+kubeconfig), 1, "saving usage: mkdir " + kubeconfig},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			out, errOut, code := run(t, nil, append([]string{"backtest"}, tc.args...)...)
			if code != tc.code || !strings.Contains(errOut, tc.want) || strings.Contains(errOut, "hush") {
				t.Errorf("exit code %d, want %d: %s\nwant %s", code, tc.code, errOut, tc.want)
			}
			if out != "" {
				t.Errorf("there was output: %s", out)
			}
		})
	}
}

// Without pods, the template tells, and limits stand in as they do for pods.
func TestRequestsOfADeploymentWithoutPods(t *testing.T) {
	t.Setenv("KUBECONFIG", newKubeconfig(t))
	c, err := newCluster(&cobra.Command{}).open()
	if err != nil {
		t.Fatal(err)
	}
	got, err := containersOf(t.Context(), c, types.NamespacedName{Namespace: "shop", Name: "bare"})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0] != (sized{"app", quantity.Amounts{CPUMillis: 2000}}) {
		t.Errorf("containers %+v", got)
	}
}

func TestProgressByDay(t *testing.T) {
	var said []string
	asked := int64(0)
	prometheus := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked += (number(r, "end")-number(r, "start"))/number(r, "step") + 1
		answer(w, r)
	})
	p := &past{
		pastOptions: pastOptions{address: prometheus, since: 49 * time.Hour, step: time.Hour},
		until:       time.Unix(1767225600, 0), say: func(text string) { said = append(said, text) }, warn: func(text string) { t.Error(text) },
	}
	used, err := p.read(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, []sized{{name: "app"}})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(used["app"]); n != 50 || asked != 2*50 { // both ends, of CPU and of memory
		t.Errorf("%d intervals, want 50; %d moments asked for, want 100", n, asked)
	}
	want := []string{"Reading usage from Prometheus: day 1 of 3", "Reading usage from Prometheus: day 2 of 3", "Reading usage from Prometheus: day 3 of 3"}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("said (-want +got):\n%s", diff)
	}
}

// tokenServer is a Prometheus that wants a token, and the files for it.
func tokenServer(t *testing.T) (address, token, ca string) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer hush" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	token, ca = filepath.Join(dir, "token"), filepath.Join(dir, "ca.crt")
	for path, content := range map[string][]byte{
		token: []byte("hush\n"),
		ca:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return server.URL, token, ca
}

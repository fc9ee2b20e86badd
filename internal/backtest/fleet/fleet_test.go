// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/engine"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/krr"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/vpa"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/traces"
)

const (
	mebi = 1 << 20
	gibi = 1 << 30
	day  = 24 * time.Hour
)

var options = fleet.Options{Rules: []backtest.Rule{engine.Rule(), vpa.Rule(), krr.Rule()}, WarmUp: 3 * day}

func container(name string, requests, limits quantity.Amounts) fleet.Container {
	return fleet.Container{Namespace: "shop", Kind: "Deployment", Workload: "web", Name: name, Replicas: 2, Requests: requests, Limits: limits}
}

func of(t *testing.T, row fleet.Row, rule string) fleet.Result {
	t.Helper()
	i := slices.IndexFunc(row.Rules, func(r fleet.Result) bool { return r.Rule == rule })
	if i < 0 {
		t.Fatalf("there is no rule %s", rule)
	}
	return row.Rules[i]
}

// The recommendation for Git is the same before and after it was applied, for any previous request.
func TestWhatIsWrittenToGitDependsOnUsageAlone(t *testing.T) {
	for _, kind := range traces.Names() {
		usage := traces.One(kind, 8*day, 5*time.Minute)
		most := slices.MaxFunc(usage.Samples, func(a, b backtest.Sample) int { return cmp.Compare(a.CPUMillis, b.CPUMillis) }).CPUMillis
		var first quantity.Amounts
		for name, c := range map[string]fleet.Container{
			"much":     container("app", quantity.Amounts{CPUMillis: 8000, MemoryBytes: 16 * gibi}, quantity.Amounts{}),
			"little":   container("app", quantity.Amounts{CPUMillis: 20, MemoryBytes: 64 * mebi}, quantity.Amounts{}),
			"a limit":  container("app", quantity.Amounts{CPUMillis: 20, MemoryBytes: 64 * mebi}, quantity.Amounts{MemoryBytes: 200 * mebi}),
			"none":     container("app", quantity.Amounts{}, quantity.Amounts{}),
			"as first": container("app", first, first),
		} {
			row, ok := options.Evaluate(c, usage)
			if !ok {
				t.Fatalf("%s, %s: nothing is recommended", kind, name)
			}
			if first == (quantity.Amounts{}) {
				first = row.Git()
			}
			if row.Git() != first || first.CPUMillis == 0 || first.MemoryBytes == 0 {
				t.Errorf("%s, %s: %+v, and before %+v", kind, name, row.Git(), first)
			}
			if cpu := float64(row.Git().CPUMillis); cpu > most*1.02+1 {
				t.Errorf("%s, %s: %gm are written to Git, and no more than %gm were used", kind, name, cpu, most)
			}
			if git := of(t, row, fleet.Git); git.StarvedPercent > 10 || git.OOMDays > 0 {
				t.Errorf("%s, %s: what is written to Git does harm: %+v", kind, name, git)
			}
		}
	}
}

func TestEvaluate(t *testing.T) {
	const samples = 8 * 288
	usage := backtest.Trace{Step: 5 * time.Minute, HasMemory: true, Samples: make([]backtest.Sample, samples)}
	for i := range usage.Samples {
		usage.Samples[i] = backtest.Sample{At: traces.Monday.Unix() + int64(i)*300, CPUMillis: 200, MemoryBytes: 500 * mebi}
	}
	usage.Samples[samples-100].MemoryBytes = 700 * mebi // a peak of one interval, after the warm-up

	row, ok := options.Evaluate(container("app", quantity.Amounts{CPUMillis: 1000, MemoryBytes: 400 * mebi}, quantity.Amounts{}), usage)
	if !ok {
		t.Fatal("nothing is recommended")
	}
	today := of(t, row, fleet.Today)
	if today.CPUMillicores != 1000 || today.MemoryBytes != 400*mebi || today.StarvedPercent != 0 || today.OOMDays != 0 || today.CostPerMonth != nil {
		t.Errorf("without a limit, nothing is killed today: %+v", today)
	}
	if ours := of(t, row, "verticalscaler"); ours.CPUMillicores < 190 || ours.CPUMillicores > 300 || ours.OOMDays > 1 || row.Days != 5 {
		t.Errorf("ours is %+v of %d days", ours, row.Days)
	}
	if git := of(t, row, fleet.Git); git.CPUMillicores != 200 || git.MemoryBytes < 700*mebi || git.MemoryBytes > 900*mebi || git.StarvedPercent != 0 || git.OOMDays != 0 || git.ResizesPerDay != 0 {
		t.Errorf("for Git: %+v", git)
	}

	row, _ = options.Evaluate(container("app", quantity.Amounts{CPUMillis: 100, MemoryBytes: 400 * mebi}, quantity.Amounts{MemoryBytes: 600 * mebi}), usage)
	if today := of(t, row, fleet.Today); today.StarvedPercent != 100 || today.OOMDays != 1 {
		t.Errorf("a limit below the peak: %+v", today)
	}
	row, _ = options.Evaluate(container("app", quantity.Amounts{}, quantity.Amounts{}), usage)
	if today := of(t, row, fleet.Today); today.StarvedPercent != 100 || today.CPUMillicores != 0 {
		t.Errorf("without requests: %+v", today)
	}
	all := usage.Samples
	for _, n := range []int{0, 1, 3 * 288} {
		usage.Samples = all[:n]
		if _, ok := options.Evaluate(container("app", quantity.Amounts{}, quantity.Amounts{}), usage); ok {
			t.Errorf("%d intervals are enough", n)
		}
	}
}

// made is a row of known results.
func made(namespace, deployment string, replicas int, difference float64, cost bool) fleet.Row {
	result := func(rule string, cpu, memory int64, starved float64, kills int, resizes float64) fleet.Result {
		r := fleet.Result{
			Rule: rule, Requested: &fleet.Requested{CPUMillicores: cpu, MemoryBytes: memory},
			Harm: &fleet.Harm{StarvedPercent: starved, OOMDays: kills, ResizesPerDay: resizes},
		}
		if cost {
			price := float64(cpu) / 100
			r.CostPerMonth = &price
		}
		return r
	}
	return fleet.Row{
		Container:  fleet.Container{Namespace: namespace, Kind: "Deployment", Workload: deployment, Name: "app", Replicas: replicas},
		Difference: difference, Days: 6,
		Rules: []fleet.Result{
			result(fleet.Today, 1000, 0, 12.5, 1, 0), result("balanced", 300, 500*mebi, 0.5, 0, 4), result("vpa", 400, 600*mebi, 2, 2, 2),
			result(fleet.Git, 450, 700*mebi, 0, 0, 0),
		},
	}
}

func report(prices *fleet.Prices) *fleet.Report {
	until := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	rows := []fleet.Row{made("shop", "web", 1, 0.5, prices != nil), made("bank", "api", 10, 7, prices != nil), made("bank", "cache", 1, 0.5, prices != nil)}
	var skipped []fleet.Skipped
	for _, name := range []string{"e", "d", "c", "b", "a"} {
		skipped = append(skipped, fleet.Skipped{Namespace: "shop", Kind: "Deployment", Workload: name, Container: "app", Why: "it has no replicas"})
	}
	skipped = append(skipped, fleet.Skipped{Namespace: "shop", Kind: "Deployment", Workload: "new", Container: "app", Why: "Prometheus knows no usage of its pods"})
	return fleet.New(rows, skipped, until.Add(-8*day), until, fleet.Options{
		Rules: []backtest.Rule{{Name: "balanced", About: "about balanced"}, {Name: "vpa", About: "about vpa"}}, WarmUp: 3 * day, Prices: prices,
	})
}

func TestTable(t *testing.T) {
	var got strings.Builder
	must.Succeed(t, report(nil).WriteTable(&got, 2))
	want := `3 containers of 3 workloads, by usage from 2026-11-15T12:00:00Z to 2026-11-23T12:00:00Z

RULE       CORES   GIB     CPU VS TODAY   MEMORY VS TODAY   STARVED   OOM DAYS   RESIZES/DAY
today      12.00   0.000   0%             -                 12.50%    3 of 18    0.00
balanced   3.600   5.859   -70.0%         -                 0.50%     0 of 18    4.00
vpa        4.800   7.031   -60.0%         -                 2.00%     6 of 18    2.00
git        5.400   8.203   -55.0%         -                 0.00%     0 of 18    0.00

NAMESPACE   WORKLOAD   CONTAINER   PODS   CPU             MEMORY          VPA          GIT          STARVED         OOM DAYS
bank        api        app         10     1000m -> 300m   none -> 500Mi   400m 600Mi   450m 700Mi   12.5% -> 0.5%   1 -> 0
bank        cache      app         1      1000m -> 300m   none -> 500Mi   400m 600Mi   450m 700Mi   12.5% -> 0.5%   1 -> 0

1 more container with smaller differences: see --top, or --output csv

Skipped, because Prometheus knows no usage of its pods: shop/new/app

Skipped, because it has no replicas: shop/a/app, shop/b/app, shop/c/app and 2 more
`
	assert.Equal(t, "text", want, got.String())
	got.Reset()
	must.Succeed(t, report(&fleet.Prices{Currency: "EUR", CPUCoreHour: 0.01}).WriteTable(&got, 0))
	if text := got.String(); !strings.Contains(text, "COST/MONTH EUR") || !strings.Contains(text, "today      12.00   0.000   87.60 ") || strings.Contains(text, "cache") {
		t.Errorf("with prices, and without containers:\n%s", text)
	}
}

// The day counts by replicas, and in the table only where usage is known.
func TestTheReportShowsWhetherUsageFollowsTheDay(t *testing.T) {
	evaluated := func(kind string, replicas int) fleet.Row {
		c := container("app", quantity.Amounts{CPUMillis: 1000, MemoryBytes: gibi}, quantity.Amounts{})
		c.Replicas = replicas
		row, ok := options.Evaluate(c, traces.One(kind, 8*day, 5*time.Minute))
		if !ok {
			t.Fatal("nothing is recommended")
		}
		return row
	}
	for _, test := range []struct {
		diurnal, leak int
		least, most   float64
		advice        string
	}{
		{1, 1, 1.5, 1.75, "the fallback Recreate"},
		{1, 30, 1, 1.2, "hardly follows the day"},
	} {
		r := fleet.New([]fleet.Row{evaluated("diurnal", test.diurnal), evaluated("leak", test.leak)}, nil, traces.Monday, traces.Monday.Add(8*day), options)
		var got strings.Builder
		must.Succeed(t, r.WriteTable(&got, 0))
		if r.PeakHourByMean < test.least || r.PeakHourByMean > test.most || !strings.Contains(got.String(), test.advice) {
			t.Errorf("%d diurnal and %d others: %g\n%s", test.diurnal, test.leak, r.PeakHourByMean, got.String())
		}
	}
}

func TestCSV(t *testing.T) {
	var got strings.Builder
	must.Succeed(t, report(&fleet.Prices{Currency: "EUR", CPUCoreHour: 0.01}).WriteCSV(&got))
	want := `namespace,kind,workload,container,replicas,difference,days,today_cpu_millicores,today_memory_bytes,today_cost_per_month,today_starved_percent,today_oom_days,today_resizes_per_day,balanced_cpu_millicores,balanced_memory_bytes,balanced_cost_per_month,balanced_starved_percent,balanced_oom_days,balanced_resizes_per_day,vpa_cpu_millicores,vpa_memory_bytes,vpa_cost_per_month,vpa_starved_percent,vpa_oom_days,vpa_resizes_per_day,git_cpu_millicores,git_memory_bytes,git_cost_per_month,git_starved_percent,git_oom_days,git_resizes_per_day
bank,Deployment,api,app,10,7,6,1000,0,10,12.5,1,0,300,524288000,3,0.5,0,4,400,629145600,4,2,2,2,450,734003200,4.5,0,0,0
bank,Deployment,cache,app,1,0.5,6,1000,0,10,12.5,1,0,300,524288000,3,0.5,0,4,400,629145600,4,2,2,2,450,734003200,4.5,0,0,0
shop,Deployment,web,app,1,0.5,6,1000,0,10,12.5,1,0,300,524288000,3,0.5,0,4,400,629145600,4,2,2,2,450,734003200,4.5,0,0,0
`
	assert.Equal(t, "CSV", want, got.String())
}

// The order is by the cost of the difference.
func TestPricesWeighTheDifference(t *testing.T) {
	usage := traces.One("diurnal", 6*day, 5*time.Minute)
	cpu := container("cpu", quantity.Amounts{CPUMillis: 10_000, MemoryBytes: gibi}, quantity.Amounts{})
	memory := container("memory", quantity.Amounts{CPUMillis: 500, MemoryBytes: 20 * gibi}, quantity.Amounts{})
	for name, c := range map[string]struct {
		prices *fleet.Prices
		first  string
	}{
		"none":       {nil, "cpu"},
		"of CPU":     {&fleet.Prices{CPUCoreHour: 1}, "cpu"},
		"of memory":  {&fleet.Prices{MemoryGiBHour: 1}, "memory"},
		"like a GiB": {&fleet.Prices{CPUCoreHour: 1, MemoryGiBHour: 1}, "memory"},
	} {
		o := options
		o.Prices = c.prices
		var rows []fleet.Row
		for _, one := range []fleet.Container{cpu, memory} {
			row, _ := o.Evaluate(one, usage)
			rows = append(rows, row)
		}
		if first := fleet.New(rows, nil, traces.Monday, traces.Monday.Add(6*day), o).Containers[0]; first.Name != c.first {
			t.Errorf("with prices %s, %s comes first", name, first.Name)
		}
	}
}

func TestReadPrices(t *testing.T) {
	p, err := fleet.ReadPrices([]byte("currency: EUR\ncpuCoreHour: 0.03\nmemoryGiBHour: 0.004\n"))
	if err != nil || *p != (fleet.Prices{Currency: "EUR", CPUCoreHour: 0.03, MemoryGiBHour: 0.004}) {
		t.Errorf("read %+v, %v", p, err)
	}
	for text, want := range map[string]string{
		"cpuCoreHours: 1":                  `unknown field "cpuCoreHours": the keys are currency, cpuCoreHour and memoryGiBHour`,
		"cpuCoreHour: 1\ncpuCoreHour: 2":   `key "cpuCoreHour" already set in map`,
		"cpuCoreHour: cheap":               "cannot unmarshal string into Go",
		"cpuCoreHour: -1":                  "cpuCoreHour must be from 0 to 1e+06",
		"memoryGiBHour: 1e9":               "memoryGiBHour must be from 0 to 1e+06",
		"currency: EUR":                    "cpuCoreHour and memoryGiBHour are both 0",
		"":                                 "both 0",
		"[1, 2]":                           "cannot unmarshal array",
		"cpuCoreHour: 1\n\tmemoryGiBHour:": "yaml: line 2",
	} {
		if _, err := fleet.ReadPrices([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %s", text, err, want)
		}
	}
}

// The page has no scripts and no external parts, and shows names as text.
func TestHTML(t *testing.T) {
	usage := traces.One("diurnal", 6*day, 5*time.Minute)
	c := container("<b>app</b>", quantity.Amounts{CPUMillis: 1000, MemoryBytes: gibi}, quantity.Amounts{})
	o := options
	o.Record = true
	gap := usage
	gap.Samples = slices.Concat(usage.Samples[:600], usage.Samples[900:])
	row, _ := o.Evaluate(c, gap)
	o.Prices = &fleet.Prices{Currency: "EUR", CPUCoreHour: 1}
	priced, _ := o.Evaluate(c, usage)
	for name, r := range map[string]*fleet.Report{
		"plain":   fleet.New([]fleet.Row{row}, []fleet.Skipped{{Namespace: "shop", Kind: "Deployment", Workload: "late", Why: "it has no replicas"}}, traces.Monday, traces.Monday.Add(6*day), options),
		"priced":  fleet.New([]fleet.Row{priced}, nil, traces.Monday, traces.Monday.Add(6*day), o),
		"no rows": fleet.New(nil, nil, traces.Monday, traces.Monday.Add(6*day), options),
	} {
		var got strings.Builder
		must.Succeed(t, r.WriteHTML(&got, 5))
		text := got.String()
		for _, unwanted := range []string{"<script", "http://", "https://", "<b>app", "NaN", "Inf", "ZgotmplZ"} {
			if strings.Contains(text, unwanted) {
				t.Errorf("%s: %q is in:\n%s", name, unwanted, text)
			}
		}
		want := map[string][]string{
			"plain":  {"&lt;b&gt;app&lt;/b&gt;", "<p>Skipped, because it has no replicas: shop/late.</p>", `<path class="line p0"`, `<path class="usage" d="M0 `, `style="background-size: 100% 100%">2.000</td>`},
			"priced": {"Cost per month", "COST/MONTH EUR"},
		}[name]
		assert.Contains(t, name, text, append(want, "</html>", ">git</th>")...)
	}
}

// A patch has only recommended or current requests: never a request of 0.
func TestPatchesOfScalersSetNothingElse(t *testing.T) {
	o := fleet.Options{Rules: []backtest.Rule{{Name: "scaler"}, {Name: "vpa"}}}
	row := o.Recommended(container("app", quantity.Amounts{}, quantity.Amounts{}), quantity.Amounts{CPUMillis: 300}, 2*day)
	patches, err := fleet.OfScalers([]fleet.Row{row}, nil, o).Patches(fleet.HelmValues, "")
	if want := "resources:\n  requests:\n    cpu: 300m\n"; err != nil || len(patches) != 1 || string(patches[0].Text) != fleet.PatchHeader+want {
		t.Errorf("%v: %s", err, patches)
	}
}

func TestPatches(t *testing.T) {
	rows := []fleet.Row{made("shop", "web", 1, 1, false), made("shop", "web", 1, 1, false), made("shop", "api", 1, 1, false), made("shop", "ok", 1, 1, false)}
	rows[0].Name, rows[0].IsSidecar = "proxy", true
	rows[1].Requests = quantity.Amounts{CPUMillis: 900, MemoryBytes: gibi}
	rows[1].Limits = quantity.Amounts{CPUMillis: 900, MemoryBytes: 3 * gibi}
	rows[2].Limits = quantity.Amounts{MemoryBytes: gibi} // below no request
	rows[3].Requests = rows[3].Git()
	report := fleet.New(rows, nil, traces.Monday, traces.Monday.Add(day), fleet.Options{Rules: []backtest.Rule{{Name: "balanced"}, {Name: "vpa"}}})
	for format, want := range map[fleet.PatchFormat]string{
		fleet.Kustomize: `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  template:
    spec:
      containers:
      - name: app
        resources:
          limits:
            cpu: 450m
            memory: 2100Mi
          requests:
            cpu: 450m
            memory: 700Mi
      initContainers:
      - name: proxy
        resources:
          requests:
            cpu: 450m
            memory: 700Mi
`,
		fleet.HelmValues: `app:
  resources:
    limits:
      cpu: 450m
      memory: 2100Mi
    requests:
      cpu: 450m
      memory: 700Mi
proxy:
  resources:
    requests:
      cpu: 450m
      memory: 700Mi
`,
	} {
		patches, err := report.Patches(format, "")
		if err != nil || len(patches) != 2 || patches[0].File != "shop_Deployment_api.yaml" || patches[1].File != "shop_Deployment_web.yaml" {
			t.Fatalf("%s: %v, %+v", format, err, patches)
		}
		assert.Equal(t, string(format), fleet.PatchHeader+want, string(patches[1].Text))
	}
	if patches, err := report.Patches(fleet.SSA, ""); err != nil || !strings.Contains(string(patches[0].Text), "limits:\n            memory: 700Mi\n") {
		t.Errorf("a limit without a request: %v\n%s", err, patches[0].Text)
	}
	patches, err := report.Patches(fleet.HelmValues, "apps.{deployment}.{container}.resources")
	if want := "apps:\n  web:\n    app:\n      resources:\n"; err != nil || !strings.Contains(string(patches[1].Text), want) {
		t.Errorf("%v: %+v", err, patches)
	}
	if _, err := report.Patches(fleet.HelmValues, "resources"); err == nil || !strings.Contains(err.Error(), "Deployment shop/web have the same path of values: it must contain {container}") {
		t.Errorf("two containers with one path: %v", err)
	}
	text, err := fleet.Component([]string{"shop_Deployment_web.yaml", "shop_CronJob_api.yaml", "a_file_that_others_wrote.yaml"})
	want := fleet.PatchHeader + `apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
patches:
- path: shop_CronJob_api.yaml
  target:
    group: batch
    kind: CronJob
    name: api
    namespace: shop
    version: v1
- path: shop_Deployment_web.yaml
  target:
    group: apps
    kind: Deployment
    name: web
    namespace: shop
    version: v1
`
	if diff := gocmp.Diff(want, string(text)); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// Sums by a label have the largest difference first, and those without the label too. The columns of files name the label.
func TestGroups(t *testing.T) {
	rows := []fleet.Row{made("shop", "web", 1, 1, true), made("shop", "db", 10, 1, true), made("bank", "api", 1, 1, true)}
	rows[0].Label, rows[1].Label, rows[1].Kind = "store", "store", "StatefulSet"
	r := fleet.New(rows, nil, traces.Monday, traces.Monday.Add(day), fleet.Options{
		Rules: []backtest.Rule{{Name: "balanced"}, {Name: "vpa"}}, GroupBy: "label:team", Prices: &fleet.Prices{CPUCoreHour: 0.01}, PricesFrom: "a test",
	})
	var table, csv, html strings.Builder
	must.Succeed(t, errors.Join(r.WriteTable(&table, 5), r.WriteCSV(&csv), r.WriteHTML(&html, 5)))
	for _, want := range []string{
		"\nPrices are from a test: a core costs 0.01 and a GiB 0 an hour\n",
		"\nTEAM     CONTAINERS   CORES            GIB              COST/MONTH\nstore    2            11.00 -> 3.300   0.000 -> 5.371   80.30 -> 24.09\n(none)   1            1.000 -> 0.300 ",
		"\nshop        StatefulSet/db   app ",
	} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("there is no %q in:\n%s", want, table.String())
		}
	}
	if text := csv.String(); !strings.HasPrefix(text, "label:team,namespace,kind,") || !strings.Contains(text, "\nstore,shop,StatefulSet,db,app,10,") || !strings.Contains(text, "\n,bank,Deployment,api,") {
		t.Errorf("csv:\n%s", text)
	}
	if text := html.String(); !strings.Contains(text, `<td class="name">store</td><td>2</td>`) || !strings.Contains(text, `<th scope="col" class="name">TEAM</th>`) {
		t.Errorf("html:\n%s", text)
	}
}

// A heap that a flag sets is a floor for VerticalScaler's requests, up to today's request.
func TestAHeapIsAFloor(t *testing.T) {
	usage := traces.One("diurnal", 6*day, 5*time.Minute) // of far less than a GiB
	for _, test := range []struct{ heap, today, least int64 }{{3 * gibi, 4 * gibi, 3 * gibi}, {3 * gibi, 2 * gibi, 2 * gibi}} {
		c := container("app", quantity.Amounts{CPUMillis: 1000, MemoryBytes: test.today}, quantity.Amounts{})
		without, _ := options.Evaluate(c, usage)
		c.HeapBytes = test.heap
		row, ok := options.Evaluate(c, usage)
		if ours, git := row.Rules[1].MemoryBytes, row.Git().MemoryBytes; !ok || ours < test.least || git != test.least || without.Git().MemoryBytes >= gibi {
			t.Errorf("with a heap of %d: %d, for Git %d, and without %d", test.heap, ours, git, without.Git().MemoryBytes)
		}
	}
}

// A CronJob costs the requests of its pods while they run.
func TestACronJobCountsWhileItRuns(t *testing.T) {
	usage := traces.One("diurnal", 8*day, 5*time.Minute)
	usage.Samples = slices.DeleteFunc(usage.Samples, func(s backtest.Sample) bool { return s.At/3600%24 != 3 })
	c := container("app", quantity.Amounts{CPUMillis: 1000, MemoryBytes: gibi}, quantity.Amounts{})
	c.Kind, c.Replicas = "CronJob", 24
	row, ok := options.Evaluate(c, usage)
	if !ok {
		t.Fatal("nothing is recommended")
	}
	if got := fleet.New([]fleet.Row{row}, nil, traces.Monday, traces.Monday.Add(8*day), options).Rules[0].Cores; got < 1 || got > 1.2 {
		t.Errorf("24 pods of a core that run for an hour a day are %g cores", got)
	}
}

// Patches of other kinds have their shape. A Rollout has Helm values only.
func TestPatchesOfOtherKinds(t *testing.T) {
	rows := []fleet.Row{made("shop", "db", 1, 1, false), made("shop", "nightly", 1, 1, false), made("shop", "web", 1, 1, false)}
	rows[0].Kind, rows[1].Kind, rows[2].Kind = "StatefulSet", "CronJob", "Rollout"
	r := fleet.New(rows, nil, traces.Monday, traces.Monday.Add(day), fleet.Options{Rules: []backtest.Rule{{Name: "balanced"}, {Name: "vpa"}}})
	patches, err := r.Patches(fleet.SSA, "")
	if err != nil || len(patches) != 2 || patches[0].File != "shop_CronJob_nightly.yaml" || patches[1].File != "shop_StatefulSet_db.yaml" {
		t.Fatalf("%v: %+v", err, patches)
	}
	if text := string(patches[0].Text); !strings.Contains(text, "apiVersion: batch/v1\nkind: CronJob\n") || !strings.Contains(text, "spec:\n  jobTemplate:\n    spec:\n      template:\n        spec:\n          containers:\n") {
		t.Error(text)
	}
	if text := string(patches[1].Text); !strings.Contains(text, "apiVersion: apps/v1\nkind: StatefulSet\n") {
		t.Error(text)
	}
	if patches, err := r.Patches(fleet.HelmValues, ""); err != nil || len(patches) != 3 {
		t.Errorf("%v: %+v", err, patches)
	}
}

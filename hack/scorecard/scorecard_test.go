// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/verticalscaler/verticalscaler-operator/test/scorecard"
)

func aTest(image string, entrypoint ...string) v1alpha3.TestConfiguration {
	return v1alpha3.TestConfiguration{Image: image, Entrypoint: entrypoint, Labels: map[string]string{"suite": "olm", "test": strings.Join(entrypoint[1:], "")}}
}

func TestTheBundleSaysWhatIsRun(t *testing.T) {
	config, err := readConfig(filepath.Join("..", "..", "bundle"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := readBundle(filepath.Join("..", "..", "bundle"))
	if err != nil {
		t.Fatal(err)
	}
	p := programs{stock: "bin/tools/scorecard-test-v1.42.3", ours: "ours", version: b.version}
	stages, err := selectTests(config, labels.Everything())
	if err != nil {
		t.Fatal(err)
	}
	var ours []string
	stock := 0
	for _, stage := range stages {
		for _, test := range stage.Tests {
			program, err := p.programOf(test)
			if err != nil {
				t.Errorf("%v: %v", test.Entrypoint, err)
			}
			if program == "ours" {
				if stage.Parallel {
					t.Errorf("%v is run beside others: they share a namespace", test.Entrypoint)
				}
				ours = append(ours, test.Entrypoint[1])
				continue
			}
			stock++
		}
	}
	if stock != 6 {
		t.Errorf("%d stock tests, want all 6", stock)
	}
	if diff := cmp.Diff(scorecard.Names(), slices.Sorted(slices.Values(ours))); diff != "" {
		t.Errorf("our tests (-in the program +in the bundle):\n%s", diff)
	}
	if anyNeedsCluster(stages[:1]) || !anyNeedsCluster(stages) {
		t.Error("only our tests need a cluster")
	}

	only, err := labels.Parse("test=rbac-used-is-granted-test")
	if err != nil {
		t.Fatal(err)
	}
	stages, err = selectTests(config, only)
	if err != nil || len(stages) != 1 || len(stages[0].Tests) != 1 {
		t.Errorf("one selected: %+v, %v", stages, err)
	}
	none, err := labels.Parse("suite=none")
	if err != nil {
		t.Fatal(err)
	}
	if stages, err = selectTests(config, none); err == nil {
		t.Errorf("none selected: %+v, want an error", stages)
	}
}

func TestOnlyTheVersionThatTheBundleWantsIsRun(t *testing.T) {
	p := programs{stock: "/x/scorecard-test-v1.42.3", ours: "/x/ours", version: "0.1.0"}
	for name, tc := range map[string]struct {
		test       v1alpha3.TestConfiguration
		want, fail string
	}{
		"stock":                    {test: aTest(stockImage+":v1.42.3", "scorecard-test", "a"), want: "/x/scorecard-test-v1.42.3"},
		"ours":                     {test: aTest(ourImage+":v0.1.0", "/scorecard-tests", "a"), want: "/x/ours"},
		"another version of stock": {test: aTest(stockImage+":v1.41.0", "scorecard-test", "a"), fail: "another version"},
		"another version of ours":  {test: aTest(ourImage+":v0.0.0", "/scorecard-tests", "a"), fail: "the bundle is version 0.1.0"},
		"an image of others":       {test: aTest("example.com/kuttl:v1", "kuttl", "a"), fail: "no program for image example.com/kuttl:v1"},
		"no entrypoint":            {test: v1alpha3.TestConfiguration{Image: stockImage}, fail: "no entrypoint"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := p.programOf(tc.test)
			if got != tc.want || (err == nil) != (tc.fail == "") || (err != nil && !strings.Contains(err.Error(), tc.fail)) {
				t.Errorf("programOf() = %q, %v; want %q, %q", got, err, tc.want, tc.fail)
			}
		})
	}
}

func TestWhatIsPrintedIsTheStatus(t *testing.T) {
	test := aTest(stockImage+":v1", "scorecard-test", "basic-check-spec")
	for name, tc := range map[string]struct {
		output string
		ended  error
		state  v1alpha3.State
		words  string
	}{
		"a status":               {output: `{"results":[{"name":"x","state":"fail"}]}`, state: "fail"},
		"words beside it":        {output: "I0101 watching\n" + `{"results":[{"name":"x","state":"pass"}]}`, state: "error", words: "I0101 watching"},
		"nothing":                {output: "", state: "error", words: "has not printed a status"},
		"no results":             {output: "{}", state: "error", words: "no results"},
		"a status, then a crash": {output: `{"results":[{"name":"x","state":"pass"}]}`, ended: errors.New("exit status 2"), state: "error", words: "exit status 2"},
	} {
		t.Run(name, func(t *testing.T) {
			status := statusOf(test, []byte(tc.output), tc.ended)
			if len(status.Results) != 1 || status.Results[0].State != tc.state || !strings.Contains(strings.Join(status.Results[0].Errors, "\n"), tc.words) {
				t.Errorf("statusOf() = %+v, want %s with %q", status, tc.state, tc.words)
			}
		})
	}
}

func TestTable(t *testing.T) {
	result := func(name string, change func(*v1alpha3.TestResult)) outcome {
		r := v1alpha3.TestResult{Name: name, State: "pass"}
		change(&r)
		return outcome{
			test: aTest(stockImage+":v1", "scorecard-test", name), took: 1234 * time.Millisecond,
			status: v1alpha3.TestStatus{Results: []v1alpha3.TestResult{r}},
		}
	}
	outcomes := []outcome{
		result("good", func(r *v1alpha3.TestResult) { r.Log = "Loaded ClusterServiceVersion" }),
		result("good-with-a-log", func(r *v1alpha3.TestResult) { r.Log = "web: all was written\n" }),
		result("good-as-it-is", func(r *v1alpha3.TestResult) {
			r.Suggestions = []string{"verticalscalercheckpoints.autoscaling.verticalscaler.io does not have status spec. Note that"}
		}),
		result("could-be-better", func(r *v1alpha3.TestResult) { r.Suggestions = []string{"add a status"} }),
		result("bad", func(r *v1alpha3.TestResult) {
			r.State, r.Errors, r.Log = "fail", []string{"two\nlines", "another"}, "Loaded ClusterServiceVersion"
		}),
		result("says-pass-and-has-errors", func(r *v1alpha3.TestResult) { r.Errors = []string{"an error"} }),
		result("broken", func(r *v1alpha3.TestResult) { r.State = "error" }),
	}
	if got := failedOf(outcomes, true); got != 4 {
		t.Errorf("%d failed, want 4", got)
	}
	if got := failedOf(outcomes, false); got != 3 {
		t.Errorf("%d failed without the suggestions, want 3", got)
	}
	const want = `STATE                   SUITE  TEST                      TOOK
pass                    olm    good                      1.2s
pass                    olm    good-with-a-log           1.2s
pass                    olm    good-as-it-is             1.2s
pass, with suggestions  olm    could-be-better           1.2s
fail                    olm    bad                       1.2s
pass, with errors       olm    says-pass-and-has-errors  1.2s
error                   olm    broken                    1.2s

good-with-a-log
  log: web: all was written

good-as-it-is
  suggestion: verticalscalercheckpoints.autoscaling.verticalscaler.io does not have status spec. Note that
    Accepted: a checkpoint holds what was learned; there is nothing that it could be on the way to

could-be-better
  suggestion: add a status

bad
  error: two
    lines
  error: another
  log: Loaded ClusterServiceVersion

says-pass-and-has-errors
  error: an error
`
	if diff := cmp.Diff(want, render(outcomes, true)); diff != "" {
		t.Errorf("render() (-want +got):\n%s", diff)
	}
}

func TestTheOperatorRunsWithTheBundlesConfigurationButForPorts(t *testing.T) {
	b, err := readBundle(filepath.Join("..", "..", "bundle"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := withoutPorts(b.configuration)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"bindAddress: \"0\"\n  secure: true", "health:\n  bindAddress: \"0\"", "namespace: verticalscaler-system", "resyncPeriod: 10m", "interval: 30s"} {
		if !strings.Contains(string(got), want) {
			t.Errorf("the configuration lacks %q:\n%s", want, got)
		}
	}
	if _, err := withoutPorts([]byte("kind: Nonsense")); err == nil {
		t.Error("a configuration that the operator refuses is taken")
	}
}

func TestParse(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"localcluster", "stock"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	good := []string{"-cluster-dir=" + dir, "-scorecard-test=" + filepath.Join(dir, "stock")}
	o, err := parse(append(good, "-selector=suite=olm"), nil)
	if err != nil || !o.strict || o.selector.String() != "suite=olm" || !filepath.IsAbs(o.bundle) || o.record != "" {
		t.Errorf("parse() = %+v, %v", o, err)
	}
	for _, bad := range [][]string{nil, good[:1], append(good, "-selector=a in b"), append(good, "more"), append(good, "-none")} {
		if _, err := parse(bad, nil); err == nil {
			t.Errorf("parse(%q) is no error", bad)
		}
	}
	var help bytes.Buffer
	if _, err := parse([]string{"-h"}, &help); !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "-selector") {
		t.Errorf("help: %v, %q", err, help.String())
	}
}

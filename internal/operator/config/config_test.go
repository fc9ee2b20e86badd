// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

const head = "apiVersion: config.verticalscaler.io/v1beta1\nkind: OperatorConfiguration\n"

func TestParseChangesOnlyGivenFields(t *testing.T) {
	cases := map[string]struct {
		text   string
		change func(c *Operator)
	}{
		"an empty file is the default":        {text: ``, change: func(*Operator) {}},
		"an empty section keeps its defaults": {text: "metrics: {}\nleaderElection: {}\nrecommendation: {}", change: func(*Operator) {}},
		"false is set":                        {text: "leaderElection: {enabled: false}", change: func(c *Operator) { c.LeaderElection.Enabled = false }},
		"one key leaves its neighbours":       {text: "metrics: {bindAddress: \"0\"}", change: func(c *Operator) { c.Metrics.BindAddress = "0" }},
		"the least durations are accepted":    {text: "resyncPeriod: 1s\ncollection: {interval: 1s}", change: func(c *Operator) { c.ResyncPeriod.Duration, c.Collection.Interval.Duration = time.Second, time.Second }},
		"no evidence at all may be enough":    {text: "recommendation: {minEvidence: 0s}", change: func(c *Operator) { c.Recommendation.MinEvidence.Duration = 0 }},
		"one ceiling leaves the others":       {text: "ceilings: {pod: {cpu: 500m}}", change: func(c *Operator) { c.Ceilings.Pod.CPU = resource.MustParse("500m") }},
		"no ceiling is set":                   {text: "ceilings: {container: {memory: 0}}", change: func(c *Operator) { c.Ceilings.Container.Memory = resource.MustParse("0") }},
		"the whole node":                      {text: "ceilings: {nodePercent: 100}", change: func(c *Operator) { c.Ceilings.NodePercent = 100 }},
		"one worker":                          {text: "workers: {verticalScalers: 1}", change: func(c *Operator) { c.Workers.VerticalScalers = 1 }},
		"Prometheus is asked":                 {text: "prometheus: {address: \"http://prometheus:9090/base\"}", change: func(c *Operator) { c.Prometheus.Address = "http://prometheus:9090/base" }},
		"Prometheus is asked with all that there is": {
			text: "prometheus: {address: \"https://p\", labels: {cluster: 'a\"b'}, lookback: 1h, step: 15s, rateWindow: 30s, caFile: a, certFile: b, keyFile: c, username: d, passwordFile: e}",
			change: func(c *Operator) {
				c.Prometheus = Prometheus{
					Address: "https://p", Labels: map[string]string{"cluster": `a"b`},
					Lookback: metav1.Duration{Duration: time.Hour}, Step: metav1.Duration{Duration: 15 * time.Second},
					RateWindow: metav1.Duration{Duration: 30 * time.Second},
					CAFile:     "a", CertFile: "b", KeyFile: "c", Username: "d", PasswordFile: "e",
				}
			},
		},
		"a step may be as long as the longest gap": {text: "collection: {interval: 5m}\nprometheus: {step: 15m}", change: func(c *Operator) {
			c.Collection.Interval.Duration, c.Prometheus.Step.Duration = 5*time.Minute, 15*time.Minute
		}},
		"a demonstration can compress time": {text: "recommendation: {cpuHalfLife: 1m, memoryWindow: 8m}", change: func(c *Operator) {
			c.Recommendation.CPUHalfLife.Duration, c.Recommendation.MemoryWindow.Duration = time.Minute, 8*time.Minute
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			want := Default()
			tc.change(&want)
			got, err := Parse([]byte(head + tc.text))
			must.Succeed(t, err)
			assert.Equal(t, "Parse()", want, got)
		})
	}
}

func TestParseRejects(t *testing.T) {
	cases := map[string]struct {
		text string
		want []string // parts of the error
	}{
		"an empty file":                      {text: "", want: []string{`apiVersion and kind must be config.verticalscaler.io/v1beta1 and OperatorConfiguration, not "" and ""`}},
		"another kind":                       {text: "apiVersion: config.verticalscaler.io/v1beta1\nkind: Config", want: []string{`not "config.verticalscaler.io/v1beta1" and "Config"`}},
		"another version":                    {text: "apiVersion: config.verticalscaler.io/v1\nkind: OperatorConfiguration", want: []string{`not "config.verticalscaler.io/v1" and "OperatorConfiguration"`}},
		"a misspelt key":                     {text: head + "resyncperiode: 5m", want: []string{`unknown field "resyncperiode"`}},
		"a repeated key":                     {text: head + "resyncPeriod: 5m\nresyncPeriod: 6m", want: []string{`key "resyncPeriod" already set in map`}},
		"a word as a duration":               {text: head + "resyncPeriod: often", want: []string{`invalid duration "often"`}},
		"a budget of nothing":                {text: head + "budget: {changesPerMinute: 0}", want: []string{"budget.changesPerMinute must be from 1 to 100000, not 0"}},
		"more than all pods":                 {text: head + "budget: {podPercentPerMinute: 101}", want: []string{"budget.podPercentPerMinute must be from 0 to 100, not 101"}},
		"a budget's window":                  {text: head + "budget: {window: 1s}", want: []string{`unknown field "window"`}},
		"a share of nothing":                 {text: head + "ceilings: {nodePercent: 0}", want: []string{"ceilings.nodePercent must be from 1 to 100, not 0"}},
		"a raise that is none":               {text: head + "ceilings: {raiseFactor: 1}", want: []string{"ceilings.raiseFactor must be 0 or from 2 to 1000, not 1"}},
		"ceilings below nothing":             {text: head + "ceilings: {container: {cpu: -1}, pod: {memory: -1}}", want: []string{"ceilings.container.cpu: CPU of -1 is out of range", "ceilings.pod.memory: memory of -1 is out of range"}},
		"ceilings beyond everything":         {text: head + "ceilings: {container: {memory: 2Ei}, pod: {cpu: 1e18}}", want: []string{"ceilings.container.memory", "ceilings.pod.cpu"}},
		"a ceiling that is no quantity":      {text: head + "ceilings: {container: {cpu: many}}", want: []string{"decoding"}},
		"a freeze switch with a bad name":    {text: head + "freeze: {configMap: Stop!}", want: []string{`freeze.configMap: "Stop!" is not a valid name`}},
		"a freeze switch in a bad namespace": {text: head + "freeze: {namespace: a.b}", want: []string{`freeze.namespace: "a.b" is not a valid name`}},
		"negative evidence":                  {text: head + "recommendation: {minEvidence: -1s}", want: []string{"recommendation.minEvidence must be at least 0s, not -1s"}},
		"a password in Prometheus's address": {text: head + "prometheus: {address: \"https://me:hush@p\"}", want: []string{"prometheus.address must not contain credentials"}},
		"a token in Prometheus's address":    {text: head + "prometheus: {address: \"https://p?token=hush\"}", want: []string{"prometheus.address must not have a query"}},
		"an address that is no URL":          {text: head + "prometheus: {address: \"https://me:hush@p:x\"}", want: []string{"prometheus.address must be an http or https URL"}},
		"a token in the clear":               {text: head + "prometheus: {address: \"http://p\", bearerTokenFile: t}", want: []string{"prometheus.address must be an https URL"}},
		"a password in the clear":            {text: head + "prometheus: {address: \"http://p\", username: u, passwordFile: t}", want: []string{"prometheus.address must be an https URL"}},
		"credentials without an address":     {text: head + "prometheus: {bearerTokenFile: t}", want: []string{"prometheus.address must be set"}},
		"a token and a password":             {text: head + "prometheus: {address: \"https://p\", bearerTokenFile: t, username: u, passwordFile: p}", want: []string{"prometheus.bearerTokenFile and prometheus.passwordFile must not both be set"}},
		"a user without a password":          {text: head + "prometheus: {address: \"https://p\", username: u}", want: []string{"prometheus.username and prometheus.passwordFile must be set together"}},
		"a certificate without its key":      {text: head + "prometheus: {address: \"https://p\", certFile: c}", want: []string{"prometheus.certFile and prometheus.keyFile must be set together"}},
		"a label that is ours":               {text: head + "prometheus: {labels: {namespace: x}}", want: []string{"prometheus.labels: namespace is set by the operator"}},
		"a label with a forged matcher":      {text: head + "prometheus: {labels: {'a=\"\"} or b{': x}}", want: []string{"is not a valid label name"}},
		"a step that would count for less":   {text: head + "prometheus: {step: 3m}", want: []string{"prometheus.step must be from 15s to 2m0s, not 3m0s"}},
		"a step that is no whole second":     {text: head + "prometheus: {step: 15500ms}", want: []string{"prometheus.step and prometheus.rateWindow must be whole seconds"}},
		"a password itself":                  {text: head + "prometheus: {password: hush}", want: []string{`unknown field "password"`}},
		"all of Prometheus that is too much, at once": {
			text: head + "prometheus: {lookback: 9999h, rateWindow: 2h}",
			want: []string{"prometheus.lookback", "prometheus.rateWindow"},
		},
		"all that is too short, at once": {
			text: head + "resyncPeriod: 0s\ncollection: {interval: 0s}\nrecommendation: {cpuHalfLife: 0s, recentHalfLife: 0s, memoryWindow: 0s, oomHalfLife: 0s, minEvidence: -1s, fullEvidence: 0s, confidenceUnit: 0s}",
			want: []string{
				"resyncPeriod", "collection.interval", "recommendation.cpuHalfLife", "recommendation.recentHalfLife", "recommendation.memoryWindow",
				"recommendation.oomHalfLife", "recommendation.minEvidence", "recommendation.fullEvidence", "recommendation.confidenceUnit",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(tc.text))
			if err == nil {
				t.Fatal("Parse() = nil")
			}
			if strings.Contains(err.Error(), "hush") {
				t.Errorf("Parse() = %v, which contains a secret", err)
			}
			assert.Contains(t, "Parse()", err.Error(), tc.want...)
		})
	}
}

func TestAnErrorNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	if _, err := Load(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Load() = %v, want %v", err, fs.ErrNotExist)
	}
	must.Succeed(t, os.WriteFile(path, []byte("kind: Config"), 0o600))
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("Load() = %v, want it to name %s", err, path)
	}
}

// Shipped files have the effective values; omitted fields have the default.
func TestShippedFiles(t *testing.T) {
	local := Default()
	local.Metrics.BindAddress, local.Metrics.Secure = "127.0.0.1:8080", false
	local.Health.BindAddress = "127.0.0.1:8081"
	local.LeaderElection.Namespace = "verticalscaler-system"
	local.Freeze.Namespace = "verticalscaler-system"
	for file, want := range map[string]Operator{"config.yaml": Default(), "local.yaml": local} {
		got, err := Load(filepath.Join("..", "..", "..", "config", "manager", file))
		if err != nil {
			t.Error(err)
			continue
		}
		assert.Equal(t, file, want, got)
	}
}

// Fields of earlier versions still load, with a warning.
func TestWhatHasNoMeaningAnymoreIsIgnored(t *testing.T) {
	c, err := Parse([]byte(head + "leaderElection: {replicas: 3}\nprovision: {monitoring: true}\nprometheus: {timeout: 1s, maxBytes: 65536}\nworkers: {scaledDeployments: 8}"))
	must.Succeed(t, err)
	environment := map[string]string{"OPERATOR_REPLICAS": "3", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"}
	warnings := strings.Join(c.Warnings(func(name string) string { return environment[name] }), "\n")
	assert.Contains(t, "warnings", warnings,
		"leaderElection.replicas is ignored", "provision is ignored", "prometheus.timeout is ignored",
		"prometheus.maxBytes is ignored", "workers.scaledDeployments is ignored",
		"OPERATOR_REPLICAS is ignored", "OTEL_EXPORTER_OTLP_ENDPOINT is ignored")
	if warnings := Default().Warnings(func(string) string { return "" }); len(warnings) > 0 {
		t.Errorf("by default: %q", warnings)
	}
}

func TestParams(t *testing.T) {
	t.Run("the defaults are those of the recommendation", func(t *testing.T) {
		assert.Equal(t, "Params()", recommend.DefaultParams(), Default().Params())
	})
	t.Run("all that is configured arrives", func(t *testing.T) {
		c, err := Parse([]byte(head + `
collection: {interval: 5m}
recommendation: {cpuHalfLife: 1s, recentHalfLife: 2s, memoryWindow: 3s, oomHalfLife: 4s, minEvidence: 5s, fullEvidence: 6s, confidenceUnit: 7s}`))
		must.Succeed(t, err)
		want := recommend.DefaultParams()
		want.History = history.Params{
			CPUHalfLife: time.Second, RecentHalfLife: 2 * time.Second, MemoryWindow: 3 * time.Second, OOMHalfLife: 4 * time.Second,
			MaxGap: 15 * time.Minute, // three intervals
			Prices: want.History.Prices,
		}
		want.MinEvidence, want.FullEvidence, want.ConfidenceUnit = 5*time.Second, 6*time.Second, 7*time.Second
		assert.Equal(t, "Params()", want, c.Params())
	})
}

func TestCeilingsArriveInThePlan(t *testing.T) {
	c, err := Parse([]byte(head + "ceilings: {container: {cpu: 1500m, memory: 1Gi}, pod: {cpu: 2, memory: 0}, nodePercent: 50}"))
	must.Succeed(t, err)
	want := model.Ceilings{
		Container: quantity.Amounts{CPUMillis: 1500, MemoryBytes: 1 << 30}, Pod: quantity.Amounts{CPUMillis: 2000}, NodePercent: 50, RaiseFactor: 8,
	}
	assert.Equal(t, "Plan()", want, c.Ceilings.Plan())
}

// Any file is rejected or valid.
func FuzzParse(f *testing.F) {
	f.Add(head)
	f.Add(head + "resyncPeriod: 9223372036854775807ns\ncollection: {interval: 2000000h}")
	f.Add("apiVersion: [")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse([]byte(text))
		if err != nil {
			return
		}
		if err := c.validate(); err != nil {
			t.Errorf("accepted, but %v", err)
		}
		if p := c.Params(); p.History.MaxGap <= 0 {
			t.Errorf("time would stand still: MaxGap is %v", p.History.MaxGap)
		}
	})
}

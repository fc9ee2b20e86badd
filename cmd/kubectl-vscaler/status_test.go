// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/kube"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
)

// A dead operator looks like one, as far as the user may read its lease.
func TestADeadOperatorIsSeen(t *testing.T) {
	const (
		dead    = "web web InPlace 230m 480Mi 2/2 Unknown OperatorSilent"
		alive   = "web web InPlace 230m 480Mi 2/2 True Applied"
		warning = "warning: the states may be out of date: The operator in namespace verticalscaler-system was last heard of 5m ago\n"
		ofAll   = coordination + "/leases"
		ofOne   = coordination + "/namespaces/" + kube.DefaultOperatorNamespace
		ofUser  = coordination + "/namespaces/shop"
	)
	for name, tc := range map[string]struct {
		before    time.Duration
		forbidden []string
		args      []string
		code      int
		row       string
		err       string
	}{
		"alive":                            {before: time.Second, row: alive},
		"dead":                             {before: 5 * time.Minute, row: dead, err: warning},
		"dead and checked":                 {before: 5 * time.Minute, args: []string{"--check"}, code: 3, row: dead, err: "not all scalers are Ready"},
		"dead, and only its lease is read": {before: 5 * time.Minute, forbidden: []string{ofAll}, row: dead, err: warning},
		"dead, in the namespace named":     {before: 5 * time.Minute, args: []string{"--operator-namespace", kube.DefaultOperatorNamespace}, row: dead, err: warning},
		"not in the namespace named":       {before: 5 * time.Minute, args: []string{"--operator-namespace", "ops"}, row: alive},
		"no rights":                        {before: 5 * time.Minute, forbidden: []string{ofAll, ofOne, ofUser}, row: alive},
		"no rights, and checked": {
			before: 5 * time.Minute, forbidden: []string{ofAll, ofOne, ofUser}, args: []string{"--check"}, row: alive,
			err: "warning: whether the operator runs is not known: reading the lease in namespace verticalscaler-system: you may not; reading the lease in namespace shop: you may not\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := newAPIServer(t)
			server.forbidden = tc.forbidden
			server.lastHeard(tc.before)
			out, errOut, code := run(t, nil, append([]string{"status", "web", "--no-headers"}, tc.args...)...)
			if got := strings.Join(words(out), "\n"); code != tc.code || got != tc.row || errOut != tc.err {
				t.Errorf("exit code %d, want %d: %q, want %q\n%s\nwant\n%s", code, tc.code, errOut, tc.err, got, tc.row)
			}
		})
	}
	server := newAPIServer(t)
	server.lastHeard(5 * time.Minute)
	if out, _, code := run(t, nil, "explain", "web"); code != 0 || !strings.Contains(out, "  OperatorSilent\n") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// words are the lines' words: the width of columns does not matter here.
func words(text string) (lines []string) {
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

func TestStatus(t *testing.T) {
	const (
		header = "NAME DEPLOYMENT MODE CPU MEMORY PODS READY REASON"
		late   = "late late InPlace - - - True WaitingForDeployment"
		web    = "web web InPlace 230m 480Mi 2/2 True Applied"
		wide   = "web web InPlace 230m 480Mi 2/2 True Applied - 0.54 1.06 - Balanced No action needed."
		table  = "kind,namespace,name,deployment,owner,mode,profile,cpu,memory,pods,ready,reason,changed,saved_cores,saved_gib"
		owners = "SCALEDDEPLOYMENT DEPLOYMENT AVAILABLE READY REASON SIZED"
		owner  = "late late 0/1 False NotControlled -"
	)
	cases := map[string]struct {
		args      []string
		forbidden []string
		code      int
		out       []string
		err       string
	}{
		"a namespace":                   {nil, nil, 0, []string{header, late, web, "", owners, owner}, ""},
		"all namespaces":                {[]string{"-A", "--no-headers"}, nil, 0, []string{"shop " + late, "shop " + web, "", "shop " + owner}, ""},
		"a name":                        {[]string{"web"}, nil, 0, []string{header, web}, ""},
		"a name that nobody has":        {[]string{"web", "who"}, nil, 1, []string{header, web}, "VerticalScaler shop/who not found"},
		"an empty namespace":            {[]string{"-n", "empty"}, nil, 0, nil, "No VerticalScalers found in namespace empty.\n"},
		"checked and Ready":             {[]string{"web", "--check"}, nil, 0, []string{header, web}, ""},
		"checked and not Ready":         {[]string{"--check", "late", "--no-headers"}, nil, 3, []string{late, "", owner}, "not all scalers are Ready"},
		"a Deployment":                  {[]string{"deploy/web"}, nil, 0, []string{header, web}, ""},
		"a type in full":                {[]string{"verticalscalers.autoscaling.verticalscaler.io/web"}, nil, 0, []string{header, web}, ""},
		"a scaler that shares its name": {[]string{"vscaler/late"}, nil, 0, []string{header, late}, ""},
		"an owner":                      {[]string{"sdeploy/late"}, nil, 0, []string{owners, owner}, ""},
		"a Deployment without a scaler": {[]string{"deployment/who"}, nil, 1, nil, "no VerticalScaler of Deployment shop/who found"},
		"another type":                  {[]string{"pod/web"}, nil, 2, nil, `"pod/web" is not of a type that has a scaler: use vscaler/NAME, deployment/NAME, sdeploy/NAME, spolicy/NAME or cspolicy/NAME`},
		"half a name":                   {[]string{"deploy/"}, nil, 2, nil, `"deploy/" is not a name: use NAME or TYPE/NAME`},
		"labels":                        {[]string{"-l", "team=shop"}, nil, 0, []string{header, late, web, "", owners, owner}, ""},
		"labels of no sense":            {[]string{"-l", "a==b==c"}, nil, 2, nil, "--selector: found '==', expected: ',' or 'end of string'"},
		"labels and a name":             {[]string{"-l", "team=shop", "web"}, nil, 2, nil, "a name cannot be combined with --selector"},
		"what saves most first":         {[]string{"vscaler/web", "vscaler/late", "--sort-by", "saved-cores"}, nil, 0, []string{header, web, late}, ""},
		"a spreadsheet": {
			[]string{"-o", "csv"},
			nil, 0,
			[]string{
				table, "VerticalScaler,shop,late,late,,InPlace,Balanced,,,,True,WaitingForDeployment,,,",
				"VerticalScaler,shop,web,web,,InPlace,Balanced,230m,480Mi,2/2,True,Applied,,0.54,1.063", "ScaledDeployment,shop,late,late,,,,,,0/1,False,NotControlled,,,",
			},
			"",
		},
		"no Deployments, which only savings need": {nil, []string{apps}, 0, []string{header, late, web, "", owners, owner}, ""},
		"no Deployments": {
			[]string{"vscaler/web", "-o", "wide", "--no-headers"},
			[]string{apps},
			0,
			[]string{strings.Replace(wide, "0.54 1.06", "- -", 1)},
			"warning: savings are not shown: you may not\n",
		},
		"no ScaledDeployments": {nil, []string{ours + "/namespaces/shop/scaled"}, 0, []string{header, late, web}, "warning: ScaledDeployments are not shown: you may not\n"},
		"no scalers":           {nil, []string{ours}, 1, nil, "listing VerticalScalers: you may not"},
		"not installed":        {[]string{"-n", "elsewhere"}, nil, 1, nil, "the API server does not serve VerticalScalers: is the operator installed?"},
		"a name everywhere":    {[]string{"-A", "web"}, nil, 2, nil, "a name cannot be combined with --all-namespaces"},
		"watching data":        {[]string{"-w", "-o", "json"}, nil, 2, nil, "--watch requires the output table or wide"},
		"watching for an end":  {[]string{"-w", "--check"}, nil, 2, nil, "--check cannot be combined with --watch"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			newAPIServer(t).forbidden = tc.forbidden
			out, errOut, code := run(t, nil, append([]string{"status"}, tc.args...)...)
			if got := words(out); code != tc.code || strings.Join(got, "\n") != strings.Join(tc.out, "\n") || errOut != tc.err {
				t.Errorf("exit code %d, want %d: %q, want %q\n%s\nwant\n%s", code, tc.code, errOut, tc.err, strings.Join(got, "\n"), strings.Join(tc.out, "\n"))
			}
		})
	}
}

func TestStatusAsData(t *testing.T) {
	newAPIServer(t)
	out, _, _ := run(t, nil, "status", "-o", "yaml")
	var o explain.Overview
	if err := yaml.UnmarshalStrict([]byte(out), &o); err != nil || len(o.Scalers) != 2 || o.Scalers[1].Saved == nil || o.Scalers[1].Saved.Cores != 0.54 {
		t.Errorf("%v: %s", err, out)
	}
	if out, errOut, code := run(t, nil, "status", "-n", "empty", "-o", "json"); code != 0 || errOut != "" || strings.TrimSpace(out) != "{\n  \"scalers\": []\n}" {
		t.Errorf("exit code %d: %s%s", code, errOut, out)
	}
}

// Only what has changed is shown again, and what has not is not read again.
func TestStatusFollows(t *testing.T) {
	server := newAPIServer(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	clock := testclock.NewFakeClock(time.Unix(1767225600, 0))
	lines := make(chan string, 100)
	root, cluster := newRoot(genericiooptions.IOStreams{Out: writer(func(p []byte) {
		for _, line := range words(string(p)) {
			lines <- line
		}
	}), ErrOut: &bytes.Buffer{}})
	cluster.Clock = clock
	root.SetArgs([]string{"status", "-o=wide", "--no-headers", "--watch"})
	done := make(chan error)
	go func() { done <- root.ExecuteContext(ctx) }()
	for _, want := range []string{"late late InPlace", "web web InPlace", "", "late late 0/1"} {
		if line := <-lines; !strings.HasPrefix(line, want) {
			t.Fatalf("%q, want %q", line, want)
		}
	}
	for !clock.HasWaiters() {
		runtime.Gosched()
	}
	scans := ours + "/namespaces/shop/scaleddeployments"
	for server.count(scans) < 3 { // it looks twice more, and shows nothing
		clock.Step(2 * time.Second)
		select {
		case line := <-lines:
			t.Fatalf("shown again: %s", line)
		case err := <-done:
			t.Fatalf("it has ended: %v", err)
		default:
			runtime.Gosched()
		}
	}
	if n := server.count(apps + "/namespaces/shop/deployments"); n != 1 {
		t.Errorf("Deployments were read %d times", n)
	}
	server.edit("web", func(s *v1beta1.VerticalScaler) { s.ResourceVersion, s.Status.Summary.CPU = "2", "230m->300m" })
	for len(lines) == 0 {
		clock.Step(2 * time.Second)
		runtime.Gosched()
	}
	if line := <-lines; !strings.HasPrefix(line, "web web InPlace 230m->300m") {
		t.Errorf("%q", line)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := server.count(apps + "/namespaces/shop/deployments"); n != 2 {
		t.Errorf("Deployments were read %d times", n)
	}
}

// writer is a writer that hands on what it is given.
type writer func(p []byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

func TestExplain(t *testing.T) {
	cases := map[string]struct {
		args      []string
		forbidden []string
		code      int
		want      []string // in what is written, or in the error
		absent    string
	}{
		"all that there is": {[]string{"web"}, nil, 0, []string{
			"VerticalScaler shop/web\n", "Applied: yes; 2 of 2 pods have the decided size\n", "Container app\n", "    2 pods request 230m, no limit\n", "The pod template requests 500m, no limit",
		}, "Not included"},
		"without pods":         {[]string{"web"}, []string{"/api/v1"}, 0, []string{"The pod template requests 500m", "Not included\n  The pods of Deployment shop/web: you may not\n"}, "2 pods request"},
		"without a Deployment": {[]string{"web"}, []string{"/api/v1", apps}, 0, []string{"Container app\n", "Decided: 230m", "Not included\n  The pod template and the pods of Deployment shop/web: you may not\n"}, "The pod template requests"},
		"waiting":              {[]string{"late"}, nil, 0, []string{"Applied: unknown\n", "action    Create the Deployment"}, "Not included"},
		"JSON":                 {[]string{"web", "-o", "json"}, nil, 0, []string{`"applied": "True"`, `"advice": "No action needed."`}, ""},
		"YAML":                 {[]string{"web", "-o", "yaml"}, nil, 0, []string{"applied: \"True\"\n"}, ""},
		"no name":              {nil, nil, 2, []string{"name one VerticalScaler: NAME or TYPE/NAME"}, ""},
		"nobody by that name":  {[]string{"who"}, nil, 1, []string{"VerticalScaler shop/who not found"}, ""},
		"forbidden":            {[]string{"web"}, []string{ours}, 1, []string{"reading VerticalScaler shop/web: you may not"}, ""},
		"not installed":        {[]string{"web", "-n", "elsewhere"}, nil, 1, []string{"the API server does not serve VerticalScalers: is the operator installed?"}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			newAPIServer(t).forbidden = tc.forbidden
			out, errOut, code := run(t, nil, append([]string{"explain"}, tc.args...)...)
			for _, want := range tc.want {
				if !strings.Contains(out+errOut, want) {
					t.Errorf("there is no %q", want)
				}
			}
			if code != tc.code || tc.absent != "" && strings.Contains(out, tc.absent) || (code == 0) != (errOut == "") {
				t.Errorf("exit code %d, want %d: %s", code, tc.code, errOut)
			}
			if t.Failed() {
				t.Log(out + errOut)
			}
		})
	}
}

// A scaler is found by what it belongs to.
func TestExplainFindsTheScaler(t *testing.T) {
	server := newAPIServer(t)
	server.edit("web", func(s *v1beta1.VerticalScaler) {
		s.Spec.DeploymentName, s.OwnerReferences = "backend", []metav1.OwnerReference{controller("ScaledDeployment", "orders")}
	})
	for name, reason := range map[string]string{"orders": "Available", "bare": "Forbidden"} {
		owner := &v1beta1.ScaledDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: v1beta1.ScaledDeploymentSpec{Replicas: ptr.To[int32](2)}}
		owner.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: reason, Message: "deployments.apps is forbidden"}}
		server.put(owner)
	}
	for name, want := range map[string]string{
		"web": "VerticalScaler shop/web\n", "vscaler/web": "VerticalScaler shop/web\n", "backend": "VerticalScaler shop/web\n",
		"deploy/backend": "VerticalScaler shop/web\n", "deployment.apps/backend": "VerticalScaler shop/web\n",
		"orders": "VerticalScaler shop/web\n", "sdeploy/orders": "VerticalScaler shop/web\n",
		"bare":         "ScaledDeployment shop/bare\n  Owns Deployment bare, which it does not size: spec.scaling is not set.\n\nReady: false; 0 of 2 pods are available\n  Forbidden\n    message   deployments.apps is forbidden\n",
		"sdeploy/bare": "ScaledDeployment shop/bare\n",
	} {
		if out, errOut, code := run(t, nil, "explain", name); code != 0 || !strings.HasPrefix(out, want) {
			t.Errorf("%s: exit code %d: %s%s", name, code, errOut, out)
		}
	}
	for name, want := range map[string]string{
		"vscaler/backend": "VerticalScaler shop/backend not found", "sdeploy/web": "ScaledDeployment shop/web not found",
		"deploy/who": "no VerticalScaler of Deployment shop/who found",
	} {
		if _, errOut, code := run(t, nil, "explain", name); code != 1 || errOut != want {
			t.Errorf("%s: exit code %d: %s, want %s", name, code, errOut, want)
		}
	}
	if out, _, code := run(t, nil, "explain", "bare", "-o", "json"); code != 0 || !strings.Contains(out, `"reason": "Forbidden"`) {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestWithoutAKubeconfig(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	const want = "no cluster is configured: set KUBECONFIG or --kubeconfig, or create ~/.kube/config"
	if _, errOut, code := run(t, nil, "status"); code != 1 || errOut != want {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}

func TestUnknownCommands(t *testing.T) {
	for command, want := range map[string]string{
		"explian": `unknown command "explian": did you mean explain?`, "dance": `unknown command "dance": see "kubectl vscaler --help"`,
	} {
		if _, errOut, code := run(t, nil, command); code != 2 || errOut != want {
			t.Errorf("exit code %d: %s, want %s", code, errOut, want)
		}
	}
}

func TestSeveralScalersOfADeployment(t *testing.T) {
	server := newAPIServer(t)
	for _, name := range []string{"late", "web"} {
		server.edit(name, func(s *v1beta1.VerticalScaler) { s.Spec.DeploymentName = "backend" })
	}
	_, errOut, code := run(t, nil, "explain", "backend")
	if want := "several VerticalScalers name Deployment shop/backend: late, web"; code != 1 || errOut != want {
		t.Errorf("exit code %d: %s, want %s", code, errOut, want)
	}
}

func TestNamesAreCompleted(t *testing.T) {
	server := newAPIServer(t)
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"status", ""}, "late\tDeployment late\nweb\tDeployment web\n:4\n"},
		{[]string{"status", "web", ""}, "late\tDeployment late\n:4\n"},
		{[]string{"explain", "w"}, "web\tDeployment web\n:4\n"},
		{[]string{"explain", "web", ""}, ":4\n"},
		{[]string{"explain", "-n", "empty", ""}, ":4\n"},
		{[]string{"explain", "web", "-o", ""}, "text\njson\nyaml\n:4\n"},
	} {
		if out, _, code := run(t, nil, append([]string{"__complete"}, tc.args...)...); code != 0 || out != tc.want {
			t.Errorf("%q is completed with %q, want %q", tc.args, out, tc.want)
		}
	}
	server.forbidden = []string{ours}
	if out, _, code := run(t, nil, "__complete", "explain", ""); code != 0 || out != ":4\n" {
		t.Errorf("without rights: %q", out)
	}
}

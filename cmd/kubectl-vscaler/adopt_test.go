// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// adoptable is a cluster with Deployments in three namespaces, one scaler of a user, and no policy.
func adoptable(t *testing.T) *apiServer {
	t.Helper()
	s := startServer(t)
	s.put(newScaler("shop", "web", metav1.Condition{}), newScaler("shop", "late", metav1.Condition{}))
	for _, name := range [][2]string{{"shop", "api"}, {"shop", "web"}, {"kube-system", "dns"}, {"bank", "core"}} {
		d := newDeployment(name[0], name[1], 2, "500m", "1Gi", "")
		d.Labels, d.Status.Replicas = map[string]string{"tier": "web"}, 2
		s.put(d, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name[0], Labels: map[string]string{"kubernetes.io/metadata.name": name[0], "sizing": "auto"}}})
	}
	return s
}

// wrote are the writes of policies: the method, whether it is a dry run, the path, and the spec.
func (s *apiServer) wrote() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.written {
		parts := strings.SplitN(line, " ", 3)
		path, query, _ := strings.Cut(parts[1], "?")
		if !strings.HasPrefix(path, ours) {
			continue
		}
		if strings.Contains(query, "dryRun=All") {
			parts[0] += " dry"
		}
		var object struct{ Spec map[string]any }
		_ = json.Unmarshal([]byte(parts[2]), &object)
		spec, _ := json.Marshal(object.Spec)
		all = append(all, parts[0]+" "+strings.TrimPrefix(path, ours)+" "+string(spec))
	}
	return all
}

// A policy is checked by the API server, shown, and then written.
func TestAdopt(t *testing.T) {
	const (
		rest     = `"rollout":{"start":"Recommend"},"template":{"updatePolicy":{"updateMode":"InPlace"}}`
		everyone = `{"namespaceSelector":{"matchLabels":{"sizing":"auto"}},` + rest + `}`
		inShop   = "/namespaces/shop/scalingpolicies "
		resource = "clusterscalingpolicy.autoscaling.verticalscaler.io/fleet"
	)
	for name, tc := range map[string]struct {
		args    string
		setUp   func(*apiServer)
		code    int
		out     []string // is in the output
		err     string
		written []string
	}{
		"a cluster": {
			args: "--namespaces sizing=auto --yes",
			out: []string{
				"ClusterScalingPolicy fleet (new)\n", "Selects 3 Deployments in 2 namespaces, and sizes 2 of them\n", "  shop        1       1         1.00    2.00\n",
				"       1  OtherScaler, such as shop/web\n", "       1  SystemNamespace, such as kube-system/dns\n", "  2 scalers are created in update mode Recommend: only recommends, and changes nothing.\n",
				"is unknown until there is usage.", resource + " created\n", "See how it is doing: kubectl vscaler explain ClusterScalingPolicy/fleet\n",
			},
			err:     "warning: The policy selects every Deployment outside of system namespaces\n",
			written: []string{"POST dry /clusterscalingpolicies " + everyone, "POST /clusterscalingpolicies " + everyone},
		},
		"a dry run": {
			args: "--namespaces sizing=auto -l tier=web --dry-run", out: []string{resource + " created (server dry run)\n"},
			written: []string{`POST dry /clusterscalingpolicies {"deploymentSelector":{"matchLabels":{"tier":"web"}},"namespaceSelector":{"matchLabels":{"sizing":"auto"}},` + rest + `}`},
		},
		"nothing is sent": {
			args: "--namespaces sizing=auto -l tier --dry-run=client", out: []string{"2 scalers are created in update mode Recommend", resource + " created (dry run)\n"},
		},
		"a namespace, with all flags": {
			args: "--name web -l tier=web,release!=canary --exclude ledger,bank --mode Rollout --start Initial --after 36h --max-concurrent 2% --profile Safe -y",
			out:  []string{"ScalingPolicy shop/web (new)\n", "1 scaler is created in update mode Initial", "Promoted scalers have update mode Rollout", "explain ScalingPolicy/web -n shop\n"},
			err:  "warning: New scalers begin in update mode Initial, without a time in which they only recommend\n",
			written: []string{
				"POST dry" + " " + inShop + `{"deploymentSelector":{"matchExpressions":[{"key":"release","operator":"NotIn","values":["canary"]}],"matchLabels":{"tier":"web"}},"exclude":{"deployments":["ledger","bank"]},` +
					`"rollout":{"afterSeconds":129600,"maxConcurrentPercent":2,"start":"Initial"},"template":{"recommendationPolicy":{"profile":"Safe"},"updatePolicy":{"updateMode":"Rollout"}}}`,
				"",
			},
		},
		"nobody to ask": {
			args: "--namespaces sizing=auto", code: 2, out: []string{"ClusterScalingPolicy fleet (new)\n"},
			err:     "nothing was written: there is no terminal to ask, so add --yes, or --dry-run to only look",
			written: []string{"POST dry /clusterscalingpolicies " + everyone},
		},
		"a policy that exists": {
			args: "--namespaces sizing=auto --exclude-namespace bank --yes",
			setUp: func(s *apiServer) {
				p := &v1beta1.ClusterScalingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "fleet", UID: "uid", ResourceVersion: "7", Labels: map[string]string{"a": "b"}}}
				p.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: "PromotionHalted", Message: "3 of 24 did harm"}}
				s.put(p)
			},
			out: []string{"ClusterScalingPolicy fleet (exists, is changed)\n", "Excludes system namespaces; the namespaces bank.", "1  Excluded, such as bank/core\n", resource + " changed\n"},
			err: "warning: The policy selects every Deployment outside of system namespaces\nwarning: the policy that exists is not Ready (PromotionHalted): 3 of 24 did harm\n",
			written: []string{
				`PUT dry /clusterscalingpolicies/fleet {"exclude":{"namespaces":["bank"]},"namespaceSelector":{"matchLabels":{"sizing":"auto"}},` + rest + `}`, "",
			},
		},
		"a policy that is the same": {
			args: "--yes",
			setUp: func(s *apiServer) {
				p := &v1beta1.ScalingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "fleet", UID: "uid", ResourceVersion: "7"}}
				p.Spec.Rollout.Start, p.Spec.Template.UpdatePolicy.UpdateMode = "Recommend", "InPlace"
				s.put(p)
			},
			out:     []string{"(exists, is the same)", "scalingpolicy.autoscaling.verticalscaler.io/fleet unchanged\n"},
			written: []string{"PUT dry /namespaces/shop/scalingpolicies/fleet {" + rest + "}"},
		},
		"another policy comes first": {
			args: "--namespaces sizing=auto --dry-run -o json",
			setUp: func(s *apiServer) {
				s.put(&v1beta1.ScalingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "own", UID: "own"}})
			},
			out: []string{`"action": "Create"`, `"reason": "OtherPolicy"`, `"message": "Such as ScalingPolicy shop/own, which comes first"`, `"manifest": {`},
			err: "warning: The policy selects every Deployment outside of system namespaces\n" + resource + " created (server dry run)\n", written: []string{""},
		},
		"the operator may not": {
			args: "--dry-run", setUp: func(s *apiServer) { s.may(false) }, written: []string{""},
			err: "warning: the operator in namespace verticalscaler-system lacks the rights that policies need: kubectl apply --server-side -f https://github.com/verticalscaler/verticalscaler-operator/releases/latest/download/policies.yaml\n",
		},
		"whether it may is not known":  {args: "--dry-run", setUp: func(s *apiServer) { s.forbidden = []string{accessReviews} }, written: []string{""}},
		"the operator is silent":       {args: "--dry-run", setUp: func(s *apiServer) { s.lastHeard(5 * time.Minute) }, written: []string{""}, err: "warning: nothing happens until the operator runs: The operator in namespace verticalscaler-system was last heard of 5m ago\n"},
		"no operator":                  {args: "--dry-run --operator-namespace=ops", written: []string{""}, err: "warning: nothing happens until an operator runs: no lease is found\n"},
		"nothing is selected":          {args: "-n empty --dry-run", out: []string{"Selects 0 Deployments", "Not included\n  Whether an annotation excludes namespace empty: not found"}, written: []string{""}, err: "warning: The policy sizes no Deployment now: check its selectors. Deployments that are created or labeled later are sized\n"},
		"refused by the API server":    {args: "--yes", setUp: func(s *apiServer) { s.refused = ofShop + "/scalingpolicies" }, code: 1, err: "the API server refuses scalingpolicy.autoscaling.verticalscaler.io/fleet: spec.template is wrong", written: []string{""}},
		"Deployments may not be read":  {args: "--dry-run", setUp: func(s *apiServer) { s.forbidden = []string{apps} }, code: 1, err: "listing Deployments: you may not", written: []string{""}},
		"namespaces may not be read":   {args: "--dry-run --namespaces a=b", setUp: func(s *apiServer) { s.forbidden = []string{"/api/v1/namespaces"} }, code: 1, err: "listing namespaces: you may not", written: []string{""}},
		"policies may not be read":     {args: "--dry-run", setUp: func(s *apiServer) { s.forbidden = []string{ours + "/namespaces/shop/scalingpolicies"} }, code: 1, err: "listing ScalingPolicies: you may not"},
		"others may not be read":       {args: "--dry-run --namespaces sizing=auto -l tier", setUp: func(s *apiServer) { s.forbidden = []string{ours + "/scalingpolicies"} }, out: []string{"Not included\n  ScalingPolicies, which come before a ClusterScalingPolicy: you may not\n"}, written: []string{""}},
		"not installed":                {args: "--dry-run -n elsewhere", code: 1, err: "the API server does not serve ScalingPolicies: is the operator installed, in a version that has them?"},
		"an empty selector":            {args: "--namespaces=", code: 2, err: "--namespaces must not be empty: to select all namespaces, use kubernetes.io/metadata.name"},
		"an empty one of Deployments":  {args: "--selector=", code: 2, err: "--selector must not be empty: to select all Deployments, leave it out"},
		"a selector of no sense":       {args: "-l a=b=c", code: 2, err: `--selector: found '=', expected: ',' or 'end of string'`},
		"a number of labels":           {args: "-l size>3", code: 2, err: `--selector: a policy knows no operator "gt"`},
		"a time of no sense":           {args: "--after week", code: 2, err: `--after: "week" is not a duration, such as 7d or 36h`},
		"a time of ages":               {args: "--after 65535d", code: 2, err: `--after: "65535d" is out of range`},
		"a share of no sense":          {args: "--max-concurrent 0.5", code: 2, err: `--max-concurrent "0.5" is not a percentage from 1 to 100`},
		"an argument":                  {args: "web", code: 2, err: "adopt takes no arguments: select Deployments with --namespaces and --selector"},
		"no name":                      {args: "--name=", code: 2, err: "--name must not be empty"},
		"other namespaces of one":      {args: "--exclude-namespace bank", code: 2, err: "--exclude-namespace needs --namespaces: the policy of one namespace has no other"},
		"a file and flags":             {args: "-f policy.yaml --mode InPlace", code: 2, err: "--mode cannot be combined with --filename: set it in the file"},
		"a file that is not there":     {args: "-f " + "no-such-file.yaml", code: 1, err: "open no-such-file.yaml: no such file or directory"},
		"a file and nobody to confirm": {args: "-f -", code: 2, err: "the standard input has the policy, so there is no terminal to ask: add --yes or --dry-run"},
	} {
		t.Run(name, func(t *testing.T) {
			server := adoptable(t)
			if tc.setUp != nil {
				tc.setUp(server)
			}
			out, errOut, code := run(t, strings.NewReader(""), append([]string{"adopt"}, strings.Fields(tc.args)...)...)
			if code != tc.code || errOut != tc.err {
				t.Errorf("exit code %d, want %d: %q, want %q", code, tc.code, errOut, tc.err)
			}
			for _, want := range tc.out {
				if !strings.Contains(out, want) {
					t.Errorf("the output has no %q:\n%s", want, out)
				}
			}
			got := server.wrote()
			for i, want := range tc.written {
				if want == "" && i < len(got) { // only the number of writes matters
					tc.written[i] = got[i]
				}
				tc.written[i] = strings.ReplaceAll(tc.written[i], "  ", " ")
			}
			if diff := gocmp.Diff(tc.written, got); diff != "" && len(tc.written)+len(got) > 0 {
				t.Errorf("written (-want +got):\n%s", diff)
			}
		})
	}
}

// A policy from a file is taken as it is. The manifest for Git is what would be written.
func TestAdoptAPolicyFromAFile(t *testing.T) {
	const policy = `# Ours.
apiVersion: autoscaling.verticalscaler.io/v1beta1
kind: ScalingPolicy
metadata: {name: web, labels: {team: shop}}
spec:
  priority: 7
  deploymentSelector: {matchLabels: {tier: web}}
`
	for name, tc := range map[string]struct {
		text, args string
		code       int
		err        string // the end
		writes     int
	}{
		"written":             {policy, "--yes", 0, "", 2},
		"after a separator":   {"---\n# nothing\n---\n" + policy + "---\n", "--yes", 0, "", 2},
		"in its namespace":    {strings.Replace(policy, "name: web", "name: web, namespace: shop", 1), "-n shop --yes", 0, "", 2},
		"in another one":      {strings.Replace(policy, "name: web", "name: web, namespace: bank", 1), "-n shop --yes", 2, "the policy is of namespace bank, and --namespace is shop", 0},
		"an unknown field":    {policy + "  prio: 7\n", "--yes", 1, `reading the ScalingPolicy: error unmarshaling JSON: while decoding JSON: json: unknown field "prio"`, 0},
		"two policies":        {policy + "---\n" + policy, "--yes", 1, "there are several documents: adopt takes one policy at a time", 0},
		"none":                {"# later\n", "--yes", 1, "there is no policy", 0},
		"another kind":        {strings.Replace(policy, "ScalingPolicy", "VerticalScaler", 1), "--yes", 1, `kind "VerticalScaler" is not ScalingPolicy or ClusterScalingPolicy`, 0},
		"another version":     {strings.Replace(policy, "v1beta1", "v9", 1), "--yes", 1, `apiVersion "autoscaling.verticalscaler.io/v9" is not autoscaling.verticalscaler.io/v1beta1`, 0},
		"no name":             {strings.Replace(policy, "name: web, ", "", 1), "--yes", 1, "metadata.name is missing", 0},
		"an empty selector":   {strings.Replace(policy, "ScalingPolicy", "ClusterScalingPolicy", 1), "--yes", 1, "[{key: kubernetes.io/metadata.name, operator: Exists}]}", 0},
		"no YAML":             {"{", "--yes", 1, "did not find expected node content", 0},
		"a selector, refused": {strings.Replace(policy, "{tier: web}", `{"-": x}`, 1), "--dry-run=client", 1, "'_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')", 0},
	} {
		t.Run(name, func(t *testing.T) {
			server := adoptable(t)
			file := filepath.Join(t.TempDir(), "policy.yaml")
			if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, errOut, code := run(t, nil, append([]string{"adopt", "-f", file}, strings.Fields(tc.args)...)...)
			if code != tc.code || !strings.HasSuffix(errOut, tc.err) {
				t.Errorf("exit code %d, want %d: %q, want %q", code, tc.code, errOut, tc.err)
			}
			if got := server.wrote(); len(got) != tc.writes {
				t.Errorf("%d writes, want %d: %q", len(got), tc.writes, got)
			}
		})
	}

	server := adoptable(t)
	out, errOut, code := run(t, strings.NewReader(policy), "adopt", "-f", "-", "-o", "manifest")
	if code != 0 || errOut != "" {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	var printed, want map[string]any
	if err := yaml.Unmarshal([]byte(out), &printed); err != nil {
		t.Fatal(err)
	}
	_ = yaml.Unmarshal([]byte(strings.Replace(policy, "name: web", "name: web, namespace: shop", 1)), &want)
	if diff := gocmp.Diff(want, printed); diff != "" {
		t.Errorf("the manifest (-want +got):\n%s", diff)
	}
	if got := server.wrote(); len(got) != 1 || !strings.HasPrefix(got[0], "POST dry ") {
		t.Errorf("written: %q", got)
	}
}

// Names of policies are completed, and types if nothing else fits.
func TestPoliciesAreCompleted(t *testing.T) {
	server := newAPIServer(t)
	server.put(&v1beta1.ScalingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "own"}}, &v1beta1.ClusterScalingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}})
	for word, want := range map[string][]string{
		"":               {"late\tDeployment late", "web\tDeployment web", ":4"},
		"w":              {"web\tDeployment web", ":4"},
		"csp":            {"cspolicy/", ":6"},
		"s":              {"sdeploy/", "spolicy/", ":6"},
		"cspolicy/":      {"cspolicy/fleet\tClusterScalingPolicy", ":4"},
		"ScalingPolicy/": {"ScalingPolicy/own\tScalingPolicy", ":4"},
		"sdeploy/l":      {"sdeploy/late\tScaledDeployment", ":4"},
		"deploy/":        {"deploy/late\tVerticalScaler late", "deploy/web\tVerticalScaler web", ":4"},
		"pod/":           {":4"},
	} {
		out, _, _ := run(t, nil, "__complete", "explain", word)
		got := slices.DeleteFunc(strings.Split(out, "\n"), func(line string) bool { return line == "" || strings.HasPrefix(line, "Completion ended") })
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", word, diff)
		}
	}
}

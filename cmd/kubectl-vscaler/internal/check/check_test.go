// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/past"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/release"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

func TestVersionsMayBeOneMinorVersionApart(t *testing.T) {
	for _, tc := range []struct {
		operator, plugin string
		want             checkResult
	}{
		{"v0.3.0", "v0.3.0", checkOK},
		{"v0.3.9", "v0.3.0", checkOK},
		{"v0.2.0", "v0.3.0", checkOK},
		{"v0.3.0", "v0.2.0-rc.1", checkOK},
		{"v0.1.0", "v0.3.0", checkWarned},
		{"v0.3.0", "v0.1.0", checkWarned},
		{"v1.0.0", "v0.9.0", checkWarned},
		{"devel", "devel", checkOK},
		{"devel", "v0.3.0", checkUnknown},
		{"v0.3.0", "devel", checkUnknown},
		{"", "v0.3.0", checkUnknown},
	} {
		result, message, err := versions(tc.operator, tc.plugin)
		if err != nil {
			result, message = checkUnknown, err.Error()
		}
		if result != tc.want || !strings.Contains(message, tc.plugin) || !strings.Contains(message, tc.operator) {
			t.Errorf("operator %q, plugin %q: %s %s, want %s", tc.operator, tc.plugin, result, message, tc.want)
		}
	}
}

// One policy of the set says nothing about the others, nor about their version.
func TestAllAdmissionPoliciesAreCompared(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(name string, labels map[string]string) (exists bool)
		want   checkResult
		words  string
	}{
		"all": {func(string, map[string]string) bool { return true }, checkOK, "all "},
		"one without a binding": {func(name string, labels map[string]string) bool {
			if name == "verticalscaler-users" {
				labels["bound"] = "no"
			}
			return true
		}, checkWarned, "missing: the binding of verticalscaler-users"},
		"none": {func(string, map[string]string) bool { return false }, checkWarned, "none is installed"},
		"one":  {func(name string, _ map[string]string) bool { return name == "verticalscaler-warnings" }, checkWarned, "missing: verticalscaler-checkpoints, "},
		"an older one": {func(name string, labels map[string]string) bool {
			if name == "verticalscaler-users" {
				labels[release.VersionLabel] = "v0.1.0"
			}
			return true
		}, checkWarned, "not of the operator's version, v0.2.0: verticalscaler-users (v0.1.0). To install them: "},
		"one without a version": {func(name string, labels map[string]string) bool {
			if name == "verticalscaler-users" {
				delete(labels, release.VersionLabel)
			}
			return true
		}, checkWarned, "verticalscaler-users (unknown)"},
	} {
		builder := fake.NewClientBuilder()
		for _, policy := range release.AdmissionPolicyNames {
			labels := map[string]string{release.VersionLabel: "v0.2.0"}
			if tc.change(policy, labels) {
				builder.WithObjects(&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: policy, Labels: labels}})
			}
			if labels["bound"] == "" {
				builder.WithObjects(&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: policy}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy}})
			}
		}
		p := &preflight{client: builder.Build(), namespace: "shop", operators: explain.Operators{{Version: "v0.2.0"}}}
		if result, message, err := p.policies(t.Context()); result != tc.want || !strings.Contains(message, tc.words) || err != nil {
			t.Errorf("%s: %s %s, %v", name, result, message, err)
		}
	}
}

// A right that the operator has lost is named before a scaler reports it.
func TestRightsThatTheOperatorLacksAreNamed(t *testing.T) {
	for name, tc := range map[string]struct {
		lacks string
		want  checkResult
		words string
	}{
		"none":     {"", checkOK, "in namespace shop"},
		"a resize": {"pods/resize", checkWarned, "the operator in namespace ops may not patch pods/resize in namespace shop"},
		"usage":    {"metrics.k8s.io", checkWarned, "may not list pods.metrics.k8s.io in namespace shop"},
		"all, as a developer's operator has another user": {"any", checkUnknown, "runs as another user"},
	} {
		client := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
				review := object.(*authorizationv1.SubjectAccessReview)
				asked := review.Spec.ResourceAttributes
				review.Status.Allowed = tc.lacks == "" || !slices.Contains([]string{"any", asked.Group, asked.Resource + "/" + asked.Subresource}, tc.lacks)
				return nil
			},
		})
		p := &preflight{client: client, namespace: "shop"}
		result, message, err := p.rightsOf(explain.Operator{Namespace: "ops"})(t.Context())
		if err != nil {
			result, message = checkUnknown, err.Error()
		}
		if result != tc.want || !strings.Contains(message, tc.words) {
			t.Errorf("%s: %s %s", name, result, message)
		}
	}
}

func TestPoliciesForNewPodsOfOlderVersionsAreNamed(t *testing.T) {
	for old, want := range map[string]checkResult{"verticalscaler-new-pods-4": checkWarned, admission.PolicyName: checkOK, "ours": checkOK} {
		p := &preflight{client: fake.NewClientBuilder().WithObjects(&admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: old}}).Build()}
		if result, message, err := p.newPods(t.Context()); result != want || err != nil || strings.Contains(message, old) != (want == checkWarned) {
			t.Errorf("%s: %s %s, %v", old, result, message, err)
		}
	}
}

// TestNodesThatKillSingleProcesses: kubelets answer as kubelet 1.37.1 does, which leaves out singleProcessOOMKill if it is not
// set, also with cgroup v1.
func TestNodesThatKillSingleProcesses(t *testing.T) {
	const failsV1 = `{"kubeletconfig":{"failCgroupV1":true}}`
	v1, v2 := "# HELP kubelet_cgroup_version x\nkubelet_cgroup_version 1\n", "# HELP kubelet_cgroup_version x\nkubelet_cgroup_version 2\n"
	for name, tc := range map[string]struct {
		config, metrics string
		want            checkResult
		words           string
		requests        int
	}{
		"cgroup v2, by the default of 1.35": {failsV1, "", checkOK, "10 of 24 nodes were read", 10},
		"cgroup v2, by its metric":          {`{"kubeletconfig":{"failCgroupV1":false}}`, v2, checkOK, "10 of 24 nodes were read", 20},
		"cgroup v1":                         {`{"kubeletconfig":{}}`, v1, checkWarned, "on node-0, node-10, ", 20},
		"singleProcessOOMKill":              {`{"kubeletconfig":{"singleProcessOOMKill":true,"failCgroupV1":true}}`, "", checkWarned, "on node-0, node-10, ", 10},
		"no right":                          {"403", "", checkUnknown, "you may not", 1},
		"nodes that are down":               {"503", "", checkUnknown, "none of the nodes answers: node-0", 10},
	} {
		requests := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests++
			body := map[string]string{"configz": tc.config, "metrics": tc.metrics}[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]
			var code int
			if _, err := fmt.Sscan(body, &code); err == nil {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(code)
				body = fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"%s","code":%d}`, map[int]string{403: "Forbidden"}[code], code)
			}
			_, _ = fmt.Fprint(w, body)
		}))
		defer server.Close()
		nodes := fake.NewClientBuilder()
		for i := range 24 { // two of each kind
			nodes.WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)}, Status: corev1.NodeStatus{
				NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.37.1", KernelVersion: fmt.Sprint(i / 2)},
			}})
		}
		d, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL})
		must.Succeed(t, err)
		p := &preflight{client: nodes.Build()}
		if _, _, err := p.kubelets(t.Context()); err != nil {
			t.Fatal(err)
		}
		result, message, err := p.processKills(d.RESTClient())(t.Context())
		if err != nil {
			result, message = checkUnknown, err.Error()
		}
		if result != tc.want || !strings.Contains(message, tc.words) || requests != tc.requests {
			t.Errorf("%s: %s %s, %d requests; want %s, %q, %d requests", name, result, message, requests, tc.want, tc.words, tc.requests)
		}
	}
}

// A Prometheus that is found is asked through the API server. Without --prometheus=auto, no Service is listed.
func TestThePrometheusForReportAndBackfillIsChecked(t *testing.T) {
	const found, auto = "Prometheus: Service monitoring/prom, through the API server", past.Auto
	for name, tc := range map[string]struct {
		address, without string
		want             checkResult
		words            string
	}{
		"found":                   {auto, "", checkOK, found + ": it has the usage that report reads. Set prometheus.address in the operator's configuration to http://prom.monitoring.svc:9090 "},
		"not found":               {auto, "label", checkFailed, "set --prometheus to a URL"},
		"no right to list":        {auto, "list", checkUnknown, "you may not"},
		"no right to ask":         {auto, "proxy", checkUnknown, "you need the right to get services/proxy"},
		"no memory":               {auto, "working_set", checkFailed, found + ": it has no container_memory_working_set_bytes: it must scrape"},
		"no memory with a label":  {auto, "cluster=", checkFailed, found + ": it has no container_cpu_usage_seconds_total"},
		"no OOM kills":            {auto, "oom_events", checkWarned, found + ": it has no container_oom_events_total: "},
		"a URL":                   {"URL", "list", checkOK, "THE SERVER: it has the usage that report reads. Set prometheus.address in the operator's configuration to its address in the cluster "},
		"a URL without a server":  {"http://127.0.0.1:1", "list", checkFailed, "asking Prometheus at http://127.0.0.1:1: "},
		"a URL that wants others": {"URL", "proxy", checkUnknown, "--prometheus-token-file"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			query := r.FormValue("query")
			switch isList := r.URL.Path == "/api/v1/services"; {
			case isList && tc.without == "list", !isList && tc.without == "proxy":
				w.WriteHeader(http.StatusForbidden)
				_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"you may not","reason":"Forbidden","code":403}`)
			case isList && (tc.without == "label" || !strings.HasPrefix(r.FormValue("labelSelector"), "app=kube-prometheus")):
				_, _ = fmt.Fprint(w, `{"kind":"ServiceList","apiVersion":"v1","items":[]}`)
			case isList:
				_, _ = fmt.Fprint(w, `{"kind":"ServiceList","apiVersion":"v1","items":[{"metadata":{"namespace":"monitoring","name":"prom"},"spec":{"ports":[{"name":"http-web","port":9090}]}}]}`)
			case tc.without != "" && strings.Contains(query, tc.without):
				_, _ = fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
			default:
				_, _ = fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[0,"1"]}]}}`)
			}
		}))
		defer server.Close()
		o := &past.Options{Address: strings.Replace(tc.address, "URL", server.URL, 1), Step: time.Minute, Labels: map[string]string{"cluster": "east"}}
		config := func() (*rest.Config, error) { return &rest.Config{Host: server.URL, QPS: -1}, nil }
		result, message, err := pastUsage(o, config, time.Now())(t.Context())
		if err != nil {
			result, message = checkUnknown, err.Error()
		}
		if message = strings.Replace(message, server.URL, "THE SERVER", 1); result != tc.want || !strings.Contains(message, tc.words) {
			t.Errorf("%s: %s %s; want %s, %q", name, result, message, tc.want, tc.words)
		}
	}
}

func TestMessagesAreBrokenBetweenWords(t *testing.T) {
	findings := []Finding{{"Usage", checkOK, "the usage of pods is served by metrics-server"}, {"Operator", checkFailed, "none"}}
	const want = "CHECK      RESULT   MESSAGE\nUsage      OK       the usage of pods is\n                    served by\n                    metrics-server\nOperator   FAIL     none\n"
	if got := table(findings, 40); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
	if got := table(findings, 0); strings.Count(got, "\n") != 3 {
		t.Errorf("not for a terminal:\n%s", got)
	}
}

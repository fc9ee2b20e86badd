// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// plugin runs kubectl-vscaler with a kubeconfig.
type plugin struct {
	*fixture
	binary, kubeconfig string
}

func newPlugin(w *fixture, config *rest.Config) plugin {
	w.Helper()
	dir := w.TempDir()
	p := plugin{fixture: w, binary: filepath.Join(dir, "kubectl-vscaler")}
	build := exec.CommandContext(w.Context(), "go", "build", "-buildvcs=false", "-o", p.binary, "./cmd/kubectl-vscaler")
	build.Dir = testkit.Root()
	if out, err := build.CombinedOutput(); err != nil {
		w.Fatalf("building the plugin: %v: %s", err, out)
	}
	return p.as(config)
}

// as returns the same plugin for another user.
func (p plugin) as(config *rest.Config) plugin {
	p.Helper()
	p.kubeconfig = filepath.Join(p.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"test": {Server: config.Host, CertificateAuthority: config.CAFile, CertificateAuthorityData: config.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"test": {
			ClientCertificate: config.CertFile, ClientCertificateData: config.CertData, ClientKey: config.KeyFile, ClientKeyData: config.KeyData, Token: config.BearerToken,
		}},
		Contexts:       map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: "test", Namespace: p.namespace}},
		CurrentContext: "test",
	}, p.kubeconfig); err != nil {
		p.Fatal(err)
	}
	return p
}

// run returns the output and the exit code.
func (p plugin) run(args ...string) (out, errOut string, code int) {
	p.Helper()
	var o, e bytes.Buffer
	c := exec.CommandContext(p.Context(), p.binary, append([]string{"--kubeconfig=" + p.kubeconfig}, args...)...)
	c.Stdout, c.Stderr = &o, &e
	if err := c.Run(); err != nil && c.ProcessState == nil {
		p.Fatal(err)
	}
	return o.String(), e.String(), c.ProcessState.ExitCode()
}

// explained has the fields of an explanation that the tests check.
type explained struct {
	Applied  string
	Pods     string
	Findings []struct{ Reason, Condition, Message, Ends, Advice string }

	Containers []struct {
		Name      string
		Resources []struct {
			Resource, Target, Recomputed, Decided string
			Agrees                                bool
			Steps                                 []struct{ Code, Means string }
			Pods                                  []struct {
				Request string
				Pods    int
			}
		}
	}
}

// explain explains a scaler, and fails unless its first finding has that reason.
func (p plugin) explain(name, reason string) (x explained) {
	p.Helper()
	out, errOut, code := p.run("explain", name, "-o", "json")
	if err := json.Unmarshal([]byte(out), &x); err != nil || errOut != "" || code != 0 {
		p.Fatalf("exit code %d: %v: %s%s", code, err, errOut, out)
	}
	if len(x.Findings) == 0 || x.Findings[0].Reason != reason || x.Findings[0].Advice == "" || x.Findings[0].Message == "" {
		p.Errorf("%s: findings %+v, want %s first", name, x.Findings, reason)
	}
	text, _, _ := p.run("explain", name)
	for _, f := range x.Findings {
		if !strings.Contains(text, f.Advice) || !strings.Contains(text, f.Message) {
			p.Errorf("%s: the text does not match the data:\n%s", name, text)
		}
	}
	p.Logf("\n%s", text)
	return x
}

// The plugin explains statuses that the operator has written.
func TestThePluginExplains(t *testing.T) {
	t.Parallel()
	testkit.Tidy(t, "a sidecar with requests makes every pod Burstable", testkit.Sidecars)
	w := newFixture(t)
	p := newPlugin(w, env.Config)
	if _, errOut, code := p.run("status"); code != 0 || !strings.HasPrefix(errOut, "No VerticalScalers found in namespace ") {
		t.Errorf("without a scaler: exit code %d: %s", code, errOut)
	}

	w.scale("web")
	w.says("web", "Applied", "Unknown", "WaitingForDeployment")
	if x := p.explain("web", "DeploymentNotFound"); x.Applied != "Unknown" || x.Findings[0].Ends != "ByUser" {
		t.Errorf("%+v", x)
	}
	w.deploy("web")
	w.says("web", "Applied", "False", "NoRecommendation")
	if x := p.explain("web", "NoRecommendation"); x.Applied != "False" || x.Findings[0].Ends != "ByItself" || len(x.Containers) != 1 {
		t.Errorf("%+v", x)
	}

	w.uses("web", "app", 300, 240)
	w.sized("web")
	x := p.explain("web", "Applied")
	if x.Applied != "True" || x.Pods != "3/3" || x.Findings[0].Ends != "Fine" {
		t.Errorf("%+v", x)
	}
	for _, r := range x.Containers[0].Resources {
		if !r.Agrees || r.Target == "" || r.Target != r.Recomputed || r.Decided == "" || len(r.Steps) < 2 {
			t.Errorf("the steps do not lead to the number: %+v", r)
		}
		for _, step := range r.Steps {
			if strings.Contains(step.Means, "does not know") {
				t.Errorf("step %+v", step)
			}
		}
		if len(r.Pods) != 1 || r.Pods[0].Pods != 3 || r.Pods[0].Request != r.Decided {
			t.Errorf("%s: decided %s, pods %+v", r.Resource, r.Decided, r.Pods)
		}
	}

	w.laterThan("web")
	w.scale("younger", func(s *v1beta1.VerticalScaler) { s.Spec.DeploymentName = "web" })
	w.says("younger", "Stalled", "True", "Conflict")
	if x := p.explain("younger", "Conflict"); len(x.Findings) != 2 || x.Findings[1].Reason != "NamespacedInstall" { // the tests' operators watch one namespace each
		t.Errorf("%+v", x.Findings)
	}

	w.deploy("bare", func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	})
	w.uses("bare", "app", 300, 240)
	w.scale("bare")
	w.says("bare", "Applied", "False", "QoSChange")
	if x := p.explain("bare", "QoSChange"); !strings.Contains(x.Findings[0].Advice, "Rollout") || x.Findings[0].Condition != "Stalled" {
		t.Errorf("%+v", x.Findings)
	}

	out, errOut, code := p.run("status", "--check")
	rows := map[string]string{}
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		rows[words[0]] = strings.Join([]string{words[5], words[6], words[7]}, " ")
	}
	for name, want := range map[string]string{"NAME": "PODS READY REASON", "web": "3/3 True Applied", "younger": "- False Conflict", "bare": "0/3 False QoSChange"} {
		if rows[name] != want {
			t.Errorf("%s is %q, want %q", name, rows[name], want)
		}
	}
	if code != 3 || !strings.Contains(errOut, "not all scalers are Ready") {
		t.Errorf("exit code %d: %s\n%s", code, errOut, out)
	}
	if out, _, _ := p.run("__complete", "explain", "y"); !strings.HasPrefix(out, "younger\tDeployment web\n") {
		t.Errorf("completed with %q", out)
	}
}

// For a user who may only read scalers, the plugin explains the status and lists what is
// missing.
func TestThePluginWorksWithoutRights(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web")
	w.uses("web", "app", 300, 240)
	w.scale("web")
	w.sized("web")
	named := metav1.ObjectMeta{Namespace: w.namespace, Name: "reader"}
	w.create(&corev1.ServiceAccount{ObjectMeta: named})
	w.create(&rbacv1.Role{ObjectMeta: named, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"autoscaling.verticalscaler.io"}, Resources: []string{"verticalscalers"}, Verbs: []string{"get", "list"},
	}}})
	w.create(&rbacv1.RoleBinding{
		ObjectMeta: named, RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: w.namespace, Name: "reader"}},
	})
	p := newPlugin(w, env.Account(t, w.namespace, "reader").Config)
	w.eventually(func() string { // the API server observes the right with a delay
		if _, errOut, code := p.run("status"); code != 0 {
			return errOut
		}
		return ""
	})
	out, errOut, _ := p.run("status")
	if !strings.Contains(out, "web") || strings.Count(errOut, "warning: ") != 2 || !strings.Contains(errOut, "savings are not shown") {
		t.Errorf("status: %s%s", errOut, out)
	}
	out, errOut, code := p.run("explain", "web")
	for _, want := range []string{"Applied: yes; 3 of 3 pods", "Not included\n  The pod template and the pods of Deployment " + w.namespace + "/web: "} {
		if code != 0 || errOut != "" || !strings.Contains(out, want) {
			t.Errorf("exit code %d: %s%s\nwant %s", code, errOut, out, want)
		}
	}
	if _, errOut, code := p.run("status", "--all-namespaces"); code != 1 || !strings.Contains(errOut, "listing VerticalScalers: ") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}

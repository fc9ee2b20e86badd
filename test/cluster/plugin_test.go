// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

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

// ofReader returns the same plugin for a user who may only read scalers.
func (p plugin) ofReader() plugin {
	p.Helper()
	named := metav1.ObjectMeta{Namespace: p.namespace, Name: "reader"}
	p.create(&corev1.ServiceAccount{ObjectMeta: named})
	p.create(&rbacv1.Role{ObjectMeta: named, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"autoscaling.verticalscaler.io"}, Resources: []string{"verticalscalers"}, Verbs: []string{"get", "list"},
	}}})
	p.create(&rbacv1.RoleBinding{
		ObjectMeta: named, RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: p.namespace, Name: "reader"}},
	})
	p = p.as(env.Account(p.T, p.namespace, "reader").Config)
	p.eventually(func() string { // the API server observes the right with a delay
		if _, errOut, code := p.run("status"); code != 0 {
			return errOut
		}
		return ""
	})
	return p
}

// suspend, resume, check and the lease of the operator work with a real API server.
func TestThePluginSuspends(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web")
	w.uses("web", "app", 300, 240)
	w.scale("web")
	w.sized("web")
	p := newPlugin(w, env.Config)
	const what = "verticalscaler.autoscaling.verticalscaler.io/web "
	for _, step := range []struct {
		args, out string
		suspended bool
	}{
		{"suspend deployment/web --dry-run", what + "suspended (server dry run)\n", false},
		{"suspend deployment/web", what + "suspended\n", true},
		{"suspend web", what + "suspended (unchanged)\n", true},
		{"resume --all", what + "resumed\n", false},
	} {
		out, errOut, code := p.run(strings.Fields(step.args)...)
		if code != 0 || out != step.out || errOut != "" {
			t.Errorf("%s: exit code %d: %s%s", step.args, code, out, errOut)
		}
		if got := w.scaler("web").Spec.Suspend; got != step.suspended {
			t.Errorf("%s: suspended %v", step.args, got)
		}
	}
	w.says("web", "Applied", "True", "Applied")
	w.create(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: v1beta1.LeaseName, Labels: map[string]string{v1beta1.VersionLabel: "devel"}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("operator-0"), RenewTime: &metav1.MicroTime{Time: time.Now()}},
	})
	w.eventually(func() string { // the last edit is Outdated until it is observed
		if out, errOut, code := p.run("status", "web", "--check", "-o", "json"); code != 0 || !strings.Contains(out, `"lastHeard"`) {
			return out + errOut
		}
		return ""
	})
	// The usage of this cluster is served to the operator alone.
	if out, errOut, code := p.run("check"); code != 3 || strings.Count(out, "FAIL") != 1 || !strings.Contains(out, "metrics.k8s.io is not served") || strings.Contains(out, "UNKNOWN") {
		t.Errorf("exit code %d: %s%s", code, out, errOut)
	}
}

// A rollback returns the pods to the template's requests without a cooldown, and they stay there until
// it is undone.
func TestThePluginRollsBack(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	deployment := w.deploy("web")
	original := deployment.Spec.Template.Spec.Containers[0].Resources.Requests
	w.uses("web", "app", 300, 240)
	w.scale("web")
	w.sized("web")
	p := newPlugin(w, env.Config)
	for _, args := range []string{"rollback deployment/web --to=original --dry-run", "rollback deployment/web --to=original", "rollback web --to=original"} {
		out, errOut, code := p.run(strings.Fields(args)...)
		if code != 0 || errOut != "" || !strings.Contains(out, "verticalscaler.autoscaling.verticalscaler.io/web rolled back") {
			t.Fatalf("%s: exit code %d: %s%s", args, code, out, errOut)
		}
		if isDryRun, isChanged := strings.Contains(args, "dry-run"), w.scaler("web").Spec.ResourcePolicy != nil; isDryRun == isChanged {
			t.Errorf("%s: %+v", args, w.scaler("web").Spec)
		}
		t.Logf("\n%s", out)
	}
	rolledBack := func() string {
		for _, pod := range w.pods("web") {
			now := actual(pod, "app").Requests
			if now.Cpu().Cmp(*original.Cpu()) != 0 || now.Memory().Cmp(*original.Memory()) != 0 {
				return fmt.Sprintf("pod %s requests %v, want %v", pod.Name, now, original)
			}
		}
		return ""
	}
	w.eventually(rolledBack)
	w.rounds(20)
	if why := rolledBack(); why != "" {
		t.Error(why)
	}
	if out, errOut, code := p.run("support-bundle", "-o", "-"); code != 0 || !strings.HasPrefix(out, "\x1f\x8b") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
	if out, errOut, code := p.run("rollback", "web", "--undo"); code != 0 || errOut != "" || w.scaler("web").Spec.ResourcePolicy != nil {
		t.Errorf("exit code %d: %s%s", code, out, errOut)
	}
	w.eventually(func() string {
		if rolledBack() == "" {
			return "the pods still have the original requests"
		}
		return ""
	})
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
	p := newPlugin(w, env.Config).ofReader()
	out, errOut, _ := p.run("status", "-o", "wide")
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

// Top shows what real pods request beside what is recommended. This cluster serves no usage, so top
// says so.
func TestTopShowsWhatPodsRequest(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web")
	w.uses("web", "app", 300, 240)
	w.scale("web", func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.UpdateMode = v1beta1.UpdateModeRecommend })
	w.says("web", "Applied", "False", "RecommendOnly")
	p := newPlugin(w, env.Config)
	lines := func(args ...string) (lines [][]string, text string) {
		out, errOut, code := p.run(args...)
		if code != 0 || errOut != "" || strings.Contains(out, "\x1b") {
			t.Fatalf("%v: exit code %d: %s%s", args, code, errOut, out)
		}
		t.Logf("\n%s", out)
		for line := range strings.Lines(out) {
			lines = append(lines, strings.Fields(line))
		}
		return lines, strings.Join(strings.Fields(out), " ")
	}
	fleet, text := lines("top")
	if web := fleet[len(fleet)-1]; web[0] != "web" || web[1] != "RecommendOnly" || web[2] != "0/3" || web[3] != "-" || !strings.HasPrefix(web[5], "-") || !strings.HasPrefix(web[8], "-") {
		t.Errorf("three pods request less than the target: %q", web)
	}
	if !strings.Contains(text, "The usage of 1 of 1 namespaces: metrics.k8s.io is not served") {
		t.Errorf("top does not say that usage is missing: %s", text)
	}

	scaler := w.scaler("web")
	w.patch(scaler, `{"spec":{"updatePolicy":{"updateMode":"InPlace"}}}`)
	w.sized("web")
	_, text = lines("top", "web", "--once")
	for _, want := range []string{"3 of 3 pods at the decided size", "No usage: metrics.k8s.io is not served", "LAST CHANGES"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
	fleet, _ = lines("top", "--sort-by=lack")
	if web := fleet[len(fleet)-1]; web[1] != "Applied" || web[5] != "0" || web[8] != "0" {
		t.Errorf("the pods request the target: %q", web)
	}
}

// The dashboard shows a user what that user may read, and ends with Ctrl-C.
func TestTheDashboardReadsWithTheRightsOfTheUser(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web")
	w.uses("web", "app", 300, 240)
	w.scale("web")
	w.sized("web")
	p := newPlugin(w, env.Config)
	_, text := p.dashboard("")
	for _, want := range []string{w.namespace + "/web", "1 of 1 scalers", "Applied"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page of an administrator has no %q:\n%s", want, text)
		}
	}
	code, text := p.ofReader().dashboard("scalers/" + w.namespace + "/web")
	for _, want := range []string{"No action needed.", "The pod template and the pods of Deployment " + w.namespace + "/web: ", "3/3"} {
		if code != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("the page of a reader has status %d, and no %q:\n%s", code, want, text)
		}
	}
}

// dashboard starts the dashboard, reads a page, and stops it.
func (p plugin) dashboard(path string) (code int, page string) {
	p.Helper()
	c := exec.CommandContext(p.Context(), p.binary, "--kubeconfig="+p.kubeconfig, "dashboard")
	out, err := c.StdoutPipe()
	if err != nil {
		p.Fatal(err)
	}
	var errOut bytes.Buffer
	c.Stderr = &errOut
	if err := c.Start(); err != nil {
		p.Fatal(err)
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		p.Fatalf("it prints no address: %v: %s", err, &errOut)
	}
	response, err := http.Get(strings.TrimSpace(address) + path)
	if err != nil {
		p.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(response.Body)
	if err != nil {
		p.Fatal(err)
	}
	if err := c.Process.Signal(os.Interrupt); err != nil {
		p.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		p.Errorf("after Ctrl-C: %v: %s", err, &errOut)
	}
	return response.StatusCode, string(text)
}

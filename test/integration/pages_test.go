// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// helpPages are the pages that the README names for when something is wrong, and the part of the runbook that stops changes.
var helpPages = []string{"pod-pending.md", "oom-after-a-change.md", "deploy-went-back.md", "nothing-happens.md", "runbook.md"}

// commandPattern finds commands in blocks and in tables.
var commandPattern = regexp.MustCompile("(?m)^(kubectl [^\n]+?)(?:  +#.*)?$|`(kubectl [^`]+ (?:NAME|POD|NAMESPACE|--reason|unfreeze)[^`]*|kubectl vscaler unfreeze)`")

// commandsOf are the commands of a page, once each, in its order.
func commandsOf(t *testing.T, page string) (commands []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Root(), "docs", page))
	must.Succeed(t, err)
	if page == "runbook.md" {
		_, after, _ := strings.Cut(string(text), "### Changes must stop, now")
		part, _, _ := strings.Cut(after, "\n### ")
		text = []byte(part)
	}
	for _, match := range commandPattern.FindAllStringSubmatch(string(text), -1) {
		if command := match[1] + match[2]; !slices.Contains(commands, command) && !strings.Contains(command, "cspolicy") {
			commands = append(commands, command)
		}
	}
	return commands
}

// A person who follows these pages has a scaler of any mode, made by hand or by a policy. Each command succeeds, or says
// what to do instead.
func TestCommandsOfTheHelpPages(t *testing.T) {
	own := env.Namespace(t)
	value := strings.ToLower(own)
	c := testkit.OperatorConfig()
	c.Collection.Interval.Duration = 200 * time.Millisecond
	c.Freeze.Namespace = own
	c.LeaderElection.Enabled, c.LeaderElection.Namespace = true, own
	use := testkit.NewUsage()
	modes := []v1beta1.UpdateMode{v1beta1.UpdateModeInPlace, v1beta1.UpdateModeRollout, v1beta1.UpdateModeInitial, v1beta1.UpdateModeRecommend}
	namespaces := map[string]v1beta1.UpdateMode{} // of the scalers
	for _, mode := range modes {
		byHand, byPolicy := env.Namespace(t), env.Namespace(t)
		namespaces[byHand], namespaces[byPolicy] = mode, mode
		for _, page := range helpPages { // each has a scaler of its own
			name := strings.TrimSuffix(page, ".md")
			for _, namespace := range []string{byHand, byPolicy} {
				must.Succeed(t, scaled(t.Context(), namespace, name, mode))
				use.Set(namespace, podOf(name), "app", 300, 240<<20)
			}
			deleteObject(t, testkit.Scaler(byPolicy, name, name))
		}
		of := value + strings.ToLower(string(mode))
		patchObject(t, &corev1.Namespace{}, client.ObjectKey{Name: byPolicy}, `{"metadata":{"labels":{"`+sizing+`":"`+of+`"}}}`)
		create(t, clusterPolicy(of, of, func(p *v1beta1.ClusterScalingPolicy) {
			p.Spec.Template.UpdatePolicy.UpdateMode, p.Spec.Rollout.Start = mode, mode
		}))
	}
	env.StartOperator(t, c, use)
	kubelets(t)
	binary, err := testkit.Plugin()
	must.Succeed(t, err)
	path := strings.Join([]string{filepath.Dir(env.Kubectl()), filepath.Dir(binary), os.Getenv("PATH")}, string(os.PathListSeparator))
	run := func(command string, in client.ObjectKey) (string, error) {
		words := strings.NewReplacer("NAMESPACE", in.Namespace, "NAME", in.Name, "POD", podOf(in.Name), "verticalscaler-system", own, "shop,billing", in.Namespace)
		line := words.Replace(command)
		if !strings.Contains(line, " -n ") {
			line += " -n " + in.Namespace
		}
		started := exec.CommandContext(t.Context(), "sh", "-c", line)
		started.Env = append(os.Environ(), "KUBECONFIG="+env.Kubeconfig(), "PATH="+path)
		out, err := started.CombinedOutput()
		return string(out), err
	}
	for namespace, mode := range namespaces {
		for _, page := range helpPages {
			key := client.ObjectKey{Namespace: namespace, Name: strings.TrimSuffix(page, ".md")}
			testkit.Eventually(t, busy, func() string {
				if reason := shortOf(t, key); reason == "" || reason == v1beta1.ReasonLearning {
					return key.String() + " is " + reason
				}
				return ""
			})
			for _, command := range commandsOf(t, page) {
				if out, err := run(command, key); err != nil && !slices.ContainsFunc(waysOut, func(words string) bool { return strings.Contains(out, words) }) {
					t.Errorf("%s, in the mode %s: %s: %v\n%s", page, mode, command, err, out)
				}
			}
			vscaler(t, "unfreeze")
		}
	}
}

// waysOut are in answers of commands that do nothing, and say why or what does.
var waysOut = []string{"--detach", "it has the original requests", "no rollback to undo"}

// shortOf is the one word that kubectl get shows for a scaler; empty if it does not exist yet.
func shortOf(t *testing.T, key client.ObjectKey) string {
	t.Helper()
	var s v1beta1.VerticalScaler
	if err := env.Client.Get(t.Context(), key, &s); err != nil || s.Status.Summary == nil {
		return ""
	}
	return s.Status.Summary.Reason
}

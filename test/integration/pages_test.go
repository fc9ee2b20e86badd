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

// commandsOfHelpPages are the commands of these pages, once each, in their order. Those that take a scaler out of its mode or its
// policy come last.
func commandsOfHelpPages(t *testing.T) (commands []string) {
	t.Helper()
	var last []string
	for _, page := range helpPages {
		content, err := os.ReadFile(filepath.Join(testkit.Root(), "docs", page))
		must.Succeed(t, err)
		text := string(content)
		if page == "runbook.md" {
			_, text, _ = strings.Cut(text, "### Changes must stop, now")
			text, _, _ = strings.Cut(text, "\n### ")
		}
		for _, match := range commandPattern.FindAllStringSubmatch(text, -1) {
			switch command := match[1] + match[2]; {
			case strings.Contains(command, "cspolicy"), slices.Contains(commands, command), slices.Contains(last, command): // the first is about a policy
			case strings.Contains(command, "kubectl patch"), strings.Contains(command, "detached"):
				last = append(last, command)
			default:
				commands = append(commands, command)
			}
		}
	}
	return append(commands, last...)
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
		for _, namespace := range []string{byHand, byPolicy} {
			must.Succeed(t, scaled(t.Context(), namespace, "web", mode))
			use.Set(namespace, podOf("web"), "app", 300, 240<<20)
		}
		deleteObject(t, testkit.Scaler(byPolicy, "web", "web"))
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
	run := func(command, namespace string) (string, error) {
		line := strings.NewReplacer("NAMESPACE", namespace, "NAME", "web", "POD", podOf("web"), "verticalscaler-system", own, "shop,billing", namespace).Replace(command)
		if !strings.Contains(line, " -n ") {
			line += " -n " + namespace
		}
		started := exec.CommandContext(t.Context(), "sh", "-c", line)
		started.Env = append(os.Environ(), "KUBECONFIG="+env.Kubeconfig(), "PATH="+path)
		out, err := started.CombinedOutput()
		return string(out), err
	}
	commands := commandsOfHelpPages(t)
	for namespace, mode := range namespaces {
		testkit.Eventually(t, busy, func() string {
			if reason := shortOf(t, client.ObjectKey{Namespace: namespace, Name: "web"}); reason == "" || reason == v1beta1.ReasonLearning {
				return "the scaler is " + reason
			}
			return ""
		})
		for _, command := range commands {
			if out, err := run(command, namespace); err != nil && !slices.ContainsFunc(waysOut, func(words string) bool { return strings.Contains(out, words) }) {
				t.Errorf("in the mode %s: %s: %v\n%s", mode, command, err, out)
			}
			if strings.Contains(command, "vscaler freeze") {
				vscaler(t, "unfreeze")
			}
		}
	}
}

// waysOut are in answers of commands that do nothing, and say why, or what does it. "check" reports what this cluster lacks.
var waysOut = []string{"--detach", "it has the original requests", "the operator has decided nothing for it", "no rollback to undo", "a check failed"}

// shortOf is the one word that kubectl get shows for a scaler; empty if it does not exist yet.
func shortOf(t *testing.T, key client.ObjectKey) string {
	t.Helper()
	var s v1beta1.VerticalScaler
	if err := env.Client.Get(t.Context(), key, &s); err != nil || s.Status.Summary == nil {
		return ""
	}
	return s.Status.Summary.Reason
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"fmt"
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
	if commands = append(commands, last...); len(commands) < 20 {
		t.Fatalf("the pages have few commands: %q", commands)
	}
	return commands
}

// Users of these pages have scalers of each mode, made by hand or by a policy. Each command succeeds, or names the one that does.
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
		remove(t, testkit.Scaler(byPolicy, "web", "web"))
		of := value + strings.ToLower(string(mode))
		patchObject(t, &corev1.Namespace{}, client.ObjectKey{Name: byPolicy}, `{"metadata":{"labels":{"`+sizing+`":"`+of+`"}}}`)
		env.Create(t, clusterPolicy(of, of, func(p *v1beta1.ClusterScalingPolicy) {
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
			var s v1beta1.VerticalScaler
			err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "web"}, &s)
			if err != nil || s.Status.Recommendation == nil || mode == v1beta1.UpdateModeInPlace && s.Status.Decision == nil {
				return fmt.Sprintf("the scaler has the status %+v: %v", s.Status.Summary, err)
			}
			return ""
		})
		for _, command := range commands {
			if out, err := run(command, namespace); err != nil && !isWayOut(command, out, mode) {
				t.Errorf("in the mode %s: %s: %v\n%s", mode, command, err, out)
			}
			if strings.Contains(command, "vscaler freeze") {
				vscaler(t, "unfreeze")
			}
		}
	}
}

// isWayOut reports whether a command that has done nothing may do so in that mode, and names why, or what to do instead. The
// command check reports what this cluster lacks.
func isWayOut(command, answer string, mode v1beta1.UpdateMode) bool {
	switch isDecided := mode == v1beta1.UpdateModeInPlace || mode == v1beta1.UpdateModeRollout; {
	case strings.Contains(command, "vscaler check"):
		return strings.Contains(answer, "a check failed")
	case strings.Contains(command, "--undo"):
		return strings.Contains(answer, "no rollback to undo") || strings.Contains(answer, "--detach")
	case strings.Contains(command, "vscaler rollback"):
		return strings.Contains(answer, "with --detach") || strings.Contains(answer, "it has the original requests") || !isDecided && strings.Contains(answer, "the operator has decided nothing for it")
	}
	return false
}

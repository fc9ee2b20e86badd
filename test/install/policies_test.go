// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package install

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// linesOf returns the lines of a page that begin with these words.
func linesOf(t *testing.T, page, words string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Root(), "docs", page))
	must.Succeed(t, err)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, words) {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		t.Fatalf("docs/%s has no line that begins with %q", page, words)
	}
	return lines
}

// TestTheRightsForPoliciesAreOptIn grants the operator the rights for policies in one namespace, and then in all.
func TestTheRightsForPoliciesAreOptIn(t *testing.T) {
	bare(t)
	mustRun(t, commandsOf(t, "## Install")[0])
	here, elsewhere := env.Namespace(t), env.Namespace(t)
	for _, namespace := range []string{here, elsewhere} {
		mayOrMayNot(t, namespace, account, "watch scalingpolicies", true)
		mayOrMayNot(t, namespace, account, "update scalingpolicies/status", true)
		mayOrMayNot(t, namespace, account, "update verticalscalers", false)
		mayOrMayNot(t, namespace, account, "list namespaces", false)
	}
	mayOrMayNot(t, elsewhere, account, "watch clusterscalingpolicies", true)
	mayOrMayNot(t, elsewhere, account, "update clusterscalingpolicies/status", true)

	for _, command := range slices.Concat(linesOf(t, "install.md", "kubectl create role "), linesOf(t, "install.md", "kubectl create rolebinding ")) {
		mustRun(t, strings.ReplaceAll(command, "-n shop ", "-n "+here+" "))
	}
	mayOrMayNot(t, here, account, "create verticalscalers", true)
	mayOrMayNot(t, here, account, "update verticalscalers", true)
	mayOrMayNot(t, here, account, "delete verticalscalers", true)
	mayOrMayNot(t, elsewhere, account, "update verticalscalers", false)
	mayOrMayNot(t, here, account, "list namespaces", false)

	mustRun(t, commandsOf(t, "### Policies")[0])
	mayOrMayNot(t, elsewhere, account, "update verticalscalers", true)
	mayOrMayNot(t, elsewhere, account, "list namespaces", true)
	mayOrMayNot(t, elsewhere, account, "create clusterscalingpolicies", false)
	mayOrMayNot(t, elsewhere, account, "update scalingpolicies", false)
}

// TestTheRightsForPoliciesInAnotherNamespace follows docs/olm.md for an operator in a namespace of another name.
func TestTheRightsForPoliciesInAnotherNamespace(t *testing.T) {
	bare(t)
	namespace := env.Namespace(t)
	const download = "curl -sSL https://github.com/verticalscaler/verticalscaler-operator/releases/latest/download/policies.yaml"
	command := linesOf(t, "olm.md", download)[0]
	mustRun(t, strings.NewReplacer(download, "cat dist/policies.yaml", "NAMESPACE", namespace).Replace(command))
	other := strings.Replace(account, ":"+system+":", ":"+namespace+":", 1)
	mayOrMayNot(t, namespace, other, "update verticalscalers", true)
	mayOrMayNot(t, namespace, account, "update verticalscalers", false)
}

// TestPoliciesAreDeletedFirst uninstalls while the scaler of a policy has taken over a template, with the commands of
// docs/install.md.
func TestPoliciesAreDeletedFirst(t *testing.T) {
	bare(t)
	mustRun(t, commandsOf(t, "## Install")[0])
	mustRun(t, commandsOf(t, "### Policies")[0])
	running(t)
	operator(t)
	w := workload{newNamespace(t), "web"}
	d := testkit.Deployment(w.Namespace, w.name)
	d.Spec.Replicas = ptr.To(int32(2))
	policy := &v1beta1.ClusterScalingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}}
	policy.Spec.NamespaceSelector.MatchLabels = map[string]string{corev1.LabelMetadataName: w.Namespace}
	policy.Spec.Rollout.Start = v1beta1.UpdateModeRollout
	policy.Spec.Template.UpdatePolicy = v1beta1.UpdatePolicy{UpdateMode: v1beta1.UpdateModeRollout, CooldownSeconds: ptr.To(int32(0))}
	env.Create(t, policy, d)
	testkit.Eventually(t, soon, func() string {
		err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: w.name}, &v1beta1.VerticalScaler{})
		if err == nil {
			return ""
		}
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(policy), policy); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%v: %+v", err, policy.Status)
	})
	w.isSized()
	if owner := metav1.GetControllerOf(w.Scaler(w.name)); !v1beta1.IsPolicy(owner) {
		t.Fatalf("the scaler is controlled by %+v, and not by the policy", owner)
	}
	for _, command := range commandsOf(t, "## Uninstall") {
		mustRun(t, command)
	}
	mustRun(t, "kubectl delete -f dist/policies.yaml")
	forgotten(t)
	w.isRestored()
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// built builds the kubectl plugin, and returns its path.
func built(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "kubectl-vscaler")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", program, "./cmd/kubectl-vscaler")
	build.Dir = testkit.Root()
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the plugin: %v: %s", err, out)
	}
	return program
}

// plugin returns how to run the kubectl plugin: with what it prints and its exit code.
func plugin(t *testing.T) func(args ...string) (out, errOut string, code int) {
	t.Helper()
	program := built(t)
	return func(args ...string) (string, string, int) {
		t.Helper()
		var out, errOut bytes.Buffer
		c := exec.CommandContext(t.Context(), program, append([]string{"--kubeconfig=" + env.Kubeconfig()}, args...)...)
		c.Stdout, c.Stderr = &out, &errOut
		err := c.Run()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatalf("running the plugin: %v", err)
		}
		return out.String(), errOut.String(), c.ProcessState.ExitCode()
	}
}

// removePolicyAfter removes the policy of a test after it: it is not in the namespace of the test.
func removePolicyAfter(t *testing.T, name string) {
	t.Helper()
	t.Cleanup(func() {
		if err := env.Client.Delete(context.WithoutCancel(t.Context()), clusterPolicy(name, name)); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
}

// written are the policies of the cluster and of a namespace, and its scalers.
func written(t *testing.T, namespace string) string {
	t.Helper()
	var all []string
	var cluster v1beta1.ClusterScalingPolicyList
	var namespaced v1beta1.ScalingPolicyList
	if err := errors.Join(env.Client.List(t.Context(), &cluster), env.Client.List(t.Context(), &namespaced, client.InNamespace(namespace))); err != nil {
		t.Fatal(err)
	}
	for _, p := range cluster.Items {
		all = append(all, fmt.Sprintf("%s %d", p.Name, p.Generation))
	}
	for _, p := range namespaced.Items {
		all = append(all, fmt.Sprintf("%s/%s %d", p.Namespace, p.Name, p.Generation))
	}
	return strings.Join(append(all, scalersOf(t, namespace)), "\n")
}

// A dry run writes nothing. What it shows is what the operator does then.
func TestAdoptShowsWhatThePolicyDoes(t *testing.T) {
	value := strings.ToLower(env.Namespace(t))
	namespace := fleetNamespace(t, value)
	for _, name := range []string{"web", "api", "legacy", "by-hand", "opted-out", "long"} {
		d := testkit.Deployment(namespace, name)
		if name == "long" {
			d.Name = strings.Repeat("n", 64) // its labels are shorter
		}
		if name == "opted-out" {
			d.Annotations = map[string]string{v1beta1.ExcludeAnnotation: ""}
		}
		create(t, d)
	}
	createScaler(t, namespace, "mine", "by-hand")
	run := plugin(t)
	flags := []string{"adopt", "--namespaces=" + sizing + "=" + value, "--exclude=legacy", "--name=" + value, "--after=1h"}
	removePolicyAfter(t, value)

	before := written(t, namespace)
	out, errOut, code := run(append(flags, "--dry-run", "-o=json")...)
	var preview struct {
		Selected, Sized int
		Skipped         []struct {
			Reason   string
			Count    int
			Examples []string
		}
		Action   string
		FirstDay struct {
			Created int
			Mode    string
		}
	}
	if err := json.Unmarshal([]byte(out), &preview); err != nil || code != 0 {
		t.Fatalf("exit code %d: %v: %s%s", code, err, out, errOut)
	}
	if preview.Selected != 4 || preview.Sized != 2 || preview.FirstDay.Created != 2 || preview.FirstDay.Mode != "Recommend" || preview.Action != "Create" {
		t.Errorf("the preview is\n%s", out)
	}
	for _, args := range [][]string{{"-o=manifest"}, {"--dry-run=client"}, {"--dry-run=server"}, {}} {
		_, _, _ = run(append(flags, args...)...) // the last one has nobody to ask
	}

	if after := written(t, namespace); after != before {
		t.Errorf("a dry run was written:\n%s\nbefore:\n%s", after, before)
	}

	if out, errOut, code := run(append(flags, "--yes")...); code != 0 || !strings.Contains(out, value+" created\n") {
		t.Fatalf("exit code %d: %s%s", code, out, errOut)
	}
	fleetOperator(t)
	hasScalers(t, "adopting", namespace, "api by "+value+" Recommend, mine by a user InPlace, web by "+value+" Recommend")
	testkit.Eventually(t, soon, func() string {
		var p v1beta1.ClusterScalingPolicy
		if err := env.Client.Get(t.Context(), types.NamespacedName{Name: value}, &p); err != nil {
			return err.Error()
		}
		var said, shown []string
		for _, s := range p.Status.Skipped {
			said = append(said, fmt.Sprint(s.Reason, s.Count, s.Examples))
		}
		for _, s := range preview.Skipped {
			shown = append(shown, fmt.Sprint(s.Reason, s.Count, s.Examples))
		}
		if int(p.Status.Selected) != preview.Selected || int(p.Status.Scaled) != preview.Sized || fmt.Sprint(said) != fmt.Sprint(shown) {
			return fmt.Sprintf("the status says %d of %d, skipped %v; the preview said %d of %d, skipped %v",
				p.Status.Scaled, p.Status.Selected, said, preview.Sized, preview.Selected, shown)
		}
		return ""
	})

	// The same again changes nothing, and a change says what it changes.
	before = written(t, namespace)
	if out, errOut, code := run(append(flags, "--yes")...); code != 0 || !strings.Contains(out, value+" unchanged\n") || !strings.Contains(out, "  2 scalers of the policy stay as they are.\n") {
		t.Errorf("the same again: exit code %d: %s%s", code, out, errOut)
	}
	if after := written(t, namespace); after != before {
		t.Errorf("the same policy was written again:\n%s\nbefore:\n%s", after, before)
	}
	out, errOut, code = run(append(flags, "--exclude=web", "--mode=Rollout", "--start=Initial", "--yes")...)
	if code != 0 || !strings.Contains(out, "  1 scaler is changed to the new template.\n  1 scaler is deleted") || !strings.Contains(out, value+" changed\n") {
		t.Errorf("a change: exit code %d: %s%s", code, out, errOut)
	}
	hasScalers(t, "changing the policy", namespace, "api by "+value+" Initial, mine by a user InPlace")
}

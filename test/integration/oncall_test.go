// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/golden"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// A person on call knows the name of a pod that was OOM-killed. One command answers why it has this size, who changed it and
// when, whether that caused the kill, what the scaler does, and whether the operator is alive. It prints the two further commands:
// the stop for this workload, and the way back. Another one stops all of them.
func TestOnCallFromTheNameOfAPod(t *testing.T) {
	own, namespace := env.Namespace(t), env.Namespace(t)
	c := testkit.OperatorConfig()
	c.Collection.Interval.Duration = 200 * time.Millisecond
	c.Freeze.Namespace = own
	c.LeaderElection.Enabled, c.LeaderElection.Namespace = true, own
	use := testkit.NewUsage()
	use.Set(namespace, podOf("web"), "app", 40, 50<<20)
	must.Succeed(t, scaled(t.Context(), namespace, "web", v1beta1.UpdateModeInPlace))
	bounded := scaler(t, namespace, "web")
	bounded.Spec.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{{
		ContainerName: "app", ControlledValues: v1beta1.RequestsAndLimits,
		ControlledResources: []v1beta1.ControlledResource{v1beta1.ControlledMemory},
		MaxAllowed:          &v1beta1.ResourceBounds{Memory: ptr.To(resource.MustParse("100Mi"))},
	}}}
	must.Succeed(t, env.Client.Update(t.Context(), bounded))
	env.StartOperator(t, c, use, namespace)
	kubelets(t)
	hasMemory := func(want string) {
		t.Helper()
		testkit.Eventually(t, busy, func() string {
			status := pod(t, namespace, "web").Status.ContainerStatuses[0]
			if got := status.Resources.Requests.Memory().String(); got != want {
				return "the pod has " + got
			}
			return ""
		})
	}
	hasMemory("100Mi")
	killed := pod(t, namespace, "web")
	killed.Status.ContainerStatuses[0].RestartCount = 1
	killed.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
		ExitCode: 137, Reason: "OOMKilled", StartedAt: metav1.NewTime(time.Now().Add(-time.Minute)), FinishedAt: metav1.NewTime(time.Now().Add(time.Minute)), // surely after the resize
	}
	must.Succeed(t, env.Client.Status().Update(t.Context(), killed))

	answers := func(file, reason string) {
		t.Helper()
		testkit.Eventually(t, busy, func() string {
			if got := inShort(t, namespace, "web"); got != reason {
				return "the scaler is " + got
			}
			return ""
		})
		out := vscaler(t, "explain", "pod/"+podOf("web"), "-n", namespace)
		golden.Compare(t, file, strings.NewReplacer(namespace, "NAMESPACE", own, "OPERATOR").Replace(padding.ReplaceAllString(runTimes.ReplaceAllString(out, "TIME"), "  TIME")))
	}
	answers("oncall-killed.txt", v1beta1.ReasonBoundTooLow)
	vscaler(t, "suspend", "web", "-n", namespace)
	answers("oncall-suspended.txt", v1beta1.ReasonSuspended)
	vscaler(t, "resume", "web", "-n", namespace)
	vscaler(t, "rollback", "web", "-n", namespace, "--to=original")
	hasMemory("128Mi")
	answers("oncall-rolled-back.txt", v1beta1.ReasonApplied)
	vscaler(t, "freeze", "--reason", "incident 42")
	answers("oncall-frozen.txt", v1beta1.ReasonFrozen)
	vscaler(t, "unfreeze")
	answers("oncall-rolled-back.txt", v1beta1.ReasonApplied)
}

// runTimes differ between runs.
var runTimes = regexp.MustCompile(`(\d+(\.\d+)?(d|h|m|s|ms))+ ago|for (\d+(d|h|m|s))+|\d{4}-\d\d-\d\dT[\d:.]+Z|at least (\d+(d|h|m|s))+`)

// padding aligns them.
var padding = regexp.MustCompile(`(?m)^ +TIME`)

// pod is the only pod of a Deployment.
func pod(t *testing.T, namespace, deployment string) *corev1.Pod {
	t.Helper()
	out := &corev1.Pod{}
	must.Succeed(t, env.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: podOf(deployment)}, out))
	return out
}

// vscaler runs the plugin as an administrator.
func vscaler(t *testing.T, arguments ...string) string {
	t.Helper()
	binary, err := testkit.Plugin()
	must.Succeed(t, err)
	out, err := exec.CommandContext(t.Context(), binary, append([]string{"--kubeconfig=" + env.Kubeconfig()}, arguments...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl vscaler %s: %v\n%s", strings.Join(arguments, " "), err, out)
	}
	return string(out)
}

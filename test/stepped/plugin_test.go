// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package stepped

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// plugin runs kubectl-vscaler as an administrator. The operator does nothing meanwhile.
type plugin struct {
	*fixture
	binary string
}

func newPlugin(w *fixture) plugin {
	w.Helper()
	binary, err := testkit.Plugin()
	must.Succeed(w, err)
	return plugin{w, binary}
}

// run returns the output and the exit code.
func (p plugin) run(args ...string) (out, errOut string, code int) {
	p.Helper()
	var o, e bytes.Buffer
	c := exec.CommandContext(p.t.Context(), p.binary, append([]string{"--kubeconfig=" + env.Kubeconfig(), "-n=" + p.Namespace}, args...)...)
	c.Stdout, c.Stderr = &o, &e
	if err := c.Run(); err != nil && c.ProcessState == nil {
		p.Fatal(err)
	}
	return o.String(), e.String(), c.ProcessState.ExitCode()
}

// does runs a verb and fails unless it succeeds without a warning and prints the words.
func (p plugin) does(command string, words ...string) {
	p.Helper()
	out, errOut, code := p.run(strings.Fields(command)...)
	if code != 0 || errOut != "" {
		p.Fatalf("%s: exit code %d: %s", command, code, errOut)
	}
	assert.Contains(p, command, out, words...)
}

// apart describes the pods of the Deployment whose container app does not have these requests applied; empty if all have
// them.
func (w *fixture) apart(name, cpu, memory string) string {
	w.Helper()
	for _, pod := range w.Pods(name) {
		for _, r := range []*corev1.ResourceRequirements{world.Asked(&pod, "app"), world.Actual(&pod, "app")} {
			if r.Requests.Cpu().Cmp(resource.MustParse(cpu)) != 0 || r.Requests.Memory().Cmp(resource.MustParse(memory)) != 0 {
				return fmt.Sprintf("pod %s has %s and %s, not %s and %s; the scaler says %+v after %q",
					pod.Name, r.Requests.Cpu(), r.Requests.Memory(), cpu, memory, w.Condition(name, "Applied"), w.Scaler(name).Status.History)
			}
		}
	}
	return ""
}

// remain fails unless all pods get these requests at once, and still have them 20 minutes later.
func (w *fixture) remain(name, cpu, memory string) {
	w.Helper()
	for _, minutes := range []int{0, 20} {
		w.Minutes(minutes)
		if wrong := w.apart(name, cpu, memory); wrong != "" {
			w.Fatalf("after %d minutes: %s", minutes, wrong)
		}
	}
}

// A rollback of a lowering returns at once to the requests from before it, in spite of a cooldown of an hour. It does so
// if all pods were lowered, and if only the pods to verify first were. Usage still raises them.
func TestThePluginRollsBackALowering(t *testing.T) {
	t.Parallel()
	for name, verificationSeconds := range map[string]int32{"of all pods": 0, "while it is verified": 3600} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newServed(t, world.Quick)
			w.Usage.Even = true // so that nothing is raised again
			w.deploy("web", func(d *appsv1.Deployment) {
				r := &d.Spec.Template.Spec.Containers[0].Resources
				r.Requests = corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")}
				r.Limits = corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("2Gi")}
			})
			w.Uses("web", "app", 100, 100)
			w.Scale("web", func(s *v1beta1.VerticalScaler) {
				s.Spec.UpdatePolicy.CooldownSeconds = ptr.To(int32(3600))
				s.Spec.UpdatePolicy.VerificationSeconds = &verificationSeconds
			})
			w.Until(func() string {
				if w.apart("web", "1", "1Gi") == "" {
					return "no pod is lowered"
				}
				return ""
			})
			w.Usage.Err = errors.New("not known for the moment")
			if history := w.Scaler("web").Status.History; !strings.HasPrefix(history[0].Message, plan.DecidedScaleDown+": ") {
				t.Fatalf("the last change is %q", history[0].Message)
			}
			if isVerified := w.Condition("web", "Applied").Reason == "Verifying"; isVerified != (verificationSeconds > 0) {
				t.Fatalf("Applied is %+v", w.Condition("web", "Applied"))
			}

			p := newPlugin(w)
			p.does("rollback deployment/web --dry-run", "1000m (minAllowed)", "server dry run")
			if policy := w.Scaler("web").Spec.ResourcePolicy; policy != nil {
				t.Errorf("the dry run has stored %+v", policy)
			}
			p.does("rollback deployment/web", "1000m (minAllowed)", "verticalscaler.autoscaling.verticalscaler.io/web rolled back")
			w.remain("web", "1", "1Gi")
			p.does("rollback web", "rolled back (unchanged)")
			w.Usage.Err = nil
			w.Uses("web", "app", 1500, 100)
			w.Until(func() string {
				for _, pod := range w.Pods("web") {
					if now := world.Asked(&pod, "app").Requests; now.Cpu().Cmp(resource.MustParse("1200m")) < 0 {
						return fmt.Sprintf("pod %s requests %s, although it uses more: %+v", pod.Name, now.Cpu(), w.Condition("web", "Applied"))
					}
				}
				return ""
			})
			p.does("rollback web --undo", "no longer rolled back")
			if s := w.Scaler("web"); s.Spec.ResourcePolicy != nil || len(s.Annotations) != 0 {
				t.Errorf("after the end of the rollback: %+v, annotations %v", s.Spec.ResourcePolicy, s.Annotations)
			}
		})
	}
}

// The verbs change the ScaledDeployment that a scaler belongs to: the operator would revert a change of the scaler.
func TestThePluginChangesAScaledDeployment(t *testing.T) {
	t.Parallel()
	const what = "scaleddeployment.autoscaling.verticalscaler.io/web "
	w := newServed(t)
	scaling := func() *v1beta1.ScaledDeployment {
		o := &v1beta1.ScaledDeployment{}
		must.Succeed(t, env.Client.Get(t.Context(), w.Key("web"), o))
		return o
	}
	w.Add(&v1beta1.ScaledDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "web"},
		Spec: v1beta1.ScaledDeploymentSpec{
			Replicas: ptr.To(int32(3)), Template: testkit.Deployment(w.Namespace, "web").Spec.Template,
			Scaling: &v1beta1.Scaling{UpdatePolicy: v1beta1.UpdatePolicy{
				UpdateMode: v1beta1.UpdateModeInPlace, CooldownSeconds: ptr.To(int32(0)), NewPods: v1beta1.NewPodsAsTemplate,
			}},
		},
	})
	w.Settle()
	w.Uses("web", "app", 300, 240)
	w.Sized("web")
	p := newPlugin(w)

	p.does("rollback sdeploy/web --to=original --dry-run", what+"rolled back (server dry run)")
	if policy := scaling().Spec.Scaling.ResourcePolicy; policy != nil {
		t.Errorf("the dry run has stored %+v", policy)
	}
	p.does("rollback sdeploy/web --to=original", "100m (maxAllowed)", "128Mi (maxAllowed)", what+"rolled back")
	w.remain("web", "100m", "128Mi")
	assert.Equal(t, "the policy of the scaler, from its ScaledDeployment", scaling().Spec.Scaling.ResourcePolicy, w.Scaler("web").Spec.ResourcePolicy)

	// While it is suspended, the end of the rollback changes nothing.
	p.does("suspend deployment/web --dry-run", what+"suspended (server dry run)")
	if scaling().Spec.Scaling.Suspend {
		t.Error("the dry run has suspended it")
	}
	p.does("suspend deployment/web", what+"suspended")
	w.Settle()
	p.does("rollback web --undo", what+"no longer rolled back")
	w.remain("web", "100m", "128Mi")
	w.Reports("web", "Applied", "False", "Suspended")
	p.does("resume --all", what+"resumed")
	w.Settle()
	if w.apart("web", "100m", "128Mi") == "" {
		t.Error("the pods still have the original requests")
	}
	w.Sized("web")
	if o := scaling(); o.Spec.Scaling.Suspend || o.Spec.Scaling.ResourcePolicy != nil || len(o.Annotations) != 0 {
		t.Errorf("at the end: %+v, annotations %v", o.Spec.Scaling, o.Annotations)
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/freeze"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/pressure"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// A freeze that comes after a step was planned stops the write.
func TestAFreezeIsSeenRightBeforeEachWrite(t *testing.T) {
	write := errors.New("written")
	owned := templateOf("500m", "1")
	owned.ManagedFields = []metav1.ManagedFieldsEntry{managed(Name, "", allOfApp)}
	r := apiServer(t, interceptor.Funcs{
		SubResourceCreate: func(context.Context, client.Client, string, client.Object, client.Object, ...client.SubResourceCreateOption) error {
			return write
		},
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return write
		},
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return write
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if d, ok := o.(*appsv1.Deployment); ok && key.Name == "owned" {
				owned.DeepCopyInto(d)
				return nil
			}
			return c.Get(ctx, key, o, options...)
		},
	}, admission.Policy(), admission.Binding(), sizes("\ncheckout/5 @;app,100m,,,\n"), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "checkout", UID: "web", ResourceVersion: "7"}})
	r.Clock = clocktesting.NewFakePassiveClock(noon)
	restore := func(s *scope, uid types.UID, containers ...v1beta1.OriginalContainerResources) error {
		return r.restore(t.Context(), s.scaler, &v1beta1.OriginalResources{DeploymentName: "owned", UID: uid, Containers: containers})
	}
	hundred := v1beta1.OriginalContainerResources{ContainerName: "app", Requests: v1beta1.Amounts{CPU: ptr.To(resource.MustParse("100m"))}}
	for name, do := range map[string]func(s *scope) error{
		"an eviction": func(s *scope) error {
			return r.evict(t.Context(), s, plan.Evict{Pods: []plan.EvictedPod{{Name: "web-1", UID: "web-1", ResourceVersion: "7"}}})
		},
		"a resize": func(s *scope) error {
			return r.resize(t.Context(), s, plan.Resize{Pod: "web-1", UID: "web-1", ResourceVersion: "7"})
		},
		"a restore":            func(s *scope) error { return restore(s, "uid", hundred) },
		"the end of a restore": func(s *scope) error { return restore(s, "uid") },
		"a rewrite":            func(s *scope) error { return r.rewrite(t.Context(), s, plan.Rewrite{UID: "web", ResourceVersion: "7"}) },
	} {
		var frozen *freeze.Error
		r.Freeze = freeze.New(client.ObjectKey{}) // frozen until it is read
		if err := do(sizing(withUpdate(evicting))); !errors.As(err, &frozen) {
			t.Errorf("%s is not stopped: %v", name, err)
		}
		r.Freeze = nil
		if err := do(sizing(withUpdate(evicting))); !errors.Is(err, write) {
			t.Errorf("%s is not made without a freeze: %v", name, err)
		}
	}
	if err := r.rewrite(t.Context(), sizing(withUpdate(evicting)), plan.Rewrite{UID: "web", ResourceVersion: "6"}); !errors.Is(err, errStaleCache) {
		t.Errorf("a template that was changed since it was planned: %v", err)
	}
	if err := restore(sizing(withUpdate(evicting)), "another", hundred); err != nil {
		t.Errorf("the original values of another Deployment with that name: %v", err)
	}
}

func TestAnEvictionIsAskedForOnceAndOfThatVeryPod(t *testing.T) {
	budget := apierrors.NewTooManyRequests("Cannot evict pod", 0)
	budget.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget web needs 2 healthy pods and has 2 currently"}}
	slow := &apierrors.StatusError{ErrStatus: *budget.ErrStatus.DeepCopy()}
	slow.ErrStatus.Details.RetryAfterSeconds = 3600
	pods := schema.GroupResource{Resource: "pods"}
	for name, tc := range map[string]struct {
		answer  error
		reason  string // why the next one is refused; empty if it is not
		stalled bool
		again   time.Duration
	}{
		"it is granted":                      {},
		"a budget is asked later":            {budget, "DisruptionBudget", false, 30 * time.Second},
		"but not as late as it may say":      {slow, "DisruptionBudget", false, 5 * time.Minute},
		"several budgets need a user":        {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 500, Message: "This pod has more than one PodDisruptionBudget, which"}}, "ManyDisruptionBudgets", true, 10 * time.Minute},
		"so does a right that is missing":    {apierrors.NewForbidden(pods, "web-1", errors.New(`User "x" cannot create resource "pods/eviction"`)), "Forbidden", true, 10 * time.Minute},
		"another pod by that name is spared": {answer: apierrors.NewConflict(pods, "web-1", errors.New("the UID in the precondition"))},
		"a pod that has gone is no matter":   {answer: apierrors.NewNotFound(pods, "web-1")},
		"an outage is tried again":           {answer: errors.New("connection refused")},
	} {
		t.Run(name, func(t *testing.T) {
			var tried, asked []*policyv1.Eviction
			r := apiServer(t, interceptor.Funcs{
				SubResourceCreate: func(_ context.Context, _ client.Client, _ string, _ client.Object, body client.Object, options ...client.SubResourceCreateOption) error {
					if len(options) > 0 {
						tried = append(tried, body.(*policyv1.Eviction))
						return tc.answer
					}
					asked = append(asked, body.(*policyv1.Eviction))
					return nil
				},
			}, admission.Policy(), admission.Binding(), sizes("\ncheckout/5 @;app,100m,,,\n"))
			r.Clock = clocktesting.NewFakePassiveClock(noon)
			s := sizing(withUpdate(evicting))
			s.observation.situation.Deployment.UID = "web"
			err := r.evict(t.Context(), s, plan.Evict{Pods: []plan.EvictedPod{{Name: "web-1", UID: "web-1", ResourceVersion: "7"}}})
			if (err != nil) != (tc.answer != nil) || errors.Is(err, errRefused) != (tc.reason != "") || (s.taken != "") != (err == nil) {
				t.Errorf("evicted %q: %v", s.taken, err)
			}
			if len(tried) != 1 || tried[0].Name != "web-1" || *tried[0].DeleteOptions.Preconditions.UID != "web-1" || *tried[0].DeleteOptions.Preconditions.ResourceVersion != "7" {
				t.Fatalf("tried %+v", tried)
			}
			if tc.answer != nil && len(asked) > 0 {
				t.Errorf("asked for %+v although the dry run was refused", asked)
			}
			if tc.answer == nil && (len(asked) != 1 || *asked[0].DeleteOptions.Preconditions.UID != "web-1" || asked[0].DeleteOptions.Preconditions.ResourceVersion != nil) {
				t.Fatalf("asked for %+v", asked)
			}
			// Another reconcile follows at once on the same cache.
			next := plan.Situation{Deployment: s.observation.situation.Deployment}
			next.Pods = append(next.Pods, runningPod("web-1"))
			next.Pods[0].UID = types.UID("web-1")
			if _, _, err := r.recallPods(s.scaler, &next); errors.Is(err, errStaleCache) != (tc.answer == nil) {
				t.Errorf("the pod is in the cache, and the next reconcile: %v", err)
			}
			rejected := next.RejectedEviction
			if tc.reason == "" {
				if rejected != nil {
					t.Errorf("rejected: %+v", rejected)
				}
				return
			}
			if rejected == nil || rejected.Reason != tc.reason || rejected.Stalled != tc.stalled {
				t.Fatalf("rejected: %+v", rejected)
			}
			if again := rejected.Until.Sub(noon); again < tc.again*8/10 || again > tc.again {
				t.Errorf("again in %s, want %s", again, tc.again)
			}
		})
	}
}

// nodeCPU is the metrics API of nodes: their CPU, or an error.
type nodeCPU struct {
	millis map[string]int64
	err    error
	asked  int
	clock  *clocktesting.FakePassiveClock
}

func (n *nodeCPU) NodeCPU(_ context.Context, node string) (int64, time.Time, error) {
	n.asked++
	return n.millis[node], n.clock.Now(), n.err
}

// Nodes are asked about only once a plan evicts a pod for CPU, and each eviction uses up the readings of its node.
func TestAPodIsEvictedForCPUOnABusyNode(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(noon)
	source := &nodeCPU{millis: map[string]int64{"busy": 3900, "idle": 400}, clock: clock}
	r := apiServer(t, interceptor.Funcs{SubResourceCreate: func(context.Context, client.Client, string, client.Object, client.Object, ...client.SubResourceCreateOption) error {
		return nil
	}}, admission.Policy(), admission.Binding(), sizes("\ncheckout/5 @;app,100m,,,\n"))
	r.Clock, r.Pressure = clock, &pressure.Nodes{Source: source, Allocatable: func(string) int64 { return 4000 }, Clock: clock}
	stays := plan.Waiting.Because(v1beta1.ReasonDeferred, "it stays")
	choose := func(ifBusy bool, nodes ...string) (chosen plan.Evict, message string) {
		clock.SetTime(clock.Now().Add(time.Minute))
		step := plan.Evict{IfBusy: ifBusy, Otherwise: stays}
		for i, node := range nodes {
			step.Pods = append(step.Pods, plan.EvictedPod{Name: fmt.Sprint("web-", i), Node: node})
		}
		s := &scope{now: noon, plan: plan.Plan{Step: step}}
		r.chooseEvicted(t.Context(), s)
		if chosen, isEviction := s.plan.Step.(plan.Evict); isEviction {
			return chosen, ""
		}
		return plan.Evict{Pods: []plan.EvictedPod{{}}}, s.plan.Verdict.Message
	}
	chooses := func(ifBusy bool, pod, why string) plan.Evict {
		t.Helper()
		chosen, message := choose(ifBusy, "idle", "busy")
		if chosen.Pods[0].Name != pod || message != why {
			t.Errorf("%q is chosen, not %q: %s", chosen.Pods[0].Name, pod, message)
		}
		return chosen
	}
	chooses(false, "web-0", "")
	chooses(true, "", "it stays")
	chooses(true, "web-1", "")
	step := chooses(true, "web-1", "") // the change budget may have refused the first
	must.Succeed(t, r.evict(t.Context(), sizing(withUpdate(evicting)), step))
	if why := obstacleTo(r.evict(t.Context(), sizing(withUpdate(evicting)), step)); why.Reason != v1beta1.ReasonDeferred || why.Stalled {
		t.Errorf("another scaler evicts by the same readings: %+v", why)
	}
	chooses(true, "", "it stays")
	chooses(true, "web-1", "")
	if source.asked != 10 { // about two nodes, five times
		t.Errorf("the metrics API was asked %d times", source.asked)
	}
	many := slices.Repeat([]string{"idle"}, mostNodes)
	source.asked = 0
	choose(true, append(many, "busy")...)
	if source.asked != 1 {
		t.Errorf("the metrics API was asked %d times about one node", source.asked)
	}

	unknown := func(what, want string, asked int) {
		t.Helper()
		source.asked = 0
		if chosen, message := choose(true, "idle", "busy"); chosen.Pods[0].Name != "" || !strings.Contains(message, want) || source.asked != asked {
			t.Errorf("%s: %q is chosen after %d questions: %s", what, chosen.Pods[0].Name, source.asked, message)
		}
	}
	source.err = apierrors.NewForbidden(schema.GroupResource{Group: "metrics.k8s.io", Resource: "nodes"}, "busy", errors.New("no right"))
	unknown("no right", "recreate.yaml", 1)
	source.err = errors.New("down")
	unknown("a metrics API that is down", "the metrics API has no current usage of them", 1)
	source.err = apierrors.NewNotFound(schema.GroupResource{Group: "metrics.k8s.io", Resource: "nodes"}, "busy")
	unknown("nodes without usage", "the metrics API has no current usage of them", 2)
	r.Pressure = nil
	unknown("nodes that are not read", "the operator does not read nodes", 0)
}

// fullNodes have room for one CPU, and none for a request of 0, as if they were overcommitted.
type fullNodes struct{ Nodes }

func (fullNodes) HaveRoom(requests quantity.Amounts, _ string, leaving quantity.Amounts) bool {
	return requests.CPUMillis > 0 && requests.CPUMillis-leaving.CPUMillis <= 1000
}

func TestNoPodIsEvictedWithoutRoomForItsReplacement(t *testing.T) {
	r := &Reconciler{Nodes: fullNodes{}}
	for cpu, isEvicted := range map[int64]bool{1200: true, 1300: false, 0: true} { // 0: after an OOM kill, whatever the room
		s := &scope{now: noon, plan: plan.Plan{Step: plan.Evict{
			Pods: []plan.EvictedPod{{Name: "web-1", UID: "web-1"}}, Needs: quantity.Amounts{CPUMillis: cpu, MemoryBytes: min(cpu, 1) << 30},
		}}}
		s.observation.situation.Pods = []workload.Pod{{UID: "web-1", Containers: []workload.Container{{Resources: workload.Resources{Requests: quantity.Amounts{CPUMillis: 200}}}}}}
		r.chooseEvicted(t.Context(), s)
		if (s.plan.Step != nil) != isEvicted {
			t.Errorf("evicted for %dm: %t", cpu, !isEvicted)
		}
		if v := s.plan.Verdict; !isEvicted && (v.Reason != v1beta1.ReasonNodeCapacity || v.RequeueAfter != time.Minute ||
			v.Message != "No node has room for a new pod that requests 1300m of cpu and 1024Mi of memory, so no pod is evicted") {
			t.Errorf("the verdict is %+v", v)
		}
	}
}

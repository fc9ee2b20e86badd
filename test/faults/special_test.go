// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build faults

package faults

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/test/faults/internal/cluster"
	"github.com/verticalscaler/verticalscaler-operator/test/faults/internal/operator"
	"github.com/verticalscaler/verticalscaler-operator/test/faults/internal/proxy"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

const (
	// dense is the last write that a connection fails at.
	dense = 20
	// disturbed is how many rounds of usage a disturbance lasts, and mostDisturbed how long at most:
	// an operator that does not see its scalers asks for no usage.
	disturbed, mostDisturbed = 6, 30 * time.Second
	// managerRole is the ClusterRole of config/rbac/manager.yaml.
	managerRole = "verticalscaler-manager"
)

// special is a run with faults other than those at single writes.
type special struct {
	name, family string
	// begin starts the operator and acts. It returns when the faults are over, or will be in
	// time.
	begin func(r *run)
}

// specials are the special runs of a scenario. Each runs in one scenario.
func specials(scenario int) (out []special) {
	scenarios := len(world.Scenarios())
	for i, s := range rotated() {
		if i%scenarios == scenario {
			out = append(out, s)
		}
	}
	if scenario == 0 {
		out = append(out, special{"paused-leader", "paused leader", pausedLeader}, special{"policy-refuses", "policy", policyRefuses})
	}
	return out
}

// rotated are the specials that run in one scenario each.
func rotated() (out []special) {
	out = append(out, special{"hung-write", "hang", func(r *run) {
		r.start(proxy.Fault{N: 2, Action: proxy.Hang()})
		r.act()
	}})
	for _, action := range []proxy.Action{proxy.Cut(), proxy.Delay(3 * time.Second)} {
		out = append(out, special{fmt.Sprintf("%s-every-2nd", action), action.String() + ", every 2nd", func(r *run) {
			r.start(proxy.Fault{Every: 2, Last: dense, Action: action})
			r.act()
		}})
	}
	for _, resource := range []string{"pods", "deployments", "verticalscalers", ""} {
		for _, fault := range []proxy.WatchFault{proxy.Hold(), proxy.Drop(), proxy.Reorder(), proxy.Lag(2)} {
			name := fmt.Sprintf("watch-%s-%s", fault, orAll(resource))
			out = append(out, special{name, "watch events " + fault.String(), func(r *run) { r.watchFault(resource, fault) }})
		}
	}
	for _, fault := range []proxy.WatchFault{proxy.Gone(), proxy.End()} {
		out = append(out, special{"watch-" + fault.String(), "watches " + fault.String(), func(r *run) { r.endWatches(fault) }})
	}
	for _, d := range cluster.Distortions() {
		out = append(out, special{"metrics-" + string(d), "metrics", func(r *run) { r.distort(d) }})
	}
	return out
}

func orAll(resource string) string {
	if resource == "" {
		return "all"
	}
	return resource
}

// after does something once the operator has asked for usage that many times more, or in
// mostDisturbed.
func (r *run) after(rounds int, do func()) {
	until, began := r.proxy.Rounds()+rounds, time.Now()
	go func() {
		if r.wait("usage to be asked for", func() bool { return r.proxy.Rounds() >= until || time.Since(began) > mostDisturbed }) == nil {
			do()
		}
	}()
}

// wait waits until something is so.
func (r *run) wait(what string, is func() bool) error {
	return r.world.Wait(r.ctx, what, func(*cluster.World) string {
		if !is() {
			return "not yet"
		}
		return ""
	})
}

func (r *run) watchFault(resource string, fault proxy.WatchFault) {
	r.start()
	r.proxy.FaultWatches(resource, fault)
	r.after(disturbed, r.proxy.Release)
	r.act()
}

// endWatches ends all watches at the first, the second and the third write.
func (r *run) endWatches(fault proxy.WatchFault) {
	r.start()
	for n := 1; n <= 3; n++ {
		go func() {
			if r.wait("a write", func() bool { return len(r.proxy.Writes()) >= n }) == nil {
				r.proxy.FaultWatches("", fault)
			}
		}()
	}
	r.act()
}

func (r *run) distort(d cluster.Distortion) {
	r.world.Distort(d)
	r.start()
	r.after(disturbed, func() { r.world.Distort(cluster.Undistorted) })
	r.distorted = disturbed
	r.act()
}

// pausedLeader stops the leader during its first write, as a frozen machine does. A second one
// takes over. The write of the first arrives when the second is done, and the first goes on.
func pausedLeader(r *run) {
	elected := func(o *operator.Options) {
		o.Config.LeaderElection.Enabled, o.Config.LeaderElection.Namespace = true, testkit.System
	}
	r.mayEnd = true // who has lost the lease ends
	r.proxy.Plan(proxy.Fault{N: 1, Action: proxy.Delay(0)})
	first := r.startOperator("first", r.proxy, elected)
	r.act()
	if err := r.wait("the first write", func() bool { return r.proxy.Injected() > 0 }); err != nil {
		r.Fatal(err)
	}
	if err := first.Pause(); err != nil {
		r.Fatal(err)
	}
	r.operator = r.startOperator("second", r.newProxy(), elected)
	if err := r.world.Converge(r.ctx); err != nil {
		r.violated("beside a paused leader: %v", err)
	}
	r.proxy.Release()
	if err := first.Continue(); err != nil {
		r.Fatal(err)
	}
	if err := r.wait("the first leader to notice", func() bool { return len(first.Ends()) > 0 }); err != nil {
		r.violated("a leader that was paused does not end")
	}
}

// policyRefuses lets an admission policy refuse resizes until one was refused.
func policyRefuses(r *run) {
	namespace := r.world.Namespace()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: namespace + ".faults.verticalscaler.io"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/resize"}},
				},
			}}},
			Validations: []admissionv1.Validation{{
				Expression: "false", Message: "No pod may be resized here", Reason: ptr.To(metav1.StatusReasonForbidden),
			}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: policy.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			},
		},
	}
	for _, object := range []client.Object{policy, binding} {
		if err := env.Client.Create(r.ctx, object); err != nil {
			r.Fatal(err)
		}
		r.onClose(func() { _ = env.Client.Delete(context.Background(), object) })
	}
	if err := r.wait("the policy", func() bool { return r.refusesResizes() }); err != nil {
		r.Fatal(err)
	}
	r.start()
	r.act()
	r.waitForRefusal(http.StatusForbidden)
	if err := env.Client.Delete(r.ctx, binding); err != nil {
		r.Fatal(err)
	}
}

// refusesResizes tells whether the API server refuses a resize without a change.
func (r *run) refusesResizes() bool {
	var pods corev1.PodList
	if err := env.Client.List(r.ctx, &pods, client.InNamespace(r.world.Namespace())); err != nil || len(pods.Items) == 0 {
		return false
	}
	nothing := client.RawPatch(types.StrategicMergePatchType, []byte("{}"))
	return apierrors.IsForbidden(env.Client.SubResource("resize").Patch(r.ctx, &pods.Items[0], nothing, client.DryRunAll))
}

// waitForRefusal waits until the API server has answered a request with the code.
func (r *run) waitForRefusal(code int) {
	if err := r.wait(fmt.Sprintf("an answer %d", code), func() bool { return r.proxy.Answers(code) > 0 }); err != nil {
		r.violated("no request was refused with %d", code)
	}
}

// rights are what is taken away from the operator: rules of the ClusterRole with the resource,
// or all rules if it is "".
var rights = []string{"pods/resize", "verticalscalers/status", "verticalscalercheckpoints", ""}

// takeRights takes rights away until a write was refused. All operators lose them, so no other
// run may go on.
func takeRights(r *run, resource string) {
	role := &rbacv1.ClusterRole{}
	if err := env.Client.Get(r.ctx, client.ObjectKey{Name: managerRole}, role); err != nil {
		r.Fatal(err)
	}
	rules := role.Rules
	role.Rules = slices.DeleteFunc(slices.Clone(rules), func(rule rbacv1.PolicyRule) bool {
		return resource == "" || slices.Contains(rule.Resources, resource)
	})
	if len(role.Rules) == len(rules) {
		r.Fatalf("ClusterRole %s has no rule for %s", managerRole, resource)
	}
	give := sync.OnceFunc(func() {
		role.Rules = rules
		if err := env.Client.Update(context.WithoutCancel(r.ctx), role); err != nil {
			r.Errorf("giving the rights back: %v", err)
		}
	})
	r.onClose(give)
	r.start()
	if err := r.wait("the operator to work", func() bool { return r.isReady() }); err != nil {
		r.Fatal(err)
	}
	if err := env.Client.Update(r.ctx, role); err != nil {
		r.Fatal(err)
	}
	r.act()
	r.waitForRefusal(http.StatusForbidden)
	give()
}

// isReady tells whether the operator's controllers run.
func (r *run) isReady() bool {
	metrics, err := r.operator.Metrics(r.ctx)
	return err == nil && metrics["controller_runtime_max_concurrent_reconciles"] > 0
}

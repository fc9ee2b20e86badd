// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

func named(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// fleetAt has that many scalers of the policy in three namespaces, of which some are promoted, and one of a user.
func fleetAt(second, scalers, promoted int) snapshot {
	s := snapshot{at: epoch.Add(time.Duration(second) * time.Second)}
	f := &s.fleet
	f.policy = v1beta1.ClusterScalingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "fleet", UID: "policy"}}
	f.policy.Status.Summary = &v1beta1.PolicySummary{Deployments: fmt.Sprintf("%d/%d", scalers, selectedDeployments)}
	f.scalers = map[types.NamespacedName]*v1beta1.VerticalScaler{named("shop", "mine"): {ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "mine"}}}
	f.changes, f.pods = map[types.NamespacedName]int64{}, map[types.UID]workload.Resources{}
	for i := range scalers {
		key := named([]string{"billing", "shop", "search"}[i%3], fmt.Sprintf("app-%d", i/3))
		scaler := &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, UID: types.UID(key.String()), Generation: 1, Labels: map[string]string{v1beta1.PolicyLabel: "fleet"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&f.policy, v1beta1.GroupVersion.WithKind(v1beta1.ClusterScalingPolicyKind))},
		}}
		scaler.Spec.DeploymentName, scaler.Spec.UpdatePolicy.UpdateMode = key.Name, v1beta1.UpdateModeRecommend
		if i < promoted {
			scaler.Annotations = map[string]string{v1beta1.PromotedAnnotation: epoch.Format(time.RFC3339)}
			scaler.Spec.UpdatePolicy.UpdateMode = v1beta1.UpdateModeInPlace
		}
		f.scalers[key], f.changes[key] = scaler, 1
		f.pods[types.UID("pod of "+key.String())] = workload.Resources{}
	}
	return s
}

// fleetStep is the progress of a step of the scenario after the snapshots.
func fleetStep(t *testing.T, name string, snapshots ...snapshot) *progress {
	t.Helper()
	at := slices.IndexFunc(fleetScenario.steps, func(s step) bool { return s.name == name })
	if at < 0 {
		t.Fatalf("there is no step %s", name)
	}
	p := &progress{step: fleetScenario.steps[at], start: snapshots[0], end: snapshots[0], done: true}
	for _, s := range snapshots[1:] {
		p.add(s)
	}
	return p
}

func with(s snapshot, change func(f *fleet)) snapshot {
	change(&s.fleet)
	return s
}

// saved is the status after all promotions.
func saved(f *fleet) {
	cpu := resource.MustParse("2")
	f.policy.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionPromoting, Reason: v1beta1.ReasonAllPromoted}}
	f.policy.Status.Savings = &v1beta1.PolicySavings{Applied: v1beta1.Savings{CPU: &cpu}}
}

func TestFleetStepsEndWithTheirEffect(t *testing.T) {
	deleted := func(f *fleet) {
		f.policy = v1beta1.ClusterScalingPolicy{}
		for _, key := range f.generated() {
			delete(f.scalers, key)
		}
	}
	for name, tc := range map[string]struct {
		step        string
		start, next snapshot
		want        string // what is missing
		unproven    bool
	}{
		"all scalers":     {step: "apply", next: fleetAt(1, 29, 0)},
		"one is missing":  {step: "apply", next: fleetAt(1, 28, 0), want: "29 VerticalScalers of the policy: there are 28"},
		"an old status":   {step: "apply", next: with(fleetAt(1, 29, 0), func(f *fleet) { f.policy.Status.Summary.Deployments = "28/30" }), want: "the status of the policy to say 29/30"},
		"no status":       {step: "apply", next: with(fleetAt(1, 29, 0), func(f *fleet) { f.policy.Status.Summary = nil }), want: "the status of the policy to say 29/30"},
		"another mode":    {step: "apply", next: fleetAt(1, 29, 1), unproven: true},
		"without a label": {step: "apply", next: with(fleetAt(1, 29, 0), func(f *fleet) { f.scalers[named("billing", "app-0")].Labels = nil }), unproven: true},
		"another namespace": {step: "apply", unproven: true, next: with(fleetAt(1, 28, 0), func(f *fleet) {
			f.policy.Status.Summary.Deployments = "29/30"
			f.scalers[named("legacy", "app-1")] = f.scalers[named("billing", "app-1")].DeepCopy()
		})},
		"excluded": {step: "exclude", start: fleetAt(0, 30, 0), next: with(fleetAt(1, 30, 0), func(f *fleet) {
			f.policy.Status.Summary.Deployments = "29/30"
			delete(f.scalers, named("billing", "app-3"))
		})},
		"wrong one":    {step: "exclude", start: fleetAt(0, 30, 0), next: fleetAt(1, 29, 0), unproven: true},
		"not reverted": {step: "revert", start: fleetAt(0, 28, 0), next: fleetAt(1, 28, 0), want: "VerticalScaler billing/app-5 to be as it was"},
		"edited": {step: "revert", start: fleetAt(0, 28, 0), want: "VerticalScaler billing/app-5 to be as it was", next: with(fleetAt(1, 28, 0), func(f *fleet) {
			f.scalers[named("billing", "app-5")].Generation, f.scalers[named("billing", "app-5")].Spec.Suspend = 3, true
		})},
		"reverted":       {step: "revert", start: fleetAt(0, 28, 0), next: with(fleetAt(1, 28, 0), func(f *fleet) { f.scalers[named("billing", "app-5")].Generation = 3 })},
		"none promoted":  {step: "first", start: fleetAt(0, 27, 0), next: fleetAt(1, 27, 0), want: "1 promoted scalers: "},
		"a few promoted": {step: "first", start: fleetAt(0, 27, 0), next: with(fleetAt(1, 27, 6), func(f *fleet) { f.verifying = 6 })},
		"too many":       {step: "first", start: fleetAt(0, 27, 0), next: with(fleetAt(1, 27, 7), func(f *fleet) { f.verifying = 7 }), unproven: true},
		"too early": {step: "first", start: fleetAt(0, 27, 0), unproven: true, next: with(fleetAt(1, 27, 6), func(f *fleet) {
			f.verifying, f.early = 6, []string{"shop/app-1-x"}
		})},
		"not all promoted": {step: "all", start: fleetAt(0, 27, 0), next: fleetAt(1, 27, 26), want: "27 promoted scalers: "},
		"no savings":       {step: "status", start: fleetAt(0, 27, 0), next: with(fleetAt(1, 27, 27), func(f *fleet) { saved(f); f.policy.Status.Savings = nil }), want: "savings"},
		"savings":          {step: "status", start: fleetAt(0, 27, 0), next: with(fleetAt(1, 27, 27), saved)},
		"deleted":          {step: "delete", start: fleetAt(0, 27, 27), next: with(fleetAt(1, 27, 27), deleted)},
		"not deleted":      {step: "delete", start: fleetAt(0, 27, 27), next: fleetAt(1, 1, 1), want: "the scalers of the policy to be deleted: 1 exist"},
		"a user's, too":    {step: "delete", start: fleetAt(0, 27, 27), next: with(fleetAt(1, 27, 27), func(f *fleet) { deleted(f); clear(f.scalers) }), unproven: true},
		"a pod is gone":    {step: "delete", start: fleetAt(0, 27, 27), next: with(fleetAt(1, 26, 26), deleted), unproven: true},
		"a new template":   {step: "delete", start: fleetAt(0, 27, 27), next: with(fleetAt(1, 27, 27), func(f *fleet) { deleted(f); f.changes[named("shop", "app-1")]++ }), unproven: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := fleetStep(t, tc.step, tc.start, tc.next)
			if got := p.missing(p); got != tc.want {
				t.Fatalf("missing() = %q, want %q", got, tc.want)
			}
			if tc.want != "" || p.proof == nil {
				return
			}
			if ok, details := p.proof(p); ok == tc.unproven {
				t.Errorf("proof() = %t: %s", ok, details)
			}
		})
	}
}

func TestADetachedScalerIsTheSameWithoutAPolicy(t *testing.T) {
	key := named("billing", "app-2")
	release := func(f *fleet) { f.scalers[key].OwnerReferences, f.scalers[key].Labels = nil, nil }
	for name, change := range map[string]func(f *fleet){
		"detached":      release,
		"still owned":   func(f *fleet) { f.scalers[key].Labels = nil },
		"still labeled": func(f *fleet) { f.scalers[key].OwnerReferences = nil },
		"another one":   func(f *fleet) { release(f); f.scalers[key].UID = "another" },
		"deleted":       func(f *fleet) { delete(f.scalers, key) },
	} {
		if ok, details := detached(fleetStep(t, "detach", fleetAt(0, 28, 0), with(fleetAt(1, 28, 0), change))); ok != (name == "detached") {
			t.Errorf("%s: %t, %s", name, ok, details)
		}
	}
}

// A pod that was resized before its scaler was promoted is reported. Others are not.
func TestEarlyResizesAreNoticed(t *testing.T) {
	pod := func(namespace, app, cpu string) *corev1.Pod {
		requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("256Mi")}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: app + "-x", UID: types.UID(namespace + app), Labels: map[string]string{"app": app}}}
		p.Spec.Containers = []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{Requests: requests}}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Resources: &corev1.ResourceRequirements{Requests: requests}}}
		return p
	}
	s := fleetAt(0, 27, 1) // billing/app-0 is promoted
	for _, p := range []*corev1.Pod{pod("billing", "app-0", "100m"), pod("billing", "app-1", "100m"), pod("shop", "app-0", "300m"), pod("legacy", "app-1", "100m")} {
		s.fleet.add(p)
	}
	p := fleetStep(t, "all", fleetAt(0, 27, 0), s, fleetAt(1, 27, 27))
	if got := strings.Join(p.early, " "); got != "billing/app-1-x" {
		t.Errorf("resized before their promotion: %s", got)
	}
	if got := s.fleet.pods["billingapp-0"].Requests; got != (quantity.Amounts{CPUMillis: 100, MemoryBytes: 256 << 20}) {
		t.Errorf("requests of a pod: %+v", got)
	}
}

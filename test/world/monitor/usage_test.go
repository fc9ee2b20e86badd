// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/test/world/monitor"
)

// other is a second pod of the Deployment, which runs.
func other(changes ...func(*corev1.Pod)) *corev1.Pod {
	return pod("100m", "1", "", append([]func(*corev1.Pod){func(p *corev1.Pod) {
		p.Name, p.UID, p.Status.Phase = "web-1-b", "other", corev1.PodRunning
	}}, changes...)...)
}

// boosting gives a container more CPU while it starts.
func boosting(s *v1beta1.VerticalScalerSpec) {
	s.ResourcePolicy.ContainerPolicies[0].StartupBoost = &v1beta1.StartupBoost{}
}

// applied is a pod whose kubelet has applied another CPU request.
func applied(cpu string, p *corev1.Pod) *corev1.Pod {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "app", Resources: &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}},
	}}
	return p
}

func TestRequestsThatAreLoweredInSilence(t *testing.T) {
	const us = "verticalscaler"
	heard, silent := "web-1-b", "someone else"
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	lowered, raised := pod("50m", "1", us), pod("200m", "1", us)
	reverting := scaler(inMode("Rollout"))
	reverting.Status.Decision = &v1beta1.Decision{Reason: "Reverted"}
	for name, test := range map[string]struct {
		scaler  *v1beta1.VerticalScaler
		other   *corev1.Pod
		answers []string // the pod that each answer is about, three seconds apart
		before  client.Object
		write   client.Object
		bad     bool
	}{
		"a silent pod":                      {answers: []string{silent, silent, silent}, write: lowered, bad: true},
		"a silent pod of a raised one":      {answers: []string{silent, silent, silent}, write: raised},
		"nothing was asked":                 {write: lowered},
		"all are heard":                     {answers: []string{heard, heard, heard}, write: lowered},
		"heard again":                       {answers: []string{silent, silent, silent, heard}, write: lowered},
		"heard in between":                  {answers: []string{silent, silent, heard, silent, silent}, write: lowered},
		"silent a moment ago":               {answers: []string{heard, silent, silent}, write: lowered},
		"silent before, and never heard of": {answers: []string{heard, silent, silent, silent}, write: lowered, bad: true},
		"a pod that has ended":              {other: other(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), answers: []string{silent, silent, silent}, write: lowered},
		"a pod that terminates":             {other: other(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: begin} }), answers: []string{silent, silent, silent}, write: lowered},
		"a pod of another Deployment":       {other: other(func(p *corev1.Pod) { p.OwnerReferences[0].UID = "rs-of-another" }), answers: []string{silent, silent, silent}, write: lowered},
		"a boost that ends":                 {scaler: scaler(boosting), answers: []string{silent, silent, silent}, write: lowered},
		"a maximum that has fallen":         {before: pod("1500m", "2", ""), answers: []string{silent, silent, silent}, write: pod("1", "2", us)},
		"a resize that is withdrawn":        {before: applied("50m", pod("100m", "1", "")), answers: []string{silent, silent, silent}, write: lowered},
		"more than a resize is withdrawn":   {before: applied("70m", pod("100m", "1", "")), answers: []string{silent, silent, silent}, write: lowered, bad: true},
		"a template":                        {scaler: scaler(inMode("Rollout")), before: deployment("100m", "1", ""), answers: []string{silent, silent, silent}, write: deployment("50m", "1", us), bad: true},
		"a template that is reverted":       {scaler: reverting, before: deployment("100m", "1", ""), answers: []string{silent, silent, silent}, write: deployment("50m", "1", us)},
	} {
		t.Run(name, func(t *testing.T) {
			m := monitor.New()
			revision := 0
			see := func(kind watch.EventType, o client.Object) {
				revision++
				m.Saw(watch.Event{Type: kind, Object: at(revision, o)})
			}
			see(watch.Added, orElse(test.scaler, scaler()))
			see(watch.Added, set())
			see(watch.Added, orElse(test.other, other()))
			if test.before == nil {
				test.before = pod("100m", "1", "")
			}
			see(watch.Added, test.before)
			for i, name := range test.answers {
				m.Answered("shop", []usage.Sample{{Pod: name, Container: "app"}}, begin.Add(time.Duration(3*i)*time.Second))
			}
			see(watch.Modified, test.write)
			m.Answered("shop", []usage.Sample{{Pod: heard, Container: "app"}}, begin.Add(time.Hour))
			if got := m.Violations(); len(got) > 0 != test.bad || test.bad && !strings.Contains(got[0], "pod other has no usage") {
				t.Errorf("violations: %q", got)
			}
		})
	}
}

func orElse[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

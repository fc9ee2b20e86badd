// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/metricsapi"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// operatorUser is the operator's name in the audit log.
const operatorUser = "system:serviceaccount:verticalscaler-system:verticalscaler-operator"

// snapshot is what was read from the namespace at one moment.
type snapshot struct {
	at          time.Time
	scaler      v1beta1.VerticalScaler // zero if there is none
	deployments []appsv1.Deployment
	replicaSets int
	pods        []workload.Pod // with the label app=web, by name
	restarts    int32
	memory      map[string]int64 // memory usage by pod in metrics.k8s.io
	events      []eventsv1.Event // about the scaler
	lastWrite   time.Time        // of the operator in this step; zero if there is none
}

// observer reads snapshots.
type observer struct {
	env     *testkit.Env
	metrics *metricsapi.Source
	step    testkit.AuditMark // when the step began
}

func newObserver(env *testkit.Env) (o *observer, err error) {
	o = &observer{env: env}
	o.metrics, err = metricsapi.New(env.Config)
	return o, err
}

// look reads a snapshot.
func (o *observer) look(ctx context.Context) (s snapshot, err error) {
	var (
		scalers     v1beta1.VerticalScalerList
		deployments appsv1.DeploymentList
		replicaSets appsv1.ReplicaSetList
		pods        corev1.PodList
		events      eventsv1.EventList
	)
	for _, list := range []client.ObjectList{&scalers, &deployments, &replicaSets, &pods, &events} {
		if err := o.env.Client.List(ctx, list, client.InNamespace("demo")); err != nil {
			return s, fmt.Errorf("listing %T: %w", list, err)
		}
	}
	if len(scalers.Items) > 0 {
		s.scaler = scalers.Items[0]
	}
	s.deployments, s.replicaSets = deployments.Items, len(replicaSets.Items)
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Labels["app"] != "web" {
			continue
		}
		s.pods = append(s.pods, workload.ReadPod(p, true))
		for _, c := range p.Status.ContainerStatuses {
			s.restarts += c.RestartCount
		}
	}
	s.events = slices.DeleteFunc(events.Items, func(e eventsv1.Event) bool { return e.Regarding.APIVersion != v1beta1.GroupVersion.String() })
	samples, _, err := o.metrics.List(ctx, "demo", time.Now())
	if err != nil && !errors.Is(err, metricsapi.ErrUnavailable) { // metrics-server is still starting
		return s, err
	}
	s.memory = map[string]int64{}
	for _, sample := range samples {
		if sample.Container == "app" { // and not the sidecar
			s.memory[sample.Pod] = sample.MemoryBytes
		}
	}
	s.at = time.Now()
	// Last, so that the audit log has every write whose effect is in the snapshot.
	requests, err := o.requests(o.step)
	for _, w := range requests {
		if isWrite(w) {
			s.lastWrite = w.Answered
		}
	}
	return s, err
}

// resources are those that the kubelet reports for a pod.
func resources(p workload.Pod) workload.Resources { return p.Actual["app"] }

// target is the Deployment of the demo; zero if there is none.
func (s snapshot) target() appsv1.Deployment {
	if len(s.deployments) == 1 {
		return s.deployments[0]
	}
	return appsv1.Deployment{}
}

// count is the number of pods for which something holds.
func (s snapshot) count(holds func(workload.Pod) bool) (n int) {
	for _, p := range s.pods {
		if holds(p) {
			n++
		}
	}
	return n
}

// condition is one of an object's conditions; zero if there is none.
func condition(conditions []metav1.Condition, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// requests are the operator's requests since a mark of the audit log.
func (o *observer) requests(since testkit.AuditMark) ([]testkit.Write, error) {
	all, err := o.env.WritesSince(since, "")
	return slices.DeleteFunc(all, func(w testkit.Write) bool { return w.User != operatorUser }), err
}

func isForbidden(w testkit.Write) bool { return w.Code == 401 || w.Code == 403 }

// isWrite reports whether a request changes something other than the operator's lease.
func isWrite(w testkit.Write) bool {
	switch w.Verb {
	case "get", "list", "watch":
		return false
	}
	return !isForbidden(w) && w.Resource != "leases" && w.Resource != "selfsubjectaccessreviews"
}

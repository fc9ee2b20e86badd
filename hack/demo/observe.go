// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
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
	lastWrite   time.Time        // of the operator
}

// observer reads snapshots.
type observer struct {
	client  client.Client
	metrics *metricsapi.Source
	audit   audit
}

func newObserver(env *testkit.Env) (*observer, error) {
	o := &observer{client: env.Client, audit: audit{writes: map[string]int{}, forbidden: map[string]int{}}}
	file, err := os.Open(env.AuditLog())
	if err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}
	o.audit.log = bufio.NewReader(file)
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
		if err := o.client.List(ctx, list, client.InNamespace("demo")); err != nil {
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
	err = o.audit.read()
	s.lastWrite = o.audit.lastWrite
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

// audit counts the operator's requests in the audit log, which is read while it grows.
type audit struct {
	log  *bufio.Reader
	line []byte // a line whose end is not written yet

	requests int
	// writes and forbidden are by verb and resource: "patch pods/resize". Updates of the
	// operator's lease are not counted as writes.
	writes, forbidden map[string]int
	lastWrite         time.Time
}

// read counts what was added since the previous call.
func (a *audit) read() error {
	for {
		part, err := a.log.ReadBytes('\n')
		a.line = append(a.line, part...)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = a.add(a.line)
		}
		if err != nil {
			return fmt.Errorf("reading the audit log: %w", err)
		}
		a.line = nil
	}
}

// add counts a request that was answered.
func (a *audit) add(line []byte) error {
	var e struct {
		Stage, Verb    string
		StageTimestamp time.Time
		User           struct{ Username string }
		ObjectRef      struct{ Resource, Subresource string }
		ResponseStatus struct{ Code int }
	}
	if err := json.Unmarshal(line, &e); err != nil || e.Stage != "ResponseComplete" || e.User.Username != operatorUser {
		return err
	}
	a.requests++
	kind := e.Verb + " " + e.ObjectRef.Resource
	if e.ObjectRef.Subresource != "" {
		kind += "/" + e.ObjectRef.Subresource
	}
	switch {
	case e.ResponseStatus.Code == 401 || e.ResponseStatus.Code == 403:
		a.forbidden[kind]++
	case e.Verb == "get" || e.Verb == "list" || e.Verb == "watch", e.ObjectRef.Resource == "leases",
		e.ObjectRef.Resource == "selfsubjectaccessreviews": // changes nothing, although the verb is create
	default:
		a.writes[kind]++
		a.lastWrite = e.StageTimestamp
	}
	return nil
}

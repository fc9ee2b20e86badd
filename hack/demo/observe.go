// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/controllers/scaleddeployment"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/metricsapi"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// The sample's names, as in workload.yaml, scaler.yaml and owned.yaml.
const (
	namespace = "demo"
	name      = "web"
)

// observer looks at the sample and what keeps it.
type observer struct {
	began   time.Time
	client  client.Client
	metrics *metricsapi.Source
	log     *auditLog
	// changes are those of Deployments; nil if nobody asks. owned are the Deployments
	// that a ScaledDeployment has after those read so far.
	changes <-chan watch.Event
	owned   map[types.UID]bool
}

func newObserver(began time.Time, admin *rest.Config, c client.Client, audit string) (*observer, error) {
	metrics, err := metricsapi.New(admin)
	if err != nil {
		return nil, err
	}
	return &observer{began: began, client: c, metrics: metrics, log: &auditLog{path: audit, user: operatorUser}}, nil
}

// follow reads every change of the Deployments from now on.
func (o *observer) follow(ctx context.Context, admin *rest.Config) error {
	c, err := client.NewWithWatch(admin, client.Options{})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	w, err := c.Watch(ctx, &appsv1.DeploymentList{}, client.InNamespace(namespace))
	if err != nil {
		return fmt.Errorf("watching Deployments: %w", err)
	}
	o.changes, o.owned = w.ResultChan(), map[types.UID]bool{}
	return nil
}

// catchUp counts through the changes that have come.
func (o *observer) catchUp(s *state) error {
	s.atOnce = len(o.owned)
	for {
		select {
		case change := <-o.changes:
			d, ok := change.Object.(*appsv1.Deployment)
			if !ok {
				return fmt.Errorf("following the Deployments: %v", change.Object)
			}
			delete(o.owned, d.UID)
			if change.Type != watch.Deleted && readDeployment(d).controller != "" {
				o.owned[d.UID] = true
			}
			s.atOnce = max(s.atOnce, len(o.owned))
		default:
			return nil
		}
	}
}

// look reads all that can be seen now.
func (o *observer) look(ctx context.Context) (s state, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := errors.Join(o.lookAtOwner(ctx, &s), o.lookAtScaler(ctx, &s), o.lookAtEvents(ctx, &s), o.lookAtWorkload(ctx, &s), o.lookAtUsage(ctx, &s), o.catchUp(&s)); err != nil {
		return s, fmt.Errorf("looking at the sample: %w", err)
	}
	s.at = time.Since(o.began)
	// After the rest, so that no write whose effect was seen is missing.
	if s.audit, err = o.log.read(); err != nil {
		return s, err
	}
	if !s.audit.lastWrite.IsZero() {
		s.wrote = s.audit.lastWrite.Sub(o.began)
	}
	return s, nil
}

func (o *observer) lookAtOwner(ctx context.Context, s *state) error {
	var owner v1beta1.ScaledDeployment
	err := o.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &owner)
	if err == nil {
		s.owner = &owner
	}
	return client.IgnoreNotFound(err)
}

func (o *observer) lookAtScaler(ctx context.Context, s *state) error {
	var scaler v1beta1.VerticalScaler
	err := o.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &scaler)
	if err == nil {
		s.scaler = &scaler
	}
	return client.IgnoreNotFound(err)
}

func (o *observer) lookAtEvents(ctx context.Context, s *state) error {
	var list eventsv1.EventList
	if err := o.client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return err
	}
	sort.Slice(list.Items, func(i, j int) bool { return list.Items[i].EventTime.Before(&list.Items[j].EventTime) })
	for _, e := range list.Items {
		if (e.Regarding.Kind == "VerticalScaler" || e.Regarding.Kind == v1beta1.ScaledDeploymentKind) && e.Regarding.Name == name {
			s.events = append(s.events, event{uid: e.UID, at: e.EventTime.Sub(o.began), reason: e.Reason, note: e.Note})
		}
	}
	return nil
}

func (o *observer) lookAtWorkload(ctx context.Context, s *state) error {
	var deployments appsv1.DeploymentList
	if err := o.client.List(ctx, &deployments, client.InNamespace(namespace)); err != nil {
		return err
	}
	for i := range deployments.Items {
		s.deployments = append(s.deployments, readDeployment(&deployments.Items[i]))
	}
	sort.Slice(s.deployments, func(i, j int) bool { return s.deployments[i].name < s.deployments[j].name })
	var replicaSets appsv1.ReplicaSetList
	if err := o.client.List(ctx, &replicaSets, client.InNamespace(namespace)); err != nil {
		return err
	}
	s.replicaSets = len(replicaSets.Items)
	pods, err := listPods(ctx, o.client)
	if err != nil {
		return err
	}
	for i := range pods {
		s.pods = append(s.pods, readPod(&pods[i]))
	}
	sort.Slice(s.pods, func(i, j int) bool { return s.pods[i].Name < s.pods[j].Name })
	return nil
}

func readDeployment(d *appsv1.Deployment) deployment {
	out := deployment{
		name: d.Name, uid: d.UID, generation: d.Generation, replicas: ptr.Deref(d.Spec.Replicas, 1),
		image: d.Spec.Template.Spec.Containers[0].Image, deleting: d.DeletionTimestamp != nil,
		touched: slices.ContainsFunc(d.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == scaleddeployment.Name }),
	}
	if by := metav1.GetControllerOf(d); by != nil {
		out.controller = by.UID
	}
	return out
}

func listPods(ctx context.Context, c client.Client) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{"app": name}); err != nil {
		return nil, fmt.Errorf("listing the sample's pods: %w", err)
	}
	return pods.Items, nil
}

func readPod(p *corev1.Pod) pod {
	out := pod{Pod: workload.ReadPod(p, true)}
	for _, c := range p.Status.Conditions {
		out.ready = out.ready || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	}
	for _, c := range p.Status.ContainerStatuses {
		out.restarts += c.RestartCount
	}
	return out
}

func (o *observer) lookAtUsage(ctx context.Context, s *state) error {
	samples, _, err := o.metrics.List(ctx, namespace, time.Now())
	if errors.Is(err, metricsapi.ErrUnavailable) {
		return nil // metrics-server needs a moment after its start
	}
	if err != nil {
		return err
	}
	s.usage = map[string]usage.Sample{}
	for _, sample := range samples {
		if sample.Container == container {
			s.usage[sample.Pod] = sample
		}
	}
	return nil
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/metricsapi"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// The sample's names, as in workload.yaml and scaler.yaml.
const (
	namespace = "demo"
	name      = "web"
)

// observer looks at the sample and its scaler.
type observer struct {
	began   time.Time
	client  client.Client
	metrics *metricsapi.Source
	log     *auditLog
}

func newObserver(began time.Time, admin *rest.Config, c client.Client, audit string) (*observer, error) {
	metrics, err := metricsapi.New(admin)
	if err != nil {
		return nil, err
	}
	return &observer{began: began, client: c, metrics: metrics, log: &auditLog{path: audit, user: operatorUser}}, nil
}

// look reads all that can be seen now.
func (o *observer) look(ctx context.Context) (s state, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := errors.Join(o.lookAtScaler(ctx, &s), o.lookAtWorkload(ctx, &s), o.lookAtUsage(ctx, &s)); err != nil {
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

func (o *observer) lookAtScaler(ctx context.Context, s *state) error {
	var scaler v1beta1.VerticalScaler
	err := o.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &scaler)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	s.scaler = &scaler

	var list eventsv1.EventList
	if err := o.client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return err
	}
	sort.Slice(list.Items, func(i, j int) bool { return list.Items[i].EventTime.Before(&list.Items[j].EventTime) })
	for _, e := range list.Items {
		if e.Regarding.Kind == "VerticalScaler" && e.Regarding.Name == name {
			s.events = append(s.events, event{uid: e.UID, at: e.EventTime.Sub(o.began), reason: e.Reason, note: e.Note})
		}
	}
	return nil
}

func (o *observer) lookAtWorkload(ctx context.Context, s *state) error {
	var deployment appsv1.Deployment
	err := o.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &deployment)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	s.generation = deployment.Generation
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

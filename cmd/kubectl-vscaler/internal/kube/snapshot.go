// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/snapshot"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler/precedence"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/metricsapi"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

const (
	// usageLasts is how long usage is not read again. metrics-server has new usage every 15
	// seconds or more.
	usageLasts = 5 * time.Second
	// readersAtOnce is how many namespaces are read at once.
	readersAtOnce = 8
)

// SnapshotReader reads how scalers are doing, with the rights of the user. Only the scalers are
// required; what else cannot be read is reported as missing. It may be used from several
// goroutines.
type SnapshotReader struct {
	Client client.Reader

	cluster *Cluster
	metrics *metricsapi.Source

	mu    sync.Mutex
	known map[string]namespaceUsage
}

// namespaceUsage is the usage of a namespace, or why there is none.
type namespaceUsage struct {
	at      time.Time
	samples []usage.Sample
	byPod   map[string][]usage.Sample
	missing string
}

// ofPods are the samples of some pods. A fleet does not go through all samples for each scaler.
func (u namespaceUsage) ofPods(pods []workload.Pod) (samples []usage.Sample) {
	for i := range pods {
		samples = append(samples, u.byPod[pods[i].Name]...)
	}
	return samples
}

// OpenSnapshots opens the cluster that kubectl would use.
func (c *Cluster) OpenSnapshots() (*SnapshotReader, error) {
	reader, err := c.Open()
	if err != nil {
		return nil, err
	}
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS = -1 // readersAtOnce and usageLasts limit the requests
	metrics, err := metricsapi.New(config)
	if err != nil {
		return nil, err
	}
	return &SnapshotReader{Client: reader, cluster: c, metrics: metrics, known: map[string]namespaceUsage{}}, nil
}

// Scaler reads one scaler. It is an error if it does not exist or may not be read.
func (r *SnapshotReader) Scaler(ctx context.Context, name types.NamespacedName) (snapshot.Scaler, error) {
	evidence, err := EvidenceOf(ctx, r.Client, name)
	if err != nil {
		return snapshot.Scaler{}, err
	}
	used := r.usage(ctx, name.Namespace)
	evidence.Operators = r.cluster.OperatorsOr(ctx, r.Client, name.Namespace, &evidence.Missing)
	evidence.Now = r.cluster.Now()
	return snapshot.Of(evidence, used.samples, used.missing, evidence.Now), nil
}

// Scalers reads all scalers of a namespace, or of all namespaces if it is "". It is an error
// if they may not be listed.
func (r *SnapshotReader) Scalers(ctx context.Context, namespace string) (snapshot.Table, error) {
	scalers, err := Scalers(ctx, r.Client, client.InNamespace(namespace))
	if err != nil {
		return snapshot.Table{}, err
	}
	var out snapshot.Table
	targets := map[types.NamespacedName]*explain.Evidence{}
	evidence, namespaces := make([]explain.Evidence, len(scalers)), map[string]bool{}
	order := precedence.Of(scalers)
	for i := range scalers {
		s := &scalers[i]
		evidence[i].Scaler, namespaces[s.Namespace] = s, true
		if order.StandingOf(s).IsFirst() {
			targets[types.NamespacedName{Namespace: s.Namespace, Name: s.Spec.DeploymentName}] = &evidence[i]
		}
	}
	if len(targets) > 0 {
		deployments, err := Deployments(ctx, r.Client, namespace)
		if err != nil {
			out.Missing = append(out.Missing, fmt.Sprintf("The Deployments: %v", err))
		}
		for name, e := range targets {
			e.Deployment = deployments[name]
		}
		out.Missing = append(out.Missing, r.readPods(ctx, namespace, targets)...)
	}
	used := r.usageOfAll(ctx, slices.Sorted(maps.Keys(namespaces)))
	if missing := missingUsage(used); missing != "" {
		out.Missing = append(out.Missing, missing)
	}
	operators := r.cluster.OperatorsOr(ctx, r.Client, namespace, &out.Missing)
	out.Operators = operators
	owners, err := Owners(ctx, r.Client, client.InNamespace(namespace))
	if err != nil {
		out.Missing = append(out.Missing, fmt.Sprintf("ScaledDeployments: %v", err))
	}
	policies := Policies(ctx, r.Client, namespace)
	out.At = r.cluster.Now()
	for _, e := range evidence {
		e.Operators, e.Now = operators, out.At
		of := used[e.Scaler.Namespace]
		out.Rows = append(out.Rows, snapshot.RowOf(snapshot.Of(e, of.ofPods(e.Pods), of.missing, out.At)))
	}
	if len(out.Rows) > 0 {
		oldest := slices.MaxFunc(out.Rows, func(a, b snapshot.Row) int { return cmp.Compare(a.UsageAge, b.UsageAge) })
		if note := snapshot.UsageNote(oldest.UsageAge); note != "" {
			out.Missing = append(out.Missing, note)
		}
	}
	for i := range owners {
		out.Owned = append(out.Owned, explain.OwnedRowOf(&owners[i], operators, out.At))
	}
	scalersShown := out.Overview().Scalers
	for _, policy := range policies {
		if row := explain.PolicyRowOf(explain.PolicyOf(policy), operators, out.At); Concerns(row, namespace, scalersShown) {
			out.Policies = append(out.Policies, row)
		}
	}
	return out, ctx.Err()
}

// readPods reads the running pods of the Deployments, as pages.
func (r *SnapshotReader) readPods(ctx context.Context, namespace string, of map[types.NamespacedName]*explain.Evidence) (missing []string) {
	err := List(ctx, r.Client, func(page *corev1.PodList) {
		for i := range page.Items {
			e := of[types.NamespacedName{Namespace: page.Items[i].Namespace, Name: DeploymentOfPod(&page.Items[i])}]
			if e == nil {
				continue
			}
			if pod := workload.ReadPod(&page.Items[i], true); pod.Running && !pod.Terminating {
				e.Pods = append(e.Pods, pod)
			}
		}
	}, client.InNamespace(namespace))
	if err != nil {
		return []string{fmt.Sprintf("The pods: %v", err)}
	}
	return nil
}

// DeploymentOfPod is the name of the Deployment that has created the pod's ReplicaSet. The
// Deployment controller names a ReplicaSet after the Deployment and the hash of the template.
func DeploymentOfPod(pod *corev1.Pod) string {
	owner := metav1.GetControllerOf(pod)
	hash := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	if owner == nil || owner.Kind != "ReplicaSet" || hash == "" {
		return ""
	}
	name, ok := strings.CutSuffix(owner.Name, "-"+hash)
	if !ok {
		return ""
	}
	return name
}

func (r *SnapshotReader) usageOfAll(ctx context.Context, namespaces []string) map[string]namespaceUsage {
	var (
		mu    sync.Mutex
		group errgroup.Group
		out   = map[string]namespaceUsage{}
	)
	group.SetLimit(readersAtOnce)
	for _, namespace := range namespaces {
		group.Go(func() error {
			used := r.usage(ctx, namespace)
			mu.Lock()
			defer mu.Unlock()
			out[namespace] = used
			return nil
		})
	}
	_ = group.Wait() // none fails
	return out
}

// UsageNow is the usage of the pods of some namespaces, and why it is missing, by namespace.
func (r *SnapshotReader) UsageNow(ctx context.Context, namespaces []string) (samples []usage.Sample, missing map[string]string) {
	missing = map[string]string{}
	for namespace, used := range r.usageOfAll(ctx, namespaces) {
		samples = append(samples, used.samples...)
		missing[namespace] = used.missing
	}
	return samples, missing
}

// missingUsage says in how many namespaces usage could not be read, with one example.
func missingUsage(of map[string]namespaceUsage) string {
	var without []string
	for namespace, used := range of {
		if used.missing != "" {
			without = append(without, namespace)
		}
	}
	if len(without) == 0 {
		return ""
	}
	return fmt.Sprintf("The usage of %d of %d namespaces: %s", len(without), len(of), of[slices.Min(without)].missing)
}

// usage reads the usage of a namespace, unless it was read just now.
func (r *SnapshotReader) usage(ctx context.Context, namespace string) namespaceUsage {
	now := r.cluster.Clock.Now()
	r.mu.Lock()
	known, ok := r.known[namespace]
	r.mu.Unlock()
	if ok && now.Sub(known.at) < usageLasts {
		return known
	}
	read := namespaceUsage{at: now, byPod: map[string][]usage.Sample{}}
	samples, _, err := r.metrics.List(ctx, namespace, now)
	switch {
	case errors.Is(err, metricsapi.ErrUnavailable):
		read.missing = "metrics.k8s.io is not served: is metrics-server installed?"
	case err != nil:
		read.missing = err.Error()
	}
	read.samples = samples
	for _, s := range samples {
		read.byPod[s.Pod] = append(read.byPod[s.Pod], s)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[namespace] = read
	return read
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// A round reads one list for each namespace that has scalers, or one list of all namespaces if that is smaller.
// Many namespaces with few pods cost mostly requests; a large cluster with few scalers has mostly pods without
// one. docs/adr/0048-index-objects-by-their-target-deployment.md has figures.

const (
	// podBytes is the size of a pod in a list of metrics-server, with two containers and a few labels.
	podBytes = 600
	// requestBytes is the size of a request without its pods. It includes the headers of request and
	// answer, to the API server and from there to metrics-server, and its line in the audit log.
	requestBytes = 3 << 10
	// fewestNamespaces is the least number of namespaces with scalers for one list of all. A few requests are not
	// worth that one failure concerns all namespaces.
	fewestNamespaces = 16
	// reviewPeriod is the time between decisions. The pods of a cluster are counted as often.
	reviewPeriod = time.Hour
)

// isAllFewer reports whether one list of all pods is fewer bytes than one list for each of the namespaces, which have
// that many pods together.
func isAllFewer(namespaces, pods, allPods int) bool {
	return namespaces >= fewestNamespaces && requestBytes+allPods*podBytes < namespaces*requestBytes+pods*podBytes
}

// SourceOfAll is a Source that can read many namespaces at once.
type SourceOfAll interface {
	Source
	// ListAll reads the usage of these namespaces, from one list of all. pods is its number of pods.
	ListAll(ctx context.Context, namespaces []string, now time.Time) (answers map[string]usage.Answer, pods int, err error)
}

// reach is which namespaces a list of usage is about.
type reach struct {
	isAll bool
	// pods is the number of pods in the last list of all namespaces.
	pods int
	// reviewed is the time of the last decision; zero means never.
	reviewed time.Time
}

// lister reads the usage of one namespace.
type lister func(ctx context.Context, namespace string, now time.Time) ([]usage.Sample, []usage.Refused, error)

// lister returns how this round reads usage. If only the list of all namespaces is rejected, each one is read separately.
func (c *Collector) lister(ctx context.Context, namespaces []string) lister {
	source, ok := c.Source.(SourceOfAll)
	if !ok || !c.reach.isAll {
		return c.Source.List
	}
	answers, pods, err := source.ListAll(ctx, namespaces, c.Clock.Now())
	c.reach.pods, c.reach.isAll = pods, err == nil // until the next review
	if apierrors.IsForbidden(err) || errors.Is(err, usage.ErrTooLarge) {
		log.FromContext(ctx).Info("Cannot read the usage of all namespaces at once", "error", err.Error())
		return c.Source.List
	}
	return func(_ context.Context, namespace string, _ time.Time) ([]usage.Sample, []usage.Refused, error) {
		return answers[namespace].Samples, answers[namespace].Refused, err
	}
}

// review decides now and then how the next rounds read.
func (c *Collector) review(ctx context.Context, namespaces map[string][]*v1beta1.VerticalScaler) {
	_, ok := c.Source.(SourceOfAll)
	now := c.Clock.Now()
	if !ok || c.CountPods == nil || now.Sub(c.reach.reviewed) < reviewPeriod {
		return
	}
	c.reach.reviewed = now
	all := c.reach.pods
	if !c.reach.isAll {
		var err error
		if all, err = c.CountPods(ctx); err != nil {
			log.FromContext(ctx).V(1).Info("Cannot count the pods of all namespaces", "error", err.Error())
			return
		}
	}
	isAll := isAllFewer(len(namespaces), c.podsOf(slices.Collect(maps.Keys(namespaces))), all)
	if isAll != c.reach.isAll {
		log.FromContext(ctx).Info("Changed how usage is read", "allNamespacesAtOnce", isAll, "namespaces", len(namespaces), "pods", all)
	}
	c.reach.isAll = isAll
}

// podsOf is the number of pods of these namespaces with usage lately.
func (c *Collector) podsOf(namespaces []string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, namespace := range namespaces {
		n += len(c.stateOf(namespace).delivered)
	}
	return n
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/collect"
)

// storm is a tenant who creates, edits and deletes scalers and Deployments all the time. Each operator of a
// test watches one of the tenant's namespaces beside its own, and no other operator does.
type storm struct {
	client client.Client
	pause  time.Duration

	mu         sync.Mutex
	namespaces []string
	leased     map[string]bool
	writes     int
	err        error // an unexpected answer of the API server
}

func newStorm(c client.Client, pause time.Duration) *storm {
	return &storm{client: c, pause: pause, leased: map[string]bool{}}
}

// run writes until the context ends.
func (s *storm) run(ctx context.Context) {
	tick := time.NewTicker(s.pause)
	defer tick.Stop()
	for turn := 0; ; turn++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if namespace := s.namespace(turn); namespace != "" {
			s.record(s.write(ctx, namespace))
		}
	}
}

// namespace is one of those that an operator watches, and "" if there is none.
func (s *storm) namespace(turn int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	watched := slices.DeleteFunc(slices.Clone(s.namespaces), func(n string) bool { return !s.leased[n] })
	if len(watched) == 0 {
		return ""
	}
	return watched[turn%len(watched)]
}

// record counts a write, and keeps an error unless it is a matter of course: the tenant neither knows what
// exists nor what changes at the same time.
func (s *storm) record(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || errors.Is(err, context.Canceled) {
		return
	}
	s.err = err
}

// write makes one write of the tenant.
func (s *storm) write(ctx context.Context, namespace string) error {
	name, other := fmt.Sprintf("storm-%d", rand.IntN(3)), fmt.Sprintf("storm-%d", rand.IntN(3))
	deployment, scaler := Deployment(namespace, name), Scaler(namespace, name, other)
	merge := func(object client.Object, format string, args ...any) error {
		return s.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...)))
	}
	switch rand.IntN(8) {
	case 0, 1:
		deployment.Spec.Replicas = ptr.To[int32](1)
		return s.client.Create(ctx, deployment)
	case 2, 3:
		scaler.Spec.UpdatePolicy = v1beta1.UpdatePolicy{
			UpdateMode:      []v1beta1.UpdateMode{v1beta1.UpdateModeInPlace, v1beta1.UpdateModeRollout, v1beta1.UpdateModeRecommend}[rand.IntN(3)],
			CooldownSeconds: ptr.To[int32](0),
		}
		return s.client.Create(ctx, scaler)
	case 4:
		return merge(deployment, `{"spec":{"template":{"metadata":{"annotations":{"storm":"%d"}}}}}`, rand.IntN(1000))
	case 5:
		return merge(scaler, `{"spec":{"deploymentName":%q,"suspend":%t}}`, other, rand.IntN(3) == 0)
	case 6:
		return s.client.Delete(ctx, deployment, client.PropagationPolicy(metav1.DeletePropagationBackground))
	default:
		return s.client.Delete(ctx, scaler)
	}
}

// lease returns a namespace of the tenant that no other operator watches, and how to return it.
func (s *storm) lease(ctx context.Context) (namespace string, release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.namespaces, func(n string) bool { return !s.leased[n] })
	if i < 0 {
		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "storm-", Labels: Untidy.labels()}}
		if err := s.client.Create(ctx, object); err != nil {
			return "", nil, fmt.Errorf("creating a namespace that storms: %w", err)
		}
		i, s.namespaces = len(s.namespaces), append(s.namespaces, object.Name)
	}
	namespace = s.namespaces[i]
	s.leased[namespace] = true
	return namespace, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.leased[namespace] = false
	}, nil
}

// has says whether the namespace is one of the tenant's.
func (s *storm) has(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.namespaces, namespace)
}

// Disarrange makes the world around the operators untidy until the context ends. Namespace labels those of
// tests; others need the labels of testdata/untidy.yaml. In a user's own cluster, only what the operators read
// is untidy: its nodes could not run the sidecar, and others use it.
func (e *Env) Disarrange(ctx context.Context, w World) error {
	if e.isUsersOwn() {
		w = w.without([]Aspect{Sidecars, SkewedClocks, Storms})
	}
	e.world = w
	if w.Sidecar || w.ClockAhead != 0 || w.ClockBehind != 0 {
		if err := e.installPolicies(ctx, w); err != nil {
			return err
		}
	}
	if w.StormPause > 0 {
		e.storm = newStorm(e.Client, w.StormPause)
		go e.storm.run(ctx)
	}
	return nil
}

// stormError is an unexpected answer to the tenant.
func (e *Env) stormError() error {
	if e.storm == nil {
		return nil
	}
	e.storm.mu.Lock()
	defer e.storm.mu.Unlock()
	if e.storm.err != nil {
		return fmt.Errorf("the tenant who storms: %w", e.storm.err)
	}
	if testing.Verbose() {
		fmt.Printf("the tenant who storms has sent %d writes\n", e.storm.writes)
	}
	return nil
}

// Storms says whether a namespace belongs to the tenant of the untidy world, so that no test answers for
// what an operator writes there.
func (e *Env) Storms(namespace string) bool { return e.storm != nil && e.storm.has(namespace) }

// stormUsage is the usage of the tenant's pods, beside that of a test. It changes by leaps.
type stormUsage struct {
	collect.Source

	storm *storm

	mu     sync.Mutex
	rounds int
	start  time.Time
	listed time.Time
	pods   metav1.PartialObjectMetadataList
}

// List implements collect.Source.
func (s *stormUsage) List(ctx context.Context, namespace string, now time.Time) ([]usage.Sample, []usage.Refused, error) {
	if !s.storm.has(namespace) {
		return s.Source.List(ctx, namespace, now)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rounds++
	if time.Since(s.listed) > time.Second { // so pods may be gone, and younger ones are silent
		pods := metav1.PartialObjectMetadataList{}
		pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		if err := s.storm.client.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
			return nil, nil, fmt.Errorf("listing the pods of a tenant: %w", err)
		}
		s.pods, s.listed = pods, time.Now()
	}
	var out []usage.Sample
	for _, pod := range s.pods.Items {
		leap := int64(1 + s.rounds/20%4)
		out = append(out, usage.Sample{
			Namespace: namespace, Pod: pod.Name, Container: "app", CPUMillis: 90 * leap, MemoryBytes: 100 * leap << 20,
			Time: s.start.Add(time.Duration(s.rounds) * time.Minute), Window: 30 * time.Second,
		})
	}
	return out, nil, nil
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build olm

package olm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/process"
)

// kubeletPeriod is the time between two syncs of the kubelet.
const kubeletPeriod = 200 * time.Millisecond

// kubelet runs the operator's pods as local processes. The pods themselves, with their status, are simulated like all others.
type kubelet struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu   sync.Mutex
	pods map[types.UID]*runningPod
	errs []error // errors since the last check
}

// runningPod is a pod with its process.
type runningPod struct {
	name    types.NamespacedName
	process *process.Process
	health  string // host:port
	started time.Time
	ready   bool
	// stopping reports that the process got SIGTERM.
	stopping bool
}

func startKubelet(ctx context.Context) *kubelet {
	ctx, cancel := context.WithCancel(ctx)
	k := &kubelet{cancel: cancel, done: make(chan struct{}), pods: map[types.UID]*runningPod{}}
	go k.loop(ctx)
	return k
}

// stop stops all processes.
func (k *kubelet) stop() {
	k.cancel()
	<-k.done
	for _, pod := range k.pods {
		pod.process.Stop(stopTimeout)
	}
}

// check fails the test if an operator has ended unexpectedly.
func (k *kubelet) check(t *testing.T) {
	t.Helper()
	k.mu.Lock()
	err := errors.Join(k.errs...)
	k.errs = nil
	k.mu.Unlock()
	if err != nil {
		t.Fatalf("the operator's node: %v", err)
	}
}

// operator returns the ready pod of the operator in that namespace; nil if there is none,
// or more than one.
func (k *kubelet) operator(namespace string) *runningPod {
	k.mu.Lock()
	defer k.mu.Unlock()
	var found []*runningPod
	for _, pod := range k.pods {
		if pod.name.Namespace == namespace {
			found = append(found, pod)
		}
	}
	if len(found) != 1 || !found[0].ready || found[0].stopping {
		return nil
	}
	return found[0]
}

// running is the number of processes of pods in that namespace.
func (k *kubelet) running(namespace string) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, pod := range k.pods {
		if pod.name.Namespace == namespace {
			n++
		}
	}
	return n
}

func (k *kubelet) loop(ctx context.Context) {
	defer close(k.done)
	tick := time.NewTicker(kubeletPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := k.sync(ctx); err != nil && ctx.Err() == nil {
			k.mu.Lock()
			k.errs = append(k.errs, err)
			k.mu.Unlock()
		}
	}
}

// sync makes the processes match the operator's pods.
func (k *kubelet) sync(ctx context.Context) error {
	var list corev1.PodList
	if err := env.Client.List(ctx, &list, client.MatchingLabels{"app.kubernetes.io/name": operatorName}); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	wanted := map[types.UID]bool{}
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil {
			continue
		}
		wanted[pod.UID] = true
		if k.pods[pod.UID] != nil {
			continue
		}
		started, err := startPod(ctx, pod)
		if err != nil {
			errs = append(errs, fmt.Errorf("starting pod %s/%s: %w", pod.Namespace, pod.Name, err))
			continue
		}
		k.pods[pod.UID] = started
	}
	for uid, r := range k.pods {
		switch {
		case r.process.HasEnded():
			// A kubelet would restart a process that ends by itself. Here it is a failure.
			if !r.stopping || r.process.Err() != nil {
				errs = append(errs, r.process.Failure())
			}
			delete(k.pods, uid)
		case !wanted[uid] && !r.stopping:
			r.stopping = true
			go r.process.Stop(stopTimeout)
		default:
			r.ready = r.ready || answers("http://"+r.health+"/readyz")
		}
	}
	return errors.Join(errs...)
}

// answers reports whether a server answers with a success.
func answers(url string) bool {
	response, err := (&http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}).Get(url)
	if err != nil {
		return false
	}
	return response.Body.Close() == nil && response.StatusCode == http.StatusOK
}

// startPod starts the process of a pod.
func startPod(ctx context.Context, pod *corev1.Pod) (*runningPod, error) {
	r := &runningPod{name: client.ObjectKeyFromObject(pod), started: time.Now()}
	var err error
	if r.health, err = process.FreeAddress(); err != nil {
		return nil, err
	}
	cmd, err := r.command(ctx, pod)
	if err != nil {
		return nil, err
	}
	r.process, err = start("operator-"+pod.Name, cmd)
	return r, err
}

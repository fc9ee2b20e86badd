// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// System is the namespace of the operator's lease.
const System = "verticalscaler-system"

// rig is a cluster with the fleet. It plays the controllers of Deployments and ReplicaSets, and the
// scheduler: it creates what they would create. kwok plays the kubelets.
type rig struct {
	env      *testkit.Env
	usage    *fleetUsage
	progress Progress
	stop     func() error
}

// kwokNodes are the nodes of the fleet's pods.
const kwokNodes = 10

// startRig starts a cluster without pods.
func startRig(ctx context.Context, deployments int, progress func(string, ...any)) (*rig, error) {
	progress("starting a cluster")
	env, err := testkit.StartClusterWith(testkit.ClusterOptions{NoControllers: true})
	if err != nil {
		return nil, err
	}
	r := &rig{env: env, usage: &fleetUsage{deployments: deployments}, progress: progress, stop: env.Stop}
	stopUsage, err := serveUsage(ctx, env.Client, r.usage)
	if err != nil {
		return nil, errors.Join(err, env.Stop())
	}
	r.stop = func() error {
		stopUsage()
		return env.Stop()
	}
	return r, r.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: System}})
}

// create creates an object, or reads it if it exists.
func (r *rig) create(ctx context.Context, object client.Object) error {
	key := client.ObjectKeyFromObject(object)
	err := r.env.Client.Create(ctx, object)
	if apierrors.IsAlreadyExists(err) {
		err = r.env.Client.Get(ctx, key, object)
	}
	if err != nil {
		return fmt.Errorf("creating %T %s: %w", object, key, err)
	}
	return nil
}

// again calls do until it succeeds, up to five times in half a minute: on a busy machine, the API server drops a
// request now and then. A request may have been carried out before, so do must be the same when it is called twice.
func again(ctx context.Context, do func() error) error {
	return retry.OnError(wait.Backoff{Steps: 5, Duration: 2 * time.Second, Factor: 2}, func(err error) bool {
		return ctx.Err() == nil && !apierrors.IsInvalid(err)
	}, do)
}

// seed creates the fleet.
func (r *rig) seed(ctx context.Context) error {
	n := r.usage.deployments
	for i := 0; i < n; i += PerNamespace {
		if err := r.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace(i)}}); err != nil {
			return err
		}
	}
	if err := r.inParallel(ctx, "Deployments with their pods", n, func(i int) error { return r.deploy(ctx, i) }); err != nil {
		return err
	}
	return r.await(ctx, "running pods", 10*time.Minute, func() (left int, err error) {
		var pods corev1.PodList
		if err := r.env.Client.List(ctx, &pods); err != nil {
			return 0, err
		}
		left = n * Pods
		for i := range pods.Items {
			if pods.Items[i].Status.Phase == corev1.PodRunning {
				left--
			}
		}
		return left, nil
	})
}

// deploy creates a Deployment with its ReplicaSet and pods.
func (r *rig) deploy(ctx context.Context, i int) error {
	d := Deployment(i)
	status := d.Status
	if err := r.create(ctx, d); err != nil {
		return err
	}
	d.Status = status
	if err := r.env.Client.Status().Update(ctx, d); err != nil {
		return fmt.Errorf("setting the status of Deployment %s: %w", d.Name, err)
	}
	set := ReplicaSet(i, d)
	if err := r.create(ctx, set); err != nil {
		return err
	}
	for j := range Pods {
		pod := Pod(i, j, set)
		pod.Spec.NodeName = fmt.Sprintf("fake-%d", i%kwokNodes+1)
		if err := r.create(ctx, pod); err != nil {
			return err
		}
	}
	return nil
}

// createScalers creates a scaler for each Deployment.
func (r *rig) createScalers(ctx context.Context) error {
	return r.inParallel(ctx, "scalers", r.usage.deployments, func(i int) error { return r.create(ctx, Scaler(i)) })
}

// vpaKind is the kind of VerticalPodAutoscalers.
var vpaKind = map[string]any{"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler"}

// createVPAs does the same for VPA.
func (r *rig) createVPAs(ctx context.Context) error {
	if err := r.installVPA(ctx); err != nil {
		return err
	}
	return r.inParallel(ctx, "VerticalPodAutoscalers", r.usage.deployments, func(i int) error {
		return r.create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": vpaKind["apiVersion"], "kind": vpaKind["kind"],
			"metadata": map[string]any{"namespace": Namespace(i), "name": Name(i)},
			"spec": map[string]any{
				"targetRef":    map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": Name(i)},
				"updatePolicy": map[string]any{"updateMode": "InPlaceOrRecreate"},
			},
		}})
	})
}

// kill makes kwok OOM-kill the first container of a pod of Deployment i.
func (r *rig) kill(ctx context.Context, i int, token string) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace(i), Name: PodName(i, 0)}}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"kwok.verticalscaler.io/oom":%q}}}`, token)
	if err := again(ctx, func() error { return r.env.Client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, patch)) }); err != nil {
		return fmt.Errorf("killing a container of pod %s: %w", pod.Name, err)
	}
	return nil
}

// reportEvery is how often the progress of something long is reported.
const reportEvery = 10 * time.Second

// inParallel calls do for each of n items, and reports progress.
func (r *rig) inParallel(ctx context.Context, what string, n int, do func(i int) error) error {
	const workers = 16
	r.progress("creating %d %s", n, what)
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	reported := time.Now()
	for i := 0; i < n && running.Err() == nil; i++ {
		group.Go(func() error { return again(running, func() error { return do(i) }) })
		if time.Since(reported) >= reportEvery {
			reported = time.Now()
			r.progress("%d of %d %s", i, n, what)
		}
	}
	return cmp.Or(group.Wait(), ctx.Err())
}

// await waits until nothing is left. It ends early if left fails a few times in a row.
func (r *rig) await(ctx context.Context, what string, within time.Duration, left func() (int, error)) error {
	deadline, reported := time.Now().Add(within), time.Now()
	for {
		var n int
		err := again(ctx, func() (err error) {
			n, err = left()
			return err
		})
		switch {
		case err != nil:
			return fmt.Errorf("waiting for %s: %w", what, err)
		case n == 0:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("waiting for %s: %d are missing after %s", what, n, within)
		}
		if time.Since(reported) >= reportEvery {
			reported = time.Now()
			r.progress("waiting for %s: %d are missing", what, n)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/bench/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// system is the namespace of the operator's lease.
const system = "verticalscaler-system"

// rig is a cluster with the fleet. It plays the controllers of Deployments and ReplicaSets, and the
// scheduler: it creates what they would create. kwok plays the kubelets.
type rig struct {
	env      *testkit.Env
	usage    *fleetUsage
	progress func(format string, args ...any)
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
	return r, r.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}})
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

// patch patches an object, or its status.
func (r *rig) patch(ctx context.Context, object client.Object, isStatus bool, merge []byte) error {
	return again(ctx, func() error {
		if isStatus {
			return r.env.Client.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, merge))
		}
		return r.env.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, merge))
	})
}

// setStatus sets the status of an object.
func (r *rig) setStatus(ctx context.Context, object client.Object, status any) error {
	merge, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	if err := r.patch(ctx, object, true, merge); err != nil {
		return fmt.Errorf("setting the status of %T %s: %w", object, client.ObjectKeyFromObject(object), err)
	}
	return nil
}

// seed creates the fleet.
func (r *rig) seed(ctx context.Context) error {
	n := r.usage.deployments
	for i := 0; i < n; i += fleet.PerNamespace {
		if err := r.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet.Namespace(i)}}); err != nil {
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
		left = n * fleet.Pods
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
	d := fleet.Deployment(i)
	status := d.Status
	if err := r.create(ctx, created(d)); err != nil {
		return err
	}
	if err := r.setStatus(ctx, d, status); err != nil {
		return err
	}
	set := fleet.ReplicaSet(i)
	set.OwnerReferences[0].UID = d.UID
	set.Spec = appsv1.ReplicaSetSpec{Selector: d.Spec.Selector, Template: d.Spec.Template}
	set.Spec.Template.Labels = set.Labels
	if err := r.create(ctx, created(set)); err != nil {
		return err
	}
	for j := range fleet.Pods {
		pod := fleet.Pod(i*fleet.Pods + j)
		pod.OwnerReferences[0].UID = set.UID
		pod.Spec.NodeName = fmt.Sprintf("fake-%d", i%kwokNodes+1)
		if err := r.create(ctx, created(pod)); err != nil {
			return err
		}
	}
	return nil
}

// created is the object as a user sends it.
func created[T client.Object](object T) T {
	object.SetUID("")
	object.SetResourceVersion("")
	object.SetManagedFields(nil)
	object.SetGeneration(0)
	object.SetCreationTimestamp(metav1.Time{})
	return object
}

// createScalers creates a scaler for each Deployment.
func (r *rig) createScalers(ctx context.Context) error {
	return r.inParallel(ctx, "scalers", r.usage.deployments, func(i int) error { return r.create(ctx, created(fleet.Scaler(i))) })
}

// vpaKind is the kind of VerticalPodAutoscalers.
var vpaKind = map[string]any{"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler"}

// createVPAs does the same for VPA.
func (r *rig) createVPAs(ctx context.Context) error {
	return r.inParallel(ctx, "VerticalPodAutoscalers", r.usage.deployments, func(i int) error {
		return r.create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": vpaKind["apiVersion"], "kind": vpaKind["kind"],
			"metadata": map[string]any{"namespace": fleet.Namespace(i), "name": fleet.Name(i)},
			"spec": map[string]any{
				"targetRef":    map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": fleet.Name(i)},
				"updatePolicy": map[string]any{"updateMode": "InPlaceOrRecreate"},
			},
		}})
	})
}

// createForeignPods creates running pods that no scaler names, on a node that kwok does not play.
func (r *rig) createForeignPods(ctx context.Context, n int) error {
	const node = "foreign"
	if err := r.env.Node(ctx, node); err != nil {
		return err
	}
	for i := 0; i < n; i += fleet.PerNamespace {
		if err := r.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet.ForeignPod(i).Namespace}}); err != nil {
			return err
		}
	}
	return r.inParallel(ctx, "foreign pods", n, func(i int) error {
		pod := fleet.ForeignPod(i)
		status := pod.Status
		pod.Spec.NodeName = node
		if err := r.create(ctx, created(pod)); err != nil {
			return err
		}
		return r.setStatus(ctx, pod, status)
	})
}

// changeTemplate changes the pod template of a Deployment, and returns the new generation.
func (r *rig) changeTemplate(ctx context.Context, i int, version string) (generation int64, err error) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace(i), Name: fleet.Name(i)}}
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"version":%q}}}}}`, version)
	if err := r.patch(ctx, d, false, patch); err != nil {
		return 0, fmt.Errorf("changing the template of Deployment %s: %w", d.Name, err)
	}
	return d.Generation, nil
}

// finishRollout reports whether the Deployment is up to date again.
func (r *rig) finishRollout(ctx context.Context, i int, generation int64) error {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace(i), Name: fleet.Name(i)}}
	patch := fmt.Appendf(nil, `{"status":{"observedGeneration":%d}}`, generation)
	if err := r.patch(ctx, d, true, patch); err != nil {
		return fmt.Errorf("updating the status of Deployment %s: %w", d.Name, err)
	}
	return nil
}

// kill makes kwok OOM-kill the first container of a pod of Deployment i.
func (r *rig) kill(ctx context.Context, i int, token string) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace(i), Name: fleet.PodName(i, 0)}}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"kwok.verticalscaler.io/oom":%q}}}`, token)
	if err := r.patch(ctx, pod, false, patch); err != nil {
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

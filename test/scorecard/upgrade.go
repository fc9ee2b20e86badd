// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scorecard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// upgradeKeepsStatus stores objects of earlier versions on the API server, and checks that
// the API server and the running operator keep all of their content.
func upgradeKeepsStatus(ctx context.Context, s Setting, log *Log) (problems []string, err error) {
	c, err := connect(ctx, s)
	if err != nil {
		return nil, err
	}
	return upgradeFrom(ctx, c, s, testdata, log)
}

func upgradeFrom(ctx context.Context, c client.Client, s Setting, files fs.FS, log *Log) (problems []string, err error) {
	versions, err := storedVersions(files)
	if err != nil {
		return nil, err
	}
	for _, version := range versions {
		all, err := readStored(files, version, s.Namespace)
		if err != nil {
			return problems, err
		}
		for _, before := range all {
			lost, err := takeUp(ctx, c, s, before)
			what := fmt.Sprintf("%s of %s", before.scaler.GetName(), version)
			for _, l := range lost {
				problems = append(problems, what+": "+l)
			}
			var missing *missingError
			switch {
			case errors.As(err, &missing):
				problems = append(problems, fmt.Sprintf("%s: %v", what, err))
			case err != nil:
				return problems, fmt.Errorf("%s: %w", what, err)
			case len(lost) == 0:
				log.say("%s: %s", what, sayStored(before))
			}
		}
	}
	return problems, nil
}

func sayStored(s stored) string {
	var scaler v1beta1.VerticalScaler
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(s.scaler.Object, &scaler); err != nil {
		return err.Error()
	}
	original := 0
	if scaler.Status.OriginalResources != nil {
		original = len(scaler.Status.OriginalResources.Containers)
	}
	containers, _, _ := unstructured.NestedSlice(s.checkpoint.Object, "spec", "containers")
	return fmt.Sprintf("its claim, decision, %d history entries, the original resources of %d containers and the history of %d containers are kept",
		len(scaler.Status.History), original, len(containers))
}

// takeUp stores a scaler of an earlier version, waits until the operator has adopted it,
// makes the operator change something, and returns what is lost.
//
// An upgraded operator starts with all objects in place. The running operator must not
// start earlier. So a second, older scaler of the same Deployment, the guard, keeps this
// one inert while the test stores it. When the test deletes the guard, the operator reads
// the scaler's history and its status, as after a start. Status and guard come in one
// watch, so that the operator cannot see the deletion before the status. An inert scaler
// claims no Deployment, so that nothing that happens to the Deployment triggers a reconcile.
// A claim would, so the status is stored without it, and the operator records it again.
// Reconciles that were queued before remove what is stored: it is stored until it stays.
func takeUp(ctx context.Context, c client.Client, s Setting, before stored) (lost []string, err error) {
	recorded := before.deployment.GetUID()
	deployment := asNew(before.deployment)
	replicas, err := withoutPods(deployment, s.Image)
	if err != nil {
		return nil, err
	}
	if err := create(ctx, c, deployment); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove(ctx, c, s.Wait, deployment)) }()
	guard := &v1beta1.VerticalScaler{
		// Of two scalers created in the same second, the first by name sizes the Deployment.
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "a-guard-of-" + deployment.GetName()},
		Spec: v1beta1.VerticalScalerSpec{
			DeploymentName: deployment.GetName(),
			Scaling:        v1beta1.Scaling{UpdatePolicy: v1beta1.UpdatePolicy{UpdateMode: v1beta1.UpdateModeRecommend}},
		},
	}
	if err := create(ctx, c, guard); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove(ctx, c, s.Wait, guard)) }()
	if err := awaitStatus(ctx, c, s, client.ObjectKeyFromObject(guard)); err != nil {
		return nil, err
	}

	scaler := asNew(before.scaler)
	scaler.SetFinalizers(nil)
	if err := create(ctx, c, scaler); err != nil {
		return nil, err
	}
	key := client.ObjectKeyFromObject(scaler)
	checkpoint, err := withUIDs(before.checkpoint, map[string]string{string(before.scaler.GetUID()): string(scaler.GetUID())})
	if err != nil {
		return nil, err
	}
	checkpoint = asNew(checkpoint)
	defer func() {
		err = errors.Join(err, remove(ctx, c, s.Wait, scaler))
		if gone := awaitGone(context.WithoutCancel(ctx), c, s.Wait, checkpoint); gone != nil {
			err = errors.Join(err, gone)
		}
	}()
	if err := awaitInert(ctx, c, s, key, deployment); err != nil {
		return nil, err
	}
	if err := create(ctx, c, checkpoint); err != nil {
		return nil, err
	}
	full, err := withUIDs(before.scaler, map[string]string{string(recorded): string(deployment.GetUID())})
	if err != nil {
		return nil, err
	}
	written, err := storeUntilItStays(ctx, c, s, key, full)
	if err != nil {
		return nil, err
	}
	if lost, err = prunedOf(ctx, c, written, before.checkpoint); err != nil || len(lost) > 0 {
		return lost, err
	}

	if err := c.Delete(ctx, guard); err != nil {
		return nil, fmt.Errorf("deleting the guard: %w", err)
	}
	return taken(ctx, c, s, full, before.checkpoint, replicas)
}

// withoutPods sets the image of the pods, scales to zero for now, and returns the original
// replicas.
func withoutPods(deployment *unstructured.Unstructured, image string) (replicas int64, err error) {
	replicas, found, err := unstructured.NestedInt64(deployment.Object, "spec", "replicas")
	if err != nil || !found {
		return 0, fmt.Errorf("%s says nothing about replicas: %w", said(deployment), err)
	}
	if err := setImages(deployment, image, "spec", "template", "spec", "containers"); err != nil {
		return 0, err
	}
	if err := unstructured.SetNestedField(deployment.Object, int64(0), "spec", "replicas"); err != nil {
		return 0, fmt.Errorf("setting the replicas of %s: %w", said(deployment), err)
	}
	return replicas, nil
}

// setImages sets the image of all containers in a list.
func setImages(object *unstructured.Unstructured, image string, list ...string) error {
	containers, found, err := unstructured.NestedSlice(object.Object, list...)
	if err != nil || !found {
		return fmt.Errorf("%s has no containers: %w", said(object), err)
	}
	for _, container := range containers {
		if container, ok := container.(map[string]any); ok {
			container["image"] = image
		}
	}
	if err := unstructured.SetNestedSlice(object.Object, containers, list...); err != nil {
		return fmt.Errorf("setting the image of %s: %w", said(object), err)
	}
	return nil
}

// awaitInert waits until the operator has observed the guard and the Deployment.
func awaitInert(ctx context.Context, c client.Client, s Setting, key client.ObjectKey, of client.Object) error {
	return await(ctx, s.Wait, func(ctx context.Context) ([]string, error) {
		var deployment appsv1.Deployment
		if err := c.Get(ctx, client.ObjectKeyFromObject(of), &deployment); err != nil {
			return nil, fmt.Errorf("reading %s: %w", said(of), err)
		}
		if !slices.ContainsFunc(deployment.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
			return c.Type == appsv1.DeploymentProgressing && c.Reason == "NewReplicaSetAvailable"
		}) || deployment.Status.ObservedGeneration != deployment.Generation {
			return []string{"no controller takes care of Deployments"}, nil
		}
		var scaler v1beta1.VerticalScaler
		if err := c.Get(ctx, key, &scaler); err != nil {
			return nil, fmt.Errorf("reading scaler %s: %w", key, err)
		}
		found := meta.FindStatusCondition(scaler.Status.Conditions, v1beta1.ConditionTargetFound)
		if found == nil || found.Reason != v1beta1.ReasonConflict || scaler.Status.ObservedGeneration != scaler.Generation {
			return []string{"the operator does not tell the scaler that an older one comes first"}, nil
		}
		return nil, nil
	})
}

// quiet is how long a stored status must stay. A queued reconcile of an inert scaler runs earlier:
// after a conflict, the operator tries again within a fraction of a second.
const quiet = time.Second

// storeUntilItStays stores the scaler's status again whenever the operator replaces it by that of an
// inert scaler. It returns what it has written.
func storeUntilItStays(ctx context.Context, c client.Client, s Setting, key client.ObjectKey, full *unstructured.Unstructured) (written *unstructured.Unstructured, err error) {
	var stored time.Time
	err = await(ctx, s.Wait, func(ctx context.Context) ([]string, error) {
		var live v1beta1.VerticalScaler
		if err := c.Get(ctx, key, &live); err != nil {
			return nil, fmt.Errorf("reading scaler %s: %w", key, err)
		}
		if found := meta.FindStatusCondition(live.Status.Conditions, v1beta1.ConditionTargetFound); found == nil || found.Reason == v1beta1.ReasonConflict {
			now, err := store(ctx, c, key, full)
			if err != nil && !apierrors.IsConflict(err) {
				return nil, err
			}
			written, stored = now, time.Now()
		}
		if time.Since(stored) < quiet {
			return []string{"the operator replaces the stored status, although the scaler is inert"}, nil
		}
		return nil, nil
	})
	return written, err
}

// store writes the recorded finalizers and status of a scaler, without its claim. It returns what
// it has written.
func store(ctx context.Context, c client.Client, key client.ObjectKey, full *unstructured.Unstructured) (written *unstructured.Unstructured, err error) {
	written = full.DeepCopy()
	unstructured.RemoveNestedField(written.Object, "status", "annotations")
	live := full.DeepCopy()
	if err := c.Get(ctx, key, live); err != nil {
		return nil, fmt.Errorf("reading scaler %s: %w", key, err)
	}
	live.SetFinalizers(written.GetFinalizers())
	if err := c.Update(ctx, live); err != nil {
		return nil, fmt.Errorf("writing the finalizers of scaler %s: %w", key, err)
	}
	live.Object["status"] = written.DeepCopy().Object["status"]
	if err := c.Status().Update(ctx, live); err != nil {
		return nil, fmt.Errorf("writing the status of scaler %s: %w", key, err)
	}
	return written, nil
}

// prunedOf returns the stored fields that the API server has dropped.
func prunedOf(ctx context.Context, c client.Client, full, checkpoint *unstructured.Unstructured) (lost []string, err error) {
	for _, written := range []*unstructured.Unstructured{full, checkpoint} {
		read := written.DeepCopy()
		if err := c.Get(ctx, client.ObjectKeyFromObject(written), read); err != nil {
			return nil, fmt.Errorf("reading %s back: %w", said(written), err)
		}
		for _, part := range []string{"spec", "status"} {
			if content, ok := written.Object[part]; ok {
				for _, field := range pruned(content, read.Object[part], part) {
					lost = append(lost, fmt.Sprintf("the API server has not kept %s of the %s", field, written.GetKind()))
				}
			}
		}
	}
	return lost, nil
}

// taken changes the scaler twice, and returns what is lost. Once the operator has observed
// the first change, it has adopted the scaler. The second change starts the pods and raises
// the recommendation, so that the operator saves a checkpoint. The checkpoint lacks what
// the operator has not read.
func taken(ctx context.Context, c client.Client, s Setting, full, learned *unstructured.Unstructured, replicas int64) (lost []string, err error) {
	var before, now v1beta1.VerticalScaler
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(full.Object, &before); err != nil {
		return nil, fmt.Errorf("reading %s: %w", said(full), err)
	}
	var wasLearned, isLearned v1beta1.VerticalScalerCheckpoint
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(learned.Object, &wasLearned); err != nil {
		return nil, fmt.Errorf("reading %s: %w", said(learned), err)
	}
	key := client.ObjectKeyFromObject(full)

	cooldown := ptr.Deref(before.Spec.UpdatePolicy.CooldownSeconds, 0) + 1
	if err := change(ctx, c, s, key, fmt.Sprintf(`{"spec":{"updatePolicy":{"cooldownSeconds":%d}}}`, cooldown), &now); err != nil {
		return nil, err
	}
	lost = lostOfStatus(&before, &now)

	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: before.Spec.DeploymentName}}
	scale := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	if err := c.Patch(ctx, deployment, client.RawPatch(types.MergePatchType, scale)); err != nil {
		return lost, fmt.Errorf("giving %s its pods back: %w", said(deployment), err)
	}
	margin := int32(15)
	if policy := before.Spec.RecommendationPolicy; policy != nil {
		margin = ptr.Deref(policy.SafetyMarginPercent, margin)
	}
	if err := change(ctx, c, s, key, fmt.Sprintf(`{"spec":{"recommendationPolicy":{"safetyMarginPercent":%d}}}`, margin+30), &now); err != nil {
		return lost, err
	}
	err = await(ctx, s.Wait, func(ctx context.Context) ([]string, error) {
		if err := c.Get(ctx, key, &isLearned); err != nil {
			return nil, fmt.Errorf("reading checkpoint %s: %w", key, err)
		}
		if !wasLearned.Spec.SaveTime.Before(&isLearned.Spec.SaveTime) {
			return []string{"the operator does not save the history although its recommendation has changed: it has not read the history"}, nil
		}
		return nil, nil
	})
	if err != nil {
		return lost, err
	}
	if err := c.Get(ctx, key, &now); err != nil {
		return lost, fmt.Errorf("reading scaler %s: %w", key, err)
	}
	lost = append(lost, lostOfStatus(&before, &now)...)
	return append(lost, lostOfCheckpoint(&wasLearned, &isLearned)...), nil
}

// change patches the spec of a scaler, and waits until its status is about the new spec.
func change(ctx context.Context, c client.Client, s Setting, key client.ObjectKey, patch string, now *v1beta1.VerticalScaler) error {
	now.Namespace, now.Name = key.Namespace, key.Name
	if err := c.Patch(ctx, now, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("changing scaler %s: %w", key, err)
	}
	return await(ctx, s.Wait, func(ctx context.Context) ([]string, error) {
		*now = v1beta1.VerticalScaler{}
		if err := c.Get(ctx, key, now); err != nil {
			return nil, fmt.Errorf("reading scaler %s: %w", key, err)
		}
		found := meta.FindStatusCondition(now.Status.Conditions, v1beta1.ConditionTargetFound)
		if now.Status.ObservedGeneration != now.Generation || found == nil || found.Status != metav1.ConditionTrue {
			return []string{fmt.Sprintf("the operator has not observed %s: %s", patch, sayCondition(now.Status.Conditions, v1beta1.ConditionTargetFound))}, nil
		}
		return nil, nil
	})
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scorecard

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// operator simulates the running operator and the API server, as far as the tests depend on
// them: every read of a scaler triggers its reconcile first. Faults change its behavior.
type operator struct {
	mu sync.Mutex
	// absent means that no operator runs.
	absent bool
	// status is called with the status that a healthy operator would write.
	status func(*v1beta1.VerticalScaler)
	// save is called with the checkpoint that it would save; nil saves none.
	save func(*v1beta1.VerticalScalerCheckpoint)
	// store is called with the status that another client writes.
	store func(*v1beta1.VerticalScaler)
	// owned is called with the objects that it would create for a ScaledDeployment, and the
	// status that it would write.
	owned func(*v1beta1.ScaledDeployment, *appsv1.Deployment, *v1beta1.VerticalScaler)
	// policy is called with the policy and the status that it would write.
	policy func(*v1beta1.ScalingPolicy)
	// hoards means that checkpoints are not garbage collected.
	hoards bool
	// queued is how many reconciles of an inert scaler are queued when its status is stored.
	queued int
	uids   int
}

func healthy() *operator {
	return &operator{save: func(*v1beta1.VerticalScalerCheckpoint) {}}
}

func (o *operator) client(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&v1beta1.VerticalScaler{}, &v1beta1.ScaledDeployment{}, &v1beta1.ScalingPolicy{}).
		WithInterceptorFuncs(interceptor.Funcs{Get: o.get, Create: o.create, Patch: o.patch, Delete: o.remove, SubResourceUpdate: o.updateStatus}).
		Build()
}

func (o *operator) create(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.CreateOption) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.uids++
	object.SetUID(types.UID("uid-" + string(rune('a'+o.uids))))
	object.SetGeneration(1)
	object.SetCreationTimestamp(metav1.NewTime(time.Unix(int64(o.uids), 0)))
	return c.Create(ctx, object, opts...)
}

func (o *operator) patch(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := c.Patch(ctx, object, patch, opts...); err != nil {
		return err
	}
	object.SetGeneration(object.GetGeneration() + 1)
	return c.Update(ctx, object)
}

// remove deletes like the API server, restores original values like the operator, and
// deletes the checkpoint like the garbage collector.
func (o *operator) remove(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.DeleteOption) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := client.ObjectKeyFromObject(object)
	var scaler v1beta1.VerticalScaler
	if err := c.Get(ctx, key, &scaler); err == nil && slices.Contains(scaler.Finalizers, v1beta1.RestoreFinalizer) {
		scaler.Finalizers = nil
		if err := c.Update(ctx, &scaler); err != nil {
			return err
		}
	}
	if err := c.Delete(ctx, object, opts...); err != nil {
		return err
	}
	if object.GetObjectKind().GroupVersionKind().Kind == ownerKind && !o.hoards {
		for _, owned := range []client.Object{&appsv1.Deployment{}, &v1beta1.VerticalScaler{}} {
			owned.SetNamespace(key.Namespace)
			owned.SetName(key.Name)
			if err := c.Delete(ctx, owned); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
	}
	if err := c.Get(ctx, key, &scaler); err == nil || o.hoards {
		return nil
	}
	return client.IgnoreNotFound(c.Delete(ctx, &v1beta1.VerticalScalerCheckpoint{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}))
}

func (o *operator) updateStatus(ctx context.Context, c client.Client, subresource string, object client.Object, opts ...client.SubResourceUpdateOption) error {
	if o.store == nil {
		return c.SubResource(subresource).Update(ctx, object, opts...)
	}
	var scaler v1beta1.VerticalScaler
	content, err := json.Marshal(object)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, &scaler); err != nil {
		return err
	}
	o.store(&scaler)
	return c.SubResource(subresource).Update(ctx, &scaler, opts...)
}

func (o *operator) get(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := object.(*v1beta1.ScaledDeployment); ok && !o.absent {
		if err := o.keep(ctx, c, key); err != nil {
			return err
		}
		return c.Get(ctx, key, object, opts...)
	}
	if _, ok := object.(*v1beta1.ScalingPolicy); ok && !o.absent {
		if err := o.serve(ctx, c, key); err != nil {
			return err
		}
		return c.Get(ctx, key, object, opts...)
	}
	if d, ok := object.(*appsv1.Deployment); ok {
		err := c.Get(ctx, key, d, opts...)
		d.Status.ObservedGeneration = d.Generation
		d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"}}
		return err
	}
	if !o.absent {
		if err := o.reconcile(ctx, c, key); err != nil {
			return err
		}
	}
	return c.Get(ctx, key, object, opts...)
}

// keep creates the objects of a ScaledDeployment, as a healthy operator would, and writes
// its status.
func (o *operator) keep(ctx context.Context, c client.Client, key client.ObjectKey) error {
	var owner v1beta1.ScaledDeployment
	if err := c.Get(ctx, key, &owner); err != nil {
		return client.IgnoreNotFound(err)
	}
	theirs := metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, OwnerReferences: []metav1.OwnerReference{
		*metav1.NewControllerRef(&owner, v1beta1.GroupVersion.WithKind(ownerKind)),
	}}
	deployment := &appsv1.Deployment{ObjectMeta: *theirs.DeepCopy(), Spec: appsv1.DeploymentSpec{Replicas: owner.Spec.Replicas, Template: owner.Spec.Template}}
	scaler := &v1beta1.VerticalScaler{ObjectMeta: *theirs.DeepCopy(), Spec: v1beta1.VerticalScalerSpec{DeploymentName: deploymentOf(&owner)}}
	owner.Status = v1beta1.ScaledDeploymentStatus{ObservedGeneration: owner.Generation, Selector: "app=" + key.Name}
	for kind, status := range map[string]metav1.ConditionStatus{"Ready": "False", "Reconciling": "True", "Stalled": "False", "Sized": "True"} {
		owner.Status.Conditions = append(owner.Status.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: "OperatingNormally", ObservedGeneration: owner.Generation, LastTransitionTime: metav1.NewTime(time.Unix(1, 0)),
		})
	}
	if o.owned != nil {
		o.owned(&owner, deployment, scaler)
	}
	for made, live := range map[client.Object]client.Object{deployment: &appsv1.Deployment{}, scaler: &v1beta1.VerticalScaler{}} {
		err := c.Get(ctx, client.ObjectKeyFromObject(made), live)
		if apierrors.IsNotFound(err) {
			err = c.Create(ctx, made)
		} else if err == nil {
			made.SetResourceVersion(live.GetResourceVersion())
			err = c.Update(ctx, made)
		}
		if err != nil {
			return err
		}
	}
	return c.Status().Update(ctx, &owner)
}

// serve writes the status of a policy that selects nothing, as a healthy operator would.
func (o *operator) serve(ctx context.Context, c client.Client, key client.ObjectKey) error {
	var policy v1beta1.ScalingPolicy
	if err := c.Get(ctx, key, &policy); err != nil {
		return client.IgnoreNotFound(err)
	}
	policy.Status = v1beta1.ScalingPolicyStatus{ObservedGeneration: policy.Generation}
	for kind, status := range map[string]metav1.ConditionStatus{"Ready": "True", "Reconciling": "False", "Stalled": "False"} {
		policy.Status.Conditions = append(policy.Status.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: "NoDeployments", ObservedGeneration: policy.Generation, LastTransitionTime: metav1.NewTime(time.Unix(1, 0)),
		})
	}
	if o.policy != nil {
		o.policy(&policy)
	}
	return c.Status().Update(ctx, &policy)
}

// reconcile writes the status that a healthy operator would, and saves the checkpoint when
// the margin has changed.
func (o *operator) reconcile(ctx context.Context, c client.Client, key client.ObjectKey) error {
	var scaler v1beta1.VerticalScaler
	if err := c.Get(ctx, key, &scaler); err != nil {
		return client.IgnoreNotFound(err)
	}
	var all v1beta1.VerticalScalerList
	if err := c.List(ctx, &all, client.InNamespace(key.Namespace)); err != nil {
		return err
	}
	var deployment appsv1.Deployment
	if err := c.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: scaler.Spec.DeploymentName}, &deployment); err != nil {
		return client.IgnoreNotFound(err)
	}
	inert := false
	for _, other := range all.Items {
		inert = inert || other.Spec.DeploymentName == scaler.Spec.DeploymentName && other.Name < scaler.Name
	}
	if inert && scaler.Status.Decision != nil {
		if o.queued == 0 {
			return nil // no event triggers a reconcile
		}
		o.queued--
		scaler.Status = v1beta1.VerticalScalerStatus{}
	}
	s := &scaler.Status
	s.ObservedGeneration = scaler.Generation
	s.Annotations = nil
	if !inert {
		s.Annotations = map[string]string{v1beta1.ClaimAnnotation: key.Namespace + "/" + scaler.Spec.DeploymentName}
	}
	s.Target = &v1beta1.Target{UID: deployment.UID, Generation: deployment.Generation}
	s.Conditions = nil
	for kind, status := range map[string]metav1.ConditionStatus{
		"Ready": "True", "TargetFound": "True", "RecommendationProvided": "False", "Applied": "False", "Changing": "False", "Reconciling": "False", "Stalled": "False",
	} {
		reason := "OperatingNormally"
		if inert && kind == "TargetFound" {
			status, reason = "False", "Conflict"
		}
		s.Conditions = append(s.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, ObservedGeneration: scaler.Generation, LastTransitionTime: metav1.NewTime(time.Unix(1, 0)),
		})
	}
	if o.status != nil {
		o.status(&scaler)
	}
	finalizers := scaler.Finalizers
	if err := c.Status().Update(ctx, scaler.DeepCopy()); err != nil {
		return err
	}
	if scaler.DeletionTimestamp == nil && len(finalizers) > 0 && scaler.Status.OriginalResources == nil {
		var live v1beta1.VerticalScaler
		if err := c.Get(ctx, key, &live); err != nil {
			return err
		}
		live.Finalizers = finalizers
		if err := c.Update(ctx, &live); err != nil {
			return err
		}
	}
	if policy := scaler.Spec.RecommendationPolicy; o.save != nil && !inert && policy != nil && policy.SafetyMarginPercent != nil && *policy.SafetyMarginPercent > 30 {
		var checkpoint v1beta1.VerticalScalerCheckpoint
		if err := c.Get(ctx, key, &checkpoint); err != nil {
			return client.IgnoreNotFound(err)
		}
		checkpoint.Spec.SaveTime = metav1.NewTime(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))
		o.save(&checkpoint)
		return c.Update(ctx, &checkpoint)
	}
	return nil
}

// settingWith returns the setting of a test. Its time is fake: see run.
func settingWith(c client.Client, bundle string) Setting {
	return Setting{
		Bundle: bundle, Namespace: "here", Image: "example.com/pause:1", Wait: 3 * time.Second,
		Connect: func() (client.Client, error) { return c, nil },
	}
}

// bundleWith creates a bundle with these examples.
func bundleWith(t *testing.T, examples string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "manifests"), 0o755); err != nil {
		t.Fatal(err)
	}
	csv, err := json.Marshal(map[string]any{
		"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
		"metadata": map[string]any{"name": "x.v1.0.0", "annotations": map[string]any{"alm-examples": examples}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"csv.yaml": string(csv), "other.yaml": "kind: Service"} {
		if err := os.WriteFile(filepath.Join(dir, "manifests", name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

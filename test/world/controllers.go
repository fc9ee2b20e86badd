// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// revisionAnnotation orders the ReplicaSets of a Deployment.
const revisionAnnotation = "deployment.kubernetes.io/revision"

// Controllers plays the controllers of Deployments, ReplicaSets and PodDisruptionBudgets, and the garbage collector, one
// step in each round of work: a rollout adds one pod or removes one. Tests that depend on how the real ones do it belong
// to test/cluster.
type Controllers struct {
	world *World
	names int
}

func (c *Controllers) work(ctx context.Context) error {
	here := client.InNamespace(c.world.Namespace)
	var deployments appsv1.DeploymentList
	if err := c.world.cache.List(ctx, &deployments, here); err != nil {
		return fmt.Errorf("playing the Deployment controller: %w", err)
	}
	for i := range deployments.Items {
		// A ReplicaSet with the same name may be one of a Deployment that is gone, which the garbage collector deletes next.
		if err := c.deploy(ctx, &deployments.Items[i]); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("playing the controller of Deployment %s: %w", deployments.Items[i].Name, err)
		}
	}
	if err := c.collect(ctx); err != nil {
		return fmt.Errorf("playing the garbage collector: %w", err)
	}
	if err := c.allowDisruptions(ctx); err != nil {
		return fmt.Errorf("playing the disruption controller: %w", err)
	}
	return nil
}

// hashOf is the hash of a template.
func hashOf(template *corev1.PodTemplateSpec) string {
	h := fnv.New32a()
	content, err := template.Marshal()
	if err != nil {
		panic(err) // a valid object can be encoded
	}
	_, _ = h.Write(content) // never fails
	return strconv.FormatUint(uint64(h.Sum32()), 36)
}

// deploy takes a step of a Deployment's controllers.
func (c *Controllers) deploy(ctx context.Context, d *appsv1.Deployment) error {
	if d.DeletionTimestamp != nil {
		return nil
	}
	sets, pods, err := c.ofDeployment(ctx, d)
	if err != nil {
		return err
	}
	hash := hashOf(&d.Spec.Template)
	latest := slices.IndexFunc(sets, func(s appsv1.ReplicaSet) bool { return s.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == hash })
	if latest < 0 && !d.Spec.Paused {
		revision := 1
		if len(sets) > 0 {
			revision = revisionOf(newestOf(sets)) + 1
		}
		return c.createSet(ctx, d, hash, revision)
	}
	if latest >= 0 && !d.Spec.Paused {
		if newest := newestOf(sets); revisionOf(newest) > revisionOf(&sets[latest]) { // The template was rolled back.
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, revisionAnnotation, revisionOf(newest)+1))
			return c.world.wrote(c.world.Client.Patch(ctx, &sets[latest], patch))
		}
	}
	want, alive := int(ptr.Deref(d.Spec.Replicas, 1)), 0
	var current, old []corev1.Pod
	ready := 0
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		alive++
		if isReady(&pod) {
			ready++
		}
		if latest >= 0 && metav1.IsControlledBy(&pod, &sets[latest]) {
			current = append(current, pod)
		} else {
			old = append(old, pod)
		}
	}
	surge := 1
	if len(old) == 0 {
		surge = 0
	}
	switch {
	case d.Spec.Paused && alive < want && len(sets) > 0 && latest < 0:
		err = c.createPod(ctx, newestOf(sets))
	case d.Spec.Paused && alive < want && latest >= 0:
		err = c.createPod(ctx, &sets[latest])
	case d.Spec.Paused && alive <= want:
	case latest >= 0 && len(current) < want && alive < want+surge:
		err = c.createPod(ctx, &sets[latest])
	case alive > want && len(old) > 0 && (ready > want || !isReady(&old[len(old)-1]) || allReady(current)):
		err = c.world.wrote(c.world.Client.Delete(ctx, &old[len(old)-1]))
	case alive > want && len(old) == 0:
		err = c.world.wrote(c.world.Client.Delete(ctx, &current[len(current)-1]))
	}
	refused := ""
	if err != nil && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) {
		refused, err = err.Error(), nil
	}
	if err != nil {
		return err
	}
	return c.status(ctx, d, sets, refused)
}

func allReady(pods []corev1.Pod) bool {
	return !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return !isReady(&p) })
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}

// newestOf is the ReplicaSet with the latest template.
func newestOf(sets []appsv1.ReplicaSet) *appsv1.ReplicaSet {
	newest := &sets[0]
	for i := range sets {
		if revisionOf(&sets[i]) > revisionOf(newest) {
			newest = &sets[i]
		}
	}
	return newest
}

func revisionOf(set *appsv1.ReplicaSet) int {
	n, err := strconv.Atoi(set.Annotations[revisionAnnotation])
	if err != nil {
		return 0
	}
	return n
}

// ofDeployment lists the ReplicaSets of a Deployment and their pods, oldest first.
func (c *Controllers) ofDeployment(ctx context.Context, d *appsv1.Deployment) (sets []appsv1.ReplicaSet, pods []corev1.Pod, err error) {
	var list appsv1.ReplicaSetList
	if err := c.world.cache.List(ctx, &list, client.InNamespace(d.Namespace)); err != nil {
		return nil, nil, err
	}
	own := map[types.UID]bool{}
	for _, set := range list.Items {
		if metav1.IsControlledBy(&set, d) {
			sets, own[set.UID] = append(sets, set), true
		}
	}
	all, err := c.world.allPods(ctx)
	for _, pod := range all {
		if owner := metav1.GetControllerOf(&pod); owner != nil && own[owner.UID] {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return sets, pods, err
}

func (c *Controllers) createSet(ctx context.Context, d *appsv1.Deployment, hash string, revision int) error {
	template := d.Spec.Template.DeepCopy()
	with := func(m map[string]string) map[string]string {
		out := map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: hash}
		for k, v := range m {
			out[k] = v
		}
		return out
	}
	template.Labels = with(template.Labels)
	return c.world.wrote(c.world.Client.Create(ctx, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: d.Name + "-" + hash, Labels: template.Labels,
			Annotations:     map[string]string{revisionAnnotation: strconv.Itoa(revision)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: d.Spec.Replicas, Template: *template,
			Selector: &metav1.LabelSelector{MatchLabels: with(d.Spec.Selector.MatchLabels), MatchExpressions: d.Spec.Selector.MatchExpressions},
		},
	}, client.FieldOwner("kube-controller-manager")))
}

func (c *Controllers) createPod(ctx context.Context, set *appsv1.ReplicaSet) error {
	c.names++
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: fmt.Sprintf("%s-%05d", set.Name, c.names), Labels: set.Spec.Template.Labels, Annotations: set.Spec.Template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
		},
		Spec: *set.Spec.Template.Spec.DeepCopy(),
	}
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = "default" // as the admission plugin does
	}
	err := c.world.wrote(c.world.Client.Create(ctx, pod, client.FieldOwner("kube-controller-manager")))
	if err != nil {
		c.names-- // so that the same message comes again
	}
	return err
}

// status writes what the controllers say of a Deployment and its ReplicaSets.
func (c *Controllers) status(ctx context.Context, d *appsv1.Deployment, sets []appsv1.ReplicaSet, refused string) error {
	sets, pods, err := c.ofDeployment(ctx, d)
	if err != nil {
		return err
	}
	hash := hashOf(&d.Spec.Template)
	s := appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Conditions: d.Status.Conditions, CollisionCount: d.Status.CollisionCount}
	for i := range sets {
		set := &sets[i]
		was := set.Status.DeepCopy()
		set.Status.Replicas, set.Status.ReadyReplicas, set.Status.AvailableReplicas, set.Status.ObservedGeneration = 0, 0, 0, set.Generation
		for _, pod := range pods {
			if pod.DeletionTimestamp != nil || !metav1.IsControlledBy(&pod, set) {
				continue
			}
			set.Status.Replicas++
			if isReady(&pod) {
				set.Status.ReadyReplicas++
				set.Status.AvailableReplicas++
			}
		}
		s.Replicas += set.Status.Replicas
		s.ReadyReplicas += set.Status.ReadyReplicas
		s.AvailableReplicas += set.Status.AvailableReplicas
		if set.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == hash {
			s.UpdatedReplicas = set.Status.Replicas
		}
		if !apiequality.Semantic.DeepEqual(*was, set.Status) {
			if err := c.world.wrote(c.world.Client.Status().Update(ctx, set)); err != nil {
				return err
			}
		}
	}
	want := ptr.Deref(d.Spec.Replicas, 1)
	s.UnavailableReplicas = max(0, want-s.AvailableReplicas)
	s.Conditions = nil
	add := func(kind appsv1.DeploymentConditionType, is bool, reason, message string) {
		condition := appsv1.DeploymentCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message}
		if is {
			condition.Status = corev1.ConditionTrue
		}
		condition.LastTransitionTime, condition.LastUpdateTime = metav1.NewTime(c.world.Clock.Now()), metav1.NewTime(c.world.Clock.Now())
		for _, before := range d.Status.Conditions {
			if before.Type == kind && before.Status == condition.Status && before.Reason == reason && before.Message == message {
				condition = before
			}
		}
		s.Conditions = append(s.Conditions, condition)
	}
	add(appsv1.DeploymentAvailable, s.AvailableReplicas >= want, "MinimumReplicasAvailable", "")
	if s.UpdatedReplicas == want && s.AvailableReplicas == want && s.Replicas == want {
		add(appsv1.DeploymentProgressing, true, "NewReplicaSetAvailable", "")
	} else {
		add(appsv1.DeploymentProgressing, true, "ReplicaSetUpdated", "")
	}
	if refused != "" {
		add(appsv1.DeploymentReplicaFailure, true, "FailedCreate", refused)
	}
	if apiequality.Semantic.DeepEqual(s, d.Status) {
		return nil
	}
	d.Status = s
	return c.world.wrote(c.world.Client.Status().Update(ctx, d, client.FieldOwner("kube-controller-manager")))
}

// collect plays the garbage collector: what lost its owner is deleted, and an owner waits for what belongs to it, or lets
// it go, as its finalizer says.
func (c *Controllers) collect(ctx context.Context) error {
	owners := map[types.UID]client.Object{}
	var dependents []client.Object
	here := client.InNamespace(c.world.Namespace)
	for _, list := range []client.ObjectList{
		&v1beta1.ScaledDeploymentList{}, &appsv1.DeploymentList{}, &v1beta1.VerticalScalerList{}, &appsv1.ReplicaSetList{}, &corev1.PodList{},
		&v1beta1.VerticalScalerCheckpointList{},
	} {
		if err := c.world.cache.List(ctx, list, here); err != nil {
			return err
		}
		for _, o := range itemsOf(list) {
			owners[o.GetUID()] = o
			if len(o.GetOwnerReferences()) > 0 {
				dependents = append(dependents, o)
			}
		}
	}
	blocking := map[types.UID]bool{} // owners in foreground deletion that still have dependents
	for _, o := range dependents {
		for _, reference := range o.GetOwnerReferences() {
			owner := owners[reference.UID]
			orphaned := owner != nil && owner.GetDeletionTimestamp() != nil && slices.Contains(owner.GetFinalizers(), metav1.FinalizerOrphanDependents)
			foreground := owner != nil && owner.GetDeletionTimestamp() != nil && slices.Contains(owner.GetFinalizers(), metav1.FinalizerDeleteDependents)
			var err error
			switch {
			case orphaned:
				before, ok := o.DeepCopyObject().(client.Object)
				if !ok {
					continue
				}
				o.SetOwnerReferences(slices.DeleteFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == reference.UID }))
				err = c.world.wrote(c.world.Client.Patch(ctx, o, client.MergeFrom(before)))
			case foreground:
				blocking[reference.UID] = true
				if o.GetDeletionTimestamp() == nil {
					err = c.world.wrote(c.world.Client.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationForeground)))
				}
			case owner == nil && o.GetDeletionTimestamp() == nil && !c.exists(ctx, o.GetNamespace(), reference):
				err = c.world.wrote(c.world.Client.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: ptr.To(o.GetUID())}))
			}
			if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
				return err
			}
		}
	}
	for uid, owner := range owners {
		if owner.GetDeletionTimestamp() == nil || blocking[uid] {
			continue
		}
		left := slices.DeleteFunc(slices.Clone(owner.GetFinalizers()), func(f string) bool {
			return f == metav1.FinalizerDeleteDependents || f == metav1.FinalizerOrphanDependents
		})
		if len(left) == len(owner.GetFinalizers()) {
			continue
		}
		before, ok := owner.DeepCopyObject().(client.Object)
		if !ok {
			continue
		}
		owner.SetFinalizers(left)
		if err := c.world.wrote(c.world.Client.Patch(ctx, owner, client.MergeFrom(before))); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// exists reports whether an owner of a kind that the world does not list exists.
func (c *Controllers) exists(ctx context.Context, namespace string, reference metav1.OwnerReference) bool {
	owner := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: reference.APIVersion, Kind: reference.Kind}}
	key := types.NamespacedName{Namespace: namespace, Name: reference.Name}
	err := c.world.Client.Get(ctx, key, owner)
	return err == nil && owner.UID == reference.UID || err != nil && !apierrors.IsNotFound(err)
}

// allowDisruptions plays the controller of PodDisruptionBudgets.
func (c *Controllers) allowDisruptions(ctx context.Context) error {
	var budgets policyv1.PodDisruptionBudgetList
	if err := c.world.cache.List(ctx, &budgets, client.InNamespace(c.world.Namespace)); err != nil || len(budgets.Items) == 0 {
		return err
	}
	pods, err := c.world.allPods(ctx)
	if err != nil {
		return err
	}
	for i := range budgets.Items {
		b := &budgets.Items[i]
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			return err
		}
		expected, healthy := 0, 0
		for _, pod := range pods {
			if pod.DeletionTimestamp == nil && selector.Matches(labels.Set(pod.Labels)) {
				expected++
				if isReady(&pod) {
					healthy++
				}
			}
		}
		need := 0
		switch {
		case b.Spec.MaxUnavailable != nil:
			most, err := intstr.GetScaledValueFromIntOrPercent(b.Spec.MaxUnavailable, expected, true)
			if err != nil {
				return err
			}
			need = expected - most
		case b.Spec.MinAvailable != nil:
			if need, err = intstr.GetScaledValueFromIntOrPercent(b.Spec.MinAvailable, expected, true); err != nil {
				return err
			}
		}
		s := b.Status.DeepCopy()
		s.ExpectedPods, s.CurrentHealthy, s.DesiredHealthy, s.ObservedGeneration = int32(expected), int32(healthy), int32(need), b.Generation
		s.DisruptionsAllowed = max(0, s.CurrentHealthy-s.DesiredHealthy)
		s.DisruptedPods = nil
		if !apiequality.Semantic.DeepEqual(*s, b.Status) {
			b.Status = *s
			if err := c.world.wrote(c.world.Client.Status().Update(ctx, b)); err != nil && !apierrors.IsConflict(err) {
				return err
			}
		}
	}
	return nil
}

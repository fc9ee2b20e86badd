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
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
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
	if err := c.world.cache.List(ctx, &deployments, here, client.UnsafeDisableDeepCopy); err != nil {
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
	if latest < 0 || revisionOf(newestOf(sets)) > revisionOf(&sets[latest]) {
		return c.beginRollout(ctx, d, sets, latest, hash)
	}
	refused := ""
	if err := c.step(ctx, &sets[latest], int(ptr.Deref(d.Spec.Replicas, 1)), pods); apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		refused = err.Error()
	} else if err != nil {
		return err
	}
	return c.status(ctx, d, &sets[latest], refused)
}

// beginRollout creates the ReplicaSet of a template, or gives it the highest revision if the template was rolled back.
func (c *Controllers) beginRollout(ctx context.Context, d *appsv1.Deployment, sets []appsv1.ReplicaSet, latest int, hash string) error {
	revision := 1
	if len(sets) > 0 {
		revision = revisionOf(newestOf(sets)) + 1
	}
	if latest < 0 {
		return c.createSet(ctx, d, hash, revision)
	}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, revisionAnnotation, revision))
	return c.world.wrote(&sets[latest], c.world.Client.Patch(ctx, sets[latest].DeepCopy(), patch))
}

// step creates a pod of the latest ReplicaSet, or deletes one. During a rollout there is at most one pod more than wanted, and
// an old pod that is ready is deleted once its successor is.
func (c *Controllers) step(ctx context.Context, set *appsv1.ReplicaSet, want int, pods []corev1.Pod) error {
	var current, old []corev1.Pod
	ready, isNewReady := 0, true
	for _, pod := range pods {
		isNew := metav1.IsControlledBy(&pod, set)
		switch {
		case pod.DeletionTimestamp != nil:
			continue
		case isNew:
			current = append(current, pod)
		default:
			old = append(old, pod)
		}
		if isReady(&pod) {
			ready++
		} else if isNew {
			isNewReady = false
		}
	}
	alive := len(current) + len(old)
	if most := want + min(1, len(old)); len(current) < want && alive < most {
		return c.createPod(ctx, set)
	}
	if alive <= want {
		return nil
	}
	candidates := current
	if len(old) > 0 {
		candidates = old
	}
	victim := &candidates[len(candidates)-1]
	if len(old) == 0 || ready > want || !isReady(victim) || isNewReady {
		return c.world.wrote(victim, c.world.Client.Delete(ctx, victim))
	}
	return nil
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

// ofDeployment lists the ReplicaSets of a Deployment and their pods, by name. They must not be modified.
func (c *Controllers) ofDeployment(ctx context.Context, d *appsv1.Deployment) (sets []appsv1.ReplicaSet, pods []corev1.Pod, err error) {
	var list appsv1.ReplicaSetList
	if err := c.world.cache.List(ctx, &list, client.InNamespace(d.Namespace), client.UnsafeDisableDeepCopy); err != nil {
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
		if owner := metav1.GetControllerOfNoCopy(&pod); owner != nil && own[owner.UID] {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return sets, pods, err
}

func (c *Controllers) createSet(ctx context.Context, d *appsv1.Deployment, hash string, revision int) error {
	template := d.Spec.Template.DeepCopy()
	with := func(m map[string]string) map[string]string {
		return labels.Merge(m, labels.Set{appsv1.DefaultDeploymentUniqueLabelKey: hash})
	}
	template.Labels = with(template.Labels)
	return c.world.wrote(&appsv1.ReplicaSet{}, c.world.Client.Create(ctx, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: d.Name + "-" + hash, Labels: template.Labels,
			Annotations:     map[string]string{revisionAnnotation: strconv.Itoa(revision)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: d.Spec.Replicas, Template: *template,
			Selector: &metav1.LabelSelector{MatchLabels: with(d.Spec.Selector.MatchLabels)},
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
	err := c.world.wrote(pod, c.world.Client.Create(ctx, pod, client.FieldOwner("kube-controller-manager")))
	if err != nil {
		c.names-- // so that the same message comes again
	}
	return err
}

// status writes what the controllers say of a Deployment. Its ReplicaSets have no status.
func (c *Controllers) status(ctx context.Context, d *appsv1.Deployment, latest *appsv1.ReplicaSet, refused string) error {
	_, pods, err := c.ofDeployment(ctx, d)
	if err != nil {
		return err
	}
	want := ptr.Deref(d.Spec.Replicas, 1)
	s := appsv1.DeploymentStatus{ObservedGeneration: d.Generation}
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		s.Replicas++
		if metav1.IsControlledBy(&pod, latest) {
			s.UpdatedReplicas++
		}
		if isReady(&pod) {
			s.ReadyReplicas++
			s.AvailableReplicas++
		}
	}
	s.UnavailableReplicas = max(0, want-s.AvailableReplicas)
	why := "ReplicaSetUpdated"
	if s.UpdatedReplicas == want && s.AvailableReplicas == want && s.Replicas == want {
		why = "NewReplicaSetAvailable"
	}
	s.Conditions = append(s.Conditions,
		c.condition(d, appsv1.DeploymentAvailable, s.AvailableReplicas >= want, "MinimumReplicasAvailable", ""),
		c.condition(d, appsv1.DeploymentProgressing, true, why, ""))
	if refused != "" {
		s.Conditions = append(s.Conditions, c.condition(d, appsv1.DeploymentReplicaFailure, true, "FailedCreate", refused))
	}
	if apiequality.Semantic.DeepEqual(s, d.Status) {
		return nil
	}
	d = d.DeepCopy()
	d.Status = s
	return c.world.wrote(d, c.world.Client.Status().Update(ctx, d, client.FieldOwner("kube-controller-manager")))
}

// condition is a condition of a Deployment. It keeps its times while it says the same.
func (c *Controllers) condition(d *appsv1.Deployment, kind appsv1.DeploymentConditionType, is bool, reason, message string) appsv1.DeploymentCondition {
	status, now := corev1.ConditionFalse, metav1.NewTime(c.world.Clock.Now())
	if is {
		status = corev1.ConditionTrue
	}
	for _, before := range d.Status.Conditions {
		if before.Type == kind && before.Status == status && before.Reason == reason && before.Message == message {
			return before
		}
	}
	return appsv1.DeploymentCondition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: now, LastUpdateTime: now}
}

// collect plays the garbage collector: what lost its owner is deleted, and an owner that is deleted in the foreground waits
// for what belongs to it.
func (c *Controllers) collect(ctx context.Context) error {
	objects, err := c.objects(ctx)
	if err != nil {
		return err
	}
	owners := map[types.UID]bool{}
	for _, o := range objects {
		for _, reference := range o.GetOwnerReferences() {
			owner := objects[reference.UID]
			owners[reference.UID] = true
			propagation := metav1.DeletePropagationBackground
			switch {
			case o.GetDeletionTimestamp() != nil:
				continue
			case waitsForDependents(owner):
				propagation = metav1.DeletePropagationForeground
			case owner != nil || c.exists(ctx, o.GetNamespace(), reference):
				continue
			}
			err := c.world.wrote(o, c.world.Client.Delete(ctx, o, client.PropagationPolicy(propagation), client.Preconditions{UID: ptr.To(o.GetUID())}))
			if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
				return err
			}
		}
	}
	for uid, owner := range objects {
		if waitsForDependents(owner) && !owners[uid] {
			if err := c.finish(ctx, owner); err != nil {
				return err
			}
		}
	}
	return nil
}

// objects are the objects that may own another one, or have an owner.
func (c *Controllers) objects(ctx context.Context) (map[types.UID]client.Object, error) {
	objects := map[types.UID]client.Object{}
	for _, list := range []client.ObjectList{
		&v1beta1.ScaledDeploymentList{}, &appsv1.DeploymentList{}, &v1beta1.VerticalScalerList{}, &appsv1.ReplicaSetList{}, &corev1.PodList{},
		&v1beta1.VerticalScalerCheckpointList{},
	} {
		if err := c.world.cache.List(ctx, list, client.InNamespace(c.world.Namespace)); err != nil {
			return nil, err
		}
		for _, o := range itemsOf(list) {
			objects[o.GetUID()] = o
		}
	}
	return objects, nil
}

func waitsForDependents(o client.Object) bool {
	return o != nil && o.GetDeletionTimestamp() != nil && slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents)
}

// finish lets an owner go that is deleted in the foreground.
func (c *Controllers) finish(ctx context.Context, owner client.Object) error {
	before := copyOf(owner)
	owner.SetFinalizers(slices.DeleteFunc(owner.GetFinalizers(), func(f string) bool { return f == metav1.FinalizerDeleteDependents }))
	return client.IgnoreNotFound(c.world.wrote(owner, c.world.Client.Patch(ctx, owner, client.MergeFrom(before))))
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
		disrupted, expected, healthy, err := podsOf(b, pods, c.world.Clock.Now())
		if err != nil {
			return err
		}
		need := max(0, expected-b.Spec.MaxUnavailable.IntVal) // It is a number of pods.
		s := policyv1.PodDisruptionBudgetStatus{
			ExpectedPods: expected, CurrentHealthy: healthy, DesiredHealthy: need, DisruptionsAllowed: max(0, healthy-need), ObservedGeneration: b.Generation,
			DisruptedPods: disrupted,
		}
		if apiequality.Semantic.DeepEqual(s, b.Status) {
			continue
		}
		b.Status = s
		if err := c.world.wrote(b, c.world.Client.Status().Update(ctx, b)); err != nil && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}

// deletionTimeout is the time for which a pod that was to be evicted counts as lost, although it is not deleted.
const deletionTimeout = 2 * time.Minute

// podsOf are the pods of a budget that an eviction has spent it for, and how many pods it selects and are healthy.
func podsOf(b *policyv1.PodDisruptionBudget, pods []corev1.Pod, now time.Time) (disrupted map[string]metav1.Time, expected, healthy int32, err error) {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return nil, 0, 0, err
	}
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		expected++
		at, isDisrupted := b.Status.DisruptedPods[pod.Name]
		switch {
		case isDisrupted && now.Before(at.Add(deletionTimeout)):
			if disrupted == nil {
				disrupted = map[string]metav1.Time{}
			}
			disrupted[pod.Name] = at
		case isReady(&pod):
			healthy++
		}
	}
	return disrupted, expected, healthy, nil
}

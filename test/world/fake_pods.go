// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// terminating is the default grace period of a running pod.
const terminating = 30 * time.Second

// terminationOf is how long an object has to end.
func terminationOf(o client.Object, asked *int64) time.Duration {
	pod, ok := o.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" {
		return 0
	}
	return time.Duration(ptr.Deref(asked, int64(terminating/time.Second))) * time.Second
}

// isTerminating reports whether the kubelet ends the deletion of an object.
func isTerminating(o client.Object) bool {
	return terminationOf(o, o.GetDeletionGracePeriodSeconds()) > 0
}

// admit completes, sizes and checks a new pod, as a real API server does.
func (a *API) admit(pod *corev1.Pod) error {
	a.complete(pod)
	a.size(pod)
	pod.Status.Phase, pod.Status.QOSClass = corev1.PodPending, qosOf(pod)
	return cmp.Or(checkResources(pod), a.checkLimitRanges(pod))
}

func qosOf(pod *corev1.Pod) corev1.PodQOSClass {
	read := workload.ReadPod(pod, true)
	if read.PodLevelResources {
		return workload.QoSOf([]workload.Container{{Resources: read.PodLevel}})
	}
	return workload.QoSOf(read.Containers, read.Others)
}

// size gives a new pod the sizes of its Deployment, as the policy of package admission does.
func (a *API) size(pod *corev1.Pod) {
	policy := types.NamespacedName{Name: admission.PolicyName}
	hash, owner := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey], metav1.GetControllerOf(pod)
	if a.get(admissionv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicy"), policy) == nil ||
		a.get(admissionv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicyBinding"), policy) == nil ||
		pod.Spec.Resources != nil || owner == nil || owner.Kind != "ReplicaSet" || hash == "" {
		return
	}
	deployment, found := strings.CutSuffix(owner.Name, "-"+hash)
	for _, o := range a.objects[v1beta1.GroupVersion.WithKind("NewPodSizes").GroupKind()] {
		sizes, ok := o.(*v1beta1.NewPodSizes)
		if !ok || !found || o.GetNamespace() != pod.Namespace || !admission.HasDeployment(sizes.Spec.Deployments, deployment) {
			continue
		}
		_, line, _ := strings.Cut(sizes.Spec.Deployments, "\n"+deployment+"/")
		line, _, _ = strings.Cut(line, "\n")
		_, line, _ = strings.Cut(line, " ") // after the form
		set, isScoped := "", strings.HasPrefix(line, "@")
		if isScoped {
			set, line, _ = strings.Cut(line[1:], ";")
		}
		for _, size := range strings.Split(line, ";") {
			sizeContainer(pod, strings.Split(size, ","), isScoped && set != string(owner.UID))
		}
	}
}

// sizeContainer applies a size: the name of a container, its requests of CPU and memory, and its limits. atLeast keeps what is
// larger.
func sizeContainer(pod *corev1.Pod, size []string, atLeast bool) {
	for _, c := range workload.LongRunning(&pod.Spec) {
		_, cpuLimit := c.Resources.Limits[corev1.ResourceCPU]
		_, memoryLimit := c.Resources.Limits[corev1.ResourceMemory]
		if c.Name != size[0] || size[1] != "" && (size[3] != "") != cpuLimit || size[2] != "" && (size[4] != "") != memoryLimit {
			continue
		}
		setAmounts(&c.Resources.Requests, size[1], size[2], atLeast)
		setAmounts(&c.Resources.Limits, size[3], size[4], atLeast)
	}
}

// setAmounts sets the amounts that are not empty, or only those that are larger.
func setAmounts(list *corev1.ResourceList, cpu, memory string, atLeast bool) {
	if *list == nil && cpu+memory != "" {
		*list = corev1.ResourceList{}
	}
	for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		if text == "" {
			continue
		}
		amount := resource.MustParse(text)
		if has, ok := (*list)[name]; !ok || !atLeast || amount.Cmp(has) > 0 {
			(*list)[name] = amount
		}
	}
}

func invalidPod(pod *corev1.Pod, path *field.Path, value any, why string) error {
	return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), pod.Name, field.ErrorList{field.Invalid(path, value, why)})
}

// checkResources checks that no request of a pod is above its limit.
func checkResources(pod *corev1.Pod) error {
	for list, containers := range map[string][]corev1.Container{"containers": pod.Spec.Containers, "initContainers": pod.Spec.InitContainers} {
		for i, c := range containers {
			for name, limit := range c.Resources.Limits {
				if request, ok := c.Resources.Requests[name]; ok && request.Cmp(limit) > 0 {
					path := field.NewPath("spec", list).Index(i).Child("resources", "requests")
					return invalidPod(pod, path, request.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String()))
				}
			}
		}
	}
	return nil
}

// admitResize completes a resized pod, and checks that the resize changes only resources, and no QoS class. No node declares
// that it can resize init containers that end.
func (a *API) admitResize(before, after client.Object) error {
	was, isPod := before.(*corev1.Pod)
	is, ok := after.(*corev1.Pod)
	if !isPod || !ok {
		return errors.New("only pods are resized")
	}
	isLimited := was.DeletionTimestamp == nil
	if isLimited {
		a.complete(is)
	}
	spec := is.Spec.DeepCopy()
	spec.Resources = was.Spec.Resources
	var ending error
	for i, lists := range [][2][]corev1.Container{{spec.Containers, was.Spec.Containers}, {spec.InitContainers, was.Spec.InitContainers}} {
		for j := range min(len(lists[0]), len(lists[1])) {
			if isEnding := i == 1 && !workload.IsSidecar(&lists[1][j]); isEnding && is.Spec.NodeName != "" && !apiequality.Semantic.DeepEqual(lists[0][j].Resources, lists[1][j].Resources) {
				ending = apierrors.NewForbidden(corev1.Resource("pods"), is.Name, fmt.Errorf("pod update requires features InPlacePodVerticalScalingInitContainers which are not available on node %q", is.Spec.NodeName))
			}
			lists[0][j].Resources = lists[1][j].Resources
		}
	}
	switch {
	case !apiequality.Semantic.DeepEqual(*spec, was.Spec):
		return invalidPod(is, field.NewPath("spec"), is.Name, "only cpu and memory resources are mutable")
	case qosOf(is) != was.Status.QOSClass:
		return invalidPod(is, field.NewPath("spec"), qosOf(is), "Pod QOS Class may not change as a result of resizing")
	case isLimited:
		return cmp.Or(checkResources(is), ending, a.checkLimitRanges(is))
	}
	return cmp.Or(checkResources(is), ending)
}

// createPart binds a pod to a node, or evicts it.
func (a *API) createPart(w write, pod *corev1.Pod, body client.Object) error {
	before, err := a.current(w, pod)
	if err != nil {
		return err
	}
	current, ok := copyOf(before).(*corev1.Pod)
	if !ok {
		return fmt.Errorf("%T is no pod", before)
	}
	switch body := body.(type) {
	case *corev1.Binding:
		current.Spec.NodeName = body.Target.Name
		a.store(w, watch.Modified, current)
		return nil
	case *policyv1.Eviction:
		return a.evict(w, current, ptr.Deref(body.DeleteOptions, metav1.DeleteOptions{}))
	}
	return fmt.Errorf("a pod has no %T", body)
}

// evict deletes a pod if its PodDisruptionBudgets allow it. As the API server, it spends them before it looks at the preconditions.
func (a *API) evict(w write, pod *corev1.Pod, how metav1.DeleteOptions) error {
	if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
		return a.remove(w, pod, &how)
	}
	budgets := write{kind: policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), dryRun: w.dryRun}
	for _, o := range a.objects[budgets.kind.GroupKind()] {
		budget, ok := o.DeepCopyObject().(*policyv1.PodDisruptionBudget)
		if !ok || budget.Namespace != pod.Namespace {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if budget.Status.DisruptionsAllowed <= 0 || budget.Status.ObservedGeneration < budget.Generation {
			refused := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
			refused.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget " + budget.Name + " does not allow it"}}
			return refused
		}
		budget.Status.DisruptionsAllowed--
		if budget.Status.DisruptedPods == nil {
			budget.Status.DisruptedPods = map[string]metav1.Time{}
		}
		budget.Status.DisruptedPods[pod.Name] = a.time()
		a.store(budgets, watch.Modified, budget)
	}
	// The budget is spent, whatever the preconditions say.
	if p := how.Preconditions; p != nil && (p.UID != nil && *p.UID != pod.UID || p.ResourceVersion != nil && *p.ResourceVersion != pod.ResourceVersion) {
		return w.conflict(pod.Name, "the UID or the ResourceVersion in the precondition differs")
	}
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting", LastTransitionTime: a.time(),
	})
	how.Preconditions = nil // The condition is another version.
	a.store(w, watch.Modified, pod)
	return a.remove(w, pod, &how)
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
)

// rollout is what was read of the namespaces of the scenario. Scalers have the name of their Deployment.
type rollout struct {
	deployments map[types.NamespacedName]*appsv1.Deployment
	scalers     map[types.NamespacedName]*v1beta1.VerticalScaler
	// told are the scalers whose sizes are written down for the API server.
	told     map[types.NamespacedName]bool
	webhooks int // webhook configurations
	requests int // of the operator, since it has started
	// created are the pods that exist or have existed, as they were created, in this order.
	created []*corev1.Pod
}

// sizes are the sizes of new pods of all scalers, as one text.
func (r rollout) sizes() string {
	var out strings.Builder
	for _, key := range sortedKeys(r.scalers) {
		if n := r.scalers[key].Status.NewPods; n != nil {
			out.WriteString(key.Namespace + "/" + admission.Line(key.Name, n.Containers) + "\n")
		}
	}
	return out.String()
}

// addSizes takes note of sizes of new pods that are new.
func (p *progress) addSizes(r rollout) {
	if p.decided == nil {
		p.decided = map[types.NamespacedName][]*v1beta1.VerticalScaler{}
		p.addSizes(p.start.rollout)
	}
	for key, s := range r.scalers {
		known := p.decided[key]
		if len(known) == 0 || !equality.Semantic.DeepEqual(known[len(known)-1].Status.NewPods, s.Status.NewPods) {
			p.decided[key] = append(known, s)
		}
	}
}

func sortedKeys[T any](m map[types.NamespacedName]T) []types.NamespacedName {
	return slices.SortedFunc(maps.Keys(m), func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
}

// lookAtRollout reads a snapshot of all namespaces.
func (o *observer) lookAtRollout(ctx context.Context) (s snapshot, err error) {
	var (
		deployments appsv1.DeploymentList
		scalers     v1beta1.VerticalScalerList
		sizes       v1beta1.NewPodSizesList
		mutating    admissionv1.MutatingWebhookConfigurationList
		validating  admissionv1.ValidatingWebhookConfigurationList
	)
	for _, list := range []client.ObjectList{&deployments, &scalers, &sizes, &mutating, &validating} {
		if err := o.client.List(ctx, list); err != nil {
			return s, fmt.Errorf("listing %T: %w", list, err)
		}
	}
	r := rollout{
		deployments: map[types.NamespacedName]*appsv1.Deployment{}, scalers: map[types.NamespacedName]*v1beta1.VerticalScaler{},
		told: map[types.NamespacedName]bool{}, webhooks: len(mutating.Items) + len(validating.Items),
	}
	for i := range deployments.Items {
		r.deployments[client.ObjectKeyFromObject(&deployments.Items[i])] = &deployments.Items[i]
	}
	for i := range scalers.Items {
		key, n := client.ObjectKeyFromObject(&scalers.Items[i]), scalers.Items[i].Status.NewPods
		r.scalers[key] = &scalers.Items[i]
		r.told[key] = n != nil && slices.ContainsFunc(sizes.Items, func(o v1beta1.NewPodSizes) bool {
			return o.Namespace == key.Namespace && admission.HasLine(o.Spec.Deployments, admission.Line(key.Name, n.Containers))
		})
	}
	if r.created, err = o.newPods.list(); err != nil {
		return s, err
	}
	s.at = time.Now()
	err = o.audit.read()
	s.lastWrite, r.requests = o.audit.lastWrite, o.audit.requests
	s.rollout = r
	return s, err
}

// rolloutScenario is about new pods of n Deployments.
func rolloutScenario(n int) scenario {
	var images, restarts []string
	for _, namespace := range rolloutNamespaces {
		images = append(images, fmt.Sprintf("kubectl set image deployment --all -n %s app=registry.example/app:2 >/dev/null", namespace))
		restarts = append(restarts, fmt.Sprintf("kubectl rollout restart deployment -n %s >/dev/null", namespace))
	}
	return scenario{
		without:     "manager-rollout manager-scaled-deployment", // no right to change Deployments
		patience:    3*time.Minute + time.Duration(n)*2*time.Second,
		nodes:       4 + n/4,
		look:        (*observer).lookAtRollout,
		watchesPods: true,
		shown:       "kubectl get newpodsizes -A",
		writes:      append(slices.Clip(scalerScenario.writes), "create newpodsizes", "update newpodsizes"),
		steps: []step{
			{
				name: "start", act: createDeployments(n), missing: running(n),
				story: fmt.Sprintf("%d Deployments of %d pods start in %d namespaces, and %d others that no scaler will name. A policy injects a native sidecar in two of the namespaces.",
					n, podsPerDeployment, len(rolloutNamespaces), len(unscaled)),
				claim: "pods start as in their templates",
				proof: func(p *progress) (bool, string) { return created(p, false, n*podsPerDeployment) },
			},
			{
				name: "install", do: []string{"kubectl apply --server-side -f dist/new-pods.yaml"},
				story: "The policy for new pods is installed: one policy, and one binding.",
				claim: "no webhook is needed",
				proof: func(p *progress) (bool, string) {
					return p.end.rollout.webhooks == 0, fmt.Sprintf("%d webhook configurations exist", p.end.rollout.webhooks)
				},
			},
			{
				name: "decide", act: createScalers(n), missing: decided(n),
				story: fmt.Sprintf("%d VerticalScalers are created, in the default mode. Each decides on another size than that of the template.", n),
				claim: "the API server is told the size of each Deployment",
			},
			{
				name: "rollout", do: images, missing: running(n),
				story: "All Deployments are rolled out: they get a new image.",
				claim: "new pods are created at the decided size", proof: createdAtSize(n),
			},
			{
				name: "stop", act: stopOperator,
				story: "The operator is stopped.",
				claim: "the operator is stopped",
			},
			{
				name: "again", do: restarts, missing: running(n),
				story: "All Deployments are rolled out again, without an operator.",
				claim: "new pods are created at the decided size while no operator runs", proof: withoutOperator(createdAtSize(n)),
			},
			{
				name:  "templates",
				story: "The pod templates are compared with those of the start.",
				claim: "the pod templates are as users wrote them", proof: templatesOfUsers(n),
			},
		},
	}
}

// What steps do.

func createDeployments(n int) func(context.Context, *demo) error {
	return func(ctx context.Context, d *demo) error {
		var objects []client.Object
		for i := range rolloutNamespaces {
			objects = append(objects, rolloutNamespace(i))
		}
		for _, name := range unscaled {
			objects = append(objects, rolloutDeployment(rolloutNamespaces[0], name, 2, 200, 300))
		}
		for i := range n {
			deployment, _ := scaledDeployment(i)
			objects = append(objects, deployment)
		}
		return d.create(ctx, objects...)
	}
}

// createScalers creates the scalers. Before that, one of seven pods gets another usage than the others.
func createScalers(n int) func(context.Context, *demo) error {
	return func(ctx context.Context, d *demo) error {
		less := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"usage.verticalscaler.io/cpu.app":"9m","usage.verticalscaler.io/memory.app":"18Mi"}}}`))
		for i, pod := range d.last.rollout.created {
			if i%7 != 0 {
				continue
			}
			if err := d.env.Client.Patch(ctx, pod.DeepCopy(), less); err != nil {
				return fmt.Errorf("changing the usage of a pod: %w", err)
			}
		}
		var objects []client.Object
		for i := range n {
			_, scaler := scaledDeployment(i)
			objects = append(objects, scaler)
		}
		return d.create(ctx, objects...)
	}
}

// create creates objects as a user.
func (d *demo) create(ctx context.Context, objects ...client.Object) error {
	for _, o := range objects {
		if err := d.env.Client.Create(ctx, o); err != nil {
			return fmt.Errorf("creating %T %s/%s: %w", o, o.GetNamespace(), o.GetName(), err)
		}
	}
	return nil
}

func stopOperator(_ context.Context, d *demo) error {
	d.isStopped = true
	d.operator.Stop(30 * time.Second)
	return d.operator.Err()
}

// What steps wait for.

// running waits for all pods of all Deployments to be of the newest template and available.
func running(n int) func(*progress) string {
	return func(p *progress) string {
		ready, want := 0, n+len(unscaled)
		for _, d := range p.end.rollout.deployments {
			if replicas, s := ptr.Deref(d.Spec.Replicas, 1), d.Status; s.ObservedGeneration == d.Generation && s.Replicas == replicas &&
				s.UpdatedReplicas == replicas && s.AvailableReplicas == replicas {
				ready++
			}
		}
		if ready < want {
			return fmt.Sprintf("all pods of %d Deployments: %d have theirs", want, ready)
		}
		return ""
	}
}

// steadyTime is how long no size must have changed before the Deployments are rolled out.
const steadyTime = 8 * time.Second

// decided waits for each scaler to decide on another size than that of the template, and for the API server to be told of it.
func decided(n int) func(*progress) string {
	return func(p *progress) string {
		r, ready, last := p.end.rollout, 0, "none"
		for _, key := range sortedKeys(r.scalers) {
			if r.told[key] && isNewSize(r.scalers[key], r.deployments[key]) {
				ready++
			} else {
				last = key.String()
			}
		}
		if ready < n {
			return fmt.Sprintf("the sizes of %d Deployments: %d are written down for the API server. Missing is, among others, %s", n, ready, last)
		}
		if left := steadyTime - p.end.at.Sub(p.settled); left > 0 {
			return fmt.Sprintf("sizes that have not changed for another %s", left.Round(time.Second))
		}
		return ""
	}
}

// isNewSize reports whether new pods get what the scaler has decided, and whether that is not what the template has.
func isNewSize(s *v1beta1.VerticalScaler, d *appsv1.Deployment) bool {
	decision, sizes := s.Status.Decision, s.Status.NewPods
	if d == nil || decision == nil || decision.Verification != nil || sizes == nil || len(decision.Containers) != len(sizes.Containers) {
		return false
	}
	for _, c := range decision.Containers {
		if !slices.ContainsFunc(sizes.Containers, func(n v1beta1.NewPodContainer) bool {
			return n.ContainerName == c.ContainerName && isSame(n.Requests.CPU, c.Requests.CPU) && isSame(n.Requests.Memory, c.Requests.Memory)
		}) {
			return false
		}
	}
	return slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return !equality.Semantic.DeepEqual(sizedContainer(c, s), c)
	})
}

func isSame(a, b *resource.Quantity) bool { return a == b || a != nil && b != nil && a.Cmp(*b) == 0 }

// What steps prove.

// createdAtSize proves that all new pods of the n Deployments with a scaler were created at the size that it had decided then.
func createdAtSize(n int) func(*progress) (bool, string) {
	return func(p *progress) (bool, string) {
		ok, details := created(p, true, n*podsPerDeployment)
		return ok && p.end.rollout.webhooks == 0, fmt.Sprintf("%s; %d webhook configurations", details, p.end.rollout.webhooks)
	}
}

// created compares the pods that were created in a step with what they must have been created with: the sizes of their
// scaler, or else what their template has.
func created(p *progress, sized bool, want int) (ok bool, details string) {
	scaled, others := tally{as: "as in the template"}, tally{as: "as in the template"}
	if sized {
		scaled.as = "at the decided size"
	}
	for _, pod := range p.end.rollout.created[len(p.start.rollout.created):] {
		key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels["app"]}
		d := p.end.rollout.deployments[key]
		switch {
		case slices.Contains(unscaled, key.Name):
			others.add(pod, difference(pod, d, nil))
		case sized:
			scaled.add(pod, differenceToSizes(pod, d, p.decided[key]))
		default:
			scaled.add(pod, difference(pod, d, nil))
		}
	}
	return scaled.right == want && scaled.all == want && others.right == others.all && others.all > 0,
		fmt.Sprintf("%s, and of those that no scaler is for, %s; after %.1fs", scaled, others, p.took().Seconds())
}

// tally counts pods.
type tally struct {
	as         string // how they must have been created
	right, all int
	wrong      string // an example
}

func (t *tally) add(pod *corev1.Pod, difference string) {
	t.all++
	if difference == "" {
		t.right++
		return
	}
	t.wrong = fmt.Sprintf(" (pod %s/%s: %s)", pod.Namespace, pod.Name, difference)
}

// String says how many pods are right.
func (t tally) String() string {
	return fmt.Sprintf("%d of %d new pods were created %s%s", t.right, t.all, t.as, t.wrong)
}

// differenceToSizes says what is wrong with a pod that must have one of several sizes: those that were decided while it may have been
// created.
func differenceToSizes(pod *corev1.Pod, d *appsv1.Deployment, decided []*v1beta1.VerticalScaler) (why string) {
	why = "it has no scaler"
	for _, s := range decided {
		if why = difference(pod, d, s); why == "" {
			return ""
		}
	}
	return why
}

// difference says what is wrong with a pod, as it was created. Without a scaler, it must be as in the template.
func difference(pod *corev1.Pod, d *appsv1.Deployment, s *v1beta1.VerticalScaler) string {
	if d == nil {
		return "no Deployment has it"
	}
	if pod.Generation != 1 {
		return fmt.Sprintf("it was seen at generation %d first", pod.Generation)
	}
	template := d.Spec.Template.Spec
	wanted := slices.Concat(template.InitContainers, template.Containers)
	if pod.Namespace != rolloutNamespaces[len(rolloutNamespaces)-1] {
		wanted = append(wanted, injected())
	}
	has := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	if len(has) != len(wanted) {
		return fmt.Sprintf("it has %d containers, want %d", len(has), len(wanted))
	}
	for _, c := range wanted {
		if s != nil {
			c = sizedContainer(c, s)
		}
		i := slices.IndexFunc(has, func(h corev1.Container) bool { return h.Name == c.Name })
		if i < 0 {
			return "it has no container " + c.Name
		}
		if !equality.Semantic.DeepEqual(has[i].Resources, c.Resources) {
			return fmt.Sprintf("container %s has %s, want %s", c.Name, sayResources(has[i].Resources), sayResources(c.Resources))
		}
	}
	return ""
}

// sayResources is "115m 210Mi of 0 840Mi": the requests, and the limits.
func sayResources(r corev1.ResourceRequirements) string {
	return fmt.Sprintf("%s %s of %s %s", r.Requests.Cpu(), r.Requests.Memory(), r.Limits.Cpu(), r.Limits.Memory())
}

// sizedContainer is a container with the requests that the scaler has decided, and the limits that belong to them.
func sizedContainer(c corev1.Container, s *v1beta1.VerticalScaler) corev1.Container {
	c = *c.DeepCopy()
	set := func(to *corev1.ResourceList, a v1beta1.Amounts) {
		for name, amount := range map[corev1.ResourceName]*resource.Quantity{corev1.ResourceCPU: a.CPU, corev1.ResourceMemory: a.Memory} {
			if amount == nil {
				continue
			}
			if *to == nil {
				*to = corev1.ResourceList{}
			}
			(*to)[name] = *amount
		}
	}
	if s.Status.Decision == nil || s.Status.NewPods == nil {
		return c
	}
	for _, d := range s.Status.Decision.Containers {
		if d.ContainerName == c.Name {
			set(&c.Resources.Requests, d.Requests)
		}
	}
	for _, n := range s.Status.NewPods.Containers {
		if n.ContainerName == c.Name {
			set(&c.Resources.Limits, n.Limits)
		}
	}
	return c
}

// withoutOperator proves that the operator has sent no request during the step.
func withoutOperator(also func(*progress) (bool, string)) func(*progress) (bool, string) {
	return func(p *progress) (bool, string) {
		ok, details := also(p)
		n := p.end.rollout.requests - p.start.rollout.requests
		return ok && n == 0, fmt.Sprintf("%s; %d requests of the operator", details, n)
	}
}

// templatesOfUsers proves that all templates request what they did at the start, that nobody but a user has changed the
// Deployments, and how often.
func templatesOfUsers(n int) func(*progress) (bool, string) {
	return func(p *progress) (bool, string) {
		const changes = 2 // the image, and the restart
		same := 0
		for i := range n {
			start, _ := scaledDeployment(i)
			d := p.end.rollout.deployments[client.ObjectKeyFromObject(start)]
			if d == nil || d.Generation != 1+changes || slices.ContainsFunc(d.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
				return e.Manager == ownership.Scalers || e.Manager == ownership.Owners
			}) {
				return false, fmt.Sprintf("another change of Deployment %s", start.Name)
			}
			if slices.EqualFunc(containersOf(start), containersOf(d), func(a, b corev1.Container) bool {
				return equality.Semantic.DeepEqual(a.Resources, b.Resources)
			}) {
				same++
			}
		}
		return same == n, fmt.Sprintf("%d of %d templates have the same resources as at the start", same, n)
	}
}

func containersOf(d *appsv1.Deployment) []corev1.Container {
	return slices.Concat(d.Spec.Template.Spec.InitContainers, d.Spec.Template.Spec.Containers)
}

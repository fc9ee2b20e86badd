// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

const (
	ownerLabel   = "autoscaling.verticalscaler.io/scaled-deployment"
	appliedStamp = "autoscaling.verticalscaler.io/applied"
)

// in returns the same fixture for a subtest.
func (w *fixture) in(t *testing.T) *fixture {
	t.Helper()
	sub := *w
	sub.T = t
	return &sub
}

// newOwner returns a ScaledDeployment with three replicas, without creating it.
func (w *fixture) newOwner(name string, changes ...func(*v1beta1.ScaledDeployment)) *v1beta1.ScaledDeployment {
	owner := &v1beta1.ScaledDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       v1beta1.ScaledDeploymentSpec{Replicas: ptr.To(int32(3)), Template: testkit.Deployment(w.namespace, name).Spec.Template},
	}
	for _, change := range changes {
		change(owner)
	}
	return owner
}

// own creates a ScaledDeployment and waits until its Deployment runs.
func (w *fixture) own(name string, changes ...func(*v1beta1.ScaledDeployment)) *v1beta1.ScaledDeployment {
	w.Helper()
	w.create(w.newOwner(name, changes...))
	w.settled(name)
	return w.owner(name)
}

// scaled enables scaling of the pods in a mode, without a cooldown. New pods are as in the template, whichever tests have
// installed the policy for them.
func scaled(mode v1beta1.UpdateMode) func(*v1beta1.ScaledDeployment) {
	update := v1beta1.UpdatePolicy{UpdateMode: mode, CooldownSeconds: ptr.To(int32(0))}
	if mode == v1beta1.UpdateModeInPlace {
		update.NewPods = v1beta1.NewPodsAsTemplate
	}
	return func(o *v1beta1.ScaledDeployment) { o.Spec.Scaling = &v1beta1.Scaling{UpdatePolicy: update} }
}

func named(deployment string) func(*v1beta1.ScaledDeployment) {
	return func(o *v1beta1.ScaledDeployment) { o.Spec.DeploymentName = deployment }
}

func (w *fixture) owner(name string) *v1beta1.ScaledDeployment {
	w.Helper()
	var o v1beta1.ScaledDeployment
	if err := env.Client.Get(w.Context(), w.key(name), &o); err != nil {
		w.Fatal(err)
	}
	return &o
}

// edit changes the ScaledDeployment, as its user does, and retries on conflicts with status
// writes.
func (w *fixture) edit(name string, f func(*v1beta1.ScaledDeployment)) {
	w.Helper()
	o := w.owner(name)
	before := o.DeepCopy()
	f(o)
	if err := env.Client.Patch(w.Context(), o, client.MergeFrom(before)); err != nil {
		w.Fatal(err)
	}
}

// settled waits until the owner is Ready at its latest generation, and its status matches
// that of the Deployment.
func (w *fixture) settled(name string) *appsv1.Deployment {
	w.Helper()
	var d appsv1.Deployment
	w.eventually(func() string {
		o := w.owner(name)
		if wrong := unlike(o, "Ready", "True", "Available"); wrong != "" {
			return wrong
		}
		if err := env.Client.Get(w.Context(), w.key(deploymentOf(o)), &d); err != nil {
			return err.Error()
		}
		if !metav1.IsControlledBy(&d, o) {
			return "the Deployment is not the owner's"
		}
		if *d.Spec.Replicas != *o.Spec.Replicas {
			return fmt.Sprintf("the Deployment has %d replicas, its owner says %d", *d.Spec.Replicas, *o.Spec.Replicas)
		}
		has := []int32{d.Status.Replicas, d.Status.ReadyReplicas, d.Status.AvailableReplicas, d.Status.UpdatedReplicas}
		if told := []int32{o.Status.Replicas, o.Status.ReadyReplicas, o.Status.AvailableReplicas, o.Status.UpdatedReplicas}; !slices.Equal(told, has) || has[3] != *d.Spec.Replicas {
			return fmt.Sprintf("the owner counts %d, the Deployment %d, want %d", told, has, *d.Spec.Replicas)
		}
		return ""
	})
	return &d
}

func deploymentOf(o *v1beta1.ScaledDeployment) string {
	if o.Spec.DeploymentName != "" {
		return o.Spec.DeploymentName
	}
	return o.Name
}

// unlike describes how a condition of the owner differs from what is wanted; "" if it has
// this status and reason, is about the latest generation, and its message contains all the
// words.
func unlike(o *v1beta1.ScaledDeployment, kind, status, reason string, words ...string) string {
	var c metav1.Condition
	if found := meta.FindStatusCondition(o.Status.Conditions, kind); found != nil {
		c = *found
	}
	wrong := string(c.Status) != status || c.Reason != reason || c.ObservedGeneration != o.Generation || o.Status.ObservedGeneration != o.Generation
	for _, word := range words {
		wrong = wrong || !strings.Contains(c.Message, word)
	}
	if wrong {
		return fmt.Sprintf("%s of generation %d is %s, %s: %q; want generation %d, %s, %s, with %q", kind, c.ObservedGeneration, c.Status, c.Reason, c.Message, o.Generation, status, reason, words)
	}
	return ""
}

// ownerSays waits for a condition of the owner.
func (w *fixture) ownerSays(name, kind, status, reason string, words ...string) {
	w.Helper()
	w.eventually(func() string { return unlike(w.owner(name), kind, status, reason, words...) })
}

// eventsOf returns the events on an object with that reason, each as type and note.
func (w *fixture) eventsOf(uid types.UID, reason string) (notes []string) {
	w.Helper()
	var list eventsv1.EventList
	if err := env.Client.List(w.Context(), &list, client.InNamespace(w.namespace)); err != nil {
		w.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Regarding.UID != uid || e.Reason != reason {
			continue
		}
		times := int32(1)
		if e.Series != nil {
			times = e.Series.Count
		}
		for range times {
			notes = append(notes, e.Type+" "+e.Note)
		}
	}
	slices.Sort(notes)
	return notes
}

// follow calls f with every change of a Deployment in the namespace until the test ends.
// The returned function waits until f has seen an event that matches.
func (w *fixture) follow(f func(watch.Event, *appsv1.Deployment)) (until func(matches func(watch.Event, *appsv1.Deployment) bool)) {
	w.Helper()
	watching, err := client.NewWithWatch(env.Config, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		w.Fatal(err)
	}
	watcher, err := watching.Watch(w.Context(), &appsv1.DeploymentList{}, client.InNamespace(w.namespace))
	if err != nil {
		w.Fatal(err)
	}
	var mu sync.Mutex
	var seen []watch.Event
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range watcher.ResultChan() {
			if d, ok := event.Object.(*appsv1.Deployment); ok {
				f(event, d)
				mu.Lock()
				seen = append(seen, event)
				mu.Unlock()
			}
		}
	}()
	w.Cleanup(func() {
		watcher.Stop()
		<-done
	})
	return func(matches func(watch.Event, *appsv1.Deployment) bool) {
		w.Helper()
		w.eventually(func() string {
			mu.Lock()
			defer mu.Unlock()
			for _, event := range seen {
				if d, ok := event.Object.(*appsv1.Deployment); ok && matches(event, d) {
					return ""
				}
			}
			return "the event is not seen yet"
		})
	}
}

// neverTwo fails if an owner controls two Deployments at the same time. The returned
// function waits until the Deployment with that name and UID has been counted.
func (w *fixture) neverTwo() (counted func(d *appsv1.Deployment)) {
	w.Helper()
	now := map[types.UID]map[string]bool{} // by owner
	until := w.follow(func(event watch.Event, d *appsv1.Deployment) {
		by := metav1.GetControllerOf(d)
		if by == nil {
			return
		}
		if now[by.UID] == nil {
			now[by.UID] = map[string]bool{}
		}
		if event.Type == watch.Deleted {
			delete(now[by.UID], d.Name)
			return
		}
		now[by.UID][d.Name] = true
		if len(now[by.UID]) > 1 {
			w.Errorf("%s %s has several Deployments: %v", by.Kind, by.Name, now[by.UID])
		}
	})
	return func(d *appsv1.Deployment) {
		w.Helper()
		until(func(_ watch.Event, seen *appsv1.Deployment) bool { return seen.UID == d.UID })
	}
}

// asksFor fails unless the first container of the Deployment's template has these requests.
func (w *fixture) asksFor(d *appsv1.Deployment, cpu, memory string) {
	w.Helper()
	r := d.Spec.Template.Spec.Containers[0].Resources.Requests
	if r.Cpu().String() != cpu || r.Memory().String() != memory {
		w.Errorf("the template of Deployment %s asks for %s and %s, not %s and %s", d.Name, r.Cpu(), r.Memory(), cpu, memory)
	}
}

func TestAWorkloadAndItsSizingInOneObject(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	owner := w.own("web", scaled("InPlace"))
	w.noted(owner.UID, "Created", "Created Deployment web")
	w.noted(owner.UID, "Created", "Created VerticalScaler web")
	w.noted(owner.UID, "Ready", "Available: Deployment web")
	d, s := w.deployment("web"), w.scaler("web")
	for _, object := range []metav1.Object{d, s} {
		want := []metav1.OwnerReference{{
			APIVersion: "autoscaling.verticalscaler.io/v1beta1", Kind: "ScaledDeployment", Name: "web", UID: owner.UID,
			Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
		}}
		if diff := cmp.Diff(want, object.GetOwnerReferences()); diff != "" {
			t.Errorf("owner references of %T (-want +got):\n%s", object, diff)
		}
		if got := object.GetLabels()[ownerLabel]; got != "web" {
			t.Errorf("%T is labelled %q", object, got)
		}
		if object.GetAnnotations()[appliedStamp] == "" {
			t.Errorf("%T does not say what was applied", object)
		}
	}
	if diff := cmp.Diff(&metav1.LabelSelector{MatchLabels: map[string]string{ownerLabel: "web"}}, d.Spec.Selector); diff != "" {
		t.Errorf("selector (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"app": "web", ownerLabel: "web"}, d.Spec.Template.Labels); diff != "" {
		t.Errorf("labels of the pods (-want +got):\n%s", diff)
	}
	if got := owner.Status.Selector; got != ownerLabel+"=web" {
		t.Errorf("the selector in the status is %q", got)
	}
	if s.Spec.DeploymentName != "web" || s.Spec.UpdatePolicy.UpdateMode != "InPlace" {
		t.Errorf("the scaler's spec is %+v", s.Spec)
	}
	if len(owner.Finalizers)+len(d.Finalizers)+len(s.Finalizers) > 0 {
		t.Errorf("finalizers: %v, %v, %v", owner.Finalizers, d.Finalizers, s.Finalizers)
	}
	w.ownerSays("web", "Reconciling", "False", "OperatingNormally")
	w.ownerSays("web", "Stalled", "False", "OperatingNormally")

	w.uses("web", "app", 300, 240)
	requests := w.sized("web")
	w.between("cpu", *requests.Cpu(), "330m", "380m")
	w.ownerSays("web", "Sized", "True", "OperatingNormally")
	w.settled("web")
	w.asksFor(w.deployment("web"), "100m", "128Mi")
	if n := len(w.sets("web")); n != 1 {
		t.Errorf("%d ReplicaSets: pods were replaced", n)
	}
}

func TestADeploymentWithoutScalingHasNoScaler(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	owner := w.own("web")
	w.asksFor(w.deployment("web"), "100m", "128Mi")
	if c := meta.FindStatusCondition(owner.Status.Conditions, "Sized"); c != nil {
		t.Errorf("there is a condition Sized: %+v", c)
	}
	var list v1beta1.VerticalScalerList
	if err := env.Client.List(t.Context(), &list, client.InNamespace(w.namespace)); err != nil || len(list.Items) > 0 {
		t.Errorf("scalers: %v, %v", list.Items, err)
	}
	t.Run("with its own selector and name", func(t *testing.T) {
		w := w.in(t)
		w.create(w.newOwner("api", named("api-v2"), func(o *v1beta1.ScaledDeployment) {
			o.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "api"}}
		}))
		d := w.settled("api")
		if diff := cmp.Diff(map[string]string{"app": "api"}, d.Spec.Selector.MatchLabels); diff != "" || d.Name != "api-v2" {
			t.Errorf("selector of Deployment %s (-want +got):\n%s", d.Name, diff)
		}
		if diff := cmp.Diff(map[string]string{"app": "api"}, d.Spec.Template.Labels); diff != "" {
			t.Errorf("labels of the pods (-want +got):\n%s", diff)
		}
		if got := w.owner("api").Status.Selector; got != "app=api" {
			t.Errorf("the selector in the status is %q", got)
		}
	})
}

func TestDriftIsReverted(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	for name, tc := range map[string]struct {
		drift string // a merge patch of the Deployment
		// quiet: the spec does not change, so there is no event.
		quiet bool
	}{
		"replicas":      {drift: `{"spec":{"replicas":7}}`},
		"no-replicas":   {drift: `{"spec":{"replicas":null}}`},
		"image":         {drift: `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"example.com/other:2"}]}}}}`},
		"env":           {drift: `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"example.com/app:1","env":[{"name":"LEVEL","value":"debug"}]}]}}}}`},
		"no-env":        {drift: `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"example.com/app:1"}]}}}}`},
		"requests":      {drift: `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"example.com/app:1","resources":{"requests":{"cpu":"1m"}}}]}}}}`},
		"pod-labels":    {drift: `{"spec":{"template":{"metadata":{"labels":{"tier":"back"}}}}}`},
		"grace":         {drift: `{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":9}}}}`},
		"tolerations":   {drift: `{"spec":{"template":{"spec":{"tolerations":[{"key":"a","operator":"Exists"},{"key":"b","operator":"Exists"}]}}}}`},
		"label":         {drift: `{"metadata":{"labels":{"` + ownerLabel + `":"other"}}}`, quiet: true},
		"no-label":      {drift: `{"metadata":{"labels":null}}`, quiet: true},
		"annotation":    {drift: `{"metadata":{"annotations":{"` + appliedStamp + `":"0"}}}`, quiet: true},
		"no-annotation": {drift: `{"metadata":{"annotations":{"` + appliedStamp + `":null}}}`, quiet: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := w.in(t)
			owner := w.own(name, func(o *v1beta1.ScaledDeployment) {
				template := &o.Spec.Template
				template.Labels["tier"] = "front"
				template.Spec.TerminationGracePeriodSeconds = ptr.To(int64(5))
				template.Spec.Tolerations = []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}}
				template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "LEVEL", Value: "info"}, {Name: "ZONE", Value: "a"}}
			})
			before := w.deployment(name)
			w.patch(testkit.Deployment(w.namespace, name), "%s", tc.drift)
			w.eventually(func() string {
				now := w.deployment(name)
				if now.Labels[ownerLabel] != name || now.Annotations[appliedStamp] != before.Annotations[appliedStamp] {
					return fmt.Sprintf("labels %v, annotations %v", now.Labels, now.Annotations)
				}
				return cmp.Diff(before.Spec, now.Spec)
			})
			w.settled(name)
			if tc.quiet {
				if n := w.eventsOf(owner.UID, "Updated"); len(n) > 0 {
					t.Errorf("events: %q", n)
				}
				return
			}
			w.noted(owner.UID, "Updated", "Updated Deployment "+name)
		})
	}
}

// The owner does not manage fields that it does not set.
func TestWhatOthersAddStays(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.own("web")
	w.patch(testkit.Deployment(w.namespace, "web"), `{"metadata":{"labels":{"team":"shop"},"annotations":{"note":"x"}},"spec":{
		"minReadySeconds":1,"revisionHistoryLimit":3,"strategy":{"rollingUpdate":{"maxSurge":2}},
		"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"2026-03-01T12:00:00Z"}}}}}`)
	w.edit("web", func(o *v1beta1.ScaledDeployment) { o.Spec.Replicas = ptr.To(int32(2)) })
	d := w.settled("web")
	if d.Labels["team"] != "shop" || d.Annotations["note"] != "x" || d.Spec.MinReadySeconds != 1 || *d.Spec.RevisionHistoryLimit != 3 ||
		d.Spec.Strategy.RollingUpdate.MaxSurge.IntValue() != 2 || d.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] == "" {
		t.Errorf("the Deployment is %+v, %+v", d.ObjectMeta, d.Spec)
	}
}

func TestFieldsThatTheOwnerNoLongerSetsAreRemoved(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.own("web", func(o *v1beta1.ScaledDeployment) {
		template := &o.Spec.Template
		template.Annotations = map[string]string{"checksum": "1"}
		template.Spec.Containers = append(template.Spec.Containers, testkit.Container("agent"))
		template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "LEVEL", Value: "info"}, {Name: "ZONE", Value: "a"}}
		template.Spec.Containers[0].Args = []string{"--verbose"}
		template.Spec.TerminationGracePeriodSeconds = ptr.To(int64(5))
	})
	w.edit("web", func(o *v1beta1.ScaledDeployment) { o.Spec.Template = w.newOwner("web").Spec.Template })
	d := w.settled("web")
	template := d.Spec.Template
	if len(template.Annotations) > 0 || len(template.Spec.Containers) != 1 || len(template.Spec.Containers[0].Env) > 0 ||
		len(template.Spec.Containers[0].Args) > 0 || *template.Spec.TerminationGracePeriodSeconds != 30 {
		t.Errorf("the template is %+v", template)
	}
}

func TestADeletedDeploymentIsRecreated(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	for _, how := range []metav1.DeletionPropagation{"Background", "Foreground", "Orphan"} {
		t.Run(string(how), func(t *testing.T) {
			t.Parallel()
			w, name := w.in(t), strings.ToLower(string(how))
			owner := w.own(name)
			before, pods := w.deployment(name), podUIDs(w.pods(name))
			if err := env.Client.Delete(t.Context(), before.DeepCopy(), client.PropagationPolicy(how)); err != nil {
				t.Fatal(err)
			}
			w.eventually(func() string {
				var now appsv1.Deployment
				if err := env.Client.Get(t.Context(), w.key(name), &now); err != nil || now.UID == before.UID {
					return fmt.Sprintf("the Deployment is not recreated: %v", err)
				}
				return ""
			})
			w.settled(name)
			w.runs(name)
			// The new Deployment adopts the orphans, because it has the same selector and template.
			if now := podUIDs(w.pods(name)); (how == "Orphan") != slices.Equal(now, pods) {
				t.Errorf("the pods were %v and are %v", pods, now)
			}
			w.eventually(func() string {
				if n := w.eventsOf(owner.UID, "Created"); len(n) != 2 {
					return fmt.Sprintf("events: %q", n)
				}
				return ""
			})
		})
	}
}

func podUIDs(pods []corev1.Pod) (uids []types.UID) {
	for _, pod := range pods {
		uids = append(uids, pod.UID)
	}
	slices.Sort(uids)
	return uids
}

func TestTheScalerIsKeptAsSpecified(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	for _, mode := range []v1beta1.UpdateMode{"InPlace", "Rollout"} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			w, name := w.in(t), strings.ToLower(string(mode))
			w.uses(name, "app", 300, 240)
			owner := w.own(name, scaled(mode))
			w.sized(name)

			// Changed by a user.
			w.patch(testkit.Scaler(w.namespace, name, ""), `{"metadata":{"labels":null},"spec":{"deploymentName":"other","updatePolicy":{"cooldownSeconds":77}}}`)
			w.eventually(func() string {
				s := w.scaler(name)
				if s.Labels[ownerLabel] != name || s.Spec.DeploymentName != name || *s.Spec.UpdatePolicy.CooldownSeconds != 0 {
					return fmt.Sprintf("the scaler is %+v, labelled %v", s.Spec, s.Labels)
				}
				return ""
			})
			w.noted(owner.UID, "Updated", "Updated VerticalScaler "+name)
			w.ownerSays(name, "Sized", "True", "OperatingNormally")

			// Changed by its owner.
			w.edit(name, func(o *v1beta1.ScaledDeployment) {
				o.Spec.Scaling.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{{
					ContainerName: "*", MinAllowed: &v1beta1.ResourceBounds{CPU: ptr.To(resource.MustParse("500m"))},
				}}}
			})
			w.eventually(func() string {
				if got := w.sized(name).Cpu().String(); got != "500m" {
					return "cpu is " + got
				}
				return ""
			})

			// Deleted.
			before := w.scaler(name)
			w.remove(testkit.Scaler(w.namespace, name, ""))
			w.eventually(func() string {
				var now v1beta1.VerticalScaler
				if err := env.Client.Get(t.Context(), w.key(name), &now); err != nil || now.UID == before.UID {
					return fmt.Sprintf("the scaler is not recreated: %v", err)
				}
				return ""
			})
			w.settled(name)
			w.ownerSays(name, "Sized", "True", "OperatingNormally")
		})
	}
}

func TestScalingIsRemovedCleanly(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	for _, mode := range []v1beta1.UpdateMode{"InPlace", "Rollout"} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			w, name := w.in(t), strings.ToLower(string(mode))
			w.uses(name, "app", 300, 240)
			owner := w.own(name, scaled(mode))
			w.sized(name)
			if held := w.scaler(name).Status.OriginalResources != nil; held != (mode == "Rollout") {
				t.Errorf("the scaler has taken over the template: %t", held)
			}
			// The user changes the template's resources after a scaler has taken them over.
			w.edit(name, func(o *v1beta1.ScaledDeployment) {
				o.Spec.Template.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("150m")
			})
			w.settled(name)
			w.sized(name)
			if mode == "Rollout" {
				if got := w.deployment(name).Spec.Template.Spec.Containers[0].Resources.Requests.Cpu(); got.Cmp(resource.MustParse("330m")) < 0 {
					t.Errorf("the template asks for %s", got)
				}
			}

			w.edit(name, func(o *v1beta1.ScaledDeployment) { o.Spec.Scaling = nil })
			w.gone(testkit.Scaler(w.namespace, name, ""))
			w.noted(owner.UID, "Deleted", "Deleted VerticalScaler "+name)
			w.eventually(func() string {
				d := w.deployment(name)
				for _, entry := range d.ManagedFields {
					if entry.Manager == "verticalscaler" {
						return fmt.Sprintf("verticalscaler still manages %s", entry.FieldsV1.GetRawBytes())
					}
				}
				if got := d.Spec.Template.Spec.Containers[0].Resources; got.Requests.Cpu().String() != "150m" || got.Requests.Memory().String() != "128Mi" ||
					got.Limits.Cpu().String() != "200m" || got.Limits.Memory().String() != "256Mi" {
					return fmt.Sprintf("the template's resources are %+v", got)
				}
				if c := meta.FindStatusCondition(w.owner(name).Status.Conditions, "Sized"); c != nil {
					return fmt.Sprintf("there is still a condition Sized: %+v", c)
				}
				return ""
			})
			w.settled(name)
			w.runs(name)
			// From now on, the owner manages the template's resources.
			w.edit(name, func(o *v1beta1.ScaledDeployment) {
				o.Spec.Template.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("160m")
			})
			w.eventually(func() string {
				if got := w.deployment(name).Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().String(); got != "160m" {
					return "the template asks for " + got
				}
				return ""
			})
		})
	}
}

// Containers are added and removed after a scaler has taken over the template.
func TestTemplatesChangeAfterAScalerTookOverResources(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.uses("web", "app", 300, 240)
	w.uses("web", "side", 200, 200)
	w.own("web", scaled("Rollout"))
	w.sized("web")
	w.edit("web", func(o *v1beta1.ScaledDeployment) {
		// In front, so that the index of every container changes.
		o.Spec.Template.Spec.Containers = append([]corev1.Container{testkit.Container("side")}, o.Spec.Template.Spec.Containers...)
		o.Spec.Template.Spec.InitContainers = []corev1.Container{testkit.Container("init")}
	})
	w.eventually(func() string {
		s := w.scaler("web")
		if s.Status.OriginalResources == nil || len(s.Status.OriginalResources.Containers) != 2 {
			return fmt.Sprintf("held: %+v", s.Status.OriginalResources)
		}
		return ""
	})
	w.sized("web")
	d := w.settled("web")
	for i, name := range []string{"side", "app"} {
		if got := d.Spec.Template.Spec.Containers[i].Name; got != name {
			t.Errorf("container %d is %s", i, got)
		}
	}
	w.between("cpu of app", *d.Spec.Template.Spec.Containers[1].Resources.Requests.Cpu(), "330m", "380m")
	w.edit("web", func(o *v1beta1.ScaledDeployment) {
		o.Spec.Template.Spec.Containers = o.Spec.Template.Spec.Containers[:1] // "app" is removed
		o.Spec.Template.Spec.InitContainers = nil
	})
	w.eventually(func() string {
		if got := w.deployment("web").Spec.Template.Spec; len(got.Containers) != 1 || got.Containers[0].Name != "side" || len(got.InitContainers) > 0 {
			return fmt.Sprintf("the template is %+v", got)
		}
		return ""
	})
	w.settled("web")
	w.edit("web", func(o *v1beta1.ScaledDeployment) { o.Spec.Scaling = nil })
	w.gone(testkit.Scaler(w.namespace, "web", ""))
	w.eventually(func() string {
		got := w.deployment("web").Spec.Template.Spec.Containers[0].Resources.Requests
		if got.Cpu().String() != "100m" || got.Memory().String() != "128Mi" {
			return fmt.Sprintf("the template asks for %v", got)
		}
		return ""
	})
	w.settled("web")
}

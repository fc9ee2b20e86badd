// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/test/world/monitor"
)

// story is a sequence of events, at the revisions 1, 2, 3...
type story []watch.Event

func happens(kind watch.EventType, o client.Object) watch.Event {
	return watch.Event{Type: kind, Object: o}
}

func scaler(changes ...func(*v1beta1.VerticalScalerSpec)) *v1beta1.VerticalScaler {
	s := &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "s"}}
	s.Spec.DeploymentName = "web"
	s.Spec.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{{
		ContainerName: "*", MaxAllowed: &v1beta1.ResourceBounds{CPU: ptr.To(resource.MustParse("1"))},
		Limits: &v1beta1.LimitPolicy{MaxAllowed: &v1beta1.ResourceBounds{CPU: ptr.To(resource.MustParse("2"))}},
	}}}
	for _, change := range changes {
		change(&s.Spec)
	}
	return s
}

func set() *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web-1", UID: "rs", OwnerReferences: []metav1.OwnerReference{{Kind: "Deployment", Name: "web", Controller: ptr.To(true)}},
	}}
}

func by(manager, subresource, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: "Update", Subresource: subresource, FieldsV1: metav1.NewFieldsV1(fields)}
}

// pod requests some CPU, with a limit of so much; the field manager has resized it.
func pod(request, limit, manager string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-1-a", UID: "p", OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-1", UID: "rs", Controller: ptr.To(true)}},
		},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init"}},
			Containers:     []corev1.Container{{Name: "app", Image: "a", Resources: resources(request, limit)}},
		},
	}
	if manager != "" {
		p.ManagedFields = append(p.ManagedFields, by(manager, "resize", request+limit))
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func resources(request, limit string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse(request)}, Limits: corev1.ResourceList{"cpu": resource.MustParse(limit)},
	}
}

func deployment(request, limit, manager string, changes ...func(*appsv1.Deployment)) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "d"}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Resources: resources(request, limit)}}
	if manager != "" {
		entry := by(manager, "", `{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:resources":{"f:requests":{"f:cpu":{}}}}}}}}}`)
		entry.Time = ptr.To(metav1.Unix(int64(len(request+limit)), 0))
		d.ManagedFields = append(d.ManagedFields, entry)
	}
	for _, change := range changes {
		change(d)
	}
	return d
}

// owned is a Deployment whose managers own these fields since the same second.
func owned(request string, entries ...metav1.ManagedFieldsEntry) *appsv1.Deployment {
	return deployment(request, "1", "", func(d *appsv1.Deployment) { d.ManagedFields = entries })
}

func ownedBy(manager, container string) metav1.ManagedFieldsEntry {
	return by(manager, "", `{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{`+container+`}}}}}}`)
}

func image(manager string) metav1.ManagedFieldsEntry { return ownedBy(manager, `"f:image":{}`) }

func requests(manager string) metav1.ManagedFieldsEntry {
	return ownedBy(manager, `"f:resources":{"f:requests":{"f:cpu":{}}}`)
}

func all(manager string) metav1.ManagedFieldsEntry {
	return ownedBy(manager, `"f:image":{},"f:resources":{"f:requests":{"f:cpu":{}}}`)
}

func inMode(mode v1beta1.UpdateMode) func(*v1beta1.VerticalScalerSpec) {
	return func(s *v1beta1.VerticalScalerSpec) { s.UpdatePolicy.UpdateMode = mode }
}

// restoring is a scaler in a mode without rollouts that has recorded original values.
func restoring(request, limit string) *v1beta1.VerticalScaler {
	s := scaler(inMode("Recommend"))
	s.Status.OriginalResources = &v1beta1.OriginalResources{DeploymentName: "web", Containers: []v1beta1.OriginalContainerResources{{
		ContainerName: "app",
		Requests:      v1beta1.Amounts{CPU: ptr.To(resource.MustParse(request))},
		Limits:        v1beta1.Amounts{CPU: ptr.To(resource.MustParse(limit))},
	}}}
	return s
}

func suspended(s *v1beta1.VerticalScalerSpec) { s.Suspend = true }

func TestMonitor(t *testing.T) {
	const us = "verticalscaler"
	sharing := func(cpu string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}, Limits: corev1.ResourceList{"cpu": resource.MustParse("4")}}
		}
	}
	small, large := pod("100m", "1", ""), pod("200m", "1", us)
	template, written := deployment("100m", "1", ""), deployment("200m", "1", us)
	edited := scaler(func(s *v1beta1.VerticalScalerSpec) { s.UpdatePolicy.CooldownSeconds = ptr.To[int32](0) }, suspended)
	for name, test := range map[string]struct {
		story  story
		writes int
		want   string // a part of the only violation; empty if there is none
	}{
		"a resize": {story{happens(watch.Added, scaler()), happens(watch.Added, set()), happens(watch.Added, small), happens(watch.Modified, large)}, 1, ""},
		"a resize that is seen before the scaler": {
			story{happens(watch.Added, set()), happens(watch.Added, small), happens(watch.Modified, at(9, large)), happens(watch.Added, at(1, scaler()))}, 1, "",
		},
		"another manager's resize": {story{happens(watch.Added, set()), happens(watch.Added, small), happens(watch.Modified, pod("200m", "1", "kubectl"))}, 0, ""},
		"no scaler":                {story{happens(watch.Added, set()), happens(watch.Added, small), happens(watch.Modified, large)}, 1, `no scaler names Deployment "web"`},
		"a scaler of another":      {story{happens(watch.Added, scaler(func(s *v1beta1.VerticalScalerSpec) { s.DeploymentName = "api" })), happens(watch.Added, set()), happens(watch.Added, small), happens(watch.Modified, large)}, 1, `no scaler names Deployment "web"`},
		"a scaler that is gone":    {story{happens(watch.Added, scaler()), happens(watch.Added, set()), happens(watch.Added, small), happens(watch.Deleted, scaler()), happens(watch.Modified, large)}, 1, `no scaler names Deployment "web"`},
		"mode Recommend":           {story{happens(watch.Added, scaler(inMode("Recommend"))), happens(watch.Added, set()), happens(watch.Added, small), happens(watch.Modified, large)}, 1, "no scaler may change it"},
		"suspended":                {story{happens(watch.Added, scaler(suspended)), happens(watch.Added, set()), happens(watch.Added, small), happens(watch.Modified, large)}, 1, "no scaler may change it"},
		"suspended a moment ago":   {story{happens(watch.Added, scaler()), happens(watch.Modified, scaler(suspended)), happens(watch.Added, set()), happens(watch.Added, small), happens(watch.Modified, large)}, 1, ""},
		"suspended two specs ago":  {story{happens(watch.Added, scaler()), happens(watch.Modified, scaler(suspended)), happens(watch.Modified, edited), happens(watch.Added, set()), happens(watch.Added, small), happens(watch.Modified, large)}, 1, "no scaler may change it"},
		"a status between":         {story{happens(watch.Added, scaler()), happens(watch.Modified, scaler(suspended)), happens(watch.Modified, scaler(suspended)), happens(watch.Added, set()), happens(watch.Added, small), happens(watch.Modified, large)}, 1, ""},
		"a request over its limit": {
			story{happens(watch.Added, scaler()), happens(watch.Added, set()), happens(watch.Added, small), happens(watch.Modified, pod("800m", "500m", us))}, 1, "the request 800m is more than the limit 500m",
		},
		"no request": {
			story{happens(watch.Added, scaler()), happens(watch.Added, set()), happens(watch.Added, small), happens(watch.Modified, pod("0", "500m", us))}, 1, "the request is 0",
		},
		"more than is allowed": {
			story{happens(watch.Added, scaler()), happens(watch.Added, set()), happens(watch.Added, small), happens(watch.Modified, pod("1001m", "1500m", us))}, 1, "the request 1001m is more than 1",
		},
		"less, and still more than is allowed": {
			story{happens(watch.Added, scaler()), happens(watch.Added, set()), happens(watch.Added, pod("1800m", "1900m", "")), happens(watch.Modified, pod("1700m", "1900m", us))}, 1, "",
		},
		"a limit over what is allowed": {
			story{happens(watch.Added, scaler()), happens(watch.Added, set()), happens(watch.Added, small), happens(watch.Modified, pod("200m", "2001m", us))}, 1, "the limit 2001m is more than 2",
		},
		"another QoS class": {
			story{happens(watch.Added, scaler()), happens(watch.Added, set()), happens(watch.Added, pod("100m", "1", "", guaranteed)), happens(watch.Modified, pod("900m", "1", us, guaranteed, func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1")
			}))}, 1, "its QoS class would be Guaranteed, and was Burstable",
		},
		"an image": {
			story{happens(watch.Added, scaler()), happens(watch.Added, set()), happens(watch.Added, small), happens(watch.Modified, pod("200m", "1", us, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "b" }))}, 1, "more than resources of containers",
		},
		"an init container": {
			story{happens(watch.Added, scaler()), happens(watch.Added, set()), happens(watch.Added, small), happens(watch.Modified, pod("200m", "1", us, func(p *corev1.Pod) {
				p.Spec.InitContainers[0].Resources = resources("1", "1")
			}))}, 1, "more than resources of containers",
		},
		"pod-level resources, which follow": {
			story{happens(watch.Added, scaler()), happens(watch.Added, set()), happens(watch.Added, pod("100m", "1", "", sharing("1"))), happens(watch.Modified, pod("200m", "1", us, sharing("2")))}, 1, "",
		},
		"new pod-level resources": {
			story{happens(watch.Added, scaler()), happens(watch.Added, set()), happens(watch.Added, small), happens(watch.Modified, pod("200m", "1", us, sharing("2")))}, 1, "more than resources of containers",
		},
		"a pod-level resource that is not sized": {
			story{happens(watch.Added, scaler()), happens(watch.Added, set()), happens(watch.Added, pod("100m", "1", "", sharing("1"))), happens(watch.Modified, pod("200m", "1", us, sharing("2"), func(p *corev1.Pod) {
				p.Spec.Resources.Limits["hugepages-2Mi"] = resource.MustParse("2Mi")
			}))}, 1, "more than resources of containers",
		},
		"a template":              {story{happens(watch.Added, scaler(inMode("Rollout"))), happens(watch.Added, template), happens(watch.Modified, written)}, 1, ""},
		"a template, as fallback": {story{happens(watch.Added, scaler(func(s *v1beta1.VerticalScalerSpec) { s.UpdatePolicy.Fallback = "Rollout" })), happens(watch.Added, template), happens(watch.Modified, written)}, 1, ""},
		"a template, in place":    {story{happens(watch.Added, scaler()), happens(watch.Added, template), happens(watch.Modified, written)}, 1, "no scaler may change it"},
		"replicas": {
			story{happens(watch.Added, scaler(inMode("Rollout"))), happens(watch.Added, template), happens(watch.Modified, deployment("200m", "1", us, func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](3) }))}, 1, "more than resources of containers",
		},
		"a value that is taken over from another manager": {
			story{happens(watch.Added, scaler()), happens(watch.Added, owned("100m", all("helm"))), happens(watch.Modified, owned("200m", image("helm"), requests(us)))}, 1, "no scaler may change it",
		},
		"a value that another manager takes over": {
			story{happens(watch.Added, scaler()), happens(watch.Added, owned("100m", all(us))), happens(watch.Modified, owned("200m", image(us), requests("helm")))}, 0, "",
		},
		"a value that another manager takes over, which owned others": {
			story{happens(watch.Added, scaler()), happens(watch.Added, owned("100m", requests(us), image("helm"))), happens(watch.Modified, owned("200m", all("helm")))}, 0, "",
		},
		"a template that is released": {story{happens(watch.Added, written), happens(watch.Modified, template)}, 0, ""},
		"a template that is restored": {
			story{happens(watch.Added, restoring("100m", "1")), happens(watch.Added, written), happens(watch.Modified, deployment("100m", "1", "", func(d *appsv1.Deployment) {
				d.ManagedFields = append(d.ManagedFields, by(us, "", "{}"))
			}))}, 1, "",
		},
		"a template that is restored to other values": {
			story{happens(watch.Added, restoring("50m", "1")), happens(watch.Added, written), happens(watch.Modified, deployment("100m", "1", "", func(d *appsv1.Deployment) {
				d.ManagedFields = append(d.ManagedFields, by(us, "", "{}"))
			}))}, 1, "no scaler may change it",
		},
		"the original request with another limit": {
			story{happens(watch.Added, restoring("100m", "1")), happens(watch.Added, written), happens(watch.Modified, deployment("100m", "2", "", func(d *appsv1.Deployment) {
				d.ManagedFields = append(d.ManagedFields, by(us, "", "{}"))
			}))}, 1, "no scaler may change it",
		},
		"other fields of a template that is restored": {
			story{happens(watch.Added, restoring("100m", "1")), happens(watch.Added, written), happens(watch.Modified, deployment("100m", "1", "", func(d *appsv1.Deployment) {
				d.ManagedFields = append(d.ManagedFields, by(us, "", "{}"))
				d.Spec.Paused = true
			}))}, 1, "more than resources of containers",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := monitor.New()
			for i, event := range test.story {
				if o := event.Object.(client.Object); o.GetResourceVersion() == "" {
					event.Object = at(i+1, o)
				}
				m.Saw(event)
			}
			if got := m.Writes(); got != test.writes {
				t.Errorf("%d writes, not %d", got, test.writes)
			}
			switch got := m.Violations(); {
			case test.want == "" && len(got) > 0:
				t.Errorf("unexpected: %q", got)
			case test.want != "" && (len(got) != 1 || !strings.Contains(got[0], test.want)):
				t.Errorf("%q, not %q", got, test.want)
			}
		})
	}
}

// at returns the object with that revision.
func at[T client.Object](revision int, o T) T {
	copied := o.DeepCopyObject().(T)
	copied.SetResourceVersion(strconv.Itoa(revision))
	return copied
}

// guaranteed makes the pod Guaranteed, except for its CPU.
func guaranteed(p *corev1.Pod) {
	p.Spec.InitContainers = nil
	for _, list := range []corev1.ResourceList{p.Spec.Containers[0].Resources.Requests, p.Spec.Containers[0].Resources.Limits} {
		list["memory"] = resource.MustParse("1Gi")
	}
}

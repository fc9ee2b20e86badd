// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// Features that a kubelet declares if it can resize pod-level resources, and native sidecars.
const (
	resizesPodLevel = "InPlacePodLevelResourcesVerticalScaling"
	resizesSidecars = "InPlacePodVerticalScalingInitContainers"
)

// simulatedNodes are the names of the nodes that all tests share. Kwok's declare no features.
func (w *fixture) simulatedNodes() []string {
	w.Helper()
	var list corev1.NodeList
	if err := env.Client.List(w.Context(), &list); err != nil {
		w.Fatal(err)
	}
	var names []string
	for _, node := range list.Items {
		if strings.HasPrefix(node.Name, "fake-") {
			names = append(names, node.Name)
		}
	}
	slices.Sort(names)
	return names
}

// declareAll makes a node declare both features, so that parallel tests do not take one from each other.
func (w *fixture) declareAll(node string) {
	w.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{"declaredFeatures":[%q,%q]}}`, resizesPodLevel, resizesSidecars))
	if err := env.Client.Status().Patch(w.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, patch); err != nil {
		w.Fatal(err)
	}
}

func amountsOf(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
}

// onNode has pods of two containers that share pod-level resources, of which a third is beyond the
// containers' requests.
func onNode(node string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		twoContainers(d)
		d.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
		d.Spec.Template.Spec.Resources = &corev1.ResourceRequirements{Requests: amountsOf("300m", "384Mi"), Limits: amountsOf("600m", "768Mi")}
	}
}

// pinned decides these requests for each container, whatever is used.
func pinned(cpu, memory string) func(*v1beta1.VerticalScaler) {
	return func(s *v1beta1.VerticalScaler) {
		bounds := v1beta1.ResourceBounds{CPU: ptr.To(resource.MustParse(cpu)), Memory: ptr.To(resource.MustParse(memory))}
		s.Spec.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{{
			ContainerName: v1beta1.AnyContainer, MinAllowed: &bounds, MaxAllowed: bounds.DeepCopy(),
		}}}
	}
}

// hasPodLevel waits until each pod declares these pod-level resources.
func (w *fixture) hasPodLevel(name string, requests, limits corev1.ResourceList) {
	w.Helper()
	w.eventually(func() string {
		for _, pod := range w.pods(name) {
			for kind := range requests {
				request, limit := pod.Spec.Resources.Requests[kind], pod.Spec.Resources.Limits[kind]
				wantedRequest, wantedLimit := requests[kind], limits[kind]
				if request.Cmp(wantedRequest) != 0 || limit.Cmp(wantedLimit) != 0 {
					return fmt.Sprintf("pod %s declares %s of %s of %s, not %s of %s", pod.Name, request.String(), limit.String(), kind, wantedRequest.String(), wantedLimit.String())
				}
			}
		}
		return ""
	})
}

func TestPodLevelResourcesAreResizedInPlace(t *testing.T) {
	t.Parallel()
	env.NeedKwok(t)
	w := newFixture(t)
	node := w.simulatedNodes()[0]
	w.declareAll(node)
	w.deploy("web", onNode(node))
	before := w.pods("web")
	w.uses("web", "app", 50, 64)
	w.uses("web", "agent", 50, 64)
	w.scale("web", pinned("200m", "256Mi"))
	w.sized("web")
	w.hasPodLevel("web", amountsOf("500m", "640Mi"), amountsOf("1", "1280Mi"))

	w.eventually(func() string {
		s := w.scaler("web")
		pinned("50m", "64Mi")(s)
		return said(env.Client.Update(t.Context(), s))
	})
	w.hasPodLevel("web", amountsOf("200m", "256Mi"), amountsOf("400m", "512Mi"))
	w.sized("web")
	w.says("web", "Stalled", "False", "OperatingNormally")
	after := w.pods("web")
	if len(restarts(after)) > 0 {
		t.Errorf("restarts: %v", restarts(after))
	}
	for i := range after {
		if after[i].UID != before[i].UID || after[i].Status.QOSClass != before[i].Status.QOSClass {
			t.Errorf("pod %s was replaced, or has another QoS class", after[i].Name)
		}
	}
	if n := count(w.writes(w.began), "deployments"); total(n) > 0 {
		t.Errorf("writes of Deployments: %v", n)
	}
}

func TestPodLevelResourcesThatANodeCannotResizeHaveAReason(t *testing.T) {
	t.Parallel()
	env.NeedKwok(t)
	w := newFixture(t)
	nodes := w.simulatedNodes()
	node := nodes[len(nodes)-1]
	w.deploy("web", onNode(node))
	w.uses("web", "app", 50, 64)
	w.uses("web", "agent", 50, 64)
	w.scale("web", pinned("200m", "256Mi"))
	w.says("web", "Applied", "False", "Unsupported", resizesPodLevel, node)
	w.says("web", "Stalled", "True", "Unsupported")
	w.hasPodLevel("web", amountsOf("300m", "384Mi"), amountsOf("600m", "768Mi"))
	if summary := w.scaler("web").Status.Summary; !strings.HasPrefix(summary.Pods, "0/") {
		t.Errorf("the summary is %+v", summary)
	}
}

func TestAStolenTokenChangesNoOtherPodLevelResources(t *testing.T) {
	t.Parallel()
	env.NeedKwok(t)
	w := newFixture(t)
	node := w.simulatedNodes()[0]
	w.declareAll(node)
	w.deploy("web", onNode(node))
	w.deploy("plain", onNode(node), func(d *appsv1.Deployment) { d.Spec.Template.Spec.Resources = nil })
	thief := w.thief()
	try := func(name string, change func(*corev1.Pod)) error {
		before := w.pods(name)[0]
		after := before.DeepCopy()
		change(after)
		return thief.SubResource("resize").Patch(t.Context(), after, client.StrategicMergeFrom(&before), client.DryRunAll)
	}
	adds := func(p *corev1.Pod) {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: amountsOf("300m", "384Mi")}
	}
	w.untilRejectedBy("operator-pods", func() error { return try("plain", adds) })
	if err := try("web", func(p *corev1.Pod) { p.Spec.Resources.Requests["cpu"] = resource.MustParse("350m") }); err != nil {
		t.Errorf("CPU at the pod level: %v", err)
	}
	refused(t, try("plain", adds), "operator-pods", "pod-level")
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package stepped

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// resizesPodLevel is the feature that a kubelet declares if it can resize pod-level resources.
const resizesPodLevel = "InPlacePodLevelResourcesVerticalScaling"

// ownNode creates a node for one test, whose kubelet declares these features.
func (w *fixture) ownNode(features ...string) (name string) {
	w.Helper()
	name = "of-" + w.Namespace
	must.Succeed(w, env.Node(w.t.Context(), name))
	quoted := make([]string, len(features))
	for i, feature := range features {
		quoted[i] = fmt.Sprintf("%q", feature)
	}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{"declaredFeatures":[%s]}}`, strings.Join(quoted, ",")))
	must.Succeed(w, env.Client.Status().Patch(w.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, patch))
	return name
}

func amountsOf(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
}

// onNode has pods of two containers that share pod-level resources, of which a third is beyond the
// containers' requests.
func onNode(node string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		twoContainers(d)
		d.Spec.Template.Spec.NodeName = node
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

// hasPodLevel fails unless each pod declares these pod-level resources.
func (w *fixture) hasPodLevel(app string, requests, limits corev1.ResourceList) {
	w.Helper()
	for _, pod := range w.Pods(app) {
		for kind, want := range requests {
			request, limit, wantedLimit := pod.Spec.Resources.Requests[kind], pod.Spec.Resources.Limits[kind], limits[kind]
			if request.Cmp(want) != 0 || limit.Cmp(wantedLimit) != 0 {
				w.Errorf("pod %s declares %s of %s of %s, not %s of %s", pod.Name, request.String(), limit.String(), kind, want.String(), wantedLimit.String())
			}
		}
	}
}

func TestPodLevelResourcesAreResizedInPlace(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	w.deploy("web", onNode(w.ownNode(resizesPodLevel)))
	before := w.Pods("web")
	w.Uses("web", "app", 50, 64)
	w.Uses("web", "agent", 50, 64)
	w.Scale("web", pinned("200m", "256Mi"))
	w.Sized("web")
	w.hasPodLevel("web", amountsOf("500m", "640Mi"), amountsOf("1", "1280Mi"))

	s := w.Scaler("web")
	pinned("50m", "64Mi")(s)
	must.Succeed(t, env.Client.Update(t.Context(), s))
	w.Settle()
	w.Sized("web")
	w.hasPodLevel("web", amountsOf("200m", "256Mi"), amountsOf("1", "1280Mi")) // limits stay
	w.Reports("web", "Stalled", "False", "OperatingNormally")
	after := w.Pods("web")
	if len(restarts(after)) > 0 {
		t.Errorf("restarts: %v", restarts(after))
	}
	for i := range after {
		if after[i].UID != before[i].UID || after[i].Status.QOSClass != before[i].Status.QOSClass {
			t.Errorf("pod %s was replaced, or has another QoS class", after[i].Name)
		}
	}
	if n := count(w.Writes(), "deployments"); total(n) > 0 {
		t.Errorf("writes of Deployments: %v", n)
	}
}

// The API server compares what a resize needs with the features that the node declares. Its answer reaches the user.
func TestPodLevelResourcesNeedANodeThatDeclaresTheFeature(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	node := w.ownNode()
	w.deploy("web", onNode(node))
	w.Uses("web", "app", 50, 64)
	w.Uses("web", "agent", 50, 64)
	w.Scale("web", pinned("200m", "256Mi"))
	w.Settle()
	w.Reports("web", "Applied", "False", "Unsupported")
	message := meta.FindStatusCondition(w.Scaler("web").Status.Conditions, v1beta1.ConditionApplied).Message
	if !strings.Contains(message, resizesPodLevel) || !strings.Contains(message, node) {
		t.Errorf("the message does not name the feature and the node: %s", message)
	}
	w.hasPodLevel("web", amountsOf("300m", "384Mi"), amountsOf("600m", "768Mi"))
}

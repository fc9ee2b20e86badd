// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/golden"
)

// aboutPod asks about a pod of checkout with the decided requests and this memory limit, which field managers have resized.
func aboutPod(limit string, changes ...change) explain.Evidence {
	e := checkout(changes...)
	e.Now = noon
	container := e.Deployment.Spec.Template.Spec.Containers[0]
	container.Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("230m"), "memory": resource.MustParse("256Mi")},
		Limits:   corev1.ResourceList{"cpu": resource.MustParse("1")},
	}
	if limit != "" {
		container.Resources.Limits["memory"] = resource.MustParse(limit)
	}
	e.Pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "checkout-1"}, Spec: corev1.PodSpec{Containers: []corev1.Container{container}}}
	e.PodTemplate = e.Deployment.Spec.Template.DeepCopy()
	return e
}

// resizedBy adds a resize of the pod.
func resizedBy(e explain.Evidence, manager string, before time.Duration) explain.Evidence {
	e.Pod.ManagedFields = append(e.Pod.ManagedFields, metav1.ManagedFieldsEntry{Manager: manager, Subresource: "resize", Time: ptr.To(ago(before))})
	return e
}

// killed adds an OOM kill ten minutes ago.
func killed(e explain.Evidence) explain.Evidence {
	e.Pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "app", RestartCount: 1,
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", FinishedAt: ago(10 * time.Minute)}},
	}}
	return e
}

func withoutLimit(e *explain.Evidence) {
	delete(e.Deployment.Spec.Template.Spec.Containers[0].Resources.Limits, "memory")
}

func raised(e *explain.Evidence) {
	e.Scaler.Status.History = []v1beta1.HistoryEntry{{Time: ago(9 * time.Minute), Message: "OOMKill: app cpu 1->2, memory 256Mi->480Mi"}, {Time: ago(2 * time.Hour), Message: "ScaleDown: app memory 1024Mi->256Mi"}}
}

func TestWhetherTheOperatorCausedAnOOMKill(t *testing.T) {
	operator, user := "verticalscaler", "kubectl-patch"
	for name, tc := range map[string]struct {
		e    explain.Evidence
		want string
	}{
		"a lowered limit":                    {resizedBy(aboutPod("256Mi"), operator, time.Hour), "at 256Mi, 10m ago (2026-03-02T11:50:00Z). Its template gives 1024Mi. Lowered by the operator: yes, so because of it."},
		"a limit that a user has lowered":    {resizedBy(resizedBy(aboutPod("256Mi"), operator, 2*time.Hour), user, time.Hour), "Its template gives 1024Mi. Lowered by the operator: no, by field manager kubectl-patch, so not because of the operator."},
		"the limit of the template":          {resizedBy(aboutPod("1Gi"), operator, time.Hour), "at 1024Mi, 10m ago (2026-03-02T11:50:00Z). Its template gives 1024Mi. Lowered by the operator: no, so not because of it."},
		"a pod that started smaller":         {aboutPod("256Mi"), "Lowered by the operator: yes, so because of it."},
		"a lowered request, raised since":    {resizedBy(aboutPod("", withoutLimit, raised), operator, time.Minute), "at 256Mi, 10m ago (2026-03-02T11:50:00Z). Its template gives 1024Mi. Lowered by the operator: yes, so because of it."},
		"a limit that stays, resized since":  {resizedBy(aboutPod("1Gi", raised), operator, time.Minute), "at 1024Mi, 10m ago (2026-03-02T11:50:00Z). Its template gives 1024Mi. Lowered by the operator: no, so not because of it."},
		"resized since, without a raise":     {resizedBy(aboutPod("", withoutLimit), operator, time.Minute), "Lowered by the operator: not known, because the pod was resized since."},
		"the template is the operator's own": {resizedBy(aboutPod("256Mi", ownTemplate), operator, time.Hour), "Its template gives 1024Mi. Lowered by the operator: yes, so because of it."},
	} {
		facts := explain.Of(killed(tc.e)).Pod.Facts
		if got := facts[len(facts)-1]; !strings.HasPrefix(got, "OOM-killed: container app at ") || !strings.HasSuffix(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// ownTemplate has sizes that the operator has written.
func ownTemplate(e *explain.Evidence) {
	of := e.Deployment.Spec.Template.Spec.Containers[0].Resources
	e.Scaler.Status.OriginalResources = &v1beta1.OriginalResources{Containers: []v1beta1.OriginalContainerResources{{
		ContainerName: "app", Requests: v1beta1.Amounts{Memory: ptr.To(of.Requests.Memory().DeepCopy())}, Limits: v1beta1.Amounts{Memory: ptr.To(of.Limits.Memory().DeepCopy())},
	}}}
	of.Requests["memory"], of.Limits["memory"] = resource.MustParse("256Mi"), resource.MustParse("256Mi")
}

func TestWhatANewPodWouldGet(t *testing.T) {
	published := func(e *explain.Evidence) {
		q := func(s string) *resource.Quantity { return ptr.To(resource.MustParse(s)) }
		e.Scaler.Status.NewPods = &v1beta1.NewPods{ReplicaSetUID: "proven", Containers: []v1beta1.NewPodContainer{{
			ContainerName: "app", Requests: v1beta1.Amounts{CPU: q("230m"), Memory: q("2Gi")}, Limits: v1beta1.Amounts{CPU: q("1"), Memory: q("2Gi")},
		}}}
	}
	for name, tc := range map[string]struct {
		e           explain.Evidence
		set         types.UID
		cpu, memory string
	}{
		"nothing is published":      {aboutPod("1Gi"), "proven", "500m", "1024Mi"},
		"a proven revision":         {aboutPod("1Gi", published), "proven", "230m", "2048Mi"},
		"a new revision":            {aboutPod("1Gi", published), "new", "500m", "2048Mi"},
		"new pods are not sized":    {aboutPod("1Gi", published, conditions("NewPodsSized False AdmissionUnavailable no")), "proven", "500m", "1024Mi"},
		"limits of other resources": {aboutPod("1Gi", published, withoutLimit), "proven", "500m", "1024Mi"},
	} {
		tc.e.Pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", UID: tc.set, Controller: ptr.To(true)}}
		facts := explain.Of(tc.e).Pod.Facts
		for i, want := range []string{tc.cpu, tc.memory} {
			if !strings.Contains(facts[i], "A new pod requests "+want+",") {
				t.Errorf("%s: %q, want %s", name, facts[i], want)
			}
		}
	}
}

func TestTextOfAPod(t *testing.T) {
	e := killed(resizedBy(resizedBy(aboutPod("512Mi"), "kubectl-edit", 3*time.Hour), "verticalscaler", time.Hour))
	e.Pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred, Message: "Node didn't have enough resource: memory", LastTransitionTime: ago(4 * time.Minute),
	}}
	golden.Compare(t, "pod.txt", explain.Of(e).Text(noon))
	if text := explain.Of(resizedBy(aboutPod("1Gi", generated("", nil)), "verticalscaler", time.Hour)).Text(noon); !strings.Contains(text, "--to=original --detach\n") {
		t.Error(text)
	}
	detaching := generated("", map[string]string{v1beta1.DetachedAnnotation: "true"})
	if pod := explain.Of(resizedBy(aboutPod("1Gi", detaching), "verticalscaler", time.Hour)).Pod; !strings.HasSuffix(pod.Restore, "--to=original") {
		t.Errorf("of a scaler that is being detached: %s", pod.Restore)
	}
	if facts := explain.Of(aboutPod("512Mi")).Pod.Facts; !strings.HasPrefix(facts[2], "Never resized: it was created with sizes other than its template's") {
		t.Error(facts)
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package stepped

import (
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// A policy that is asked when pods are created, and not when they are resized, keeps no pod of ours from being created.
func TestPodsThatAPolicyRefusesStartAsInTheTemplate(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	d := w.deploy("web")
	w.Uses("web", "app", 300, 240)
	w.Scale("web", sizingNewPods)
	w.Sized("web")
	w.hasSizesOf("web")
	w.untilAPIServerKnows(d)
	w.deny("", "pods", `object.spec.containers.all(c, quantity(string(c.resources.requests['cpu'])).compareTo(quantity('200m')) <= 0)`, "at most 200m", admissionregistrationv1.Create)
	testkit.Eventually(t, 2*time.Minute, func() string { // The API server learns of the policy.
		pod := w.Pods("web")[0]
		probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "probe", Labels: pod.Labels, OwnerReferences: pod.OwnerReferences}, Spec: *d.Spec.Template.Spec.DeepCopy()}
		if err := env.Client.Create(t.Context(), probe, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "at most 200m") {
			return fmt.Sprintf("a large pod is not refused: %v", err)
		}
		return ""
	})
	w.Patch(testkit.Deployment(w.Namespace, "web"), `{"spec":{"replicas":5}}`)
	w.Says("web", "NewPodsSized", "False", "ReplicaFailure", "at most 200m")
	w.hasSizesOf()
	w.runs("web")
	w.Sized("web")
	w.Says("web", "Ready", "True", "OperatingNormally")
	w.Says("web", "NewPodsSized", "False", "ReplicaFailure", "at most 200m")
	if n := len(w.Pods("web")); n != 5 {
		t.Errorf("%d pods", n)
	}
}

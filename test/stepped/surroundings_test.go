// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package stepped

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

func TestAQuotaIsRespectedAndUsedWhenRaised(t *testing.T) {
	t.Parallel()
	w := newServed(t) // its resync period is too long to help
	w.quota("660m")
	w.deploy("web") // its pods count with 360m: 20m are for each sidecar
	w.Uses("web", "app", 300, 240)
	w.Scale("web") // one pod of three fits: about 345m, 100m and 100m
	w.Reports("web", "Applied", "False", "QuotaExceeded", "team", "660m of requests.cpu", "are used")
	w.Reports("web", "Stalled", "True", "QuotaExceeded")

	// Their memory is not affected by the quota.
	w.Until(func() string {
		for _, pod := range w.Pods("web") {
			if now := world.Actual(&pod, "app").Requests.Memory(); now.Cmp(resource.MustParse("276Mi")) < 0 {
				return "pod " + pod.Name + " has " + now.String() + " of memory"
			}
		}
		return ""
	})
	w.Minutes(20)
	for _, write := range w.Writes() {
		if write.Resource == "pods/resize" && write.Err != nil {
			t.Errorf("refused: %s", write)
		}
	}
	grown := 0
	for _, pod := range w.Pods("web") {
		if world.Actual(&pod, "app").Requests.Cpu().String() != "100m" {
			grown++
		}
	}
	if grown != 1 {
		t.Errorf("%d pods have grown: the quota has room for one", grown)
	}

	w.quota("2")
	w.Sized("web")
	w.Reports("web", "Ready", "True", "OperatingNormally")
}

// quota creates the quota "team" of CPU requests, or changes it. The API server counts what is added by itself.
func (w *fixture) quota(cpu string) {
	w.Helper()
	hard := corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse(cpu)}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "team"}}
	if _, err := controllerutil.CreateOrUpdate(w.t.Context(), env.Client, quota, func() error { quota.Spec.Hard = hard; return nil }); err != nil {
		w.Fatal(err)
	}
	quota.Status.Hard = hard
	if quota.Status.Used == nil {
		quota.Status.Used = corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse("0")}
	}
	must.Succeed(w, env.Client.Status().Update(w.t.Context(), quota))
	w.enforced("limited: requests.cpu=" + cpu)
}

// enforced waits until the API server, which reads quotas and LimitRanges from a cache, refuses an enormous pod with these
// words.
func (w *fixture) enforced(words string) {
	w.Helper()
	enormous := testkit.Container("app")
	enormous.Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("100"), "memory": resource.MustParse("100Gi")}
	enormous.Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("300"), "memory": resource.MustParse("300Gi")}
	testkit.Eventually(w.t, time.Minute, func() string {
		err := env.Client.Create(w.t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "enormous"}, Spec: corev1.PodSpec{Containers: []corev1.Container{enormous}},
		}, client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), words) {
			return fmt.Sprintf("an enormous pod is answered with %v, without %q", err, words)
		}
		return ""
	})
}

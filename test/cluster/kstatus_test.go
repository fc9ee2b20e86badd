// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"fmt"
	"sync"
	"testing"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/gitops"
)

// GitOps tools see a scaler as current while its pods are raised, lowered and verified. An edit of the
// spec is in progress until all pods have what it asks for.
func TestKStatus(t *testing.T) {
	t.Parallel()
	w := newFixture(t, quick)
	w.deploy("web")
	w.uses("web", "app", 400, 240)
	seen := w.versions()
	w.scale("web", func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.VerificationSeconds = ptr.To(int32(5)) })
	w.sized("web")
	w.uses("web", "app", 50, 100)
	w.says("web", "Applied", "False", "Verifying")
	w.sized("web")
	var changing int
	for i, s := range seen() {
		status := gitops.StatusOf(t, s)
		if meta.IsStatusConditionTrue(s.Status.Conditions, v1beta1.ConditionChanging) {
			changing++
		}
		if created := len(s.Status.Conditions) == 0; status != kstatus.CurrentStatus && !created {
			t.Errorf("version %d is %s, of %d conditions: %+v", i, status, len(s.Status.Conditions), s.Status.Conditions)
		}
	}
	if changing < 2 {
		t.Errorf("%d versions say that pods are changed: nothing was tried", changing)
	}

	before := len(seen())
	w.patch(w.scaler("web"), `{"spec":{"resourcePolicy":{"containerPolicies":[{"containerName":"*","minAllowed":{"memory":"300Mi"}}]}}}`)
	w.eventually(func() string {
		s := w.scaler("web")
		if s.Status.ObservedGeneration != s.Generation || !meta.IsStatusConditionTrue(s.Status.Conditions, v1beta1.ConditionApplied) {
			return fmt.Sprintf("generation %d is not applied yet", s.Generation)
		}
		for _, pod := range w.pods("web") {
			if got := actual(pod, "app").Requests.Memory(); got.Cmp(resource.MustParse("300Mi")) < 0 {
				return fmt.Sprintf("pod %s has %s of memory", pod.Name, got)
			}
		}
		return ""
	})
	var inProgress, asChanging int
	for _, s := range seen()[before:] {
		if gitops.StatusOf(t, s) != kstatus.InProgressStatus {
			continue
		}
		inProgress++
		if meta.IsStatusConditionTrue(s.Status.Conditions, v1beta1.ConditionReconciling) {
			asChanging++
		}
	}
	if inProgress < 2 || asChanging < 1 {
		t.Errorf("%d versions are in progress after the edit, %d of them because pods are changed", inProgress, asChanging)
	}
	if got := gitops.StatusOf(t, w.scaler("web")); got != kstatus.CurrentStatus {
		t.Errorf("at the end it is %s", got)
	}
}

// versions watches the scalers of the namespace. The function that it returns lists all versions of them so
// far.
func (w *fixture) versions() func() []*v1beta1.VerticalScaler {
	w.Helper()
	watching, err := client.NewWithWatch(env.Config, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		w.Fatal(err)
	}
	watcher, err := watching.Watch(w.Context(), &v1beta1.VerticalScalerList{}, client.InNamespace(w.namespace))
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(watcher.Stop)
	var lock sync.Mutex
	var list []*v1beta1.VerticalScaler
	go func() {
		for event := range watcher.ResultChan() {
			if s, ok := event.Object.(*v1beta1.VerticalScaler); ok {
				lock.Lock()
				list = append(list, s)
				lock.Unlock()
			}
		}
	}()
	return func() []*v1beta1.VerticalScaler {
		lock.Lock()
		defer lock.Unlock()
		return list[:len(list):len(list)]
	}
}

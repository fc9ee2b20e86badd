// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"testing"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/gitops"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// GitOps tools see a scaler as current while its pods are raised, lowered and verified. An edit of the spec is in progress
// until all pods have what it asks for.
func TestKStatus(t *testing.T) {
	t.Parallel()
	w := newFixture(t, quick)
	var seen []*v1beta1.VerticalScaler // all versions that the operator has written
	w.Fault = func(write world.Write, _ int, send func() error) error {
		err := send()
		if err == nil && write.Resource == "verticalscalers/status" {
			seen = append(seen, w.Scaler(write.Name))
		}
		return err
	}
	w.deploy("web")
	w.Uses("web", "app", 400, 240)
	w.scale("web", func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.VerificationSeconds = ptr.To(int32(90)) })
	w.Sized("web")
	w.Uses("web", "app", 50, 100)
	w.Says("web", "Applied", "False", "Verifying")
	w.Sized("web")
	var changing int
	for i, s := range seen {
		if status := gitops.StatusOf(t, s); status != kstatus.CurrentStatus {
			t.Errorf("version %d is %s, of %d conditions: %+v", i, status, len(s.Status.Conditions), s.Status.Conditions)
		}
		if meta.IsStatusConditionTrue(s.Status.Conditions, v1beta1.ConditionChanging) {
			changing++
		}
	}
	if changing < 2 {
		t.Errorf("%d versions say that pods are changed: nothing was tried", changing)
	}

	before := len(seen)
	w.Patch(w.Scaler("web"), `{"spec":{"resourcePolicy":{"containerPolicies":[{"containerName":"*","minAllowed":{"memory":"300Mi"}}]}}}`)
	if status := gitops.StatusOf(t, w.Scaler("web")); status != kstatus.InProgressStatus {
		t.Errorf("after the edit it is %s", status)
	}
	requests := w.Sized("web")
	w.Between("memory", *requests.Memory(), "300Mi", "300Mi")
	var asChanging int
	for _, s := range seen[before:] {
		if gitops.StatusOf(t, s) == kstatus.InProgressStatus && meta.IsStatusConditionTrue(s.Status.Conditions, v1beta1.ConditionReconciling) {
			asChanging++
		}
	}
	if asChanging < 1 {
		t.Error("no version is in progress because pods are changed")
	}
	if got := gitops.StatusOf(t, w.Scaler("web")); got != kstatus.CurrentStatus {
		t.Errorf("at the end it is %s", got)
	}
}

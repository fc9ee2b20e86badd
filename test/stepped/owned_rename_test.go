// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// These tests rename the Deployment of a ScaledDeployment.

// neverTwo fails the test if a write of the operator gives an owner a second Deployment.
func (w *fixture) neverTwo() {
	w.Fault = func(write world.Write, _ int, send func() error) error {
		err := send()
		if write.Resource != "deployments" {
			return err
		}
		by := map[types.UID][]string{}
		for _, d := range w.deployments() {
			if owner := metav1.GetControllerOf(&d); owner != nil {
				by[owner.UID] = append(by[owner.UID], d.Name)
				if len(by[owner.UID]) > 1 {
					w.Errorf("%s %s has several Deployments: %v", owner.Kind, owner.Name, by[owner.UID])
				}
			}
		}
		return err
	}
}

func (w *fixture) deployments() []appsv1.Deployment {
	w.Helper()
	var list appsv1.DeploymentList
	must.Succeed(w, w.Client.List(w.t.Context(), &list, client.InNamespace(w.Namespace)))
	return list.Items
}

// ownsOnly fails the test unless the owner's only Deployment has that name.
func (w *fixture) ownsOnly(name, deployment string) {
	w.Helper()
	var names []string
	for _, d := range w.deployments() {
		if metav1.IsControlledBy(&d, w.Owner(name)) {
			names = append(names, d.Name)
		}
	}
	if !slices.Equal(names, []string{deployment}) {
		w.Errorf("the Deployments of %s are %v, want %s", name, names, deployment)
	}
}

// The owner is renamed whatever the operator has done meanwhile.
func TestARenameDuringAnotherChange(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.neverTwo()
	w.Add(w.NewOwner("early", world.Scaled("InPlace")))
	w.edit("early", named("early-v1")) // before the first reconcile
	w.edit("early", named("early-v2"))
	w.Own("again", world.Scaled("InPlace"))
	w.Own("back", world.Scaled("InPlace"))

	// The Deployments are being deleted and have not gone yet.
	controllers := w.Controllers
	w.Controllers = nil
	w.edit("again", named("again-v1"))
	w.edit("back", named("back-v1"))
	w.Settle()
	for _, name := range []string{"again", "back"} {
		w.OwnerReports(name, "Ready", "False", "Replacing", "Deployment "+name)
	}
	w.edit("again", named("again-v2"))
	w.edit("back", named(""))
	w.Settle()
	w.Controllers = controllers
	for name, deployment := range map[string]string{"early": "early-v2", "again": "again-v2", "back": "back"} {
		w.Settled(name)
		w.ownsOnly(name, deployment)
	}
}

// The operator may be killed between any two steps of a replacement: it deletes the old Deployment, creates the new one, and
// retargets the scaler.
func TestKillsAfterEachWriteOfARenameChangeNothing(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.neverTwo()
	count, last := w.Fault, ""
	killed := func(write world.Write, n int, send func() error) error {
		err := count(write, n, send)
		if last == write.String() { // The next process repeats this write, and goes on.
			last = ""
			return err
		}
		last = write.String()
		return w.Operator.KillAfter(write, func() error { return err })
	}
	w.Uses("web", "app", 300, 240)
	w.Fault = killed
	w.Own("web", world.Scaled("Rollout"))
	w.Fault = count
	w.Sized("web")
	w.Fault = killed
	w.edit("web", named("web-v2"))
	d := w.Settled("web")
	w.Fault = count
	w.Sized("web")
	w.ownsOnly("web", "web-v2")
	w.OwnerReports("web", "Sized", "True", "OperatingNormally")
	if s := w.Scaler("web"); s.Spec.DeploymentName != "web-v2" || s.Status.OriginalResources == nil || s.Status.OriginalResources.UID != d.UID {
		t.Errorf("the scaler sizes %s and has original resources %+v", s.Spec.DeploymentName, s.Status.OriginalResources)
	}
	w.Fault = killed
	w.edit("web", func(o *v1beta1.ScaledDeployment) { o.Spec.Scaling = nil })
	w.Gone(testkit.Scaler(w.Namespace, "web", ""))
	w.asksFor(w.Settled("web"), "100m", "128Mi")
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// These tests rename the Deployment of a ScaledDeployment.

func TestARenamedDeploymentIsReplacedAndNeverTwo(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	for name, change := range map[string]func(*v1beta1.ScaledDeployment){
		"plain":   func(*v1beta1.ScaledDeployment) {},
		"inplace": scaled("InPlace"),
		"rollout": scaled("Rollout"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := w.in(t)
			counted := w.neverTwo()
			w.uses(name, "app", 300, 240)
			owner := w.own(name, change)
			if owner.Spec.Scaling != nil {
				w.sized(name)
			}
			old := podUIDs(w.pods(name))
			for _, next := range []string{name + "-v2", ""} { // and back to its own name
				w.edit(name, named(next))
				d := w.settled(name)
				w.hasPods(name, d)
				counted(d)
				if left := w.owned(owner); len(left) != 1 || left[0] != d.Name {
					t.Errorf("the owner's Deployments are %v", left)
				}
				if owner.Spec.Scaling != nil {
					w.sized(name)
					if got := w.scaler(name).Spec.DeploymentName; got != d.Name {
						t.Errorf("the scaler sizes %s", got)
					}
				}
			}
			for _, uid := range podUIDs(w.pods(name)) {
				if slices.Contains(old, uid) {
					t.Errorf("pod %s is of the first Deployment", uid)
				}
			}
			w.noted(owner.UID, "Deleted", "Deleted Deployment "+name)
			w.noted(owner.UID, "Created", "Created Deployment "+name+"-v2")
		})
	}
}

// hasPods waits until the number of pods with that label is the Deployment's replicas.
func (w *fixture) hasPods(app string, d *appsv1.Deployment) {
	w.Helper()
	w.eventually(func() string {
		if n := len(w.pods(app)); n != int(*d.Spec.Replicas) {
			return fmt.Sprintf("there are %d pods", n)
		}
		return ""
	})
}

// owned returns the names of the owner's Deployments.
func (w *fixture) owned(owner *v1beta1.ScaledDeployment) (names []string) {
	w.Helper()
	var list appsv1.DeploymentList
	if err := env.Client.List(w.Context(), &list, client.InNamespace(w.namespace)); err != nil {
		w.Fatal(err)
	}
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], owner) {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

func TestARenameRightAfterTheCreation(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	counted := w.neverTwo()
	const many = 5
	for i := range many {
		name := fmt.Sprintf("d%d", i)
		w.create(w.newOwner(name, scaled("InPlace")))
		for j := range i + 1 { // repeatedly, whatever the operator has done meanwhile
			w.patch(w.newOwner(name), `{"spec":{"deploymentName":"%s-v%d"}}`, name, j)
		}
	}
	for i := range many {
		name := fmt.Sprintf("d%d", i)
		counted(w.settled(name))
		owner := w.owner(name)
		if got, want := w.owned(owner), fmt.Sprintf("%s-v%d", name, i); len(got) != 1 || got[0] != want {
			t.Errorf("the Deployments of %s are %v, want %s", name, got, want)
		}
	}
}

func TestARenameToATakenNameWaits(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	counted := w.neverTwo()
	w.deploy("taken")
	owner := w.own("web", scaled("InPlace"))
	before := w.deployment("web")
	w.edit("web", named("taken"))
	w.ownerSays("web", "Stalled", "True", "NotControlled", "Deployment taken", "has no controller")
	w.ownerSays("web", "Ready", "False", "NotControlled")
	w.ownerSays("web", "Reconciling", "False", "OperatingNormally")
	if now := w.deployment("web"); now.UID != before.UID || now.Generation != before.Generation || now.DeletionTimestamp != nil {
		t.Errorf("the old Deployment was touched: %+v", now.ObjectMeta)
	}
	if o := w.owner("web"); o.Status.AvailableReplicas != 3 {
		t.Errorf("the status counts %d pods, of the three that run", o.Status.AvailableReplicas)
	}
	w.remove(testkit.Deployment(w.namespace, "taken"))
	w.eventually(func() string { return unlike(w.owner("web"), "Stalled", "False", "OperatingNormally") })
	counted(w.settled("web"))
	if got := w.owned(owner); len(got) != 1 || got[0] != "taken" {
		t.Errorf("the owner's Deployments are %v", got)
	}
}

func TestARenameThatTheAPIServerRefusesKeepsTheOldDeployment(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	counted := w.neverTwo()
	owner := w.own("web", scaled("InPlace"))
	before := w.deployment("web")
	w.edit("web", func(o *v1beta1.ScaledDeployment) {
		o.Spec.DeploymentName = "web-v2"
		o.Spec.Template.Spec.Containers[0].ImagePullPolicy = "Sometimes"
	})
	w.ownerSays("web", "Stalled", "True", "Rejected", `Unsupported value: "Sometimes"`)
	if now := w.deployment("web"); now.UID != before.UID || now.Generation != before.Generation || now.DeletionTimestamp != nil {
		t.Errorf("the old Deployment was touched: %+v", now.ObjectMeta)
	}
	w.edit("web", func(o *v1beta1.ScaledDeployment) { o.Spec.Template.Spec.Containers[0].ImagePullPolicy = "Always" })
	counted(w.settled("web"))
	if got := w.owned(owner); len(got) != 1 || got[0] != "web-v2" {
		t.Errorf("the owner's Deployments are %v", got)
	}
}

// A quota of one Deployment would reject the new Deployment while the old one exists. That
// is no reason to keep the old one.
func TestAQuotaOfOneDeploymentAllowsARename(t *testing.T) {
	t.Parallel()
	w := newFixture(t, resync(fast))
	w.create(deploymentQuota(w, "1"))
	owner := w.own("web")
	w.edit("web", named("web-v2"))
	w.settled("web")
	if got := w.owned(owner); len(got) != 1 || got[0] != "web-v2" {
		t.Errorf("the owner's Deployments are %v", got)
	}
}

// The operator may be killed between any two steps of a replacement: it deletes the old
// Deployment, creates the new one, and retargets the scaler.
func TestRestartsDuringARenameChangeNothing(t *testing.T) {
	t.Parallel()
	env.NeedAudit(t)
	const times = 4
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	w := newFixture(t)
	counted := w.neverTwo()
	w.uses("web", "app", 300, 240)
	w.create(w.newOwner("web", scaled("Rollout")))
	interrupted := func(done func() bool) {
		t.Helper()
		for range times {
			until := len(w.writes(w.began)) + 1 + random.IntN(3)
			w.eventually(func() string {
				if n := len(w.writes(w.began)); n < until && !done() {
					return fmt.Sprintf("%d writes of %d", n, until)
				}
				return ""
			})
			w.restart()
		}
	}
	isSized := func() bool { return unlike(w.owner("web"), "Sized", "True", "OperatingNormally") == "" }
	interrupted(isSized)
	w.settled("web")
	w.sized("web")
	w.edit("web", named("web-v2"))
	interrupted(isSized)
	d := w.settled("web")
	counted(d)
	w.sized("web")
	if got := w.owned(w.owner("web")); len(got) != 1 || got[0] != "web-v2" {
		t.Errorf("the owner's Deployments are %v", got)
	}
	if s := w.scaler("web"); s.Spec.DeploymentName != "web-v2" || s.Status.OriginalResources == nil || s.Status.OriginalResources.UID != d.UID {
		t.Errorf("the scaler sizes %s and has original resources %+v", s.Spec.DeploymentName, s.Status.OriginalResources)
	}
	w.edit("web", func(o *v1beta1.ScaledDeployment) { o.Spec.Scaling = nil })
	interrupted(func() bool {
		return apierrors.IsNotFound(env.Client.Get(t.Context(), w.key("web"), &v1beta1.VerticalScaler{}))
	})
	w.gone(testkit.Scaler(w.namespace, "web", ""))
	w.settled("web")
	w.eventually(func() string {
		got := w.deployment("web-v2").Spec.Template.Spec.Containers[0].Resources.Requests
		if got.Cpu().String() != "100m" || got.Memory().String() != "128Mi" {
			return fmt.Sprintf("the template asks for %v", got)
		}
		return ""
	})
}

func deploymentQuota(w *fixture, most string) *corev1.ResourceQuota {
	return quota(w, "count/deployments.apps", most)
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// fast is a resync period for changes that trigger no event.
const fast = 2 * time.Second

func quota(w *fixture, what corev1.ResourceName, most string) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "team"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{what: resource.MustParse(most)}},
	}
}

// asMade returns the fields of a Deployment that an operator could have changed.
func asMade(d *appsv1.Deployment) *appsv1.Deployment {
	d = d.DeepCopy()
	d.ManagedFields, d.ResourceVersion, d.Generation, d.Status = nil, "", 0, appsv1.DeploymentStatus{}
	delete(d.Annotations, revision) // set by the Deployment controller
	return d
}

func TestAForeignDeploymentIsLeftAlone(t *testing.T) {
	t.Parallel()
	env.NeedAudit(t)
	w := newFixture(t)
	for name, tc := range map[string]struct {
		// make creates a Deployment with that name.
		make  func(w *fixture, name string)
		whose string
		// free makes the name available.
		free func(w *fixture, name string)
	}{
		"uncontrolled": {
			make:  func(w *fixture, name string) { w.deploy(name) },
			whose: "has no controller",
			free:  func(w *fixture, name string) { w.remove(testkit.Deployment(w.namespace, name)) },
		},
		"by-a-stranger": {
			make: func(w *fixture, name string) {
				boss := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "boss"}}
				w.create(boss)
				w.deploy(name, func(d *appsv1.Deployment) {
					d.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(boss, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
				})
			},
			whose: "is controlled by ConfigMap boss",
			free: func(w *fixture, _ string) {
				w.remove(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "boss"}})
			},
		},
		"by-another": {
			make:  func(w *fixture, name string) { w.own("first", named(name)) },
			whose: "is controlled by ScaledDeployment first",
			free:  func(w *fixture, _ string) { w.edit("first", named("")) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := w.in(t)
			tc.make(w, name)
			before := w.deployment(name)
			mark := env.Mark()
			// The template differs, so that a takeover would be visible.
			w.create(w.newOwner(name, scaled("InPlace"), func(o *v1beta1.ScaledDeployment) { o.Spec.Template.Spec.Containers[0].Image = "example.com/mine:1" }))
			what := fmt.Sprintf("Deployment %s already exists and %s", name, tc.whose)
			w.ownerSays(name, "Stalled", "True", "NotControlled", what)
			w.ownerSays(name, "Ready", "False", "NotControlled", what)
			w.ownerSays(name, "Reconciling", "False", "OperatingNormally")
			owner := w.owner(name)
			w.noted(owner.UID, "Refused", what)

			// Every event triggers a reconcile, and its result stays the same.
			w.patch(owner, `{"spec":{"replicas":4}}`)
			w.ownerSays(name, "Stalled", "True", "NotControlled", what)
			if n := w.eventsOf(owner.UID, "Refused"); len(n) != 1 || !strings.HasPrefix(n[0], "Warning NotControlled: "+what) {
				t.Errorf("events: %q", n)
			}
			now := w.deployment(name)
			if diff := cmp.Diff(asMade(before), asMade(now)); diff != "" {
				t.Errorf("the Deployment (-before +now):\n%s", diff)
			}
			for _, write := range w.writes(mark) {
				if write.Name == name && !strings.HasPrefix(write.Resource, "scaleddeployments") {
					t.Errorf("written: %s", write)
				}
			}
			if err := env.Client.Get(t.Context(), w.key(name), &v1beta1.VerticalScaler{}); !apierrors.IsNotFound(err) {
				t.Errorf("a scaler was created: %v", err)
			}
			if got := w.owner(name).Status; got.Replicas != 0 {
				t.Errorf("%d pods of the foreign Deployment are counted", got.Replicas)
			}

			tc.free(w, name)
			w.eventually(func() string { return unlike(w.owner(name), "Stalled", "False", "OperatingNormally") })
			d := w.settled(name)
			if got := d.Spec.Template.Spec.Containers[0].Image; got != "example.com/mine:1" || *d.Spec.Replicas != 4 {
				t.Errorf("the Deployment runs %s, %d times", got, *d.Spec.Replicas)
			}
			w.says(name, "TargetFound", "True", "DeploymentFound")
		})
	}
}

// The Deployment is created just before its ScaledDeployment, when the operator's cache
// does not have it yet.
func TestADeploymentCreatedJustBeforeItsNamesakeIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	for i := range 5 {
		name := fmt.Sprintf("d%d", i)
		// The same Deployment, as a user has it who migrates to a ScaledDeployment.
		d := testkit.Deployment(w.namespace, name)
		d.Spec.Replicas = ptr.To(int32(1))
		owner := w.newOwner(name, func(o *v1beta1.ScaledDeployment) {
			o.Spec.Selector, o.Spec.Replicas = d.Spec.Selector, d.Spec.Replicas
		})
		w.create(d)
		w.create(owner)
		w.ownerSays(name, "Stalled", "True", "NotControlled")
		if now := w.deployment(name); len(now.OwnerReferences) > 0 || len(now.Labels) > 0 {
			t.Errorf("Deployment %s was taken: %v, %v", name, now.OwnerReferences, now.Labels)
		}
	}
}

func TestAForeignScalerIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.scale("web", inMode("Recommend"))
	before := w.scaler("web")
	w.create(w.newOwner("web", scaled("InPlace")))
	w.ownerSays("web", "Stalled", "True", "NotControlled", "VerticalScaler web already exists and has no controller")
	w.runs("web") // the Deployment is created all the same
	owner := w.owner("web")
	w.noted(owner.UID, "Refused", "VerticalScaler web")
	if now := w.scaler("web"); now.Generation != before.Generation || len(now.OwnerReferences)+len(now.Labels)+len(now.Annotations) > 0 {
		t.Errorf("the scaler was changed: %+v", now)
	}
	// Without scaling, no scaler is needed.
	w.patch(owner, `{"spec":{"scaling":null}}`)
	w.settled("web")
	if now := w.scaler("web"); now.DeletionTimestamp != nil {
		t.Error("the scaler was deleted")
	}
	w.edit("web", scaled("InPlace"))
	w.ownerSays("web", "Stalled", "True", "NotControlled", "VerticalScaler web")
	w.remove(testkit.Scaler(w.namespace, "web", ""))
	w.eventually(func() string { return unlike(w.owner("web"), "Stalled", "False", "OperatingNormally") })
	w.settled("web")
	if now := w.scaler("web"); !metav1.IsControlledBy(now, owner) {
		t.Errorf("the scaler is controlled by %v", now.OwnerReferences)
	}
}

// The schema cannot check everything. The operator reports the API server's own message
// once. Running pods are not affected, and a correction by the user takes effect.
func TestARefusedTemplateIsReportedAndAffectsNoPods(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	container := func(f func(*corev1.Container)) func(*v1beta1.ScaledDeployment) {
		return func(o *v1beta1.ScaledDeployment) { f(&o.Spec.Template.Spec.Containers[0]) }
	}
	for name, tc := range map[string]struct {
		wrong func(*v1beta1.ScaledDeployment)
		words string
	}{
		"pull-policy": {container(func(c *corev1.Container) { c.ImagePullPolicy = "Sometimes" }), `imagePullPolicy: Unsupported value: "Sometimes"`},
		"port-names": {container(func(c *corev1.Container) {
			c.Ports = []corev1.ContainerPort{{Name: "a", ContainerPort: 80}, {Name: "a", ContainerPort: 81}}
		}), `ports[1].name: Duplicate value: "a"`},
		"port-number":    {container(func(c *corev1.Container) { c.Ports = []corev1.ContainerPort{{ContainerPort: 99999}} }), "must be between 1 and 65535"},
		"limits":         {container(func(c *corev1.Container) { c.Resources.Limits["cpu"] = resource.MustParse("1m") }), "must be less than or equal to cpu limit"},
		"no-image":       {container(func(c *corev1.Container) { c.Image = "" }), "image: Required value"},
		"mount":          {container(func(c *corev1.Container) { c.VolumeMounts = []corev1.VolumeMount{{Name: "gone", MountPath: "/x"}} }), `Not found: "gone"`},
		"container-name": {container(func(c *corev1.Container) { c.Name = "App" }), `name: Invalid value: "App"`},
		"restart-policy": {func(o *v1beta1.ScaledDeployment) { o.Spec.Template.Spec.RestartPolicy = "Never" }, `restartPolicy: Unsupported value: "Never"`},
		"label-value":    {func(o *v1beta1.ScaledDeployment) { o.Spec.Template.Labels["x"] = "a b" }, "a valid label must be"},
		"own-label":      {func(o *v1beta1.ScaledDeployment) { o.Spec.Template.Labels[ownerLabel] = "other" }, "`selector` does not match template `labels`"},
		"same-containers": {func(o *v1beta1.ScaledDeployment) {
			o.Spec.Template.Spec.InitContainers = []corev1.Container{testkit.Container("app")}
		}, `Duplicate value: "app"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := w.in(t)
			owner := w.own(name)
			before := w.deployment(name)
			w.edit(name, func(o *v1beta1.ScaledDeployment) {
				o.Spec.Replicas = ptr.To(int32(2)) // applied only with the whole spec
				tc.wrong(o)
			})
			w.ownerSays(name, "Stalled", "True", "Rejected", tc.words)
			w.ownerSays(name, "Ready", "False", "Rejected", tc.words)
			w.ownerSays(name, "Reconciling", "False", "OperatingNormally")
			if diff := cmp.Diff(before.Spec, w.deployment(name).Spec); diff != "" {
				t.Errorf("the Deployment (-before +now):\n%s", diff)
			}
			if got := w.owner(name).Status.AvailableReplicas; got != 3 {
				t.Errorf("the status counts %d pods, of the three that run", got)
			}
			w.noted(owner.UID, "Refused", "Rejected", tc.words)
			w.edit(name, func(o *v1beta1.ScaledDeployment) { o.Spec.Template = w.newOwner(name).Spec.Template })
			w.settled(name)
			w.ownerSays(name, "Stalled", "False", "OperatingNormally")
			if n := w.eventsOf(owner.UID, "Refused"); len(n) != 1 || !strings.HasPrefix(n[0], "Warning ") {
				t.Errorf("events: %q", n)
			}
		})
	}
}

func TestAnOwnerThatIsRefusedAtFirstWorksOnceCorrected(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.create(w.newOwner("web", scaled("InPlace"), func(o *v1beta1.ScaledDeployment) {
		o.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}
	}))
	w.ownerSays("web", "Stalled", "True", "Rejected", "`selector` does not match template `labels`")
	if err := env.Client.Get(t.Context(), w.key("web"), &appsv1.Deployment{}); !apierrors.IsNotFound(err) {
		t.Errorf("there is a Deployment: %v", err)
	}
	w.edit("web", func(o *v1beta1.ScaledDeployment) { o.Spec.Template.Labels["app"] = "other" })
	d := w.settled("web")
	if diff := cmp.Diff(map[string]string{"app": "other"}, d.Spec.Template.Labels, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	w.ownerSays("web", "Stalled", "False", "OperatingNormally")
}

func TestAQuotaOfDeploymentsIsReportedAndRetried(t *testing.T) {
	t.Parallel()
	w := newFixture(t, resync(fast))
	team := deploymentQuota(w, "0")
	w.create(team)
	w.eventually(func() string { // a quota is enforced once its controller has observed it
		if err := env.Client.Get(t.Context(), w.key("team"), team); err != nil || len(team.Status.Hard) == 0 {
			return fmt.Sprintf("the quota is not enforced yet: %v", err)
		}
		return ""
	})
	w.create(w.newOwner("web"))
	w.ownerSays("web", "Stalled", "True", "QuotaExceeded", "exceeded quota: team")
	w.patch(team, `{"spec":{"hard":{"count/deployments.apps":"1"}}}`)
	w.settled("web")
}

// The stages of a rollout follow kstatus.
func TestTheConditionsFollowARollout(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	t.Run("that is stuck, exceeds its deadline, and is corrected", func(t *testing.T) {
		t.Parallel()
		w := w.in(t)
		owner := w.own("slow")
		nowhere := func(o *v1beta1.ScaledDeployment) {
			o.Spec.Template.Spec.NodeSelector = map[string]string{"is": "nowhere"}
		}
		w.edit("slow", nowhere)
		w.ownerSays("slow", "Reconciling", "True", "Progressing", "Deployment slow")
		w.ownerSays("slow", "Ready", "False", "Progressing")
		// The owner does not manage this field, so it stays.
		w.patch(testkit.Deployment(w.namespace, "slow"), `{"spec":{"progressDeadlineSeconds":1}}`)
		w.ownerSays("slow", "Stalled", "True", "ProgressDeadlineExceeded", "Deployment slow")
		w.ownerSays("slow", "Ready", "False", "ProgressDeadlineExceeded")
		w.ownerSays("slow", "Reconciling", "False", "OperatingNormally")
		w.noted(owner.UID, "Refused", "ProgressDeadlineExceeded")
		w.edit("slow", func(o *v1beta1.ScaledDeployment) { o.Spec.Template.Spec.NodeSelector = nil })
		w.settled("slow")
		w.ownerSays("slow", "Stalled", "False", "OperatingNormally")
		w.ownerSays("slow", "Reconciling", "False", "OperatingNormally")
	})
	t.Run("whose pods exceed a quota", func(t *testing.T) {
		t.Parallel()
		w := newFixture(t)
		team := quota(w, "pods", "2")
		w.create(team)
		w.eventually(func() string {
			if err := env.Client.Get(t.Context(), w.key("team"), team); err != nil || len(team.Status.Hard) == 0 {
				return fmt.Sprintf("the quota is not enforced yet: %v", err)
			}
			return ""
		})
		w.create(w.newOwner("web"))
		w.ownerSays("web", "Ready", "False", "Progressing", "exceeded quota: team")
		w.ownerSays("web", "Reconciling", "True", "Progressing", "exceeded quota: team")
		w.ownerSays("web", "Stalled", "False", "OperatingNormally")
		w.eventually(func() string {
			if n := w.owner("web").Status.AvailableReplicas; n != 2 {
				return fmt.Sprintf("%d pods are counted", n)
			}
			return ""
		})
		w.patch(team, `{"spec":{"hard":{"pods":"10"}}}`)
		w.settled("web")
	})
	t.Run("to zero replicas and back", func(t *testing.T) {
		t.Parallel()
		w := w.in(t)
		w.own("zero")
		w.edit("zero", func(o *v1beta1.ScaledDeployment) { o.Spec.Replicas = ptr.To(int32(0)) })
		w.settled("zero")
		w.edit("zero", func(o *v1beta1.ScaledDeployment) { o.Spec.Replicas = ptr.To(int32(2)) })
		w.settled("zero")
		w.kubectl("wait", "--for=condition=Available", "--timeout=60s", "scaleddeployment/zero")
		w.kubectl("wait", "--for=condition=Progressing", "--timeout=60s", "scaleddeployment/zero")
	})
}

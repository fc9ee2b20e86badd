// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package apiserver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// quotaOfDeployments lets the namespace have so many Deployments, and plays the quota's controller, which counts them.
func (w *fixture) quotaOfDeployments(most, used string) {
	w.Helper()
	list := func(n string) corev1.ResourceList {
		return corev1.ResourceList{"count/deployments.apps": resource.MustParse(n)}
	}
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "team"}}
	if _, err := controllerutil.CreateOrUpdate(w.t.Context(), env.Client, q, func() error {
		q.Spec.Hard = list(most)
		return nil
	}); err != nil {
		w.Fatal(err)
	}
	q.Status = corev1.ResourceQuotaStatus{Hard: list(most), Used: list(used)}
	if err := env.Client.Status().Update(w.t.Context(), q); err != nil {
		w.Fatal(err)
	}
}

func TestAForeignDeploymentIsLeftAlone(t *testing.T) {
	t.Parallel()
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
			free:  func(w *fixture, name string) { w.Remove(testkit.Deployment(w.Namespace, name)) },
		},
		"by-a-stranger": {
			make: func(w *fixture, name string) {
				boss := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "boss"}}
				w.create(boss)
				w.deploy(name, func(d *appsv1.Deployment) {
					d.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(boss, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
				})
			},
			whose: "is controlled by ConfigMap boss",
			free: func(w *fixture, _ string) {
				w.Remove(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "boss"}})
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
			w := newFixture(t)
			tc.make(w, name)
			before, mark := w.Deployment(name), w.mark()
			// The template differs, so that a takeover would be visible.
			w.create(w.newOwner(name, scaled("InPlace"), func(o *v1beta1.ScaledDeployment) { o.Spec.Template.Spec.Containers[0].Image = "example.com/mine:1" }))
			what := fmt.Sprintf("Deployment %s already exists and %s", name, tc.whose)
			w.ownerSays(name, "Stalled", "True", "NotControlled", what)
			w.ownerSays(name, "Ready", "False", "NotControlled", what)
			w.ownerSays(name, "Reconciling", "False", "OperatingNormally")
			owner := w.owner(name)

			// Every event triggers a reconcile, and its result stays the same.
			w.Patch(owner, `{"spec":{"replicas":4}}`)
			w.Settle()
			w.ownerSays(name, "Stalled", "True", "NotControlled", what)
			if n := w.notesOf(owner.UID, "Refused"); len(n) != 1 || !strings.HasPrefix(n[0], "NotControlled: "+what) {
				t.Errorf("events: %q", n)
			}
			if diff := cmp.Diff(before, w.Deployment(name)); diff != "" {
				t.Errorf("the Deployment (-before +now):\n%s", diff)
			}
			for _, write := range w.writes(mark) {
				if write.Name == name && !strings.HasPrefix(write.Resource, "scaleddeployments") {
					t.Errorf("written: %s", write)
				}
			}
			if got := w.owner(name).Status; got.Replicas != 0 {
				t.Errorf("%d pods of the foreign Deployment are counted", got.Replicas)
			}

			tc.free(w, name)
			w.ownerSays(name, "Stalled", "False", "OperatingNormally")
			d := w.settled(name)
			if got := d.Spec.Template.Spec.Containers[0].Image; got != "example.com/mine:1" || *d.Spec.Replicas != 4 {
				t.Errorf("the Deployment runs %s, %d times", got, *d.Spec.Replicas)
			}
			w.Says(name, "TargetFound", "True", "DeploymentFound")
		})
	}
}

func TestAForeignScalerIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.scale("web", inMode("Recommend"))
	before := w.Scaler("web")
	w.create(w.newOwner("web", scaled("InPlace")))
	w.ownerSays("web", "Stalled", "True", "NotControlled", "VerticalScaler web already exists and has no controller")
	w.runs("web") // the Deployment is created all the same
	owner := w.owner("web")
	w.Noted(owner.UID, "Refused", "VerticalScaler web")
	if now := w.Scaler("web"); now.Generation != before.Generation || len(now.OwnerReferences)+len(now.Labels)+len(now.Annotations) > 0 {
		t.Errorf("the scaler was changed: %+v", now)
	}
	// Without scaling, no scaler is needed.
	w.Patch(owner, `{"spec":{"scaling":null}}`)
	w.settled("web")
	if now := w.Scaler("web"); now.DeletionTimestamp != nil {
		t.Error("the scaler was deleted")
	}
	w.edit("web", scaled("InPlace"))
	w.ownerSays("web", "Stalled", "True", "NotControlled", "VerticalScaler web")
	w.Remove(testkit.Scaler(w.Namespace, "web", ""))
	w.settled("web")
	w.ownerSays("web", "Stalled", "False", "OperatingNormally")
	if now := w.Scaler("web"); !metav1.IsControlledBy(now, owner) {
		t.Errorf("the scaler is controlled by %v", now.OwnerReferences)
	}
}

// The schema cannot check everything. The operator reports the API server's own message once. Running pods are not
// affected, and a correction by the user takes effect.
func TestARefusedTemplateIsReportedAndAffectsNoPods(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	container := func(f func(*corev1.Container)) func(*v1beta1.ScaledDeployment) {
		return func(o *v1beta1.ScaledDeployment) { f(&o.Spec.Template.Spec.Containers[0]) }
	}
	tests := map[string]struct {
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
	}
	for name := range tests {
		w.create(w.newOwner(name))
	}
	w.Settle()
	before := map[string]*appsv1.Deployment{}
	for name, tc := range tests {
		before[name] = w.settled(name)
		w.edit(name, func(o *v1beta1.ScaledDeployment) {
			o.Spec.Replicas = ptr.To(int32(2)) // applied only with the whole spec
			tc.wrong(o)
		})
	}
	w.Settle()
	for name, tc := range tests {
		w.ownerSays(name, "Stalled", "True", "Rejected", tc.words)
		w.ownerSays(name, "Ready", "False", "Rejected", tc.words)
		w.ownerSays(name, "Reconciling", "False", "OperatingNormally")
		if diff := cmp.Diff(before[name].Spec, w.Deployment(name).Spec); diff != "" {
			t.Errorf("%s: the Deployment (-before +now):\n%s", name, diff)
		}
		if got := w.owner(name).Status.AvailableReplicas; got != 3 {
			t.Errorf("%s: the status counts %d pods, of the three that run", name, got)
		}
		w.edit(name, func(o *v1beta1.ScaledDeployment) { o.Spec.Template = w.newOwner(name).Spec.Template })
	}
	w.Settle()
	for name, tc := range tests {
		w.settled(name)
		w.ownerSays(name, "Stalled", "False", "OperatingNormally")
		n := w.notesOf(w.owner(name).UID, "Refused")
		if len(n) != 1 || !strings.HasPrefix(n[0], "Rejected: ") || !strings.Contains(n[0], tc.words) {
			t.Errorf("%s: events: %q", name, n)
		}
	}
}

func TestAnOwnerThatIsRefusedAtFirstWorksOnceCorrected(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.create(w.newOwner("web", scaled("InPlace"), func(o *v1beta1.ScaledDeployment) {
		o.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}
	}))
	w.ownerSays("web", "Stalled", "True", "Rejected", "`selector` does not match template `labels`")
	if err := env.Client.Get(t.Context(), w.Key("web"), &appsv1.Deployment{}); !apierrors.IsNotFound(err) {
		t.Errorf("there is a Deployment: %v", err)
	}
	w.edit("web", func(o *v1beta1.ScaledDeployment) { o.Spec.Template.Labels["app"] = "other" })
	d := w.settled("web")
	if diff := cmp.Diff(map[string]string{"app": "other"}, d.Spec.Template.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	w.ownerSays("web", "Stalled", "False", "OperatingNormally")
}

func TestAQuotaOfDeploymentsIsReportedAndRetried(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.quotaOfDeployments("0", "0")
	w.create(w.newOwner("web"))
	w.ownerSays("web", "Stalled", "True", "QuotaExceeded", "exceeded quota: team")
	w.quotaOfDeployments("1", "0")
	w.settled("web")
}

func TestADeploymentOfZeroReplicasIsReady(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.own("web")
	for _, replicas := range []int32{0, 2} {
		w.edit("web", func(o *v1beta1.ScaledDeployment) { o.Spec.Replicas = &replicas })
		w.settled("web")
		// kubectl wait finds the conditions of the Deployment.
		w.ownerSays("web", "Available", "True", "MinimumReplicasAvailable")
		w.ownerSays("web", "Progressing", "True", "NewReplicaSetAvailable")
		if n := len(w.Pods("web")); n != int(replicas) {
			t.Errorf("%d pods of %d", n, replicas)
		}
	}
}

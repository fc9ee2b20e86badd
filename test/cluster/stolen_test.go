// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/policies"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// claiming is a Deployment that says that the ScaledDeployment controls it.
func (w *fixture) claiming(owner string, uid types.UID, changes ...func(*appsv1.Deployment)) *appsv1.Deployment {
	d := testkit.Deployment(w.namespace, owner)
	d.Labels = map[string]string{ownerLabel: owner}
	d.Spec.Template.Labels[ownerLabel] = owner
	reference := someOwner(uid)
	reference.Name = owner
	d.OwnerReferences = []metav1.OwnerReference{reference}
	for _, change := range changes {
		change(d)
	}
	return d
}

// escape is what a thief would like to run: root on the node.
func escape(d *appsv1.Deployment) {
	p := &d.Spec.Template.Spec
	p.HostPID = true
	p.Volumes = []corev1.Volume{{Name: "root", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
	p.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	p.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "root", MountPath: "/host"}}
}

func TestAStolenTokenCreatesOnlyWhatAScaledDeploymentAsksFor(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	thief := w.thief()
	t.Run("nothing where there is no ScaledDeployment", func(t *testing.T) {
		w := w.in(t)
		w.eventually(func() string { // The API server enforces a new policy with a delay.
			err := thief.Create(t.Context(), w.claiming("web", "invented"), client.DryRunAll)
			if err == nil || !strings.Contains(err.Error(), "'verticalscaler-operator-owned' denied request: failed to configure binding: no params found") {
				return fmt.Sprintf("got %v", err)
			}
			return ""
		})
		if err := thief.Create(t.Context(), w.claiming("web", "invented")); !apierrors.IsInvalid(err) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("nothing in the cluster's own namespaces", func(t *testing.T) {
		d := w.in(t).claiming("web", "invented", func(d *appsv1.Deployment) { d.Namespace = "kube-system" })
		// Two policies refuse it. The API server reports one of them.
		if err := thief.Create(t.Context(), d); err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'verticalscaler-operator-") {
			t.Errorf("got %v", err)
		}
	})

	owner := w.own("web")
	w.operator.Stop(t) // It would revert what the thief does.
	existing := w.deployment("web")
	for name, c := range map[string]struct {
		d      *appsv1.Deployment
		policy string
		says   string
	}{
		"of another UID":        {w.claiming("web", "invented"), "operator-owned", "UID is another one"},
		"under another name":    {w.claiming("web", owner.UID, func(d *appsv1.Deployment) { d.Name = "more" }), "operator-owned", "that the ScaledDeployment names"},
		"with another image":    {w.claiming("web", owner.UID, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "example.com/miner:1" }), "operator-owned", "changes a container"},
		"with a command":        {w.claiming("web", owner.UID, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Command = []string{"sh"} }), "operator-owned", "changes a container"},
		"as another account":    {w.claiming("web", owner.UID, func(d *appsv1.Deployment) { d.Spec.Template.Spec.ServiceAccountName = "admin" }), "operator-owned", "other fields of the pods"},
		"with root on the node": {w.claiming("gone", "invented", escape), "operator-deployments", "access to the node"},
		"that another object has": {w.claiming("gone", "invented", func(d *appsv1.Deployment) {
			d.OwnerReferences = append(d.OwnerReferences, metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: existing.Name, UID: existing.UID})
		}), "operator-deployments", "may not add an owner"},
		"that leaves its pods behind": {w.claiming("gone", "invented", func(d *appsv1.Deployment) {
			d.Finalizers = []string{metav1.FinalizerOrphanDependents}
		}), "operator-deployments", "may not add a finalizer"},
		"without the label": {w.claiming("gone", "invented", func(d *appsv1.Deployment) { d.Labels = nil }), "operator-deployments", "must label"},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, thief.Create(t.Context(), c.d, client.DryRunAll), c.policy, c.says)
		})
	}
	t.Run("no root on the node of an existing one", func(t *testing.T) {
		after := existing.DeepCopy()
		escape(after)
		if err := thief.Patch(t.Context(), after, client.MergeFrom(existing)); !apierrors.IsForbidden(err) {
			t.Errorf("got %v", err)
		}
	})
	// What remains: a ScaledDeployment is named that does not exist, beside one that does.
	t.Run("what no policy can refuse is collected", func(t *testing.T) {
		w := w.in(t)
		w.untilRejectedBy("operator-owned", func() error { return thief.Create(t.Context(), w.claiming("web", "invented"), client.DryRunAll) })
		start := time.Now()
		d := w.claiming("gone", types.UID("00000000-0000-0000-0000-000000000000"))
		if err := thief.Create(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		w.gone(d)
		t.Logf("the Deployment was there for %s", time.Since(start).Round(100*time.Millisecond))
		w.eventually(func() string {
			var pods corev1.PodList
			if err := env.Client.List(t.Context(), &pods, client.InNamespace(w.namespace), client.MatchingLabels{ownerLabel: "gone"}); err != nil {
				return err.Error()
			}
			if len(pods.Items) > 0 {
				return fmt.Sprintf("%d of its pods are left", len(pods.Items))
			}
			return ""
		})
		t.Logf("its pods were there for %s", time.Since(start).Round(100*time.Millisecond))
	})
}

// wholeTemplate is a template with the fields that users set, some of them in ways that the
// API server stores differently.
const wholeTemplate = `
metadata:
  labels: {app: all, team: shop}
  annotations: {prometheus.io/scrape: "true"}
spec:
  serviceAccountName: default
  automountServiceAccountToken: false
  enableServiceLinks: false
  hostNetwork: false
  terminationGracePeriodSeconds: 5
  priorityClassName: ""
  dnsPolicy: Default
  dnsConfig: {options: [{name: ndots, value: "2"}]}
  hostAliases: [{ip: 10.0.0.1, hostnames: [db]}]
  imagePullSecrets: [{name: registry}]
  securityContext: {runAsNonRoot: true, runAsUser: 1000, fsGroup: 1000, supplementalGroups: [], seccompProfile: {type: RuntimeDefault}}
  tolerations: [{key: spot, operator: Exists, effect: "", value: ""}]
  nodeSelector: {}
  affinity:
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
      - {weight: 1, podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: all}}}}
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: all}}}]
  volumes:
  - {name: none}
  - {name: scratch, emptyDir: {sizeLimit: 1024Mi}}
  - {name: config, configMap: {name: config, optional: true, items: [{key: a, path: a}]}}
  - {name: secret, secret: {secretName: secret, optional: true}}
  - {name: info, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
  - name: token
    projected:
      sources:
      - {serviceAccountToken: {path: token, audience: vault}}
      - {configMap: {name: config, optional: true}}
      - {downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}
  - {name: claim, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}
  - {name: data, persistentVolumeClaim: {claimName: data, readOnly: false}}
  - {name: share, nfs: {server: nfs.example.com, path: /, readOnly: true}}
  - {name: inline, csi: {driver: csi.example.com, volumeAttributes: {a: b}}}
  initContainers:
  - {name: init, image: "example.com/init:1", command: [sh, -c, "true"], resources: {requests: {cpu: "0.1", memory: 64Mi}}}
  - {name: proxy, image: "example.com/proxy:1", restartPolicy: Always, args: []}
  containers:
  - name: app
    image: example.com/app:1
    command: [serve]
    args: [--verbose]
    workingDir: /app
    stdin: false
    ports: [{containerPort: 8080}, {name: metrics, containerPort: 9090, protocol: TCP, hostPort: 0}]
    env:
    - {name: PLAIN, value: b}
    - {name: EMPTY, value: ""}
    - {name: UNSET}
    - {name: SECRET, valueFrom: {secretKeyRef: {name: secret, key: a, optional: true}}}
    - {name: CONFIG, valueFrom: {configMapKeyRef: {name: config, key: a, optional: true}}}
    - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
    envFrom:
    - {configMapRef: {name: config, optional: true}}
    - {prefix: "", secretRef: {name: secret, optional: true}}
    volumeMounts:
    - {name: scratch, mountPath: /tmp, readOnly: false, subPath: ""}
    - {name: config, mountPath: /etc/config, readOnly: true}
    - {name: token, mountPath: /var/run/token}
    livenessProbe: {httpGet: {path: /healthz, port: 8080}}
    readinessProbe: {exec: {command: [check]}, periodSeconds: 5}
    startupProbe: {tcpSocket: {port: metrics}}
    lifecycle: {preStop: {exec: {command: [stop]}}}
    securityContext: {allowPrivilegeEscalation: false, privileged: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
    resources: {requests: {cpu: "0.5", memory: 134217728, ephemeral-storage: 1Gi}, limits: {memory: 256Mi, example.com/device: 1}}
    resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]
`

// The policy must accept what the operator writes for a template, created and changed, and
// beside other writers.
func TestStolenTokenPoliciesAcceptEveryTemplate(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	var template map[string]any
	if err := yaml.Unmarshal([]byte(wholeTemplate), &template); err != nil {
		t.Fatal(err)
	}
	// Not by way of Go's types, which would omit what is empty.
	owner := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(0), "template": template}}}
	owner.SetAPIVersion(v1beta1.GroupVersion.String())
	owner.SetKind("ScaledDeployment")
	owner.SetNamespace(w.namespace)
	owner.SetName("all")
	w.create(owner)
	w.settled("all")

	w.change("all", "another", func(d *appsv1.Deployment) {
		p := &d.Spec.Template
		p.Annotations["kubectl.kubernetes.io/restartedAt"] = "2026-01-01T00:00:00Z"
		p.Spec.Containers = append(p.Spec.Containers, testkit.Container("more"))
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "more"})
		p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: "MORE"})
	})
	w.edit("all", func(o *v1beta1.ScaledDeployment) { o.Spec.Template.Spec.Containers[0].Image = "example.com/app:2" })
	d := w.settled("all")
	if c := d.Spec.Template.Spec.Containers; c[0].Image != "example.com/app:2" || len(c) != 2 {
		t.Errorf("the containers are %+v", c)
	}
	w.ownerSays("all", "Stalled", "False", "OperatingNormally")
}

// Where the administrator of the cluster says so, a ScaledDeployment may run privileged pods.
func TestStolenTokenPoliciesLeavePrivilegesToTheNamespace(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.create(w.newOwner("agent", func(o *v1beta1.ScaledDeployment) {
		o.Spec.Template.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	}))
	w.ownerSays("agent", "Stalled", "True", "Rejected", "pod-security.kubernetes.io/enforce=privileged")
	w.patch(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`)
	w.edit("agent", func(o *v1beta1.ScaledDeployment) { o.Spec.Replicas = ptr.To(int32(1)) })
	w.settled("agent")
}

// OLM grants the rights on the operator's own objects in all watched namespaces.
func TestAStolenTokenWritesItsOwnObjectsOnlyInItsNamespace(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	thief := w.thief()
	w.grant(rbacv1.Subject{Kind: "ServiceAccount", Namespace: testkit.System, Name: testkit.ServiceAccount},
		rbacv1.PolicyRule{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"networkpolicies"}, Verbs: []string{"create"}},
		rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}})
	isolate := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "verticalscaler-operator-ingress"}}
	w.untilRejectedBy("operator-objects", func() error { return thief.Create(t.Context(), isolate.DeepCopy(), client.DryRunAll) })
	refused(t, thief.Create(t.Context(), isolate), "operator-objects", "only in its own namespace")
	lease := func(namespace string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kube-scheduler"}}
	}
	refused(t, thief.Create(t.Context(), lease(w.namespace)), "operator-objects", "only")
	refused(t, thief.Create(t.Context(), lease(testkit.System)), "operator-objects", "only its own objects")
}

func TestAStolenRightOfAUserForgesNoCheckpoint(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web")
	w.scale("web")
	w.rounds(5)
	u := w.user("dev-of-" + w.namespace)
	w.grant(u.subject, rbacv1.PolicyRule{
		APIGroups: []string{"autoscaling.verticalscaler.io"}, Verbs: []string{"*"}, Resources: []string{"verticalscalercheckpoints"},
	})
	forged := &v1beta1.VerticalScalerCheckpoint{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "other"},
		Spec:       v1beta1.VerticalScalerCheckpointSpec{DeploymentName: "other", SaveTime: metav1.Now()},
	}
	w.untilRejectedBy("checkpoints", func() error { return u.Create(t.Context(), forged.DeepCopy(), client.DryRunAll) })
	refused(t, u.Create(t.Context(), forged), "checkpoints", "Only the operator writes checkpoints")

	// An administrator can restore a backup, and the user can have the scaler learn again.
	w.create(forged)
	patch := func(text string) error {
		return u.Patch(t.Context(), forged.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)))
	}
	refused(t, patch(`{"spec":{"deploymentName":"web"}}`), "checkpoints", "Only the operator writes checkpoints")
	if err := patch(`{"metadata":{"labels":{"a":"b"}}}`); err != nil {
		t.Errorf("setting a label: %v", err)
	}
	if err := u.Delete(t.Context(), forged.DeepCopy()); err != nil {
		t.Errorf("deleting: %v", err)
	}
}

// reported are the conditions that a check of the policies reports.
type reported []metav1.Condition

func (r *reported) Set(_ context.Context, c metav1.Condition) error {
	*r = append(*r, c)
	return nil
}

// The operator sees that the policies refuse it something, which they do for nobody else.
func TestStolenTokenPoliciesAreNoticedByTheOperator(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	thief := w.thief()
	w.untilRejectedBy("operator-objects", func() error {
		return thief.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: testkit.System, Name: "any"}}, client.DryRunAll)
	})
	w.untilRejectedBy("operator-deployments", func() error {
		return thief.Create(t.Context(), testkit.Deployment(testkit.System, "any"), client.DryRunAll)
	})
	for want, c := range map[metav1.ConditionStatus]client.Client{metav1.ConditionTrue: thief, metav1.ConditionFalse: env.Client} {
		var got reported
		(&policies.Check{Client: c, Condition: &got, Namespace: testkit.System, Clock: clock.RealClock{}}).Round(t.Context())
		if len(got) != 1 || got[0].Status != want {
			t.Errorf("reported %+v, want %s", got, want)
		}
	}
	for _, o := range []client.Object{&coordinationv1.Lease{}, &appsv1.Deployment{}} {
		if err := env.Client.Get(t.Context(), types.NamespacedName{Namespace: testkit.System, Name: policies.Name}, o); !apierrors.IsNotFound(err) {
			t.Errorf("the check has created a %T: %v", o, err)
		}
	}
}

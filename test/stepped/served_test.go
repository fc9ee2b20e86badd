// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package stepped

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// newServed does what newFixture does on a real API server: the operator has exactly the rights of the installed service account, and
// the admission policies check its writes.
func newServed(t *testing.T, options ...func(*operatorconfig.Operator)) *fixture {
	t.Helper()
	createNodes(t)
	operator, err := env.AsOperator()
	must.Succeed(t, err)
	return newFixtureOn(t, env.Client, env.Namespace(t), operator, options...)
}

// createNodes makes sure that the nodes of the worlds exist.
func createNodes(t *testing.T) {
	t.Helper()
	for _, node := range world.Nodes {
		must.Succeed(t, env.Node(t.Context(), node.Name))
	}
}

func TestKubectlScalesAndWaits(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	kubectl := func(arguments string) string {
		t.Helper()
		out, err := w.pipe(nil, strings.Fields(arguments)...)
		must.Succeed(t, err)
		return out
	}
	w.Own("web", named("other"))
	kubectl("scale scaleddeployment/web --replicas=5")
	w.Settled("web")
	kubectl("wait sdeploy/web --for=jsonpath={.status.availableReplicas}=5 --timeout=1s")
	kubectl("scale sdeploy/web --current-replicas=5 --replicas=2")
	w.Settled("web")
	for _, condition := range []string{"Ready", "Available", "Progressing"} {
		kubectl("wait sdeploy/web --for=condition=" + condition + " --timeout=1s")
	}
	row := strings.Fields(strings.Split(kubectl("get sdeploy web -o wide"), "\n")[1])
	if got := strings.Join(row[:5], " "); got != "web 2 2 2 True" || !slices.Contains(row[5:], "other") {
		t.Errorf("kubectl get shows %q", row)
	}
	scale := &autoscalingv1.Scale{}
	must.Succeed(t, w.Client.SubResource("scale").Get(t.Context(), w.Owner("web"), scale))
	if want := (autoscalingv1.ScaleStatus{Replicas: 2, Selector: ownerLabel + "=web"}); scale.Status != want {
		t.Errorf("the scale is %+v", scale.Status)
	}
}

func TestFieldsThatTheOwnerNoLongerSetsAreRemoved(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	w.Own("web", func(o *v1beta1.ScaledDeployment) {
		template := &o.Spec.Template
		template.Annotations = map[string]string{"checksum": "1"}
		template.Spec.Containers = append(template.Spec.Containers, testkit.Container("agent"))
		template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "LEVEL", Value: "info"}, {Name: "ZONE", Value: "a"}}
		template.Spec.Containers[0].Args = []string{"--verbose"}
		template.Spec.TerminationGracePeriodSeconds = ptr.To(int64(5))
	})
	w.edit("web", func(o *v1beta1.ScaledDeployment) { o.Spec.Template = w.NewOwner("web").Spec.Template })
	template := w.Settled("web").Spec.Template
	if len(template.Annotations) > 0 || len(template.Spec.Containers) != 1 || len(template.Spec.Containers[0].Env) > 0 ||
		len(template.Spec.Containers[0].Args) > 0 || *template.Spec.TerminationGracePeriodSeconds != 30 {
		t.Errorf("the template is %+v", template)
	}
}

// A sidecar that admission adds is in no template. It keeps what it has, and the scaler says so.
func TestAnInjectedSidecarKeepsItsSize(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	w.deploy("web")
	w.Uses("web", "app", 300, 240)
	w.Uses("web", testkit.Sidecar, 200, 100)
	w.Scale("web")
	w.Sized("web")
	for _, pod := range w.Pods("web") {
		if got := world.Actual(&pod, testkit.Sidecar).Requests.Cpu().String(); got != "20m" {
			t.Errorf("pod %s: the injected sidecar has %s", pod.Name, got)
		}
	}
	w.Reports("web", "TargetFound", "True", "DeploymentFound", "Not sized", testkit.Sidecar)
	if r := w.Scaler("web").Status.Recommendation.ContainerRecommendations; len(r) != 1 || r[0].ContainerName != "app" {
		t.Errorf("recommended for %+v", r)
	}
}

func TestReconcilesOfASettledOwnerWriteNothing(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	for _, name := range []string{"plain", "inplace", "rollout", "named"} {
		w.Uses(name, "app", 300, 240)
		w.Uses(name, "agent", 300, 240)
	}
	w.Own("plain", richTemplate)
	w.Own("named", named("other-name"), world.Scaled("Recommend"))
	w.Own("inplace", richTemplate, world.Scaled("InPlace"))
	w.Own("rollout", richTemplate, world.Scaled("Rollout"))
	w.Add(w.NewOwner("refused", func(o *v1beta1.ScaledDeployment) { o.Spec.Template.Spec.RestartPolicy = "Never" }))
	w.OwnerReports("refused", "Stalled", "True", "Rejected")
	for _, name := range []string{"inplace", "rollout"} {
		w.Sized(name)
		w.Settled(name)
		w.OwnerReports(name, "Sized", "True", "OperatingNormally")
	}
	deployment, owner, mark := w.Deployment("rollout"), w.Owner("rollout"), w.mark()
	const restarts = 3
	for range restarts {
		w.Restart()
		w.Settle()
	}
	asked := 0
	for _, write := range w.writes(mark) {
		// The operator retries a rejected request, and it is rejected again.
		if write.Name == "refused" && write.Resource == "deployments" && write.Code == http.StatusUnprocessableEntity {
			asked++
			continue
		}
		t.Errorf("written: %s", write)
	}
	if asked < restarts {
		t.Error("the rejected request is not retried")
	}
	assert.Equal(t, "the Deployment", deployment, w.Deployment("rollout"))
	assert.Equal(t, "the owner", owner, w.Owner("rollout"))
}

// The API server keeps the spelling of an amount. Equal amounts are equal, however they are spelled: of the template, of the pods, and
// beside another manager of the same Deployment.
func TestTheSpellingOfAnAmountIsNoChange(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	spelled := func(c *corev1.Container) {
		c.Resources = corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("0210m"), "memory": resource.MustParse("0128Mi")},
			Limits:   corev1.ResourceList{"cpu": resource.MustParse("+1"), "memory": resource.MustParse("0.5Gi")},
		}
	}
	amounts := &v1beta1.ResourceBounds{CPU: ptr.To(resource.MustParse("0.21")), Memory: ptr.To(resource.MustParse("134217728"))}
	fixed := v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{{ContainerName: "app", MinAllowed: amounts, MaxAllowed: amounts}}}
	for _, mode := range []v1beta1.UpdateMode{v1beta1.UpdateModeInPlace, v1beta1.UpdateModeRollout} {
		name := strings.ToLower(string(mode))
		w.Uses(name, "app", 300, 240)
		w.deploy(name, func(d *appsv1.Deployment) { spelled(&d.Spec.Template.Spec.Containers[0]) })
		w.Scale(name, world.InMode(mode), func(s *v1beta1.VerticalScaler) { s.Spec.ResourcePolicy = &fixed })
		w.Reports(name, "Applied", "True", "WithinTolerance")
	}
	w.Own("owned", func(o *v1beta1.ScaledDeployment) { spelled(&o.Spec.Template.Spec.Containers[0]) })
	if got := w.Deployment("inplace").Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().String(); got != "0210m" {
		t.Errorf("the API server stores %s", got)
	}
	w.Change("owned", "ci", func(d *appsv1.Deployment) { spelled(&d.Spec.Template.Spec.Containers[0]) })
	w.Restart()
	w.Minutes(10)
	for _, write := range w.Writes() {
		if write.Resource == "pods/resize" || write.Resource == "deployments" && write.Name != "owned" {
			t.Errorf("written: %s", write)
		}
	}
	if n := count(accepted(w.Writes()), "deployments")["owned"]; n > 2 { // the second removes a label of the first
		t.Errorf("the Deployment was written %d times", n)
	}
}

// The schema of a ScaledDeployment refuses a plain fraction: docs/owned.md says to quote it.
func TestAPlainFractionMustBeQuoted(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	for amount, isRefused := range map[string]bool{"1": false, "0.5": true, `"0.5"`: false} {
		owner := fmt.Sprintf(`{"apiVersion":"autoscaling.verticalscaler.io/v1beta1","kind":"ScaledDeployment","metadata":{"name":"web"},
			"spec":{"template":{"spec":{"containers":[{"name":"app","image":"app","resources":{"requests":{"cpu":%s}}}]}}}}`, amount)
		out, err := w.pipe([]byte(owner), "apply", "--server-side", "--dry-run=server", "-f", "-")
		if (err != nil) != isRefused || isRefused && !strings.Contains(out, "requests.cpu") {
			t.Errorf("cpu: %s: %v\n%s", amount, err, out)
		}
	}
}

// By its managed fields, the operator manages nothing of a pod but the resources of its containers.
func TestTheOperatorManagesOnlyTheResourcesOfPods(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	w.deploy("web")
	w.Uses("web", "app", 300, 240)
	w.Scale("web")
	w.Sized("web")
	for _, pod := range w.Pods("web") {
		at := slices.IndexFunc(pod.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == "verticalscaler" })
		entry := pod.ManagedFields[at]
		fields := map[string]any{}
		must.Succeed(t, json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields))
		want := map[string]any{"f:spec": map[string]any{"f:containers": map[string]any{`k:{"name":"app"}`: map[string]any{"f:resources": map[string]any{
			"f:limits":   map[string]any{"f:cpu": map[string]any{}, "f:memory": map[string]any{}},
			"f:requests": map[string]any{"f:cpu": map[string]any{}, "f:memory": map[string]any{}},
		}}}}}
		if diff := cmp.Diff(want, fields); diff != "" || entry.Subresource != "resize" {
			t.Errorf("subresource %q (-want +got):\n%s", entry.Subresource, diff)
		}
	}
}

// With a quota of one Deployment, the old one must go before the new one can be created.
func TestAQuotaOfOneDeploymentAllowsARename(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	w.quotaOfDeployments("1", "0")
	w.Own("web")
	w.edit("web", named("web-v2"))
	w.Gone(testkit.Deployment(w.Namespace, "web"))
	w.OwnerReports("web", "Stalled", "True", "QuotaExceeded") // until the quota's controller has seen it
	w.quotaOfDeployments("1", "0")
	w.Settled("web")
	w.ownsOnly("web", "web-v2")
}

func TestARenameThatTheAPIServerRefusesKeepsTheOldDeployment(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	w.neverTwo()
	w.Own("web", world.Scaled("InPlace"))
	before := w.Deployment("web")
	w.edit("web", func(o *v1beta1.ScaledDeployment) {
		o.Spec.DeploymentName = "web-v2"
		o.Spec.Template.Spec.Containers[0].ImagePullPolicy = "Sometimes"
	})
	w.OwnerReports("web", "Stalled", "True", "Rejected", `Unsupported value: "Sometimes"`)
	if now := w.Deployment("web"); now.UID != before.UID || now.Generation != before.Generation || now.DeletionTimestamp != nil {
		t.Errorf("the old Deployment was touched: %+v", now.ObjectMeta)
	}
	w.edit("web", func(o *v1beta1.ScaledDeployment) { o.Spec.Template.Spec.Containers[0].ImagePullPolicy = "Always" })
	w.Settled("web")
	w.ownsOnly("web", "web-v2")
}

// The schema cannot check everything. The operator reports the API server's own message once. Running pods are not
// affected, and a correction by the user takes effect.
func TestARefusedTemplateIsReportedAndAffectsNoPods(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	container := func(f func(*corev1.Container)) func(*v1beta1.ScaledDeployment) {
		return func(o *v1beta1.ScaledDeployment) { f(&o.Spec.Template.Spec.Containers[0]) }
	}
	tests := map[string]struct {
		wrong func(*v1beta1.ScaledDeployment)
		words string
	}{
		"pull-policy": {container(func(c *corev1.Container) { c.ImagePullPolicy = "Sometimes" }), `imagePullPolicy: Unsupported value: "Sometimes"`},
		"limits":      {container(func(c *corev1.Container) { c.Resources.Limits["cpu"] = resource.MustParse("1m") }), "must be less than or equal to cpu limit"},
		"mount":       {container(func(c *corev1.Container) { c.VolumeMounts = []corev1.VolumeMount{{Name: "gone", MountPath: "/x"}} }), `Not found: "gone"`},
		"label-value": {func(o *v1beta1.ScaledDeployment) { o.Spec.Template.Labels["x"] = "a b" }, "a valid label must be"},
		"own-label":   {func(o *v1beta1.ScaledDeployment) { o.Spec.Template.Labels[ownerLabel] = "other" }, "`selector` does not match template `labels`"},
		"same-containers": {func(o *v1beta1.ScaledDeployment) {
			o.Spec.Template.Spec.InitContainers = []corev1.Container{testkit.Container("app")}
		}, `Duplicate value: "app"`},
	}
	for name := range tests {
		w.Add(w.NewOwner(name))
	}
	w.Settle()
	before := map[string]*appsv1.Deployment{}
	for name, tc := range tests {
		before[name] = w.Settled(name)
		w.edit(name, func(o *v1beta1.ScaledDeployment) {
			o.Spec.Replicas = ptr.To(int32(2)) // applied only with the whole spec
			tc.wrong(o)
		})
	}
	w.Settle()
	for name, tc := range tests {
		w.OwnerReports(name, "Stalled", "True", "Rejected", tc.words)
		w.OwnerReports(name, "Ready", "False", "Rejected", tc.words)
		w.OwnerReports(name, "Reconciling", "False", "OperatingNormally")
		assert.Equal(t, "the Deployment "+name, before[name].Spec, w.Deployment(name).Spec)
		if got := w.Owner(name).Status.AvailableReplicas; got != 3 {
			t.Errorf("%s: the status counts %d pods, of the three that run", name, got)
		}
		w.edit(name, func(o *v1beta1.ScaledDeployment) { o.Spec.Template = w.NewOwner(name).Spec.Template })
	}
	w.Settle()
	for name, tc := range tests {
		w.Settled(name)
		w.OwnerReports(name, "Stalled", "False", "OperatingNormally")
		n := w.notesOf(w.Owner(name).UID, "Refused")
		if len(n) != 1 || !strings.HasPrefix(n[0], "Rejected: ") || !strings.Contains(n[0], tc.words) {
			t.Errorf("%s: events: %q", name, n)
		}
	}
}

// The API server resizes no Windows pods, and no event follows its refusal.
func TestWindowsPodsAreRolledOutInstead(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	before := w.deploy("web", func(d *appsv1.Deployment) { d.Spec.Template.Spec.OS = &corev1.PodOS{Name: corev1.Windows} })
	w.Uses("web", "app", 300, 240)
	w.Scale("web", func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.Fallback = v1beta1.FallbackRollout })
	w.Sized("web")
	if after := w.Deployment("web"); after.Generation == before.Generation {
		t.Error("the template is as it was")
	}
	if n := count(accepted(w.Writes()), "pods/resize"); len(n) > 0 {
		t.Errorf("resized: %v", n)
	}
}

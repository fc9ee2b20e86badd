// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// does runs a verb and fails unless it succeeds without a warning and prints the words.
func (p plugin) does(command string, words ...string) {
	p.Helper()
	out, errOut, code := p.run(strings.Fields(command)...)
	p.Logf("%s\n%s%s", command, errOut, out)
	if code != 0 || errOut != "" {
		p.Fatalf("%s: exit code %d: %s", command, code, errOut)
	}
	for _, word := range words {
		if !strings.Contains(out, word) {
			p.Errorf("%s does not print %q", command, word)
		}
	}
}

// apart describes the pods of the Deployment whose first containers do not have these requests applied, and what
// the scaler says of that; empty if all have them.
func (w *fixture) apart(name, cpu, memory string) string {
	w.Helper()
	var apart []string
	for _, pod := range w.pods(name) {
		has, applied := pod.Spec.Containers[0].Resources.Requests, corev1.ResourceList{}
		for _, status := range pod.Status.ContainerStatuses {
			if status.Name == pod.Spec.Containers[0].Name && status.Resources != nil {
				applied = status.Resources.Requests
			}
		}
		for _, requests := range []corev1.ResourceList{has, applied} {
			if requests.Cpu().Cmp(resource.MustParse(cpu)) != 0 || requests.Memory().Cmp(resource.MustParse(memory)) != 0 {
				apart = append(apart, fmt.Sprintf("pod %s requests %s and %s, of which %s and %s are applied",
					pod.Name, has.Cpu(), has.Memory(), applied.Cpu(), applied.Memory()))
				break
			}
		}
	}
	if len(apart) == 0 {
		return ""
	}
	return fmt.Sprintf("want %s and %s: %s; the scaler says %+v after %q",
		cpu, memory, strings.Join(apart, "; "), w.condition(name, "Applied"), w.scaler(name).Status.History)
}

// remain fails unless all pods get these requests and still have them 20 rounds later.
func (w *fixture) remain(name, cpu, memory string) {
	w.Helper()
	apart := func() string { return w.apart(name, cpu, memory) }
	w.eventually(apart)
	w.rounds(20)
	if why := apart(); why != "" {
		w.Error(why)
	}
}

// roomy lets the pod template request much more than the pods use.
func roomy(d *appsv1.Deployment) {
	r := &d.Spec.Template.Spec.Containers[0].Resources
	r.Requests = corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")}
	r.Limits = corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("2Gi")}
}

// lowered creates a Deployment and a scaler, and returns their name when the last change has lowered the
// requests of pods. The usage is not known from then on, so that nothing changes. Before, uneven
// usage may have raised a request again: then it tries with another Deployment.
func (w *fixture) lowered(verificationSeconds int32) (name string) {
	w.Helper()
	for attempt := range 5 {
		name = fmt.Sprintf("web-%d", attempt)
		w.deploy(name, roomy)
		w.uses(name, "app", 100, 100)
		w.scale(name, func(s *v1beta1.VerticalScaler) {
			s.Spec.UpdatePolicy.CooldownSeconds = ptr.To(int32(3600))
			s.Spec.UpdatePolicy.VerificationSeconds = &verificationSeconds
		})
		if verificationSeconds > 0 {
			w.says(name, "Applied", "False", "Verifying")
		} else {
			w.sized(name)
		}
		w.eventually(func() string {
			if w.apart(name, "1", "1Gi") == "" {
				return "no pod is lowered"
			}
			return ""
		})
		w.usage.Fail(errors.New("not known for the moment"))
		w.rounds(3)
		history := w.scaler(name).Status.History
		if strings.HasPrefix(history[0].Message, plan.DecidedScaleDown+": ") {
			return name
		}
		w.Logf("the last change is %q", history[0].Message)
		w.usage.Fail(nil)
	}
	w.Fatal("usage has always raised a request again")
	return ""
}

// A rollback of a lowering returns at once to the requests from before it, in spite of a cooldown of an
// hour, and whether all pods were lowered or only those that are verified first. Usage still raises them.
func TestThePluginRollsBackALowering(t *testing.T) {
	t.Parallel()
	env.NeedKwok(t)
	for name, verificationSeconds := range map[string]int32{"of all pods": 0, "while it is verified": 3600} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t, quick)
			web := w.lowered(verificationSeconds)
			p := newPlugin(w, env.Config)
			p.does("rollback deployment/"+web+" --dry-run", "1000m (minAllowed)", "server dry run")
			if policy := w.scaler(web).Spec.ResourcePolicy; policy != nil {
				t.Errorf("the dry run has stored %+v", policy)
			}
			p.does("rollback deployment/"+web, "1000m (minAllowed)", "verticalscaler.autoscaling.verticalscaler.io/"+web+" rolled back")
			w.remain(web, "1", "1Gi")
			p.does("rollback "+web, "rolled back (unchanged)")
			w.usage.Fail(nil)
			w.uses(web, "app", 1500, 100)
			w.eventually(func() string {
				for _, pod := range w.pods(web) {
					if now := resourcesOf(pod, "app").Requests; now.Cpu().Cmp(resource.MustParse("1200m")) < 0 {
						return fmt.Sprintf("pod %s requests %s, although it uses more: %+v", pod.Name, now.Cpu(), w.condition(web, "Applied"))
					}
				}
				return ""
			})
			p.does("rollback "+web+" --undo", "no longer rolled back")
			if s := w.scaler(web); s.Spec.ResourcePolicy != nil || len(s.Annotations) != 0 {
				t.Errorf("after the end of the rollback: %+v, annotations %v", s.Spec.ResourcePolicy, s.Annotations)
			}
		})
	}
}

// The verbs change the ScaledDeployment that a scaler belongs to: the operator would revert a change of the
// scaler.
func TestThePluginChangesAScaledDeployment(t *testing.T) {
	t.Parallel()
	const what = "scaleddeployment.autoscaling.verticalscaler.io/web "
	w := newFixture(t)
	w.own("web", scaled(v1beta1.UpdateModeInPlace))
	w.uses("web", "app", 300, 240)
	w.sized("web")
	p := newPlugin(w, env.Config)

	p.does("rollback sdeploy/web --to=original --dry-run", what+"rolled back (server dry run)")
	if policy := w.owner("web").Spec.Scaling.ResourcePolicy; policy != nil {
		t.Errorf("the dry run has stored %+v", policy)
	}
	p.does("rollback sdeploy/web --to=original", "100m (maxAllowed)", "128Mi (maxAllowed)", what+"rolled back")
	w.remain("web", "100m", "128Mi")
	if diff := cmp.Diff(w.owner("web").Spec.Scaling.ResourcePolicy, w.scaler("web").Spec.ResourcePolicy); diff != "" {
		t.Errorf("the scaler does not have the policy of its ScaledDeployment (-ScaledDeployment +scaler):\n%s", diff)
	}

	// While it is suspended, the end of the rollback changes nothing.
	p.does("suspend deployment/web --dry-run", what+"suspended (server dry run)")
	if w.owner("web").Spec.Scaling.Suspend {
		t.Error("the dry run has suspended it")
	}
	p.does("suspend deployment/web", what+"suspended")
	w.says("web", "Applied", "False", "Suspended")
	p.does("rollback web --undo", what+"no longer rolled back")
	w.remain("web", "100m", "128Mi")
	p.does("resume --all", what+"resumed")
	w.eventually(func() string {
		if w.apart("web", "100m", "128Mi") == "" {
			return "the pods still have the original requests"
		}
		return ""
	})
	w.sized("web")
	if o := w.owner("web"); o.Spec.Scaling.Suspend || o.Spec.Scaling.ResourcePolicy != nil || len(o.Annotations) != 0 {
		t.Errorf("at the end: %+v, annotations %v", o.Spec.Scaling, o.Annotations)
	}
}

// If the operator has written into the pod template, a rollback to the original lets it restore the
// template, and the end of the rollback lets it write again.
func TestThePluginRollsBackATemplate(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	before := w.deploy("web")
	w.uses("web", "app", 300, 240)
	w.scale("web", inMode(v1beta1.UpdateModeRollout))
	w.sized("web")
	p := newPlugin(w, env.Config)
	p.does("rollback web --to=original", "restores the pod template of Deployment web")
	w.restored(before)
	w.runs("web")
	w.remain("web", "100m", "128Mi")
	p.does("rollback web --undo", "no longer rolled back")
	w.sized("web")
	if mode := w.scaler("web").Spec.UpdatePolicy.UpdateMode; mode != v1beta1.UpdateModeRollout {
		t.Errorf("the mode is %s", mode)
	}
}

// installVPAs installs the CRD of the VerticalPodAutoscaler project, in place of the one for tests that
// accepts any spec. It stays: VerticalPodAutoscalers of other tests are valid.
func installVPAs(t *testing.T) {
	t.Helper()
	download := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "k8s.io/autoscaler/vertical-pod-autoscaler")
	download.Dir = filepath.Join(testkit.Root(), "hack", "vpa")
	out, err := download.Output()
	if err != nil {
		t.Fatal(err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	if _, err := envtest.InstallCRDs(env.Config, envtest.CRDInstallOptions{
		Paths: []string{filepath.Join(module.Dir, "deploy", "vpa-v1-crd-gen.yaml")}, ErrorIfPathMissing: true,
	}); err != nil {
		t.Fatal(err)
	}
	probe := (&fixture{T: t, namespace: "default"}).vpaOf("probe", "probe", "Later")
	testkit.Eventually(t, soon, func() string { // a schema is used shortly after it is stored
		if err := env.Client.Create(t.Context(), probe.DeepCopy(), client.DryRunAll); !apierrors.IsInvalid(err) {
			return fmt.Sprintf("the schema does not refuse an unknown updateMode: %v", err)
		}
		return ""
	})
}

// What "import vpa" prints is accepted by the API server, whatever VerticalPodAutoscalers are like. Its scalers
// take over when the VerticalPodAutoscalers are switched off.
//
// This test runs alone: another CRD ends the watches of running operators, which then know
// VerticalPodAutoscalers up to a minute late.
func TestThePluginImportsVPAs(t *testing.T) {
	env.NeedKwok(t)
	installVPAs(t)
	w := newFixture(t)
	long := strings.Repeat("a-long-name-", 6) // 72 characters
	vpas := map[string]string{
		"web": `{targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, updatePolicy: {updateMode: Recreate},
			resourcePolicy: {containerPolicies: [{containerName: app, minAllowed: {cpu: 50m, memory: 64Mi}, maxAllowed: {cpu: 2}}]}}`,
		"web-again":   `{targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}`,
		"db":          `{targetRef: {apiVersion: apps/v1, kind: StatefulSet, name: db}}`,
		"old":         `{targetRef: {apiVersion: extensions/v1beta1, kind: Deployment, name: old}}`,
		"idle":        `{targetRef: {apiVersion: apps/v1, kind: Deployment, name: idle}, updatePolicy: {updateMode: "Off"}}`,
		"crossed":     `{targetRef: {apiVersion: apps/v1, kind: Deployment, name: api}, resourcePolicy: {containerPolicies: [{containerName: "*", minAllowed: {cpu: 2}, maxAllowed: {cpu: 100m, memory: 0}}]}}`,
		"odd":         `{targetRef: {apiVersion: apps/v1, kind: Deployment, name: odd}, recommenders: [{name: theirs}], updatePolicy: {minReplicas: 1}, resourcePolicy: {containerPolicies: [{containerName: app, mode: "Off"}, {containerName: app}, {containerName: Not A Name}, {containerName: log, controlledValues: RequestsOnly, controlledResources: [memory], minAllowed: {example.com/gpu: 1, memory: 1e3}}]}}`,
		"dotted.name": `{targetRef: {apiVersion: apps/v1, kind: Deployment, name: dotted.name}}`,
		long + "one":  `{targetRef: {apiVersion: apps/v1, kind: Deployment, name: one}}`,
		long + "two":  `{targetRef: {apiVersion: apps/v1, kind: Deployment, name: two}}`,
	}
	for name, spec := range vpas {
		vpa := w.vpaOf(name, "", "")
		var fields map[string]any
		if err := yaml.Unmarshal([]byte(strings.ReplaceAll(spec, "\t", "")), &fields); err != nil {
			t.Fatal(err)
		}
		vpa.Object["spec"] = fields
		w.create(vpa)
	}
	w.deploy("web")
	w.uses("web", "app", 300, 240)
	p := newPlugin(w, env.Config)
	out, errOut, code := p.run("import", "vpa")
	t.Logf("%s\n%s", errOut, out)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	for _, skipped := range []string{"db"} {
		if !strings.Contains(errOut, "VerticalPodAutoscaler "+w.namespace+"/"+skipped+" is skipped: ") {
			t.Errorf("no warning that %s is skipped", skipped)
		}
	}
	modes := map[string]string{}
	strict := client.WithFieldValidation(env.Client, metav1.FieldValidationStrict)
	documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(out)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		scaler := &unstructured.Unstructured{}
		if err != nil || yaml.Unmarshal(document, &scaler.Object) != nil {
			t.Fatalf("%v: %s", err, document)
		}
		if len(scaler.Object) == 0 {
			continue // comments on one that is skipped
		}
		if err := strict.Create(t.Context(), scaler); err != nil {
			t.Errorf("%v:\n%s", err, document)
		}
		name, _, _ := unstructured.NestedString(scaler.Object, "spec", "deploymentName")
		mode, _, _ := unstructured.NestedString(scaler.Object, "spec", "updatePolicy", "updateMode")
		modes[scaler.GetName()+" of "+name] = mode
	}
	const short = "a-long-name-a-long-name-a-long-name-a-long-name-a-long-"
	want := map[string]string{
		"web of web": "InPlace", "web-again of web": "InPlace", "old of old": "InPlace", "dotted.name of dotted.name": "InPlace",
		short + "0475b09b of one": "InPlace", short + "5b24acb5 of two": "InPlace",
		"idle of idle": "Recommend", "crossed of api": "Recommend", "odd of odd": "Recommend",
	}
	if diff := cmp.Diff(want, modes); diff != "" {
		t.Errorf("modes of the scalers (-want +got):\n%s", diff)
	}

	w.says("web", "Applied", "False", "VPAConflict")
	w.says("web-again", "Stalled", "True", "Conflict")
	w.rounds(10)
	if n := count(w.writes(w.began), "pods/resize"); total(n) > 0 {
		t.Errorf("resizes beside a VerticalPodAutoscaler: %v", n)
	}
	for _, name := range []string{"web", "web-again"} {
		w.patch(w.vpaOf(name, "", ""), `{"spec":{"updatePolicy":{"updateMode":"Off"}}}`)
	}
	w.sized("web")
}

// A support bundle has what explains a scaler, and no secret of the namespace, with all rights and with few.
func TestThePluginBundlesNoSecrets(t *testing.T) {
	t.Parallel()
	const canary = "canary-4711"
	w := newFixture(t)
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "db"}, StringData: map[string]string{"password": canary}})
	w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "settings"}, Data: map[string]string{"dsn": canary}})
	w.deploy("web", func(d *appsv1.Deployment) {
		for _, metadata := range []*metav1.ObjectMeta{&d.ObjectMeta, &d.Spec.Template.ObjectMeta} {
			metadata.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": canary}
			if metadata.Labels == nil {
				metadata.Labels = map[string]string{}
			}
			metadata.Labels["team"] = canary
		}
		pod := &d.Spec.Template.Spec
		c := &pod.Containers[0]
		c.Image, c.Command, c.Args = "example.com/"+canary, []string{"run", canary}, []string{"--password=" + canary}
		c.Env = []corev1.EnvVar{{Name: "PASSWORD", Value: canary}}
		c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/" + canary, Port: intstr.FromInt32(80)}}}
		c.VolumeMounts = []corev1.VolumeMount{{Name: "settings", MountPath: "/" + canary}}
		pod.Volumes = []corev1.Volume{{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}}
		pod.HostAliases = []corev1.HostAlias{{IP: "10.47.11.1", Hostnames: []string{canary}}}
	})
	w.create(&autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web", Annotations: map[string]string{"note": canary}},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, MinReplicas: ptr.To(int32(3)), MaxReplicas: 3,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
				Metric: autoscalingv2.MetricIdentifier{Name: "queue", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"account": canary}}},
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: ptr.To(resource.MustParse("1"))},
			}}},
		},
	})
	w.create(&corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "bounds", Labels: map[string]string{"owner": canary}},
		Spec:       corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{"cpu": resource.MustParse("8")}}}},
	})
	w.uses("web", "app", 300, 240)
	w.scale("web", func(s *v1beta1.VerticalScaler) { s.Labels = map[string]string{"team": canary} })
	w.sized("web")
	scaler := w.scaler("web")
	w.annotate(scaler, "example.com/note", canary)
	w.annotate(scaler, v1beta1.PausedAnnotation, "incident, see https://max:"+canary+"@wiki.example/1")
	w.says("web", "Applied", "False", "Paused", canary) // in a message of the status
	w.create(&corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: w.namespace, Name: "refused"},
		InvolvedObject: corev1.ObjectReference{APIVersion: v1beta1.GroupVersion.String(), Kind: "VerticalScaler", Namespace: w.namespace, Name: "web", UID: scaler.UID},
		Reason:         "Refused", Message: "webhook said: Authorization: Bearer " + canary, Type: corev1.EventTypeWarning,
	})

	server, err := url.Parse(env.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	secrets := []string{canary, server.Hostname(), "10.47.11.1", env.Config.BearerToken}
	for _, pod := range w.pods("web") { // the text of an event may name a node, a field does not
		secrets = append(secrets, pod.Status.PodIP, pod.Status.HostIP, "nodeName: "+pod.Spec.NodeName)
	}
	p := newPlugin(w, env.Config)
	files := p.bundle(secrets)
	for name, want := range map[string]string{
		"README.txt": "scalers/web/explanation.txt", "check.txt": "VerticalScaler API", "scalers/web/scaler.yaml": "decision:",
		"scalers/web/explanation.txt": "Paused", "scalers/web/deployment.yaml": "cpu: 100m", "scalers/web/pods.yaml": "name: web-",
		"events.yaml": "Bearer [masked]", "horizontalpodautoscalers.yaml": "maxReplicas: 3", "limitranges.yaml": `cpu: "8"`,
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s has no %q:\n%s", name, want, files[name])
		}
	}
	few := p.ofReader().bundle(secrets)
	if few["scalers/web/scaler.yaml"] == "" || few["scalers/web/pods.yaml"] != "" || !strings.Contains(few["README.txt"], "Not included:") {
		t.Errorf("the bundle of a reader: %v", few)
	}
}

// bundle returns the files of a support bundle, and fails if a file has one of the secrets.
func (p plugin) bundle(secrets []string) map[string]string {
	p.Helper()
	out, errOut, code := p.run("support-bundle", "-o", "-")
	if code != 0 {
		p.Fatalf("exit code %d: %s", code, errOut)
	}
	compressed, err := gzip.NewReader(strings.NewReader(out))
	if err != nil {
		p.Fatal(err)
	}
	files := map[string]string{}
	for reader := tar.NewReader(compressed); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			p.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			p.Fatal(err)
		}
		name := strings.TrimPrefix(header.Name, "vscaler-support/")
		files[name] = string(content)
		for _, secret := range secrets {
			if secret != "" && strings.Contains(string(content), secret) {
				p.Errorf("%s has %q:\n%s", name, secret, content)
			}
		}
	}
}

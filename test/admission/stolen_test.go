// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/objects"
)

// asking is a ScaledDeployment of that name, with the template.
func asking(name string, template corev1.PodTemplateSpec) *v1beta1.ScaledDeployment {
	return &v1beta1.ScaledDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-of-" + name)},
		Spec:       v1beta1.ScaledDeploymentSpec{Template: template},
	}
}

// answering is the Deployment that the operator writes for the ScaledDeployment.
func answering(owner *v1beta1.ScaledDeployment) *appsv1.Deployment {
	d := objects.Deployment("shop", owner.Name)
	d.Labels = map[string]string{v1beta1.ScaledDeploymentLabel: owner.Name, v1beta1.ApplyingLabel: "true"}
	d.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "autoscaling.verticalscaler.io/v1beta1", Kind: "ScaledDeployment", Name: owner.Name, UID: owner.UID,
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}}
	d.Spec.Template = *owner.Spec.Template.DeepCopy()
	return d
}

// unlabelled is the Deployment as the operator leaves it.
func unlabelled(d *appsv1.Deployment) *appsv1.Deployment {
	delete(d.Labels, v1beta1.ApplyingLabel)
	return d
}

// judge fails unless exactly one validation rejects the request with these words, or none
// if there are no words.
func judge(t *testing.T, p *policy, r request, words string) {
	t.Helper()
	looks, _, messages := p.answers(t, r)
	message := strings.Join(messages, "; ")
	if !looks || (words == "") != (message == "") || !strings.Contains(message, words) {
		t.Errorf("looked at: %t; said %q, want %q", looks, message, words)
	}
}

// judgeBothForms judges the request with Go values, as newer API servers do, and with maps.
func judgeBothForms(t *testing.T, p *policy, r request, words string) {
	t.Helper()
	judge(t, p, r, words)
	for _, object := range []*runtime.Object{&r.before, &r.after} {
		if *object != nil {
			*object = mapsOf(t, *object)
		}
	}
	judge(t, p, r, words)
}

func TestStolenTokenKeepsNothingThatNoScaledDeploymentOwns(t *testing.T) {
	t.Parallel()
	p := compiled(t, "operator_deployments.yaml")
	owner := asking("web", objects.Deployment("shop", "web").Spec.Template)
	made := func(changes ...func(*appsv1.Deployment)) *appsv1.Deployment {
		d := answering(owner)
		for _, change := range changes {
			change(d)
		}
		return d
	}
	another := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "coredns", UID: "of-coredns"}
	pod := func(change func(*corev1.PodSpec)) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) { change(&d.Spec.Template.Spec) }
	}
	container := func(change func(*corev1.Container)) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) { change(&d.Spec.Template.Spec.Containers[0]) }
	}
	secure := func(s corev1.SecurityContext) func(*appsv1.Deployment) {
		return container(func(c *corev1.Container) { c.SecurityContext = &s })
	}
	withAnother := func(d *appsv1.Deployment) { d.OwnerReferences = append(d.OwnerReferences, another) }
	finalized := func(d *appsv1.Deployment) { d.Finalizers = []string{metav1.FinalizerOrphanDependents} }
	hostPath := pod(func(p *corev1.PodSpec) {
		p.Volumes = []corev1.Volume{{Name: "root", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
	})
	labelled := func(d *appsv1.Deployment) { d.Labels["team"] = "evil" }
	const owners, finalizers, outside, metadata, system, node, label = "may not add an owner", "may not add a finalizer", "outside of the pod template", "changes its metadata", "namespace of the cluster itself", "access to the node", "only create a Deployment with the label"
	for name, c := range map[string]struct {
		before, after *appsv1.Deployment
		namespace     string
		labels        map[string]string
		message       string
	}{
		"an ordinary one":                     {after: made()},
		"beside another owner":                {after: made(withAnother), message: owners},
		"with another owner later":            {before: made(), after: made(withAnother), message: metadata},
		"with the other owner that it has":    {before: made(withAnother), after: made(withAnother)},
		"without the other owner that it has": {before: made(withAnother), after: made(), message: metadata},
		"with a finalizer":                    {after: made(finalized), message: finalizers},
		"with a finalizer later":              {before: made(), after: made(finalized), message: metadata},
		"without the finalizer that it has":   {before: made(finalized), after: made(), message: metadata},
		"with a label of others later":        {before: made(), after: made(labelled), message: metadata},
		"without a label of others later":     {before: made(labelled), after: made(), message: metadata},
		"with an annotation of others later": {before: made(), after: made(func(d *appsv1.Deployment) {
			d.Annotations = map[string]string{"argocd.argoproj.io/tracking-id": "x"}
		}), message: metadata},
		"paused later": {before: made(), after: made(func(d *appsv1.Deployment) { d.Spec.Paused = true }), message: outside},
		"with another strategy later": {before: made(), after: made(func(d *appsv1.Deployment) {
			d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
		}), message: outside},
		"with another deadline later": {before: made(), after: made(func(d *appsv1.Deployment) {
			d.Spec.ProgressDeadlineSeconds = ptr.To[int32](2)
		}), message: outside},
		"with the finalizer that it has":          {before: made(finalized), after: made(finalized)},
		"without the label":                       {after: made(func(d *appsv1.Deployment) { d.Labels = nil }), message: label},
		"without the label later":                 {before: made(), after: made(func(d *appsv1.Deployment) { d.Labels = nil })},
		"without the label before and later":      {before: unlabelled(made()), after: unlabelled(made(finalized)), message: "changes its metadata"},
		"in kube-system":                          {after: made(), namespace: "kube-system", message: system},
		"in openshift-monitoring":                 {after: made(), namespace: "openshift-monitoring", message: system},
		"in a namespace that only sounds so":      {after: made(), namespace: "kubernetes"},
		"on the host's network":                   {after: made(pod(func(p *corev1.PodSpec) { p.HostNetwork = true })), message: node},
		"among the host's processes":              {after: made(pod(func(p *corev1.PodSpec) { p.HostPID = true })), message: node},
		"with the host's IPC":                     {after: made(pod(func(p *corev1.PodSpec) { p.HostIPC = true })), message: node},
		"with a folder of the host":               {after: made(hostPath), message: node},
		"with a folder of the host later":         {before: made(), after: made(hostPath), message: node},
		"with the folder of the host that it has": {before: made(hostPath), after: made(hostPath)},
		"privileged":                              {after: made(secure(corev1.SecurityContext{Privileged: ptr.To(true)})), message: node},
		"explicitly not privileged":               {after: made(secure(corev1.SecurityContext{Privileged: ptr.To(false)}))},
		"with all of /proc":                       {after: made(secure(corev1.SecurityContext{ProcMount: ptr.To(corev1.UnmaskedProcMount)})), message: node},
		"with the capability to administrate":     {after: made(secure(corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"CHOWN", "SYS_ADMIN"}}})), message: node},
		"with a default capability":               {after: made(secure(corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"CHOWN"}, Drop: []corev1.Capability{"ALL"}}}))},
		"with a process of the Windows host":      {after: made(secure(corev1.SecurityContext{WindowsOptions: &corev1.WindowsSecurityContextOptions{HostProcess: ptr.To(true)}})), message: node},
		"with all pods on the Windows host": {after: made(pod(func(p *corev1.PodSpec) {
			p.SecurityContext = &corev1.PodSecurityContext{WindowsOptions: &corev1.WindowsSecurityContextOptions{HostProcess: ptr.To(true)}}
		})), message: node},
		"with a port of the host": {after: made(container(func(c *corev1.Container) { c.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}} })), message: node},
		"with a privileged init container": {after: made(pod(func(p *corev1.PodSpec) {
			p.InitContainers = []corev1.Container{{Name: "init", SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)}}}
		})), message: node},
		"privileged, where the administrator wants it": {
			after: made(secure(corev1.SecurityContext{Privileged: ptr.To(true)})), labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"},
		},
		"privileged, where the administrator does not": {
			after: made(secure(corev1.SecurityContext{Privileged: ptr.To(true)})), labels: map[string]string{"pod-security.kubernetes.io/enforce": "baseline"}, message: node,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := request{resource: "deployments", after: c.after, namespace: c.namespace, labels: c.labels}
			if c.before != nil {
				r.before = c.before
			}
			judgeBothForms(t, p, r, c.message)
		})
	}
}

// filledTemplate is a template in which every field is set.
func filledTemplate(t *testing.T) (template corev1.PodTemplateSpec) {
	t.Helper()
	fill(t, reflect.ValueOf(&template).Elem())
	return template
}

// The operator may set these fields of a pod template to values that the ScaledDeployment does not
// ask for. They are CPU and memory, amounts that the API server rewrites, and parts that it sets
// by default. None decides what runs, as whom, or what it reads.
var (
	freeOfPod = []string{
		// The ReplicaSet controller copies nothing else of the metadata to pods.
		".metadata.creationTimestamp", ".metadata.deletion", ".metadata.gener", ".metadata.managedFields", ".metadata.name", ".metadata.ownerReferences",
		".metadata.resourceVersion", ".metadata.selfLink", ".metadata.uid",
		".spec.affinity", ".spec.overhead", ".spec.resources", ".spec.tolerations", ".spec.topologySpreadConstraints",
		".spec.volumes[].downwardAPI", ".spec.volumes[].emptyDir", ".spec.volumes[].ephemeral", ".spec.volumes[].image.pullPolicy",
		".spec.volumes[].configMap.defaultMode", ".spec.volumes[].projected.default", ".spec.volumes[].secret.defaultMode",
		".spec.volumes[].projected.sources[].downwardAPI", ".spec.volumes[].projected.sources[].serviceAccountToken.expirationSeconds",
	}
	freeOfContainer = []string{
		".imagePullPolicy", ".lifecycle", ".livenessProbe", ".ports", ".readinessProbe", ".resizePolicy",
		".resources.limits", ".resources.requests", ".startupProbe", ".stdin", ".terminationMessage", ".tty",
		".envFrom[].configMapRef.optional", ".envFrom[].secretRef.optional",
		".env[].valueFrom.configMapKeyRef.optional", ".env[].valueFrom.fileKeyRef.optional", ".env[].valueFrom.secretKeyRef.optional",
		".env[].valueFrom.fieldRef.apiVersion", ".env[].valueFrom.resourceFieldRef.containerName", ".env[].valueFrom.resourceFieldRef.divisor",
	}
	// guarded are parts of the free fields that are not free.
	guarded = []string{".exec.command", ".hostPort", ".httpGet.host", ".tcpSocket.host", "[new]", "limits[a]", "requests[a]"}
)

// removable are the other fields that the operator may leave out: the API server refuses a container without an image, and sets
// serviceAccount itself.
var removable = regexp.MustCompile(`\.(image|hostPort|serviceAccount)$`)

func isFree(path string) bool {
	begins := func(path string, prefixes []string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
	}
	if begins(path, freeOfPod) {
		return true
	}
	for _, list := range []string{".spec.containers[]", ".spec.initContainers[]"} {
		if inside, ok := strings.CutPrefix(path, list); ok && begins(inside, freeOfContainer) {
			return !slices.ContainsFunc(guarded, func(end string) bool { return strings.Contains(inside, end) })
		}
	}
	return false
}

func TestStolenTokenCreatesOnlyWhatTheScaledDeploymentAsksFor(t *testing.T) {
	t.Parallel()
	p := compiled(t, "operator_owned.yaml")
	owner := asking("web", filledTemplate(t))
	owner.Spec.Template.Spec.HostNetwork = false // Otherwise, ports of the node follow from it.
	params := mapsOf(t, owner)
	after := answering(owner)
	r := request{resource: "deployments", params: params, after: after}
	judgeBothForms(t, p, r, "")
	alone, fields := map[int]bool{}, 0
	walk(t, reflect.ValueOf(&after.Spec.Template).Elem(), "", func(path, done string) {
		if done == "extended" || path == ".spec.hostNetwork" {
			return // The API server refuses a second entry with the same name.
		}
		if fields++; isSkipped(fields) {
			return
		}
		if done == "removed" {
			r := r
			if r.after = mapsOf(t, after); fields%2 == 0 {
				r.before = mapsOf(t, answering(owner))
			}
			if _, refuses := p.asks(t, r); len(refuses) == 0 && !isFree(path) && !removable.MatchString(path) {
				t.Errorf("%s may be removed", path)
			}
			return
		}
		forms := map[string]runtime.Object{"as Go": after}
		if fields%10 == 0 { // They are slow.
			forms["as maps"] = mapsOf(t, after)
		}
		for form, object := range forms {
			r.after = object
			_, refuses := p.asks(t, r)
			if len(refuses) == 1 {
				alone[refuses[0]] = true
			}
			if passes := len(refuses) == 0; passes != isFree(path) {
				t.Errorf("%s %s passes (%s): %t", path, done, form, passes)
			}
		}
	})
	for i, v := range p.spec.Validations {
		if !alone[i] && i > 2 && !testing.Short() {
			t.Errorf("validation %d is not needed: %s", i, v.Message)
		}
	}
	t.Logf("%d changes", fields)
}

// The walk above does not try another order of the parts that the ScaledDeployment asks for, or one part in
// place of another.
func TestStolenTokenRemovesNothingThatIsAskedFor(t *testing.T) {
	t.Parallel()
	p := compiled(t, "operator_owned.yaml")
	template := objects.Deployment("shop", "web").Spec.Template
	template.Spec.InitContainers = []corev1.Container{{Name: "migrate", Image: "migrate:1"}, {Name: "check", Image: "check:1", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
	app := template.Spec.Containers[0]
	app.Env = []corev1.EnvVar{{Name: "REQUIRE_AUTH", Value: "true"}, {Name: "URL", Value: "http://$(HOST)"}, {Name: "HOST", Value: "db"}}
	app.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/alive"}}}}
	app.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/drain"}}}}
	template.Spec.Containers = []corev1.Container{app, {Name: "auth-proxy", Image: "proxy:1"}}
	template.Spec.Volumes = []corev1.Volume{
		{Name: "rules", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "rules"}}}},
		{Name: "cache"},
	}
	owner := asking("web", template)
	for name, change := range map[string]func(s *corev1.PodSpec, app *corev1.Container){
		"a container":                  func(s *corev1.PodSpec, _ *corev1.Container) { s.Containers = s.Containers[:1] },
		"an init container":            func(s *corev1.PodSpec, _ *corev1.Container) { s.InitContainers = s.InitContainers[1:] },
		"the order of init containers": func(s *corev1.PodSpec, _ *corev1.Container) { slices.Reverse(s.InitContainers) },
		"the end of an init container": func(s *corev1.PodSpec, _ *corev1.Container) {
			s.Containers, s.InitContainers = append(s.Containers, s.InitContainers[0]), s.InitContainers[1:]
		},
		"a volume": func(s *corev1.PodSpec, _ *corev1.Container) { s.Volumes = s.Volumes[:1] },
		"the content of a volume": func(s *corev1.PodSpec, _ *corev1.Container) {
			s.Volumes[0].VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		},
		"a variable":             func(_ *corev1.PodSpec, app *corev1.Container) { app.Env = app.Env[1:] },
		"the order of variables": func(_ *corev1.PodSpec, app *corev1.Container) { slices.Reverse(app.Env) },
		"a probe":                func(_ *corev1.PodSpec, app *corev1.Container) { app.LivenessProbe = nil },
		"a hook":                 func(_ *corev1.PodSpec, app *corev1.Container) { app.Lifecycle = nil },
	} {
		for operation, before := range map[string]runtime.Object{"create": nil, "update": mapsOf(t, answering(owner))} {
			made := answering(owner)
			change(&made.Spec.Template.Spec, &made.Spec.Template.Spec.Containers[0])
			if _, refuses := p.asks(t, request{resource: "deployments", params: mapsOf(t, owner), before: before, after: mapsOf(t, made)}); len(refuses) == 0 {
				t.Errorf("%s without %s passes", operation, name)
			}
		}
	}
}

// A policy that runs out of its budget refuses what users ask for.
func TestStolenTokenPoliciesAffordLargeTemplates(t *testing.T) {
	t.Parallel()
	template := objects.Deployment("shop", "web").Spec.Template
	template.Spec.Containers = nil
	for c := range 10 {
		container := objects.Container(fmt.Sprintf("app-%d", c))
		for i := range 100 {
			name := fmt.Sprintf("KEY_NUMBER_%d", i)
			container.Env = append(container.Env, corev1.EnvVar{Name: name, Value: strings.Repeat("value", 10)})
			container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/mnt/" + name})
		}
		template.Spec.Containers = append(template.Spec.Containers, container)
	}
	for i := range 100 {
		template.Spec.Volumes = append(template.Spec.Volumes, corev1.Volume{
			Name:         fmt.Sprintf("KEY_NUMBER_%d", i),
			VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: fmt.Sprintf("secret-%d", i)}},
		})
	}
	owner := asking("web", template)
	made := answering(owner)
	extended := answering(owner)
	extended.Spec.Template.Spec.Containers[0].Env = append(extended.Spec.Template.Spec.Containers[0].Env, corev1.EnvVar{Name: "OF_ANOTHER_WRITER"})
	for _, file := range []string{"operator_deployments.yaml", "operator_owned.yaml"} {
		p := compiled(t, file)
		for name, r := range map[string]request{
			"created":                       {after: made},
			"changed":                       {before: made, after: made},
			"changed beside another writer": {before: extended, after: extended},
		} {
			r.resource, r.params = "deployments", mapsOf(t, owner)
			start := time.Now()
			_, refuses, messages, cost := p.evaluates(t, r)
			t.Logf("%s, %s: %d %%, %v", file, name, cost*100/celconfig.RuntimeCELCostBudget, time.Since(start))
			if len(refuses) > 0 || cost > celconfig.RuntimeCELCostBudget/4 {
				t.Errorf("%s, %s: costs %d of %d; refused by %q", file, name, cost, celconfig.RuntimeCELCostBudget, messages)
			}
		}
	}
}

// Each parameter can only refuse. So the policy does not judge what names another
// ScaledDeployment. TestEachPolicyRefusesWhateverIsMissing shows what happens where there is none.
func TestStolenTokenCreatesNothingWithoutAScaledDeployment(t *testing.T) {
	t.Parallel()
	p := compiled(t, "operator_owned.yaml")
	template := objects.Deployment("shop", "web").Spec.Template
	owner := asking("web", template)
	named := asking("web", template)
	named.Spec.DeploymentName = "shop-web"
	with := func(change func(*appsv1.Deployment)) *appsv1.Deployment {
		d := answering(owner)
		change(d)
		return d
	}
	for name, c := range map[string]struct {
		before, after *appsv1.Deployment
		owner         *v1beta1.ScaledDeployment
		passes        string // "by" if the policy must not look at it
		message       string
	}{
		"as it asks":                         {after: answering(owner), owner: owner},
		"with another UID":                   {after: with(func(d *appsv1.Deployment) { d.OwnerReferences[0].UID = "invented" }), owner: owner, message: "UID is another"},
		"with another name":                  {after: with(func(d *appsv1.Deployment) { d.Name = "more" }), owner: owner, message: "that the ScaledDeployment names"},
		"with the name that it asks for":     {after: with(func(d *appsv1.Deployment) { d.Name = "shop-web" }), owner: named},
		"with its own name instead":          {after: answering(owner), owner: named, message: "that the ScaledDeployment names"},
		"changed before it is replaced":      {before: answering(owner), after: answering(owner), owner: named},
		"with a container of another writer": {before: with(extra), after: with(extra), owner: owner},
		"with a container of its own":        {before: answering(owner), after: with(extra), owner: owner, message: "changes a container"},
		"with a port of another writer":      {before: with(nodePort), after: with(nodePort), owner: owner},
		"with a port of its own":             {before: answering(owner), after: with(nodePort), owner: owner, message: "a port of a container"},
		"with more pods":                     {after: with(scaledTo(7)), owner: owner, message: "the number of pods"},
		"with more pods later":               {before: answering(owner), after: with(scaledTo(7)), owner: owner, message: "the number of pods"},
		"with no pods later":                 {before: answering(owner), after: with(scaledTo(0)), owner: owner, message: "the number of pods"},
		"with the pods of an HPA":            {before: with(scaledTo(7)), after: with(scaledTo(7)), owner: owner},
		"with the pods that it asks for":     {before: with(scaledTo(7)), after: with(scaledTo(1)), owner: owner},
		"of another one":                     {after: with(func(d *appsv1.Deployment) { d.OwnerReferences[0].Name = "api" }), owner: owner, passes: "by"},
	} {
		t.Run(name, func(t *testing.T) {
			r := request{resource: "deployments", after: c.after, params: mapsOf(t, c.owner)}
			if c.before != nil {
				r.before = c.before
			}
			if c.passes == "by" {
				if looks, _ := p.asks(t, r); looks {
					t.Error("the policy looks at it")
				}
				return
			}
			judgeBothForms(t, p, r, c.message)
		})
	}
}

// scaledTo sets the number of pods. The ScaledDeployments of these tests ask for one.
func scaledTo(replicas int32) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.Replicas = &replicas }
}

// nodePort adds a port of the node that no ScaledDeployment asks for.
func nodePort(d *appsv1.Deployment) {
	app := &d.Spec.Template.Spec.Containers[0]
	app.Ports = append(app.Ports, corev1.ContainerPort{ContainerPort: 9090, HostPort: 9090})
}

// extra adds a container that no ScaledDeployment asks for.
func extra(d *appsv1.Deployment) {
	d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, objects.Container("extra"))
}

func TestStolenTokenWritesOnlyTheLeaseOfTheLeader(t *testing.T) {
	t.Parallel()
	p := compiled(t, "operator_objects.yaml")
	named := func(name string) runtime.Object {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "somewhere"}}
	}
	for name, says := range map[string]string{
		v1beta1.LeaseName: "",
		"verticalscaler-1.autoscaling.verticalscaler.io":  "only its own objects",
		"verticalscalerxautoscaling.verticalscaler.io":    "only its own objects",
		"a-verticalscaler.autoscaling.verticalscaler.io":  "only its own objects",
		"verticalscaler.autoscaling.verticalscaler.io.eu": "only its own objects",
	} {
		for _, r := range []request{{after: named(name)}, {before: named(name), after: named(name)}, {before: named(name)}} {
			r.resource, r.namespace = "leases", "somewhere"
			judge(t, p, r, says)
		}
	}
	judge(t, p, request{resource: "leases", after: named(v1beta1.LeaseName), namespace: "kube-system"}, "only in its own namespace")
}

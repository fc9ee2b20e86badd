// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// tenant is a user with the roles that teams usually have in their namespace, and the role
// for scalers.
func (w *fixture) tenant() user {
	w.Helper()
	u := w.stranger("tenant-of-" + w.namespace)
	u.isBoundTo("edit")
	u.isBoundTo("verticalscaler-editor")
	return u
}

// can asks the API server whether the user has a right in the test's namespace.
func (u user) can(verb, group, kind, subresource string) bool {
	u.Helper()
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: u.namespace, Verb: verb, Group: group, Resource: kind, Subresource: subresource,
		},
	}}
	if err := u.Create(u.Context(), review); err != nil {
		u.Fatal(err)
	}
	return review.Status.Allowed
}

// atLeast is a resource policy by which the container app never requests less CPU.
func atLeast(cpu string) *v1beta1.ResourcePolicy {
	return &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{{
		ContainerName: "app", MinAllowed: &v1beta1.ResourceBounds{CPU: ptr.To(resource.MustParse(cpu))},
	}}}
}

// A running pod counts for its node with what it requests, even if the kubelet defers the
// resize. So a tenant with ten tiny pods could claim ten nodes.
func TestATenantCannotClaimAllNodesWithAScaler(t *testing.T) {
	t.Parallel()
	env.NeedKwok(t)
	// A mesh's sidecar has a share of each node. What the container asks for leaves too little for others.
	const nodes, cpus, most = 10, "4", "3500m"
	w := newFixture(t)
	for i := range nodes {
		w.node(fmt.Sprintf("%s-%d", w.namespace, i), cpus)
	}
	onItsNodes := func(spec *corev1.PodSpec) {
		spec.NodeSelector = map[string]string{"test": w.namespace}
		spec.Tolerations = []corev1.Toleration{{Key: "test", Operator: corev1.TolerationOpExists}}
	}
	w.deploy("tiny", func(d *appsv1.Deployment) {
		d.Spec.Replicas = ptr.To(int32(nodes))
		spec := &d.Spec.Template.Spec
		onItsNodes(spec)
		spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: d.Spec.Selector,
		}}
		spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("10m"), "memory": resource.MustParse("16Mi")}}
	})
	w.uses("tiny", "app", 5, 10)
	w.deploy("other")
	w.uses("other", "app", 300, 240)
	tenant := w.tenant()
	w.eventually(func() string {
		for kind, may := range map[string]bool{ // two roles
			"Deployments":       tenant.can("patch", "apps", "deployments", ""),
			"VerticalScalers":   tenant.can("create", v1beta1.GroupVersion.Group, "verticalscalers", ""),
			"ScaledDeployments": tenant.can("create", v1beta1.GroupVersion.Group, "scaleddeployments", ""),
		} {
			if !may {
				return "the tenant has no right on " + kind + " yet"
			}
		}
		return ""
	})
	if tenant.can("patch", "", "pods", "resize") {
		t.Fatal("the roles of a tenant include resizing pods: the operator does nothing that the tenant may not do")
	}

	scaler := testkit.Scaler(w.namespace, "greedy", "tiny")
	scaler.Spec.ResourcePolicy = atLeast(most)
	refused(t, tenant.Create(t.Context(), scaler), "users", "a VerticalScaler in updateMode InPlace resizes running pods",
		`cannot patch resource "pods/resize" in API group "" in the namespace "`+w.namespace+`"`, "verticalscaler-resizer", "updateMode Recommend")
	owner := w.newOwner("greedy", scaled(""))
	owner.Spec.Scaling.ResourcePolicy = atLeast(most)
	refused(t, tenant.Create(t.Context(), owner), "users", "the scaling of a ScaledDeployment in updateMode InPlace", `cannot patch resource "pods/resize"`)
	w.scale("other")
	w.sized("other")
	w.rounds(30) // a scaler of the tenant that was stored has acted by now
	for _, pod := range w.pods("tiny") {
		if got := resourcesOf(pod, "app").Requests.Cpu().String(); got != "10m" {
			t.Errorf("pod %s of the tenant requests %s of CPU", pod.Name, got)
		}
	}

	neighbour := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: env.Namespace(t), Name: "neighbour"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{testkit.Container("app")}},
	}
	onItsNodes(&neighbour.Spec)
	neighbour.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}
	w.eventually(func() string { return said(client.IgnoreAlreadyExists(env.Client.Create(t.Context(), neighbour))) }) // needs a service account
	w.eventually(func() string {
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(neighbour), neighbour); err != nil {
			return err.Error()
		}
		if neighbour.Spec.NodeName == "" {
			return fmt.Sprintf("the neighbour's pod has no node: %+v", neighbour.Status.Conditions)
		}
		return ""
	})

	// What the message offers works.
	scaler.Spec.UpdatePolicy.UpdateMode = "Recommend"
	if err := tenant.Create(t.Context(), scaler.DeepCopy(), client.DryRunAll); err != nil {
		t.Errorf("in mode Recommend: %v", err)
	}
	tenant.mayResize()
	modest := testkit.Scaler(w.namespace, "modest", "tiny")
	tenant.tries("with the role", func() error { return tenant.Create(t.Context(), modest.DeepCopy()) })
	w.says("modest", "TargetFound", "True", "DeploymentFound")
}

// Users without the right to resize pods can do with existing objects what resizes none.
func TestATenantWithoutTheRightToResizePods(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.scale("mine")
	w.own("ours", scaled("InPlace"))
	tenant := w.tenant()
	tenant.tries("labelling", func() error {
		return tenant.Patch(t.Context(), w.scaler("mine"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`)))
	})
	w.untilRejectedBy("users", func() error {
		return tenant.Create(t.Context(), testkit.Scaler(w.namespace, "other", "web"), client.DryRunAll)
	})
	const refusal = "updateMode InPlace resizes running pods"
	for name, c := range map[string]struct {
		of    client.Object
		patch string
		says  string // "" if allowed
	}{
		"raising the minimum":              {w.scaler("mine"), `{"spec":{"resourcePolicy":{"containerPolicies":[{"containerName":"*","minAllowed":{"cpu":4}}]}}}`, refusal},
		"having pods recreated":            {w.scaler("mine"), `{"spec":{"updatePolicy":{"fallback":"Recreate"}}}`, refusal},
		"another Deployment":               {w.scaler("mine"), `{"spec":{"deploymentName":"api"}}`, refusal},
		"the default mode":                 {w.scaler("mine"), `{"spec":{"updatePolicy":null}}`, refusal},
		"suspending":                       {w.scaler("mine"), `{"spec":{"suspend":true}}`, ""},
		"only recommending":                {w.scaler("mine"), `{"spec":{"updatePolicy":{"updateMode":"Recommend"}}}`, ""},
		"rolling out":                      {w.scaler("mine"), `{"spec":{"updatePolicy":{"updateMode":"Rollout"}}}`, ""},
		"a label":                          {w.scaler("mine"), `{"metadata":{"labels":{"a":"c"}}}`, ""},
		"a label of one with a Deployment": {w.owner("ours"), `{"metadata":{"labels":{"a":"c"}}}`, ""},
		"another image":                    {w.owner("ours"), `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"example.com/app:2"}]}}}}`, ""},
		"no scaling":                       {w.owner("ours"), `{"spec":{"scaling":null}}`, ""},
		"other scaling":                    {w.owner("ours"), `{"spec":{"scaling":{"updatePolicy":{"tolerancePercent":0}}}}`, refusal},
		"scaling that only recommends":     {w.owner("ours"), `{"spec":{"scaling":{"updatePolicy":{"updateMode":"Recommend"}}}}`, ""},
		"another name of its Deployment":   {w.owner("ours"), `{"spec":{"deploymentName":"theirs"}}`, ""}, // "edit" may delete Deployments
		"suspended scaling":                {w.owner("ours"), `{"spec":{"scaling":{"suspend":true}}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := tenant.Patch(t.Context(), c.of, client.RawPatch(types.MergePatchType, []byte(c.patch)), client.DryRunAll)
			switch {
			case c.says != "":
				refused(t, err, "users", c.says)
			case err != nil:
				t.Error(err)
			}
		})
	}
	if err := tenant.Delete(t.Context(), w.scaler("mine")); err != nil {
		t.Errorf("deleting: %v", err)
	}
}

// heard are the warnings that the API server sends to a client.
type heard struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (h *heard) HandleWarningHeader(_ int, _, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.texts = append(h.texts, text)
}

// taken returns the warnings of our policies since the last call.
func (h *heard) taken() (out []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, text := range h.texts {
		if strings.Contains(text, "verticalscaler-warnings") {
			out = append(out, text)
		}
	}
	h.texts = nil
	return out
}

// listener is a client with all rights whose warnings are heard.
func (w *fixture) listener() (client.Client, *heard) {
	w.Helper()
	h := &heard{}
	config := rest.CopyConfig(env.Config)
	config.WarningHandler = h
	c, err := client.New(config, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		w.Fatal(err)
	}
	return c, h
}

// Nothing of what the API server warns about is refused.
func TestATenantIsWarnedOfImplausibleSpecs(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web")
	w.deploy("batch", func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Name = "job"
		d.Spec.Template.Spec.Containers[0].Resources.Limits = nil
	})
	c, heard := w.listener()
	scalerOf := func(deployment, policies string) client.Object {
		return objectFrom(w, "VerticalScaler", `{"deploymentName":"`+deployment+`","resourcePolicy":{"containerPolicies":`+policies+`}}`)
	}
	ownerWith := func(policies string) client.Object {
		template := `{"metadata":{"labels":{"app":"mine"}},"spec":{"containers":[{"name":"app","image":"example.com/app:1","resources":{"limits":{"cpu":2}}}]}}`
		return objectFrom(w, "ScaledDeployment", `{"template":`+template+`,"scaling":{"resourcePolicy":{"containerPolicies":`+policies+`}}}`)
	}
	// The API server learns of policies and Deployments with a delay.
	for _, deployment := range []string{"web", "batch"} {
		w.eventually(func() string {
			if err := c.Create(t.Context(), scalerOf(deployment, `[{"containerName":"nobody"}]`), client.DryRunAll); err != nil {
				return err.Error()
			}
			if len(heard.taken()) == 0 {
				return "there is no warning about a container that Deployment " + deployment + " does not have"
			}
			return ""
		})
	}
	var long []string
	for i := range 32 {
		long = append(long, fmt.Sprintf(`{"containerName":"a-container-with-a-long-name-%d","minAllowed":{"cpu":400},"maxAllowed":{"cpu":4000},"limits":{"maxAllowed":{"cpu":4000}}}`, i))
	}
	for name, tc := range map[string]struct {
		object client.Object
		says   []string // one for each warning
	}{
		"nothing":                     {scalerOf("web", `[{"containerName":"app","minAllowed":{"cpu":"100m"}},{"containerName":"*","mode":"Off"}]`), nil},
		"cores for millicores":        {scalerOf("web", `[{"containerName":"app","minAllowed":{"cpu":400}}]`), []string{"minAllowed.cpu 400 of container app. CPU is in cores"}},
		"memory without a unit":       {scalerOf("web", `[{"containerName":"app","maxAllowed":{"memory":2048}}]`), []string{"maxAllowed.memory 2048 of container app. Memory without a unit is in bytes"}},
		"another container":           {scalerOf("web", `[{"containerName":"job"}]`), []string{"Deployment web has no container job in its template: its policy in resourcePolicy has no effect. The containers are app"}},
		"limits":                      {scalerOf("web", `[{"containerName":"*","controlledValues":"RequestsOnly"}]`), []string{"limits of Deployment web, also after an OOM kill: app cpu 200m, app memory 256Mi."}},
		"a Deployment without limits": {scalerOf("batch", `[{"containerName":"job","controlledValues":"RequestsOnly"}]`), nil},
		"no Deployment":               {scalerOf("none", `[{"containerName":"nobody","controlledValues":"RequestsOnly"}]`), nil},
		"a template":                  {ownerWith(`[{"containerName":"app","maxAllowed":{"cpu":1},"controlledValues":"RequestsOnly"}]`), nil},
		"a template's containers":     {ownerWith(`[{"containerName":"job"}]`), []string{"The template has no container job: its policy in scaling.resourcePolicy has no effect. The containers are app"}},
		"a template's limits":         {ownerWith(`[{"containerName":"app","controlledValues":"RequestsOnly"}]`), []string{"app cpu 2."}},
		"cores in a ScaledDeployment": {ownerWith(`[{"containerName":"app","maxAllowed":{"cpu":"1000"}}]`), []string{"maxAllowed.cpu 1000 of container app"}},
		"more than a message can say": {scalerOf("web", "["+strings.Join(long, ",")+"]"), []string{
			"Implausible bounds of CPU, which is in cores: 500m is half a core", "a-container-with-a-long-name-31",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.Create(t.Context(), tc.object, client.DryRunAll); err != nil {
				t.Fatal(err)
			}
			got := heard.taken()
			if len(got) != len(tc.says) {
				t.Fatalf("warned of %q", got)
			}
			for _, words := range tc.says {
				if !slices.ContainsFunc(got, func(text string) bool { return strings.Contains(text, words) }) {
					t.Errorf("warned of %q, not %q", got, words)
				}
			}
		})
	}

	// What is stored is not questioned again.
	const questionable = `"deploymentName":"web","updatePolicy":{"updateMode":"Recommend"},"resourcePolicy":{"containerPolicies":[` +
		`{"containerName":"app","minAllowed":{"cpu":400},"controlledValues":"RequestsOnly"}]}`
	stored := objectFrom(w, "VerticalScaler", "{"+questionable+"}")
	if err := c.Create(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	if got := heard.taken(); len(got) != 2 {
		t.Errorf("warned of %q", got)
	}
	for _, patch := range []string{`{"spec":{"suspend":true}}`, `{"metadata":{"labels":{"a":"b"}}}`} {
		if err := c.Patch(t.Context(), stored, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
		if got := heard.taken(); len(got) > 0 {
			t.Errorf("%s warns again: %q", patch, got)
		}
	}
}

// objectFrom is an object of this API with a spec as a user writes it.
func objectFrom(w *fixture, kind, spec string) client.Object {
	w.Helper()
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(spec), &object.Object); err != nil {
		w.Fatal(err)
	}
	object.Object = map[string]any{"spec": object.Object}
	object.SetGroupVersionKind(v1beta1.GroupVersion.WithKind(kind))
	object.SetNamespace(w.namespace)
	object.SetName("questionable")
	return object
}

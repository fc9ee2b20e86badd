// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/metadata"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

func vpaOf(namespace, name, deployment string) *unstructured.Unstructured {
	vpa := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"targetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment},
	}}}
	vpa.SetGroupVersionKind(schema.GroupVersionKind{Group: "autoscaling.k8s.io", Version: "v1", Kind: "VerticalPodAutoscaler"})
	vpa.SetNamespace(namespace)
	vpa.SetName(name)
	vpa.SetUID(types.UID(namespace + "/" + name))
	return vpa
}

// served is an API server that serves the API, or returns an error.
type served struct {
	*fake.FakeDynamicClient
	refusal atomic.Pointer[apierrors.StatusError]
	watch   watch.Interface // the last one
}

func serve(objects ...runtime.Object) *served {
	s := &served{FakeDynamicClient: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{inventory.VPAResource: "VerticalPodAutoscalerList"}, objects...)}
	refuse := func(clienttesting.Action) (bool, runtime.Object, error) {
		if err := s.refusal.Load(); err != nil {
			return true, nil, err
		}
		return false, nil, nil
	}
	s.PrependReactor("list", "*", refuse)
	s.PrependWatchReactor("*", func(action clienttesting.Action) (_ bool, _ watch.Interface, err error) {
		if err := s.refusal.Load(); err != nil {
			return true, nil, err
		}
		s.watch, err = s.Tracker().Watch(inventory.VPAResource, action.GetNamespace())
		return true, s.watch, err
	})
	return s
}

func (s *served) refuse(err *apierrors.StatusError) { s.refusal.Store(err) }

var (
	notServed = apierrors.NewNotFound(inventory.VPAResource.GroupResource(), "")
	forbidden = apierrors.NewForbidden(inventory.VPAResource.GroupResource(), "", nil)
	broken    = apierrors.NewServiceUnavailable("the conversion webhook is down")
)

// metadataOf watches the metadata of served objects.
type metadataOf struct {
	metadata.Getter
	served    *served
	namespace string
}

func (m metadataOf) Resource(schema.GroupVersionResource) metadata.Getter { return m }

func (m metadataOf) Namespace(namespace string) metadata.ResourceInterface {
	m.namespace = namespace
	return m
}

func (m metadataOf) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w, err := m.served.Resource(inventory.VPAResource).Namespace(m.namespace).Watch(ctx, o)
	if err != nil {
		return nil, err
	}
	return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		vpa, _ := e.Object.(*unstructured.Unstructured)
		e.Object = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: vpa.GetNamespace(), Name: vpa.GetName(), UID: vpa.GetUID(), Generation: vpa.GetGeneration(), ResourceVersion: vpa.GetResourceVersion(),
		}}
		return e, true
	}), nil
}

// reads is the number of reads of VerticalPodAutoscalers.
func (s *served) reads() (n int) {
	for _, action := range s.Actions() {
		if action.GetVerb() == "list" || action.GetVerb() == "get" {
			n++
		}
	}
	return n
}

// news records the changes that were reported.
type news struct {
	mu       sync.Mutex
	reported string
}

func (n *news) report(vpa workload.VPA) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reported += fmt.Sprintf("%s/%s of %s; ", vpa.Namespace, vpa.Name, vpa.Target.Name)
}

// are compares the changes with these, and clears them.
func (n *news) are(t *testing.T, want string) {
	t.Helper()
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.reported != want {
		t.Errorf("changes %q, want %q", n.reported, want)
	}
	n.reported = ""
}

// follow starts to watch, and returns the changes.
func follow(t *testing.T, s *served, namespaces ...string) (*inventory.VPAs, *news) {
	t.Helper()
	v := &inventory.VPAs{Client: s, Metadata: metadataOf{served: s}, Namespaces: namespaces, Clock: clock.RealClock{}}
	n := &news{}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	v.Follow(ctx, n.report)
	must.Succeed(t, v.Wait(ctx))
	return v, n
}

func deployment(namespace, name string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// namesOf are the VerticalPodAutoscalers of a Deployment, sorted.
func namesOf(v *inventory.VPAs, d *appsv1.Deployment) string {
	names := []string{}
	for _, vpa := range v.Of(d) {
		names = append(names, vpa.Namespace+"/"+vpa.Name)
	}
	slices.Sort(names)
	return fmt.Sprint(names)
}

func has(t *testing.T, v *inventory.VPAs, d *appsv1.Deployment, want string) {
	t.Helper()
	synctest.Wait()
	if got := namesOf(v, d); got != want {
		t.Errorf("VPAs of %s/%s: %s, want %s", d.Namespace, d.Name, got, want)
	}
}

func TestVPAsAreKnownBeforeTheFirstReconcile(t *testing.T) {
	friend := vpaOf("shop", "d", "friend")
	friend.Object["spec"] = map[string]any{"targetRef": map[string]any{"kind": "ScaledDeployment", "name": "friend"}}
	v, _ := follow(t, serve(vpaOf("shop", "b", "web"), vpaOf("shop", "a", "api"), vpaOf("other", "c", "web"), vpaOf("shop", "e", "web"), friend))
	owned := deployment("shop", "web")
	owned.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: v1beta1.GroupVersion.String(), Kind: v1beta1.ScaledDeploymentKind, Name: "friend", Controller: ptr.To(true)},
	}
	for want, d := range map[string]*appsv1.Deployment{
		"[shop/a]":               deployment("shop", "api"),
		"[shop/b shop/e]":        deployment("shop", "web"),
		"[shop/b shop/d shop/e]": owned,
		"[other/c]":              deployment("other", "web"),
		"[]":                     deployment("none", "web"),
	} {
		if got := namesOf(v, d); got != want {
			t.Errorf("VPAs of %s/%s: %s, want %s", d.Namespace, d.Name, got, want)
		}
	}
}

// A field of another type than ours, of a newer version or of a stored object that its CRD does not
// check, does not hide the rest. Unreadable fields count as the default, which sizes everything.
func TestAVPAWithAFieldOfAnotherType(t *testing.T) {
	policies := func(fields ...any) map[string]any { return map[string]any{"containerPolicies": fields} }
	sizesAll := workload.VPAContainer{CPU: true, Memory: true}
	off := map[string]any{"containerName": "app", "mode": "Off"}
	for name, tc := range map[string]struct {
		field  string
		value  any
		target string
		app    workload.VPAContainer
	}{
		"the update policy":            {field: "updatePolicy", value: "Off", target: "web", app: sizesAll},
		"the update mode":              {field: "updatePolicy", value: map[string]any{"updateMode": int64(1)}, target: "web", app: sizesAll},
		"the resource policy":          {field: "resourcePolicy", value: "none", target: "web", app: sizesAll},
		"a container's mode":           {field: "resourcePolicy", value: policies(map[string]any{"containerName": "app", "mode": true}), target: "web", app: sizesAll},
		"the second container's mode":  {field: "resourcePolicy", value: policies(off, map[string]any{"containerName": "side", "mode": true}), target: "web", app: sizesAll},
		"a field that nobody reads":    {field: "resourcePolicy", value: policies(map[string]any{"containerName": "app", "mode": "Off", "minAllowed": "much"}), target: "web"},
		"no field":                     {field: "resourcePolicy", value: policies(off), target: "web"},
		"the target, which is unknown": {field: "targetRef", value: "web"},
	} {
		t.Run(name, func(t *testing.T) {
			vpa := vpaOf("shop", "v", "web")
			spec, _ := vpa.Object["spec"].(map[string]any)
			spec[tc.field] = tc.value
			v, _ := follow(t, serve(vpa), "shop")
			got := v.Of(deployment("shop", "web"))
			if tc.target == "" {
				if len(got) != 0 {
					t.Errorf("it sizes %+v, want nothing", got)
				}
				return
			}
			if len(got) != 1 {
				t.Fatalf("VPAs: %+v", got)
			}
			app, isNamed := got[0].Containers["app"]
			if !isNamed {
				app = got[0].Containers[v1beta1.AnyContainer]
			}
			if got[0].Target.Name != tc.target || got[0].Off || app != tc.app {
				t.Errorf("it sizes %+v of %q, want %+v of %q", app, got[0].Target.Name, tc.app, tc.target)
			}
		})
	}
}

// A change of the status, which comes each minute, is neither read nor reported. A change of the spec is read once.
func TestVPAChangesAreReported(t *testing.T) { synctest.Test(t, testVPAChanges) }

func testVPAChanges(t *testing.T) {
	s := serve(vpaOf("shop", "other", "batch"))
	v, reported := follow(t, s, "shop")
	web, api := deployment("shop", "web"), deployment("shop", "api")
	reported.are(t, "shop/other of batch; ")
	vpas, reads := s.Resource(inventory.VPAResource).Namespace("shop"), s.reads()
	vpa := vpaOf("shop", "v", "web")
	spec, _ := vpa.Object["spec"].(map[string]any)
	for i, step := range []struct {
		what     string
		change   func()
		reported string // the old target and the new one
		reads    int
		ofWeb    string
		ofAPI    string
	}{
		{"its creation", func() {}, "shop/v of web; ", 1, "[shop/v]", "[]"},
		{"its status", func() { vpa.Object["status"] = map[string]any{"recommendation": "something"} }, "", 0, "[shop/v]", "[]"},
		{"another target", func() {
			vpa.SetGeneration(2)
			spec["targetRef"] = map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "api"}
		}, "shop/v of web; shop/v of api; ", 1, "[]", "[shop/v]"},
		{"its status again", func() { vpa.Object["status"] = map[string]any{"recommendation": "more"} }, "", 0, "[]", "[shop/v]"},
		{"its mode", func() {
			vpa.SetGeneration(3)
			spec["updatePolicy"] = map[string]any{"updateMode": "Off"}
		}, "shop/v of api; ", 1, "[]", "[shop/v]"},
		{"a field that is not used", func() {
			vpa.SetGeneration(4)
			spec["recommenders"] = []any{}
		}, "", 1, "[]", "[shop/v]"},
		{"another one of its name", func() {
			vpa.SetGeneration(1)
			vpa.SetUID("recreated")
			delete(spec, "updatePolicy")
		}, "shop/v of api; ", 1, "[]", "[shop/v]"},
	} {
		step.change()
		vpa.SetResourceVersion(fmt.Sprint(i + 2))
		var err error
		if i == 0 {
			_, err = vpas.Create(t.Context(), vpa.DeepCopy(), metav1.CreateOptions{})
		} else {
			_, err = vpas.Update(t.Context(), vpa.DeepCopy(), metav1.UpdateOptions{})
		}
		must.Succeed(t, err)
		has(t, v, web, step.ofWeb)
		has(t, v, api, step.ofAPI)
		reported.are(t, step.reported)
		if got := s.reads() - reads; got != step.reads {
			t.Errorf("%s: read %d times, want %d", step.what, got, step.reads)
		}
		reads = s.reads()
	}
	must.Succeed(t, vpas.Delete(t.Context(), "v", metav1.DeleteOptions{}))
	has(t, v, api, "[]")
	reported.are(t, "shop/v of api; ")

	// One that cannot be read is read again with all others.
	s.refuse(broken)
	vpa.SetResourceVersion("99")
	if _, err := vpas.Create(t.Context(), vpa, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	has(t, v, api, "[]")
	s.refuse(nil)
	time.Sleep(time.Minute) // by the bubble's clock: until the next retry
	has(t, v, api, "[shop/v]")
}

func TestTheVPAAPIIsInstalledLaterAndRemoved(t *testing.T) {
	for name, refusal := range map[string]*apierrors.StatusError{"not served": notServed, "forbidden": forbidden, "broken": broken} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(vpaOf("shop", "v", "web"))
				s.refuse(refusal)
				v, _ := follow(t, s, "shop") // does not wait for the API
				time.Sleep(10 * time.Minute) // by the bubble's clock: no time passes
				has(t, v, deployment("shop", "web"), "[]")
				if lists := s.reads(); refusal == notServed && lists > 6 {
					t.Errorf("%d requests in 10 minutes, although the API is not served", lists)
				}
				s.refuse(nil)
				time.Sleep(3 * time.Minute) // by the bubble's clock: until the next retry
				has(t, v, deployment("shop", "web"), "[shop/v]")
				s.refuse(refusal)
				s.watch.Stop()
				time.Sleep(time.Minute) // of simulated time, in which the watch is retried
				has(t, v, deployment("shop", "web"), map[bool]string{true: "[shop/v]", false: "[]"}[refusal == broken])
			})
		})
	}
}

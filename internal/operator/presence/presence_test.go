// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package presence

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

var (
	roles    = rbacv1.SchemeGroupVersion.WithResource("clusterroles")
	bindings = rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings")
)

// api is an API server with a ClusterRoleBinding "a", and all selectors of what is listed.
func api(t *testing.T, answer func() error) (*metadatafake.FakeMetadataClient, chan string) {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	must.Succeed(t, metav1.AddMetaToScheme(scheme))
	binding := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBinding"}}
	binding.Name = "a"
	c, listed := metadatafake.NewSimpleMetadataClient(scheme, binding), make(chan string, 100)
	c.PrependReactor("list", "*", func(action clienttesting.Action) (bool, apiruntime.Object, error) {
		listed <- action.GetResource().Resource + " " + action.(clienttesting.ListAction).GetListRestrictions().Fields.String()
		err := answer()
		return err != nil, nil, err
	})
	return c, listed
}

// eventually waits for something that another goroutine does.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !is() {
		if ctx.Err() != nil {
			t.Fatal(what + " was not noticed")
		}
		runtime.Gosched()
	}
}

func start(t *testing.T, c *metadatafake.FakeMetadataClient, by clock.Clock) *Watch {
	t.Helper()
	w, err := New(c, by, []schema.GroupVersionResource{roles, bindings}, "a", "b")
	must.Succeed(t, err)
	must.Succeed(t, w.Start(t.Context()))
	return w
}

func TestObjectsAreWatchedByName(t *testing.T) {
	c, listed := api(t, func() error { return nil })
	w := start(t, c, clock.RealClock{})
	isNoticed := func() bool { return w.Works() && w.TakeChange() }
	eventually(t, "an object that was there", isNoticed)
	if w.TakeChange() {
		t.Error("it is noticed twice")
	}
	must.Succeed(t, c.Resource(bindings).Delete(t.Context(), "a", metav1.DeleteOptions{}))
	eventually(t, "its end", isNoticed)
	var all []string
	for len(listed) > 0 {
		all = append(all, <-listed)
	}
	slices.Sort(all)
	if want := []string{"clusterrolebindings metadata.name=a", "clusterrolebindings metadata.name=b", "clusterroles metadata.name=a", "clusterroles metadata.name=b"}; !slices.Equal(all, want) {
		t.Errorf("lists %q, not %q", all, want)
	}
}

func TestARejectedWatchIsTriedAgain(t *testing.T) {
	for name, answer := range map[string]error{
		"the right is missing": apierrors.NewForbidden(roles.GroupResource(), "", nil), "the kind is not served": apierrors.NewNotFound(roles.GroupResource(), ""),
	} {
		t.Run(name, func(t *testing.T) {
			var isGranted atomic.Bool
			c, _ := api(t, func() error {
				if isGranted.Load() {
					return nil
				}
				return answer
			})
			fakeClock := testingclock.NewFakeClock(time.Now())
			w := start(t, c, fakeClock)
			eventually(t, "the rejection", func() bool { return w.rejected.Load() == 4 && fakeClock.Waiters() == 4 })
			if w.Works() {
				t.Error("it works")
			}
			isGranted.Store(true)
			fakeClock.Step(rejectedInterval)
			eventually(t, "the right", func() bool { return w.Works() && w.TakeChange() })
		})
	}
}

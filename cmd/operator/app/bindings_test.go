// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

func TestBindingsAreWatchedByName(t *testing.T) {
	for name, tc := range map[string]struct {
		isForbidden bool
		is          func(b *bindings) bool
	}{
		"a binding is there":       {false, func(b *bindings) bool { return b.changed.Load() }},
		"the watch is not allowed": {true, func(b *bindings) bool { return b.isForbidden.Load() }},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := metadatafake.NewTestScheme()
			must.Succeed(t, metav1.AddMetaToScheme(scheme))
			binding := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBinding"}}
			binding.Name = optionalBindings[0]
			api := metadatafake.NewSimpleMetadataClient(scheme, binding)
			var mu sync.Mutex
			asked := map[string]bool{}
			api.PrependReactor("list", "clusterrolebindings", func(action clienttesting.Action) (bool, apiruntime.Object, error) {
				mu.Lock()
				defer mu.Unlock()
				asked[action.(clienttesting.ListAction).GetListRestrictions().Fields.String()] = true
				return tc.isForbidden, nil, apierrors.NewForbidden(rbacv1.Resource("clusterrolebindings"), "", nil)
			})
			b, err := newBindings(api)
			must.Succeed(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			must.Succeed(t, b.start(ctx))
			for !tc.is(b) && ctx.Err() == nil {
				runtime.Gosched()
			}
			if !tc.is(b) {
				t.Error("nothing is noticed")
			}
			mu.Lock()
			defer mu.Unlock()
			if len(asked) == 0 {
				t.Error("nothing is listed")
			}
			for selector := range asked {
				if name, isByName := strings.CutPrefix(selector, "metadata.name="); !isByName || !slices.Contains(optionalBindings, name) {
					t.Errorf("the watch is of %q", selector)
				}
			}
		})
	}
}

// The files that users apply later have the watched bindings.
func TestTheWatchedBindingsArePublished(t *testing.T) {
	for i, file := range []string{"policies.yaml", "recreate.yaml"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "dist", file))
		must.Succeed(t, err)
		_, binding, _ := strings.Cut(string(text), "\nkind: ClusterRoleBinding\n")
		if !strings.Contains(binding, "\n  name: "+optionalBindings[i]+"\n") {
			t.Errorf("dist/%s has no binding %s", file, optionalBindings[i])
		}
	}
}

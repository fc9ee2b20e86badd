// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/app"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/shards"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// both are the views of two replicas.
var both = []shards.View{{Slot: 0, Slots: []int{0, 1}}, {Slot: 1, Slots: []int{0, 1}}}

// sharedNamespaces creates namespaces until each of two replicas serves one. served is their number by slot.
func sharedNamespaces(t *testing.T) (namespaces []string, served [2]int) {
	t.Helper()
	for served[0] == 0 || served[1] == 0 {
		namespace := env.Namespace(t)
		namespaces = append(namespaces, namespace)
		for slot, view := range both {
			if view.Owns(namespace) {
				served[slot]++
			}
		}
	}
	return namespaces, served
}

// Of two replicas, each stores the Deployments and pods of its own namespaces: those that exist when it starts, and
// those that are created later. Once it works alone, it stores all of them.
func TestAReplicaStoresOnlyWhatItServes(t *testing.T) {
	namespaces, served := sharedNamespaces(t)
	// Each namespace has a Deployment with a scaler, one that a ScaledDeployment controls, and one that nobody names.
	fill := func(suffix string) {
		for _, namespace := range namespaces {
			named, owned, foreign := testkit.Deployment(namespace, "web"+suffix), testkit.Deployment(namespace, "owned"+suffix), testkit.Deployment(namespace, "foreign"+suffix)
			owned.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: v1beta1.GroupVersion.String(), Kind: v1beta1.ScaledDeploymentKind, Name: "any", UID: "any", Controller: ptr.To(true),
			}}
			createScaler(t, namespace, named.Name, named.Name)
			create(t, named)
			create(t, owned)
			create(t, foreign)
			if _, err := env.Run(t.Context(), named); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill("")
	first := startReplica(t, both[0], namespaces)
	second := startReplica(t, both[1], namespaces)
	first.expect(t, 2*served[0], served[0])
	second.expect(t, 2*served[1], served[1])
	fill("-later")
	first.expect(t, 4*served[0], 2*served[0])
	second.expect(t, 4*served[1], 2*served[1])

	second.stop()
	first.stop()
	alone := startReplica(t, shards.Alone(), namespaces)
	alone.expect(t, 4*len(namespaces), 2*len(namespaces))
}

// The upgrade gate is one of the parts that only one replica runs, whatever namespaces the others serve.
func TestOneReplicaTellsOLM(t *testing.T) {
	namespaces, _ := sharedNamespaces(t)
	underOLM(t, namespaces[0])
	mark := env.Mark()
	first, second := startReplica(t, both[0], namespaces), startReplica(t, both[1], namespaces)
	for _, namespace := range namespaces {
		createScaler(t, namespace, "web", "web")
		sees(t, namespace, "web", absent)
	}
	blocks(t, namespaces[0], "web", namespaces[1:]...)
	second.stop() // A gate would tell that, too.
	if writes := conditionWrites(t, second.operator, mark); len(writes) > 0 {
		t.Errorf("the second replica writes %v", writes)
	}
	if writes := conditionWrites(t, first.operator, mark); len(writes) == 0 {
		t.Error("no writes of the first replica are seen")
	}
}

// servingReplica is the manager of a replica, for one view.
type servingReplica struct {
	operator *testkit.Operator // its user agent
	cached   *inventory.Cache
	stop     func()
}

func startReplica(t *testing.T, view shards.View, namespaces []string) *servingReplica {
	t.Helper()
	c, scope := testkit.OperatorConfig(), app.Scope{Namespaces: namespaces}
	options := app.ManagerOptions(c, scope)
	options.Cache.NewInformer = view.NewInformer
	operator := &testkit.Operator{Agent: fmt.Sprintf("replica-%d-of-%s", view.Slot, t.Name())}
	restConfig := rest.CopyConfig(env.Config)
	restConfig.UserAgent = operator.Agent
	mgr, err := ctrl.NewManager(restConfig, options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	if _, err := app.SetupView(ctx, mgr, c, app.Options{Source: testkit.NewUsage()}, scope, view); err != nil {
		cancel()
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := mgr.Start(ctx); err != nil {
			t.Error(err)
		}
	}()
	r := &servingReplica{operator: operator, cached: mgr.GetCache().(*inventory.Cache), stop: func() {
		cancel()
		<-ended
	}}
	t.Cleanup(r.stop)
	return r
}

// expect waits until that many Deployments and pods are stored.
func (r *servingReplica) expect(t *testing.T, deployments, pods int) {
	t.Helper()
	testkit.Eventually(t, soon, func() string {
		if !r.cached.WaitForCacheSync(t.Context()) {
			return "the caches have not synced"
		}
		if d, p := r.cached.Deployments.Stored(), r.cached.Pods.Stored(); d != deployments || p != pods {
			return fmt.Sprintf("%d Deployments and %d pods are stored, want %d and %d", d, p, deployments, pods)
		}
		return ""
	})
}

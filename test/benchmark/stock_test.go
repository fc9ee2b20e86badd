// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package benchmark

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/app"
)

// The stock operator is what the books about controllers teach: the manager's cache as it is, map
// functions and reconciles that list in it, an index or a filter, and the queue of controller-runtime.
// It reads what our reconcile reads, and decides nothing.

const (
	indexedList   = "indexed-list"
	listAndFilter = "list-and-filter"
)

// The indexes of the stock operator.
const (
	byTarget     = "spec.deploymentName"
	byDeployment = "deployment"
)

type stock struct {
	client.Client
	isIndexed bool
}

// newStock starts a stock operator, whose cache has all that ours has.
func newStock(b *testing.B, a *api, isIndexed bool) *stock {
	b.Helper()
	ctrl.SetLogger(logr.Discard())
	mgr, err := ctrl.NewManager(a.config(), ctrl.Options{
		Scheme: app.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		b.Fatal(err)
	}
	s := &stock{Client: mgr.GetClient(), isIndexed: isIndexed}
	run(b, mgr, func(ctx context.Context) error { return s.setup(ctx, mgr) })
	return s
}

func (s *stock) setup(ctx context.Context, mgr ctrl.Manager) error {
	if s.isIndexed {
		if err := mgr.GetFieldIndexer().IndexField(ctx, &v1beta1.VerticalScaler{}, byTarget, func(o client.Object) []string {
			return []string{o.(*v1beta1.VerticalScaler).Spec.DeploymentName}
		}); err != nil {
			return err
		}
		if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, byDeployment, func(o client.Object) []string {
			owner := metav1.GetControllerOf(o)
			if owner == nil {
				return nil
			}
			return []string{owner.Name[:max(strings.LastIndexByte(owner.Name, '-'), 0)]}
		}); err != nil {
			return err
		}
	}
	for _, kind := range []client.Object{
		&corev1.Pod{}, &appsv1.ReplicaSet{}, &corev1.LimitRange{}, &corev1.ResourceQuota{}, &autoscalingv2.HorizontalPodAutoscaler{}, &corev1.Node{},
	} {
		if _, err := mgr.GetCache().GetInformer(ctx, kind); err != nil {
			return fmt.Errorf("caching %T: %w", kind, err)
		}
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1beta1.VerticalScaler{}).
		Watches(&appsv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(s.scalersOf)).
		Complete(s)
}

// scalersOf is the reverse lookup of the stock operator.
func (s *stock) scalersOf(ctx context.Context, deployment client.Object) (out []reconcile.Request) {
	options := []client.ListOption{client.InNamespace(deployment.GetNamespace())}
	if s.isIndexed {
		options = append(options, client.MatchingFields{byTarget: deployment.GetName()})
	}
	var scalers v1beta1.VerticalScalerList
	if err := s.List(ctx, &scalers, options...); err != nil {
		panic(err) // no index, or a cache that has not synced
	}
	for i := range scalers.Items {
		if scalers.Items[i].Spec.DeploymentName == deployment.GetName() {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&scalers.Items[i])})
		}
	}
	return out
}

// Reconcile reads what our reconcile reads, and finds nothing to do.
func (s *stock) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var vs v1beta1.VerticalScaler
	if err := s.Get(ctx, request.NamespacedName, &vs); err != nil {
		return reconcile.Result{}, err
	}
	before := vs.Status.DeepCopy()
	var deployment appsv1.Deployment
	if err := s.Get(ctx, client.ObjectKey{Namespace: vs.Namespace, Name: vs.Spec.DeploymentName}, &deployment); err != nil {
		return reconcile.Result{}, err
	}
	var pods client.ListOption = client.MatchingLabels(deployment.Spec.Selector.MatchLabels)
	if s.isIndexed {
		pods = client.MatchingFields{byDeployment: deployment.Name}
	}
	for list, options := range map[client.ObjectList][]client.ListOption{
		&corev1.PodList{}: {pods}, &autoscalingv2.HorizontalPodAutoscalerList{}: nil, &corev1.LimitRangeList{}: nil, &corev1.ResourceQuotaList{}: nil,
	} {
		if err := s.List(ctx, list, append(options, client.InNamespace(vs.Namespace))...); err != nil {
			return reconcile.Result{}, err
		}
	}
	if !equality.Semantic.DeepEqual(before, &vs.Status) {
		return reconcile.Result{}, fmt.Errorf("the status of scaler %s has changed", request)
	}
	return reconcile.Result{}, nil
}

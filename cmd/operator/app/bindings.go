// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// optionalBindings are the ClusterRoleBindings of recreate.yaml and policies.yaml, which may be applied at any time.
var optionalBindings = []string{"verticalscaler-manager-policies", "verticalscaler-manager-recreate"}

// bindings notice when the operator may have got more rights.
type bindings struct {
	informers []cache.SharedIndexInformer
	changed   atomic.Bool
	// isForbidden is true if the operator may not watch them.
	isForbidden atomic.Bool
}

// newBindings is a watch of the metadata of the optional bindings.
func newBindings(api metadata.Interface) (*bindings, error) {
	b := &bindings{}
	for _, name := range optionalBindings {
		informer := metadatainformer.NewFilteredMetadataInformer(api, rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"), metav1.NamespaceAll, 0, cache.Indexers{},
			func(o *metav1.ListOptions) {
				o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
			}).Informer()
		changed := func(any) { b.changed.Store(true) }
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(_, now any) { changed(now) }}); err != nil {
			return nil, fmt.Errorf("watching ClusterRoleBinding %s: %w", name, err)
		}
		b.informers = append(b.informers, informer)
	}
	return b, nil
}

// start watches until the context ends, or until the API server forbids it.
func (b *bindings) start(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	onError := func(ctx context.Context, r *cache.Reflector, err error) {
		if apierrors.IsForbidden(err) {
			b.isForbidden.Store(true)
			stop()
			return
		}
		cache.DefaultWatchErrorHandler(ctx, r, err)
	}
	for _, informer := range b.informers {
		if err := informer.SetWatchErrorHandlerWithContext(onError); err != nil {
			stop()
			return fmt.Errorf("handling the errors of a watch: %w", err)
		}
		go informer.RunWithContext(ctx)
	}
	return nil
}

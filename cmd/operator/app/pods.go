// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// countPods counts the pods of all namespaces. It asks the API server for one, and how many others there are.
func countPods(api client.Reader) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		one := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
		if err := api.List(ctx, one, client.Limit(1)); err != nil {
			return 0, fmt.Errorf("counting the pods of all namespaces: %w", err)
		}
		if one.Continue != "" && one.RemainingItemCount == nil {
			return 0, errors.New("the API server does not say how many pods there are")
		}
		return len(one.Items) + int(ptr.Deref(one.RemainingItemCount, 0)), nil
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// podLists answers lists of the pods' metadata.
type podLists struct {
	client.Reader

	answer metav1.PartialObjectMetadataList
	err    error
}

func (p podLists) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	out, ok := list.(*metav1.PartialObjectMetadataList)
	if limit := (&client.ListOptions{}).ApplyOptions(opts).Limit; !ok || out.Kind != "PodList" || limit != 1 {
		return errors.New("only the metadata of one pod is read")
	}
	*out = p.answer
	return p.err
}

func TestCountPods(t *testing.T) {
	one := []metav1.PartialObjectMetadata{{}}
	for name, tc := range map[string]struct {
		lists podLists
		want  int
		fails bool
	}{
		"none":    {podLists{}, 0, false},
		"one":     {podLists{answer: metav1.PartialObjectMetadataList{Items: one}}, 1, false},
		"many":    {podLists{answer: metav1.PartialObjectMetadataList{Items: one, ListMeta: metav1.ListMeta{Continue: "x", RemainingItemCount: ptr.To[int64](20_599)}}}, 20_600, false},
		"unknown": {podLists{answer: metav1.PartialObjectMetadataList{Items: one, ListMeta: metav1.ListMeta{Continue: "x"}}}, 0, true},
		"failed":  {podLists{err: errors.New("forbidden")}, 0, true},
	} {
		if got, err := countPods(tc.lists)(t.Context()); got != tc.want || (err != nil) != tc.fails {
			t.Errorf("%s: %d, %v, want %d", name, got, err, tc.want)
		}
	}
}

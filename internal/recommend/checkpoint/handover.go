// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// parallelSaves is how many checkpoints HandOver writes at once.
const parallelSaves = 16

// HandOver saves what the histories of some namespaces know and their checkpoints do not, before another process
// serves these namespaces. It returns how many it has written. What fails, or is not written when the context ends, is
// lost as in a crash; the error tells how many those are. It must not run while usage is added.
func (s *Store) HandOver(ctx context.Context, leaves func(namespace string) bool, now time.Time) (written int, err error) {
	var saves errgroup.Group
	saves.SetLimit(parallelSaves)
	var done, failed atomic.Int64
	for key, e := range s.of(leaves) {
		saves.Go(func() error {
			isWritten, err := s.handOver(ctx, key, e, now)
			switch {
			case err != nil:
				failed.Add(1)
			case isWritten:
				done.Add(1)
			}
			return err
		})
	}
	if err = saves.Wait(); err != nil {
		err = fmt.Errorf("%d checkpoints were not saved, for example: %w", failed.Load(), err)
	}
	return int(done.Load()), err
}

// of are the entries of some namespaces.
func (s *Store) of(isWanted func(namespace string) bool) map[types.NamespacedName]*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[types.NamespacedName]*entry{}
	for key, e := range s.entries {
		if isWanted(key.Namespace) {
			out[key] = e
		}
	}
	return out
}

// handOver saves the checkpoint if the history knows more.
func (s *Store) handOver(ctx context.Context, key types.NamespacedName, e *entry, now time.Time) (isWritten bool, err error) {
	e.requests.Lock()
	defer e.requests.Unlock()
	object := e.unsaved(s, key, now)
	if object == nil {
		return false, nil
	}
	err = s.write(ctx, e, object, now)
	if errors.Is(err, ErrOvertaken) {
		return false, nil // Another process knows more.
	}
	if err != nil {
		return false, fmt.Errorf("saving the checkpoint of scaler %s: %w", key, err)
	}
	return true, nil
}

// unsaved is the checkpoint to write if it differs from the one that is stored by more than its time; nil otherwise.
func (e *entry) unsaved(s *Store, key types.NamespacedName, now time.Time) *v1beta1.VerticalScalerCheckpoint {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.histories) == 0 {
		return nil
	}
	scaler := &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: e.owner}}
	object := e.checkpoint(scaler, s.paramsWith(e.profile), now)
	if e.object != nil {
		as := object.Spec
		as.SaveTime = e.object.Spec.SaveTime
		if e.saves.has(as) {
			return nil
		}
	}
	return object
}

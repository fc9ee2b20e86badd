// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/leaderelection"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/fence"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/shards"
)

// The times of the leader election. Another process leads at the earliest leaseDuration after the
// last renewal. The leader writes until renewDeadline after it, so that a request has the rest of the
// time to arrive. Nothing breaks while no process leads, so the lease is renewed more rarely than that of a control
// plane. But another process leads within the minute after which the plugin reports the operator as silent.
const (
	leaseDuration = 30 * time.Second
	renewDeadline = 20 * time.Second
	retryPeriod   = 5 * time.Second
)

// NewManager creates a manager. If it takes part in a leader election, it sends writes only while
// it knows that it leads, and it leads only while no other replica shares the work.
func NewManager(restConfig *rest.Config, c config.Operator, scope Scope) (ctrl.Manager, error) {
	options := ManagerOptions(c, scope)
	if !options.LeaderElection {
		return ctrl.NewManager(restConfig, options)
	}
	leading, lease := fence.New(clock.RealClock{}, renewDeadline), &lateLock{}
	var others *shards.Others
	options.LeaderElectionResourceLockInterface = leading.Lock(lease, func(ctx context.Context) error { return others.Check(ctx) })
	fenced := rest.CopyConfig(restConfig)
	fenced.Wrap(leading.Wrap)
	mgr, err := ctrl.NewManager(fenced, options)
	if err != nil {
		return nil, err
	}
	if lease.Interface, err = newLock(restConfig, mgr, options, c.Version); err != nil {
		return nil, fmt.Errorf("creating the lease of the leader: %w", err)
	}
	leases, err := leaseClient(restConfig, c)
	if err != nil {
		return nil, err
	}
	others = shards.NewOthers(leases, clock.RealClock{})
	return mgr, nil
}

// lateLock is a lock that is created after the manager, whose events it records.
type lateLock struct{ resourcelock.Interface }

// newLock is the lease of the leader, with the version of this process.
func newLock(restConfig *rest.Config, events recorder.Provider, options manager.Options, version string) (resourcelock.Interface, error) {
	return leaderelection.NewResourceLock(restConfig, events, leaderelection.Options{
		LeaderElection:          true,
		LeaderElectionID:        options.LeaderElectionID,
		LeaderElectionNamespace: options.LeaderElectionNamespace,
		RenewDeadline:           ptr.Deref(options.RenewDeadline, renewDeadline),
		LeaderLabels:            leaseLabels(version),
	})
}

// leaseLabels tell users of the plugin which version leads. A version that cannot be a label has none.
func leaseLabels(version string) map[string]string {
	if version == "" || len(validation.IsValidLabelValue(version)) > 0 {
		return nil
	}
	return map[string]string{v1beta1.VersionLabel: version}
}

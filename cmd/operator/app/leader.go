// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/leaderelection"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
)

// The times of the leader election. Another process leads at the earliest leaseDuration after the last renewal. The leader
// writes until renewDeadline after it, so that a request has the rest of the time to arrive. Nothing breaks while no process
// leads, so the lease is renewed less often than a control plane's. When the lease expires, the plugin reports the operator as
// silent, and another process leads soon after.
const (
	leaseDuration = 30 * time.Second
	renewDeadline = 20 * time.Second
	retryPeriod   = 5 * time.Second
)

// labeledLock labels the lease with the version of the leader, and with the state of usage (missing).
type labeledLock struct {
	resourcelock.Interface
	labels  map[string]string
	missing *atomic.Bool
	// fallback is the default fallback of scalers.
	fallback v1beta1.Fallback
}

// Update implements resourcelock.Interface.
func (l *labeledLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.labels[v1beta1.UsageLabel] = v1beta1.UsageReported
	if l.missing != nil && l.missing.Load() {
		l.labels[v1beta1.UsageLabel] = v1beta1.UsageMissing
	}
	return l.Interface.Update(ctx, record)
}

// create creates the lease of the leader, with the version of this process.
func (l *labeledLock) create(restConfig *rest.Config, events recorder.Provider, options manager.Options, version string) (err error) {
	if options.LeaderElectionNamespace == "" {
		return errors.New("the operator's namespace is unknown: set leaderElection.namespace")
	}
	l.labels = leaseLabels(version)
	if l.fallback != "" {
		l.labels[v1beta1.FallbackLabel] = string(l.fallback)
	}
	l.Interface, err = leaderelection.NewResourceLock(restConfig, events, leaderelection.Options{
		LeaderElection:          true,
		LeaderElectionID:        options.LeaderElectionID,
		LeaderElectionNamespace: options.LeaderElectionNamespace,
		RenewDeadline:           ptr.Deref(options.RenewDeadline, renewDeadline),
		LeaderLabels:            l.labels,
	})
	return err
}

// leaseLabels report the version of the leader to the plugin. A version that cannot be a label has none.
func leaseLabels(version string) map[string]string {
	if version == "" || len(validation.IsValidLabelValue(version)) > 0 {
		return map[string]string{}
	}
	return map[string]string{v1beta1.VersionLabel: version}
}

// leaseNamespace is the namespace of the lease: as configured, or the namespace of the operator's pod.
func leaseNamespace(c config.Operator) string {
	return cmp.Or(c.LeaderElection.Namespace, os.Getenv(NamespaceEnv))
}

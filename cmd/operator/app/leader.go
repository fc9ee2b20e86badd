// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/leaderelection"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
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

// lateLock is a lock that is created after the manager, whose events it records.
type lateLock struct{ resourcelock.Interface }

// newLock is the lease of the leader, with the version of this process.
func newLock(restConfig *rest.Config, events recorder.Provider, options manager.Options, version string) (resourcelock.Interface, error) {
	if options.LeaderElectionNamespace == "" {
		return nil, errNoNamespace
	}
	return leaderelection.NewResourceLock(restConfig, events, leaderelection.Options{
		LeaderElection:          true,
		LeaderElectionID:        options.LeaderElectionID,
		LeaderElectionNamespace: options.LeaderElectionNamespace,
		RenewDeadline:           ptr.Deref(options.RenewDeadline, renewDeadline),
		LeaderLabels:            leaseLabels(version),
	})
}

var errNoNamespace = errors.New("the operator's namespace is unknown: set leaderElection.namespace")

// leaseLabels tell users of the plugin which version leads. A version that cannot be a label has none.
func leaseLabels(version string) map[string]string {
	if version == "" || len(validation.IsValidLabelValue(version)) > 0 {
		return nil
	}
	return map[string]string{v1beta1.VersionLabel: version}
}

// leaseClient reads the leases in the operator's namespace.
func leaseClient(restConfig *rest.Config, c config.Operator) (coordinationclient.LeaseInterface, error) {
	namespace := leaseNamespace(c)
	if namespace == "" {
		return nil, errNoNamespace
	}
	restConfig = rest.AddUserAgent(rest.CopyConfig(restConfig), "leader-election")
	restConfig.Timeout = retryPeriod
	api, err := coordinationclient.NewForConfig(restConfig)
	if err != nil {
		return nil, fmt.Errorf("creating a client for leases: %w", err)
	}
	return api.Leases(namespace), nil
}

// leaseNamespace is the namespace of the lease: as configured, or that of the operator's pod; empty if neither is known.
func leaseNamespace(c config.Operator) string {
	return cmp.Or(c.LeaderElection.Namespace, os.Getenv(NamespaceEnv))
}

// sharing knows the leases of processes of version 0.1 that had a share of the work each. They end by themselves within
// seconds once they see a leader that does all the work.
type sharing struct {
	leases coordinationclient.LeaseInterface
	clock  clock.PassiveClock
	seen   map[string]renewal // by lease
}

// renewal is a renewal of a lease, and when it was first seen: clocks of other machines differ.
type renewal struct {
	holder  string
	renewed metav1.MicroTime
	at      time.Time
}

// sharingTime is how long such a process may write after it has renewed its lease.
const sharingTime = 12 * time.Second

// sharingName is the name of such a lease.
var sharingName = regexp.MustCompile(`^verticalscaler-\d+\.autoscaling\.verticalscaler\.io$`)

// Check is an error while a process may have a share of the work.
func (s *sharing) Check(ctx context.Context) error {
	asked := s.clock.Now()
	list, err := s.leases.List(ctx, metav1.ListOptions{})
	if apierrors.IsForbidden(err) {
		return nil // An older Role, from before work was shared.
	}
	if err != nil {
		return fmt.Errorf("listing the leases of older processes: %w", err)
	}
	for i := range list.Items {
		l := &list.Items[i]
		now := renewal{holder: ptr.Deref(l.Spec.HolderIdentity, ""), renewed: ptr.Deref(l.Spec.RenewTime, metav1.MicroTime{}), at: asked}
		if now.holder == "" || !sharingName.MatchString(l.Name) {
			continue
		}
		if before, ok := s.seen[l.Name]; ok && before.holder == now.holder && before.renewed.Equal(&now.renewed) {
			now.at = before.at
		}
		s.seen[l.Name] = now
		if asked.Sub(now.at) < sharingTime {
			log.FromContext(ctx).Info("Waiting for a process of an older version that shares the work", "lease", l.Name, "holder", now.holder)
			return fmt.Errorf("process %s may still have a share of the work, by lease %s", now.holder, l.Name)
		}
	}
	return nil
}

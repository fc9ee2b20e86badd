// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// noEvents is a provider of recorders that record nothing.
type noEvents struct{ recorder.Provider }

func (noEvents) GetEventRecorderFor(string) record.EventRecorder { return record.NewFakeRecorder(1) }

// The plugin compares this version with its own, and shows whether usage is missing.
func TestTheLeaseNamesItsHolderToUsers(t *testing.T) {
	for version, want := range map[string]string{"v0.1.0": "v0.1.0", "": "", "v0.1.0+dirty": ""} {
		t.Run(version, func(t *testing.T) {
			var lease coordinationv1.Lease
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if err := json.NewDecoder(r.Body).Decode(&lease); err != nil {
					t.Error(err)
				}
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(lease)
			}))
			defer api.Close()
			config := &rest.Config{Host: api.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
			missing := &atomic.Bool{}
			lock := &labeledLock{missing: missing, fallback: v1beta1.FallbackWait}
			must.Succeed(t, lock.create(config, noEvents{}, manager.Options{LeaderElectionID: v1beta1.LeaseName, LeaderElectionNamespace: "ops"}, version))
			must.Succeed(t, lock.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "a", LeaseDurationSeconds: 15}))
			if got := lease.Labels[v1beta1.VersionLabel]; lease.Name != v1beta1.LeaseName || got != want {
				t.Errorf("the lease %q has the version %q, want %q", lease.Name, got, want)
			}
			if got := lease.Labels[v1beta1.FallbackLabel]; got != "Wait" {
				t.Errorf("the lease has the fallback %q", got)
			}
			for isMissing, want := range map[bool]string{true: "Missing", false: "Reported"} {
				missing.Store(isMissing)
				if err := lock.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "a"}); err != nil || lease.Labels[v1beta1.UsageLabel] != want {
					t.Errorf("%v: labels %v, want usage %s", err, lease.Labels, want)
				}
			}
		})
	}
}

func TestTheLeaseNeedsANamespace(t *testing.T) {
	err := (&labeledLock{}).create(&rest.Config{}, noEvents{}, manager.Options{LeaderElectionID: v1beta1.LeaseName}, "")
	if err == nil || !strings.Contains(err.Error(), "set leaderElection.namespace") {
		t.Errorf("outside of a pod: %v", err)
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build faults

package faults

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/app"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/test/faults/internal/cluster"
	"github.com/verticalscaler/verticalscaler-operator/test/faults/internal/operator"
	"github.com/verticalscaler/verticalscaler-operator/test/faults/internal/proxy"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

const (
	// sharing is how many replicas share the namespaces of all scenarios.
	sharing = 3
	// handOver is how long a namespace may be without a replica after a kill. 20 seconds are documented, and internal/operator/shards
	// checks that. Here all scenarios share one busy machine, on which the managers start again.
	handOver = 20 * time.Second
	// lost is the same after another holder has taken a lease, from the end of the process that has lost it. The lease of the
	// new holder must expire, as after a kill. Then that process starts again and joins, and the others restart
	// their managers a second time.
	lost = 2 * handOver
)

// shared are the scenarios whose namespaces replicas share. None of them needs a configuration of its own.
var shared = []string{"up", "silent", "replaced", "rollout", "recreate", "initial", "retarget", "owned"}

// TestShards lets three replicas share the namespaces of some scenarios, and takes one of them away while
// all of them change something. Each scenario must end as it does with one replica, without more
// disruptions.
func TestShards(t *testing.T) {
	opened := cluster.Open(t, env)
	references := map[string]outcome{}
	t.Run("references", func(t *testing.T) {
		var mu sync.Mutex
		for _, scenario := range sharedScenarios() {
			t.Run(scenario.Name, func(t *testing.T) {
				t.Parallel()
				reference := referenceOf(t, opened, scenario)
				mu.Lock()
				defer mu.Unlock()
				references[scenario.Name] = reference
			})
		}
	})
	if len(references) < len(shared) {
		t.Fatal("there are not all references to compare with: add them to -run, as in 'TestShards/(references|kill)'")
	}
	for _, fault := range []struct {
		name   string
		strike func(s *shards, victim *replica)
	}{
		{"none", nil},
		{"kill", func(s *shards, victim *replica) {
			victim.operator.Crash()
			s.expectHandOver(victim, handOver)
		}},
		{"stop", func(s *shards, victim *replica) {
			victim.operator.Stop()
			s.expectHandOver(victim, handOver)
		}},
		{"pause", func(s *shards, victim *replica) {
			if err := victim.operator.Pause(); err != nil {
				s.Fatal(err)
			}
			s.expectHandOver(victim, patience)
			before := len(victim.proxy.Writes())
			if err := victim.operator.Continue(); err != nil {
				s.Fatal(err)
			}
			s.expectEnd(victim)
			// It may serve namespaces again once it has started anew, and only then.
			if late := victim.proxy.Writes()[before:]; len(late) > 0 && len(victim.operator.Ends()) == 0 {
				s.Errorf("the paused replica wrote when it continued: %v", late)
			}
		}},
		{"lease lost", func(s *shards, victim *replica) {
			s.steal(victim)
			s.expectEnd(victim)
			s.expectService(lost)
		}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			s := newShards(t, opened)
			s.start()
			s.wait("all namespaces to be served by three replicas", func() string { return s.unserved(sharing) })
			s.act()
			if fault.strike != nil {
				victim := s.busiest()
				s.wait("its first write", func() string {
					if len(victim.proxy.Writes()) == 0 {
						return "it has not written"
					}
					return ""
				})
				s.noteHistories()
				fault.strike(s, victim)
			}
			s.judge(references)
		})
	}
}

// sharedScenarios are the scenarios of shared.
func sharedScenarios() []world.Scenario {
	return slices.DeleteFunc(world.Scenarios(), func(s world.Scenario) bool { return !slices.Contains(shared, s.Name) })
}

// replica is one replica of the operator.
type replica struct {
	name     string
	proxy    *proxy.Proxy
	operator *operator.Operator
}

// shards are the replicas and the worlds that they share.
type shards struct {
	*testing.T

	ctx      context.Context //nolint:containedctx // it ends with the test
	worlds   []*run
	replicas []*replica
	acting   sync.WaitGroup
	observed map[string]time.Duration // by checkpoint and container, before the fault

	mu    sync.Mutex
	asked map[string]map[string]time.Time // namespace → replica → when it last asked for usage
}

func newShards(t *testing.T, opened *cluster.Cluster) *shards {
	t.Helper()
	s := &shards{T: t, asked: map[string]map[string]time.Time{}}
	for _, scenario := range sharedScenarios() {
		s.worlds = append(s.worlds, newRun(t, opened, scenario, "shards", 2*patience))
	}
	s.ctx = s.worlds[0].ctx
	return s
}

// start starts the replicas. Each has a proxy of its own.
func (s *shards) start() {
	s.Helper()
	var namespaces []string
	for _, r := range s.worlds {
		namespaces = append(namespaces, r.world.Namespace())
	}
	for i := range sharing {
		one := &replica{name: fmt.Sprintf("replica-%d", i)}
		p, err := proxy.Start(upstream(), s.usage(one.name))
		if err != nil {
			s.Fatal(err)
		}
		one.proxy = p
		host := s.worlds[0]
		host.onClose(func() {
			if err := p.Close(); err != nil {
				s.Error(err)
			}
		})
		host.mayEnd = true
		one.operator = host.startOperator(one.name, p, func(o *operator.Options) {
			o.Namespaces = namespaces
			o.Config.LeaderElection.Enabled, o.Config.LeaderElection.Namespace, o.Config.LeaderElection.Replicas = true, testkit.System, sharing
			o.Env = append(o.Env, app.PodNameEnv+"="+one.name)
		})
		s.replicas = append(s.replicas, one)
	}
}

// usage serves the usage of all worlds, and notes who asks for which namespace.
func (s *shards) usage(replica string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, rest, found := strings.Cut(r.URL.Path, "/namespaces/")
		namespace, _, _ := strings.Cut(rest, "/")
		for _, one := range s.worlds {
			if found && one.world.Namespace() != namespace {
				continue
			}
			if found {
				s.mu.Lock()
				if s.asked[namespace] == nil {
					s.asked[namespace] = map[string]time.Time{}
				}
				s.asked[namespace][replica] = time.Now()
				s.mu.Unlock()
			}
			one.world.Metrics().ServeHTTP(w, r)
			return
		}
		http.NotFound(w, r)
	})
}

// server is the replica that asked for the namespace's usage last, and when.
func (s *shards) server(namespace string) (name string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for replica, asked := range s.asked[namespace] {
		if asked.After(at) {
			name, at = replica, asked
		}
	}
	return name, at
}

// unserved describes what lacks until that many replicas share the work.
func (s *shards) unserved(replicas int) string {
	for _, one := range s.replicas {
		metrics, err := one.operator.Metrics(s.ctx)
		if err != nil {
			return err.Error()
		}
		if n := int(metrics["verticalscaler_replicas_sharing"]); n != replicas {
			return fmt.Sprintf("%s sees %d replicas", one.name, n)
		}
	}
	return ""
}

// act lets the users of all scenarios act.
func (s *shards) act() {
	for _, r := range s.worlds {
		s.acting.Go(r.act)
	}
}

// busiest is the replica that serves most namespaces.
func (s *shards) busiest() *replica {
	s.Helper()
	var found *replica
	s.wait("every namespace to be asked for", func() string {
		serves := map[string]int{}
		for _, r := range s.worlds {
			name, _ := s.server(r.world.Namespace())
			if name == "" {
				return "nobody asks for the usage of " + r.scenario.Name
			}
			serves[name]++
		}
		most := slices.MaxFunc(slices.Collect(maps.Keys(serves)), func(a, b string) int { return serves[a] - serves[b] })
		found = s.replicas[slices.IndexFunc(s.replicas, func(r *replica) bool { return r.name == most })]
		return ""
	})
	return found
}

// expectHandOver waits until others serve the namespaces of a replica.
func (s *shards) expectHandOver(victim *replica, atMost time.Duration) {
	s.Helper()
	began := time.Now()
	var taken []*run
	for _, r := range s.worlds {
		if name, _ := s.server(r.world.Namespace()); name == victim.name {
			taken = append(taken, r)
		}
	}
	s.wait("others to take over", func() string {
		for _, r := range taken {
			if name, at := s.server(r.world.Namespace()); name == victim.name || at.Before(began) {
				return "nobody serves " + r.scenario.Name
			}
		}
		return ""
	})
	took := time.Since(began)
	s.Logf("%d namespaces of %s were served by others after %.1f s", len(taken), victim.name, took.Seconds())
	if took > atMost {
		s.Errorf("a hand-over took %s, want %s at most", took, atMost)
	}
}

// steal lets another holder take the lease of a replica, as if it had not been renewed. The holder never renews it.
func (s *shards) steal(victim *replica) {
	s.Helper()
	metrics, err := victim.operator.Metrics(s.ctx)
	if err != nil {
		s.Fatal(err)
	}
	key := client.ObjectKey{Namespace: testkit.System, Name: v1beta1.ReplicaLeaseName(int(metrics["verticalscaler_replica_slot"]))}
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var lease coordinationv1.Lease
		if err := env.Client.Get(s.ctx, key, &lease); err != nil {
			return err
		}
		now := metav1.NowMicro()
		lease.Spec.HolderIdentity, lease.Spec.AcquireTime, lease.Spec.RenewTime = ptr.To("thief/shares"), &now, &now
		return env.Client.Update(s.ctx, &lease)
	}); err != nil {
		s.Fatal(err)
	}
}

// expectEnd waits until the process of a replica has ended by itself.
func (s *shards) expectEnd(victim *replica) {
	s.Helper()
	s.wait(victim.name+" to end", func() string {
		if len(victim.operator.Ends()) == 0 {
			return "it runs"
		}
		return ""
	})
}

// expectService waits until every namespace is served again, by any replica.
func (s *shards) expectService(atMost time.Duration) {
	s.Helper()
	began := time.Now()
	s.wait("all namespaces to be served", func() string {
		for _, r := range s.worlds {
			if _, at := s.server(r.world.Namespace()); at.Before(began) {
				return "nobody serves " + r.scenario.Name
			}
		}
		return ""
	})
	took := time.Since(began)
	s.Logf("all namespaces were served after %.1f s", took.Seconds())
	if took > atMost {
		s.Errorf("all namespaces were served after %s, want %s at most", took, atMost)
	}
}

func (s *shards) wait(what string, lacks func() string) {
	s.Helper()
	if err := s.worlds[0].world.Wait(s.ctx, what, func(*cluster.World) string { return lacks() }); err != nil {
		s.Fatal(err)
	}
}

// noteHistories notes what the checkpoints know.
func (s *shards) noteHistories() {
	s.Helper()
	s.observed = s.histories()
}

// histories is the observed time of each container, as it is saved.
func (s *shards) histories() map[string]time.Duration {
	s.Helper()
	out := map[string]time.Duration{}
	for _, r := range s.worlds {
		var list v1beta1.VerticalScalerCheckpointList
		if err := env.Client.List(s.ctx, &list, client.InNamespace(r.world.Namespace())); err != nil {
			s.Fatal(err)
		}
		for _, checkpoint := range list.Items {
			for _, c := range checkpoint.Spec.Containers {
				decoded, err := history.Decode(c.Data)
				if err != nil {
					s.Fatal(err)
				}
				out[strings.Join([]string{r.scenario.Name, string(checkpoint.UID), checkpoint.Spec.DeploymentName, c.ContainerName}, " ")] = decoded.Observed()
			}
		}
	}
	return out
}

// writes are the writes of all replicas in a namespace.
func (s *shards) writes(namespace string) (out []proxy.Write) {
	for _, one := range s.replicas {
		for _, write := range one.proxy.Writes() {
			if write.Namespace == namespace {
				out = append(out, write)
			}
		}
	}
	return out
}

// judge waits until all scenarios are done and compares them with the references.
func (s *shards) judge(references map[string]outcome) {
	s.Helper()
	s.acting.Wait()
	for _, r := range s.worlds {
		if err := r.world.Converge(r.ctx); err != nil {
			r.violated("no convergence: %v", err)
		}
	}
	for name, before := range s.observed {
		if after, ok := s.histories()[name]; ok && after < before {
			s.Errorf("%s: the checkpoint knew %s of usage, and now %s", name, before, after)
		}
	}
	var quiet sync.WaitGroup
	for _, r := range s.worlds {
		quiet.Go(func() {
			if err := r.world.StayQuiet(r.ctx); err != nil {
				r.violated("no rest: %v", err)
			}
		})
	}
	quiet.Wait()
	for _, r := range s.worlds {
		state, err := r.world.EndState(s.ctx)
		if err != nil {
			r.violated("%v", err)
		}
		reference := references[r.scenario.Name]
		r.compare(outcome{state: state, writes: s.writes(r.world.Namespace())}, reference)
		r.wrong = append(r.wrong, r.world.Violations()...)
		for _, wrong := range r.wrong {
			s.Errorf("%s: %s", r.scenario.Name, wrong)
		}
	}
}

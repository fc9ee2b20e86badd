// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"fmt"
	"math"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// The tests in this file count the reconciles of all operators in the process, so they run
// alone.

// The operator must write nothing for idleRounds rounds of usage, which is twenty minutes at the
// default interval, after this much evidence. After 256 to 512 minutes of evidence, by its UID, each scaler would write
// status and checkpoint, since the evidence in them has doubled.
const (
	idleEvidence = 128 * time.Minute
	idleRounds   = 40
)

// brisk has more rounds of usage a second, for a test that has the cluster to itself.
func brisk(c *operatorconfig.Operator) { c.Collection.Interval.Duration = round / 4 }

func TestReconcilesOfASettledDeploymentWriteNothing(t *testing.T) {
	env.NeedAudit(t)
	testkit.Tidy(t, "it counts the reconciles and writes of the whole process, and the tenant causes some", testkit.Storms)
	testkit.Tidy(t, "what is learned about uneven pods is saved now and then", testkit.UnevenUsage)
	w := newFixture(t, brisk)
	w.deploy("web")
	w.uses("web", "app", 300, 240)
	w.scale("web")
	w.sized("web")
	w.observed(idleEvidence)

	mark, before := env.Mark(), w.evidence()
	w.config.ResyncPeriod.Duration = 50 * time.Millisecond
	w.restart()
	reconciles := w.idle(50)
	writes := w.allWrites(mark)
	t.Logf("%d reconciles and %d rounds of usage after a restart: %d writes", reconciles, idleRounds, len(writes))
	w.expectOnlyDue(writes, before)
}

func TestTwoHundredIdleScalersWriteNothing(t *testing.T) {
	env.NeedAudit(t)
	testkit.Tidy(t, "it counts the reconciles and writes of the whole process, and the tenant causes some", testkit.Storms)
	const many = 200
	w := newFixture(t)
	w.usage.strays(0.05)
	name := func(i int) string { return fmt.Sprintf("d-%03d", i) }
	testkit.InParallel(t, many, func(i int) error {
		d := testkit.Deployment(w.namespace, name(i))
		d.Spec.Replicas = ptr.To(int32(1))
		s := testkit.Scaler(w.namespace, name(i), name(i))
		if err := env.Client.Create(t.Context(), d); err != nil {
			return err
		}
		return env.Client.Create(t.Context(), s)
	})
	w.eventually(func() string {
		var list corev1.PodList
		if err := env.Client.List(t.Context(), &list, client.InNamespace(w.namespace)); err != nil {
			return err.Error()
		}
		running := 0
		for _, pod := range list.Items {
			if pod.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		if running < many {
			return fmt.Sprintf("%d of %d pods run", running, many)
		}
		return ""
	})
	for i := range many { // all at once, so that their evidence doubles at the same time
		w.uses(name(i), "app", 150+int64(i), 100+int64(i)/2)
	}
	w.eventually(func() string {
		var list v1beta1.VerticalScalerList
		if err := env.Client.List(t.Context(), &list, client.InNamespace(w.namespace)); err != nil {
			return err.Error()
		}
		waiting, example := 0, ""
		for _, s := range list.Items {
			if c := meta.FindStatusCondition(s.Status.Conditions, "Applied"); c == nil || c.Reason != "Applied" {
				waiting, example = waiting+1, fmt.Sprintf("%s: %+v", s.Name, c)
			}
		}
		if waiting > 0 || len(list.Items) != many {
			return fmt.Sprintf("%d of %d scalers are not applied, such as %s", waiting, len(list.Items), example)
		}
		return ""
	})
	w.observed(idleEvidence)
	setUp := w.allWrites(w.began)
	w.tell("two hundred scalers set up", setUp)

	// A restart is part of the test: a new operator must not write what it finds again.
	mark, before := env.Mark(), w.evidence()
	w.config.ResyncPeriod.Duration = 4 * time.Second
	w.config.Collection.Interval.Duration = 5 * round / 2
	w.restart()
	reconciles := w.idle(3 * many)
	writes := w.allWrites(mark)
	t.Logf("%d idle scalers, %d reconciles and %d rounds of usage that varies by 5 %% after a restart: %d writes", many, reconciles, idleRounds, len(writes))
	w.tell("what they wrote", writes)
	w.expectOnlyDue(writes, before)
}

// observed waits until that much more usage is collected. The status need not tell: evidence alone writes nothing
// for hours.
func (w *fixture) observed(evidence time.Duration) {
	w.Helper()
	w.rounds(int(evidence / time.Minute))
}

// expectOnlyDue fails for each write but those of evidence that has doubled since.
func (w *fixture) expectOnlyDue(writes []testkit.Write, before map[string]map[string]time.Duration) {
	w.Helper()
	after := w.evidence()
	for _, write := range writes {
		was, is := before[write.Resource][write.Name], after[write.Resource][write.Name]
		if was == 0 || is < 2*was {
			w.Errorf("written: %s, with %s of evidence instead of %s", write, is, was)
		}
	}
}

// evidence is the least evidence in each status and in each checkpoint, by the resource of a write and
// its name.
func (w *fixture) evidence() map[string]map[string]time.Duration {
	w.Helper()
	var scalers v1beta1.VerticalScalerList
	var checkpoints v1beta1.VerticalScalerCheckpointList
	for _, list := range []client.ObjectList{&scalers, &checkpoints} {
		if err := env.Client.List(w.Context(), list, client.InNamespace(w.namespace)); err != nil {
			w.Fatal(err)
		}
	}
	published, saved := map[string]time.Duration{}, map[string]time.Duration{}
	for _, s := range scalers.Items {
		least := time.Duration(math.MaxInt64)
		if s.Status.Recommendation == nil {
			least = 0
		} else {
			for _, c := range s.Status.Recommendation.ContainerRecommendations {
				least = min(least, time.Duration(c.ObservedSeconds)*time.Second)
			}
		}
		published[s.Name] = least
	}
	for _, checkpoint := range checkpoints.Items {
		least := time.Duration(math.MaxInt64)
		for _, c := range checkpoint.Spec.Containers {
			h, err := history.Decode(c.Data)
			if err != nil {
				w.Fatal(err)
			}
			least = min(least, h.Observed())
		}
		saved[checkpoint.Name] = least
	}
	return map[string]map[string]time.Duration{"verticalscalers/status": published, "verticalscalercheckpoints": saved}
}

// idle waits for that many reconciles and for idleRounds rounds of usage.
func (w *fixture) idle(reconciles int) int {
	w.Helper()
	before := allReconciles(w.T)
	w.rounds(idleRounds)
	w.eventually(func() string {
		if n := allReconciles(w.T) - before; n < reconciles {
			return fmt.Sprintf("%d reconciles of %d", n, reconciles)
		}
		return ""
	})
	return allReconciles(w.T) - before
}

// allReconciles is the number of reconciles in this process so far.
func allReconciles(t *testing.T) (n int) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "controller_runtime_reconcile_total" {
			for _, metric := range family.GetMetric() {
				n += int(metric.GetCounter().GetValue())
			}
		}
	}
	return n
}

// allWrites returns this operator's write requests since the mark, in all namespaces.
func (w *fixture) allWrites(since testkit.AuditMark) []testkit.Write {
	w.Helper()
	all, err := env.WritesSince(since, w.operator.Agent)
	if err != nil {
		w.Fatal(err)
	}
	return all
}

// twoContainers adds a second container, "agent", to a Deployment: behind the first, and before
// it in the alphabet.
func twoContainers(d *appsv1.Deployment) {
	d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, testkit.Container("agent"))
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"math/rand/v2"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// The pods of a scaler have the recommended size, and their usage varies. It is reconciled every minute, ten times as
// often as by resyncs.
func TestASettledScalerWritesNothingForHours(t *testing.T) {
	p := newPlant(t, 0, func(vs *v1beta1.VerticalScaler) {
		vs.Spec.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{{
			ContainerName: "*", ControlledResources: []v1beta1.ControlledResource{v1beta1.ControlledCPU},
		}}}
	})
	p.restart() // nothing that it learned was saved
	random := rand.New(rand.NewPCG(1, 7))
	learn := func(at time.Time) {
		p.Histories.With(p.key, func(histories history.Histories) {
			for _, pod := range []string{"checkout-1-a", "checkout-1-b", "checkout-1-c"} {
				histories.Add(usage.Sample{Container: "app", Pod: pod, Time: at, CPUMillis: 82 + random.Int64N(6), MemoryBytes: 100 * mebi}, p.Params.History)
			}
		})
	}
	versions := func() [2]string {
		var vs v1beta1.VerticalScaler
		var saved v1beta1.VerticalScalerCheckpoint
		must.Succeed(t, p.server.Get(t.Context(), p.key, &vs))
		must.Succeed(t, client.IgnoreNotFound(p.server.Get(t.Context(), p.key, &saved)))
		return [2]string{vs.ResourceVersion, saved.ResourceVersion}
	}
	// The first interval of CPU usage is complete after these minutes, and is saved.
	const young = 6
	var vs *v1beta1.VerticalScaler
	written := map[int][2]bool{} // of status and checkpoint, by minute
	for minute := range 9 * 60 {
		p.clock.SetTime(noon.Add(time.Duration(minute) * time.Minute))
		learn(p.clock.Now())
		before, outdated := versions(), false
		if vs != nil {
			p.Histories.With(p.key, func(histories history.Histories) {
				outdated = scaler.IsRecommendationOutdated(vs, deploymentOfPlant(), podsOfPlant(), histories, p.Params)
			})
		}
		vs = p.mustReconcile()
		after := versions()
		if wrote := [2]bool{after[0] != before[0], after[1] != before[1]}; minute > young && wrote != [2]bool{} {
			written[minute] = wrote
			if !outdated {
				t.Errorf("minute %d: written, although the collector has found nothing new", minute)
			}
		} else if minute > young && outdated {
			t.Errorf("minute %d: the collector triggers a reconcile that writes nothing", minute)
		}
	}
	if len(p.resized) > 0 {
		t.Fatalf("%v were resized: the scaler is not settled", p.resized)
	}
	if len(written) != 1 {
		t.Errorf("written in minutes %v, want one of them", written)
	}
	for minute, what := range written {
		if minute < 256 || what != [2]bool{true, true} {
			t.Errorf("minute %d: status and checkpoint written: %v", minute, what)
		}
	}
	if got := vs.Status.Recommendation.ContainerRecommendations[0].ObservedSeconds; got < 256*60 {
		t.Errorf("the status reports %d s of evidence", got)
	}
}

// The collector reads deploymentOfPlant and podsOfPlant.
func deploymentOfPlant() workload.Deployment {
	return workload.Deployment{Containers: []workload.Container{containerOfPlant()}}
}

func podsOfPlant() []workload.Pod {
	return []workload.Pod{{Containers: []workload.Container{containerOfPlant()}}}
}

func containerOfPlant() (c workload.Container) {
	c.Name, c.Requests.CPUMillis, c.Requests.MemoryBytes = "app", 100, 128*mebi
	return c
}

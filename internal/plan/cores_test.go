// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// guaranteed is a Deployment of one Guaranteed container with so much CPU, which was decided.
func guaranteed(cpu int64, more ...func(*world)) world {
	c := sized("app", amounts(cpu, 128), amounts(cpu, 128))
	return given(append([]func(*world){
		rollout, template(c), pods(pod("web-1", c)), policyOfApp(func(p *plan.ContainerPolicy) { p.Memory = false }),
		takenOver(plan.Original{Container: "app", CPU: true, Resources: c.Resources}),
		decidedBefore(func(d *plan.Decision) { d.Requests["app"], d.AppliedToTemplate = amounts(cpu, 0), true }),
	}, more...)...)
}

// needs is a recommendation of so much CPU, with bounds close to it.
func needs(cpu int64) func(*world) {
	return recommends(rec(amounts(cpu, 0), amounts(cpu*9/10, 0), amounts(cpu*11/10, 0)))
}

// nextCPU is the CPU that is decided next.
func nextCPU(w world) int64 {
	p := w.next(noon)
	if p.Decision == nil {
		return 0
	}
	return p.Decision.Requests["app"].CPUMillis
}

func TestWholeCores(t *testing.T) {
	inPlace := func(w *world) { w.policy.Mode = "InPlace" }
	limits := func(change func(*plan.LimitPolicy)) func(*world) {
		return policyOfApp(func(p *plan.ContainerPolicy) { change(&p.LimitPolicy) })
	}
	steps := func(percent int64) func(*world) {
		return policy(func(p *plan.Policy) { p.ScaleUp.MaxStepPercent, p.ScaleDown.MaxStepPercent = percent, percent })
	}
	decided := func(cpu int64) func(*world) {
		return decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(cpu, 0) })
	}
	for name, tc := range map[string]struct {
		world world
		want  int64
	}{
		"a lower request is rounded up":                                       {guaranteed(4000, needs(1734)), 2000},
		"and a higher one":                                                    {guaranteed(4000, needs(5200)), 6000},
		"a whole one stays as it is":                                          {guaranteed(4000, needs(3000)), 3000},
		"what is rounded up to the same stays":                                {guaranteed(2000, needs(1300)), 2000},
		"one core is the least":                                               {guaranteed(1000, needs(80)), 1000},
		"maxAllowed is not exceeded":                                          {guaranteed(2000, needs(3400), policyOfApp(func(p *plan.ContainerPolicy) { p.MaxAllowed.CPUMillis = 3500 })), 3000},
		"less than a core may be all that is allowed":                         {guaranteed(1000, needs(800), policyOfApp(func(p *plan.ContainerPolicy) { p.MaxAllowed.CPUMillis = 700 })), 700},
		"the largest node is not exceeded":                                    {guaranteed(2000, needs(3400), inPlace, orRollout, largestNode(3700, 4096)), 3000},
		"a step down is one core at least":                                    {guaranteed(4000, needs(900), steps(10)), 3000},
		"and is rounded to less of a step":                                    {guaranteed(8000, needs(900), steps(30)), 6000},
		"a step up is one core at least":                                      {guaranteed(4000, needs(4500), steps(10)), 5000},
		"a fraction that was decided before is raised to whole ones":          {guaranteed(4000, needs(3900), decided(3500)), 4000},
		"and lowered to them":                                                 {guaranteed(4000, needs(2200), decided(3500)), 3000},
		"also if it is to be lower":                                           {guaranteed(4000, needs(3050), decided(3500)), 4000},
		"a fraction that fits is not lowered for whole ones":                  {guaranteed(4000, needs(3600), decided(3500), policyOfApp(func(p *plan.ContainerPolicy) { p.MaxAllowed.CPUMillis = 3700 })), 3500},
		"unless it has to be lowered":                                         {guaranteed(4000, needs(3600), decided(3800), policyOfApp(func(p *plan.ContainerPolicy) { p.MaxAllowed.CPUMillis = 3700 })), 3000},
		"fractions in the template stay fractions":                            {guaranteed(1500, needs(1200)), 1200},
		"a container of a Burstable pod":                                      {guaranteed(4000, needs(1734), template(sized("app", amounts(4000, 64), amounts(4000, 128)))), 1734},
		"a container beside one without requests":                             {guaranteed(4000, needs(1734), template(sized("app", amounts(4000, 128), amounts(4000, 128)), sized("side", quantity.Amounts{}, quantity.Amounts{}))), 1734},
		"a pod that a sidecar makes Burstable":                                {guaranteed(4000, needs(1734), func(w *world) { w.situation.Pods[0].QoS = "Burstable" }), 1734},
		"a pod of an older template does not count":                           {guaranteed(4000, needs(1734), func(w *world) { w.situation.Pods[0].QoS, w.situation.Pods[0].Current = "Burstable", false }), 2000},
		"without pods, the template tells":                                    {guaranteed(4000, needs(1734), pods()), 2000},
		"limits that stay above the request":                                  {guaranteed(4000, needs(1734), policyOfApp(func(p *plan.ContainerPolicy) { p.Limits = plan.LimitsStay })), 1734},
		"limits with headroom":                                                {guaranteed(4000, needs(1734), limits(func(l *plan.LimitPolicy) { l.HeadroomCPU = ptr.To[int64](10) })), 1734},
		"limits without headroom":                                             {guaranteed(4000, needs(1734), limits(func(l *plan.LimitPolicy) { l.HeadroomCPU = new(int64) })), 2000},
		"limits with their own bounds":                                        {guaranteed(4000, needs(1734), limits(func(l *plan.LimitPolicy) { l.MinAllowed.CPUMillis = 3000 })), 1734},
		"the size of new pods":                                                {guaranteed(4000, needs(1734), initial), 2000},
		"a fallback that evicts":                                              {guaranteed(4000, needs(1734), inPlace, orRecreate), 2000},
		"a fallback that rolls out":                                           {guaranteed(4000, needs(1734), inPlace, orRollout), 2000},
		"resizes in place alone, which a kubelet with exclusive CPUs refuses": {guaranteed(4000, needs(1734), inPlace), 1734},
	} {
		t.Run(name, func(t *testing.T) {
			if got := nextCPU(tc.world); got != tc.want {
				t.Errorf("decided %dm, want %dm:\n%s", got, tc.want, say(tc.world.next(noon)))
			}
		})
	}
}

// A request that is not lowered because of whole CPUs says so.
func TestWholeCoresAreExplained(t *testing.T) {
	rule := rulesOf(t)
	rule("A target that is rounded up to what there is", guaranteed(2000, needs(1300)),
		"keeps app 2000m -, written · Applied: The Deployment's pod template has the decided size. app cpu: 2000m stays beside a target of 1300m, because the container has whole CPUs · 1/1 applied")
	rule("The memory beside it moves alone",
		guaranteed(2000, policyOfApp(func(p *plan.ContainerPolicy) { p.Memory = true }), takenOver(plan.Original{Container: "app", CPU: true, Memory: true, Resources: workload.Resources{Requests: amounts(2000, 128), Limits: amounts(2000, 128)}}), recommends(rec(amounts(1300, 256), amounts(1200, 200), amounts(1400, 300)))),
		"decides app 2000m 256Mi (LowerBound) · then rewrites app 2000m 256Mi of 2000m 256Mi · RollingOut · 0/1 changing")
	rule("Bounds between two whole CPUs", guaranteed(2000, needs(2600), policyOfApp(func(p *plan.ContainerPolicy) { p.MaxAllowed.CPUMillis = 2700 })),
		"keeps app 2000m -, written · Applied: The Deployment's pod template has the decided size. app cpu: 2000m stays beside a target of 2600m, because the container has whole CPUs · 1/1 applied")
}

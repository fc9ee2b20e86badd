// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// A native sidecar of the template is sized like a container. Init containers that end are not.
func TestNativeSidecarsAreSized(t *testing.T) {
	proxy := func() workload.Container {
		c := container("proxy")
		c.IsSidecar = true
		return c
	}
	both := func(w *world) {
		w.policy.Containers["proxy"] = w.policy.Containers["app"]
		recommends(recommended("app"), recommended("proxy"))(w)
	}
	withInit := with(pod("web-1", proxy(), small()), func(p *workload.Pod) { p.Others = []workload.Container{container("init")} })
	rule := rulesOf(t)
	rule("In place, with the container", given(template(proxy(), small()), both, pods(withInit)),
		"decides app 200m 256Mi; proxy 200m 256Mi (LowerBound) · resizes web-1 to app 200m 256Mi of 400m 512Mi; proxy 200m 256Mi of 400m 512Mi · Resizing · 0/1 changing")
	rule("In the template",
		given(rollout, template(proxy(), small()), both, decidedBefore(func(d *plan.Decision) { d.Requests["proxy"] = amounts(200, 256) }), takenOver(plan.Original{Container: "proxy", CPU: true, Memory: true, Resources: resources(amounts(100, 128), amounts(200, 256))}, plan.Original{Container: "app", CPU: true, Memory: true, Resources: resources(amounts(100, 128), amounts(200, 256))})),
		"keeps app 200m 256Mi; proxy 200m 256Mi, written · rewrites app 200m 256Mi of 400m 512Mi; proxy 200m 256Mi of 400m 512Mi · RollingOut · 0/2 changing")
	rule("Not where its policy leaves it alone", given(template(proxy(), small()), both, pods(withInit), func(w *world) { w.policy.Containers["proxy"] = plan.ContainerPolicy{} }),
		"decides app 200m 256Mi (LowerBound) · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 0/1 changing")
	rule("Not where the template does not have it", given(both, pods(withInit)),
		"decides app 200m 256Mi (LowerBound) · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 0/1 changing")
}

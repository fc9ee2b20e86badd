// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/window"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/row"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// both are the resources.
var both = []plan.Resource{plan.CPU, plan.Memory}

// maxPasses is enough to hold, write and size every pod of a world, and to wait for
// each kubelet.
const maxPasses = 2000

// FuzzNext carries plans out on made-up worlds, with the API server's own rules about
// what may be changed, and checks the promises after every step. The seed makes the
// world: a failure is found again with
//
//	go test ./internal/plan -run FuzzNext/seed#N
//
// SEEDS_FROM=N adds the 100,000 seeds from N on. A change of this test gives each seed another world. Each failure therefore
// writes its world to a file, for TestFoundWorlds.
func FuzzNext(f *testing.F) {
	for seed := 0; seed < 1000; seed += stride() {
		f.Add(uint64(seed))
	}
	if from, err := strconv.ParseUint(os.Getenv("SEEDS_FROM"), 10, 64); err == nil {
		for i := range uint64(100_000) {
			f.Add(from + i)
		}
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := randomWorld(r)
		w.surround(r)
		for range epochs {
			w.bringToRest(t)
			w.change(r)
		}
	})
}

// epochs is how often the world comes to rest and then changes.
const epochs = 4

// bringToRest carries out plan after plan until there is none. Nothing else changes
// meanwhile, so that no container may get a size that it has had before.
func (w *world) bringToRest(t *testing.T) {
	t.Helper()
	defer keepIfFailed(t, w.encoded(t))
	r := rand.New(rand.NewPCG(w.Chance, 1))
	var last string
	var reverted time.Time
	failed := map[string]bool{}               // without an end: pods are tried again after a day, perhaps in the next window
	seen := map[string][]workload.Resources{} // sizes that each container had, in turn
	undecided := w.undecidedSizes()
	waited := map[string]bool{} // for a quota, without any change since
	for range maxPasses {
		w.situation.Writers = nil
		p := w.next(w.Now)
		if p.Contest != nil { // so who has written is asked
			w.situation.Writers = &plan.Writers{Ours: true}
			p = w.next(w.Now)
		}
		check(t, *w, p)
		checkDeterminism(t, r, *w, p, w.Now)
		if t.Failed() {
			t.Fatalf("after\n%s", say(p))
		}
		before, isWithdrawal := w.situation.Decision, w.withdraws(p)
		changed := w.carryOut(t, r, p)
		w.policy.Edited = false
		if p.Reverted != "" {
			if !reverted.IsZero() && w.Now.Sub(reverted) > 6*24*time.Hour {
				return // what is reverted is tried again after a week, without an end
			}
			reverted = w.Now
			clear(seen)
			undecided = w.undecidedSizes()
		}
		for _, pod := range w.situation.Pods {
			for _, c := range pod.Containers {
				key := pod.Name + "/" + c.Name
				switch step := as[plan.Resize](p); {
				case step != nil && isWithdrawal && step.UID == pod.UID:
					seen[key], undecided[key] = nil, c.Resources // its size is not the decided one
				case step != nil && step.UID == pod.UID && p.Decision.IsUrgentRestart() && c.Requests.CPUMillis < p.Decision.Request(c.Name, plan.CPU):
					seen[key], undecided[key] = nil, c.Resources // it still has its CPU, which follows the memory
				case p.Decided && (isFirst(before, p.Decision, c.Name) || isRestored(before, p.Decision, c.Name) || len(pod.Kills) > 0): // which end what only this pod has
					seen[key], undecided[key] = nil, c.Resources
				}
				if len(seen[key]) == 0 && c.Resources == undecided[key] {
					continue
				}
				if s := seen[key]; len(s) == 0 || s[len(s)-1] != c.Resources {
					if slices.Contains(s, c.Resources) {
						t.Fatalf("%s goes back to %s: %v\n%s", key, sayResources(c.Resources), s, say(p))
					}
					seen[key] = append(s, c.Resources)
				}
			}
		}
		said := say(p)
		if changed {
			clear(waited)
		}
		if p.Verdict.RequeueAfter == time.Minute && (len(w.situation.Quotas) > 0 || w.policy.MayEvict() || w.Node != (quantity.Amounts{})) || p.Decision.Verifying() != nil && !changed {
			if waited[said] {
				return // only for room in a quota or on a node, perhaps from one window to the next, for a node to be busy, or for health
			}
			waited[said] = true
		}
		isFailed := p.Verdict.Reason == "ReplicaFailure" && p.Verdict.RequeueAfter > time.Hour
		if !changed && (said == last && p.Verdict.RequeueAfter == 0 || isFailed) || failed[said] {
			return
		}
		failed[said] = isFailed
		last = said
		w.Now = w.Now.Add(max(time.Second, p.Verdict.RequeueAfter))
	}
	t.Fatalf("no rest after %d passes: %s", maxPasses, say(w.next(w.Now)))
}

// undecidedSizes are the sizes that pods have, by pod and container, where something else has been
// decided. They may be lowered to what is decided, and raised again by what usage or bounds demand later.
//
// It is the same after a lost status. The first decision has the size of the largest pod, lowered pods
// are raised to it, and usage may lower them all again.
func (w *world) undecidedSizes() map[string]workload.Resources {
	out := map[string]workload.Resources{}
	if w.situation.Decision == nil {
		return out
	}
	for _, pod := range w.situation.Pods {
		for _, c := range pod.Containers {
			decided := w.situation.Decision.Requests[c.Name]
			if slices.ContainsFunc(both, func(r plan.Resource) bool { return r.Of(decided) > 0 && r.Of(decided) != r.Request(c.Resources) }) {
				out[pod.Name+"/"+c.Name] = c.Resources
			}
		}
	}
	return out
}

// isFirst reports whether a decision is the first one about a resource of the container.
func isFirst(before, after *plan.Decision, container string) bool {
	return slices.ContainsFunc(both, func(r plan.Resource) bool {
		return before.Request(container, r) == 0 && after.Request(container, r) > 0
	})
}

// isRestored reports whether a decision restores, as far as bounds allow, the lowered values that are not verified yet.
func isRestored(before, after *plan.Decision, container string) bool {
	return before.Verifying() != nil && slices.ContainsFunc(both, func(r plan.Resource) bool {
		return r.Of(before.Verification.Good[container]) > 0 && after.Request(container, r) > before.Request(container, r)
	})
}

// surround gives some worlds pods that get into trouble, or a full node.
func (w *world) surround(r *rand.Rand) {
	if r.IntN(2) == 0 {
		w.Set = "set-new"
		w.trouble(r)
	}
	if r.IntN(7) == 0 {
		w.Node = quantity.Amounts{CPUMillis: 1 + w.requested(plan.CPU)*(90+r.Int64N(60))/100, MemoryBytes: 1 + w.requested(plan.Memory)*(90+r.Int64N(60))/100}
	}
	w.count()
}

// trouble lets pods crash, be killed, or not be created, and lets those recover that have done so before. Without a ReplicaSet,
// it does nothing.
func (w *world) trouble(r *rand.Rand) {
	if w.Set == "" {
		return
	}
	s := &w.situation
	s.Deployment.CreateFailure = []string{"", "", "", "a policy denied the request"}[r.IntN(4)]
	w.policy.VerificationPeriod = time.Duration(r.IntN(2)) * 2 * time.Minute
	s.Pods = slices.Clone(s.Pods)
	for i := range s.Pods {
		p := &s.Pods[i]
		c, since := p.Containers[r.IntN(len(p.Containers))], w.Now.Add(-time.Duration(r.IntN(1200))*time.Second)
		p.ReplicaSet = map[bool]types.UID{true: w.Set, false: "set-old"}[p.Current]
		p.BackingOff, p.Kills, p.Exits, p.Unready = nil, nil, nil, time.Time{}
		switch r.IntN(6) {
		case 0:
			p.BackingOff, p.Ready, p.Unready, p.ReadyChanged = []string{c.Name}, false, since, since
		case 1, 2:
			p.Kills = []workload.OOMKill{{Container: c.Name, At: since, Termination: r.Int32N(5), HitBytes: cmp.Or(c.Limits.MemoryBytes, c.Requests.MemoryBytes)}}
			p.Exits = []workload.Exit{{Container: c.Name, At: since, OOMKilled: true}}
		case 3:
			p.Exits = []workload.Exit{{Container: c.Name, At: since}}
		default:
			p.Ready = true
		}
	}
}

// change lets one thing happen that others do.
func (w *world) change(r *rand.Rand) {
	s := &w.situation
	container := s.Deployment.Containers[r.IntN(len(s.Deployment.Containers))].Name
	policy := w.policy.Containers[container]
	for uid, list := range s.RejectedResizes { // what was withdrawn may be tried again
		s.RejectedResizes = maps.Clone(s.RejectedResizes)
		s.RejectedResizes[uid] = slices.DeleteFunc(slices.Clone(list), func(old plan.RejectedResize) bool { return old.Reason == "Deferred" })
	}
	if w.evicts() && r.IntN(3) == 0 {
		w.Ineffective = !w.Ineffective
	}
	if r.IntN(3) == 0 { // a pod is silent, or all are heard again
		s.MissingUsage = []string{"", "pod a: no usage reported"}[r.IntN(2)]
	}
	switch r.IntN(14) {
	case 0, 1, 2: // usage moves
		for i, rec := range s.Recommendations {
			f := 0.3 + 2*r.Float64()
			a := quantity.Amounts{
				CPUMillis:   min(max(1, int64(float64(rec.Uncapped.CPUMillis)*f)), quantity.MaxCPUMillis),
				MemoryBytes: min(max(1, int64(float64(rec.Uncapped.MemoryBytes)*f)), quantity.MaxMemoryBytes),
			}
			s.Recommendations = slices.Clone(s.Recommendations)
			s.Recommendations[i] = randomRecommendation(r, rec.Name, w.policy.Containers[rec.Name], a)
		}
	case 3: // a pod is added
		s.Pods = append(slices.Clone(s.Pods), w.admitted(w.newPod(fmt.Sprintf("new-%d", r.Uint32())), w.situation.NewPods.Sizes))
	case 4: // an HPA comes or goes
		s.Scaled = workload.Scaled{CPU: []string{"", "web"}[r.IntN(2)], Memory: []string{"", "web"}[r.IntN(2)]}
	case 5: // the policy changes
		policy.CPU, policy.Limits = r.IntN(2) == 0, randomRule(r)
		w.policy.Containers[container], w.policy.Edited = policy, true
	case 6: // the mode changes
		if w.policy.Mode == "InPlace" {
			w.policy.Mode = "Rollout"
		} else {
			w.policy.Mode = "InPlace"
		}
		if r.IntN(2) == 0 {
			w.policy.Fallback = map[v1beta1.Fallback]v1beta1.Fallback{"": "Rollout", "Rollout": ""}[w.policy.Fallback]
		}
		if w.policy.Mode == "InPlace" && w.policy.Fallback != "Rollout" {
			w.restore()
		}
		w.policy.Edited = true
	case 7: // the status is lost
		s.Decision, s.Originals = nil, nil
	case 8: // the evidence is lost
		s.Recommendations = nil
	case 13: // a VPA comes or goes
		s.Sized = map[string]workload.Scaled{container: {CPU: []string{"", "vpa"}[r.IntN(2)], Memory: []string{"", "vpa"}[r.IntN(2)]}}
	case 9: // the largest node goes, or one comes
		s.LargestNode = randomNode(r)
	case 10: // limits get another shape
		policy.LimitPolicy = randomLimitPolicy(r)
		w.policy.Containers[container], w.policy.Edited = policy, true
	case 11: // other changes are allowed at other times
		w.randomPace(r)
		w.policy.Edited = true
	case 12: // a quota changes
		s.Quotas, w.Others = randomQuotas(r)
	}
	w.trouble(r)
	w.count()
	w.Now, w.Chance = w.Now.Add(time.Duration(r.IntN(900))*time.Second), r.Uint64()
}

// count counts the pods into the quotas.
func (w *world) count() {
	w.situation.Quotas = slices.Clone(w.situation.Quotas)
	for i := range w.situation.Quotas {
		q := &w.situation.Quotas[i]
		q.Used = w.Others[i]
		for _, pod := range w.situation.Pods {
			q.Used += countedBy(q.Key, pod)
		}
	}
	if w.Node != (quantity.Amounts{}) {
		w.situation.Room = map[string]quantity.Amounts{"": {
			CPUMillis: w.Node.CPUMillis - w.requested(plan.CPU), MemoryBytes: w.Node.MemoryBytes - w.requested(plan.Memory),
		}}
	}
}

// requested is the sum of all pods that the scheduler counts.
func (w *world) requested(r plan.Resource) (sum int64) {
	for _, pod := range w.situation.Pods {
		sum += r.Request(kubernetesSum(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true}))
	}
	return sum
}

// countedBy is the amount that a quota counts for a pod.
func countedBy(key string, pod workload.Pod) int64 {
	sum := kubernetesSum(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true})
	return map[string]int64{
		"requests.cpu": sum.Requests.CPUMillis, "limits.cpu": sum.Limits.CPUMillis, "memory": sum.Requests.MemoryBytes, "limits.memory": sum.Limits.MemoryBytes,
	}[key]
}

// kubernetesSum adds up the pod with the library that quotas and the scheduler use.
func kubernetesSum(pod workload.Pod, options resourcehelper.PodResourcesOptions) workload.Resources {
	if pod.Ended {
		return workload.Resources{}
	}
	amountsIn := func(list corev1.ResourceList) quantity.Amounts {
		return quantity.Amounts{CPUMillis: list.Cpu().MilliValue(), MemoryBytes: list.Memory().Value()}
	}
	list := func(a quantity.Amounts) corev1.ResourceList {
		if a == (quantity.Amounts{}) {
			return nil // as it is decoded
		}
		out := corev1.ResourceList{}
		if a.CPUMillis > 0 {
			out[corev1.ResourceCPU] = *resource.NewMilliQuantity(a.CPUMillis, resource.DecimalSI)
		}
		if a.MemoryBytes > 0 {
			out[corev1.ResourceMemory] = *resource.NewQuantity(a.MemoryBytes, resource.BinarySI)
		}
		return out
	}
	object := &corev1.Pod{Spec: corev1.PodSpec{Overhead: list(pod.Overhead)}}
	declared := func(c workload.Container) corev1.Container {
		out := corev1.Container{Name: c.Name, Resources: corev1.ResourceRequirements{Requests: list(c.Requests), Limits: list(c.Limits)}}
		if c.IsSidecar {
			out.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		}
		return out
	}
	sidecars := 0
	ending := func() {
		for _, c := range pod.Others {
			if c.SidecarsBefore == sidecars {
				object.Spec.InitContainers = append(object.Spec.InitContainers, declared(c))
			}
		}
	}
	ending()
	for _, c := range pod.Containers {
		if !c.IsSidecar {
			object.Spec.Containers = append(object.Spec.Containers, declared(c))
			continue
		}
		object.Spec.InitContainers = append(object.Spec.InitContainers, declared(c))
		sidecars++
		ending()
	}
	for _, actual := range pod.Actual {
		object.Status.ContainerStatuses = append(object.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: actual.Name, Resources: &corev1.ResourceRequirements{Requests: list(actual.Requests), Limits: list(actual.Limits)},
		})
	}
	if pod.Resize.Infeasible {
		object.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Reason: corev1.PodReasonInfeasible}}
	}
	return workload.Resources{Requests: amountsIn(resourcehelper.PodRequests(object, options)), Limits: amountsIn(resourcehelper.PodLimits(object, options))}
}

// randomQuotas allow some of what the pods of a world may want. Others use some of it.
func randomQuotas(r *rand.Rand) (quotas []workload.Quota, others []int64) {
	for _, key := range []string{"requests.cpu", "limits.cpu", "memory", "limits.memory"} {
		if r.IntN(4) > 0 {
			continue
		}
		hard := int64(math.Exp(r.Float64() * 12))
		if key == "memory" || key == "limits.memory" {
			hard *= mebi
		}
		quotas = append(quotas, workload.Quota{Name: "team", Key: key, Hard: hard})
		others = append(others, r.Int64N(hard+1))
	}
	return quotas, others
}

func randomLimitPolicy(r *rand.Rand) (p plan.LimitPolicy) {
	headroom := func() *int64 {
		if r.IntN(2) == 0 {
			return nil
		}
		h := []int64{0, 1, 10, 100, 1000}[r.IntN(5)]
		return &h
	}
	amount := func() (a quantity.Amounts) {
		if r.IntN(3) == 0 {
			a.CPUMillis = 1 + int64(math.Exp(r.Float64()*9))
		}
		if r.IntN(3) == 0 {
			a.MemoryBytes = mebi + int64(math.Exp(r.Float64()*8)*mebi)
		}
		return a
	}
	p = plan.LimitPolicy{HeadroomCPU: headroom(), HeadroomMemory: headroom(), MaxAllowed: amount()}
	p.MinAllowed = atMost(amount(), p.MaxAllowed)
	return p
}

func (w *world) randomPace(r *rand.Rand) {
	p := &w.policy
	p.Tolerance = float64(r.IntN(50)) / 100
	p.ScaleUp, p.ScaleDown, w.Windows = plan.Direction{}, plan.Direction{}, nil
	for _, d := range []*plan.Direction{&p.ScaleUp, &p.ScaleDown} {
		if r.IntN(3) == 0 {
			c := time.Duration(r.IntN(3)) * 10 * time.Minute
			d.Cooldown = &c
		}
	}
	if r.IntN(3) == 0 {
		p.ScaleUp.MaxStepPercent = 30 + r.Int64N(500)
	}
	if r.IntN(3) == 0 {
		p.ScaleDown.MaxStepPercent = 20 + r.Int64N(79)
	}
	p.ScaleDown.LeavesMemory = r.IntN(3) == 0
	for range r.IntN(3) {
		w.Windows = append(w.Windows, window.Spec{
			Schedule: []string{"*/30 * * * *", "0 2 * * *", "0 0 * * SUN"}[r.IntN(3)], Duration: time.Duration(1+r.IntN(90)) * time.Minute,
			Directions: [][]window.Direction{{"ScaleUp"}, {"ScaleDown"}, {"ScaleUp", "ScaleDown"}}[r.IntN(3)],
		})
	}
	w.parseWindows()
}

// check checks what must be true of any plan.
func check(t *testing.T, w world, p plan.Plan) {
	t.Helper()
	fail := t.Errorf
	if is[plan.Evict](p) {
		checkEviction(w, p, fail)
	}
	if (is[plan.Resize](p) || is[plan.Rewrite](p) || is[plan.TakeOver](p) || is[plan.Evict](p)) && (w.policy.Suspended || w.policy.Mode == "Recommend" || w.situation.Deployment.Terminating) {
		fail("a step where none is allowed")
	}
	if (is[plan.Rewrite](p) || is[plan.TakeOver](p)) && w.policy.Mode == "InPlace" && w.policy.Fallback != "Rollout" {
		fail("the template is rewritten, and the policy does not ask for that")
	}
	if p.Verdict.Reason == "" || p.Verdict.Message == "" {
		fail("no reason: %q %q", p.Verdict.Reason, p.Verdict.Message)
	}
	if p.Verdict.State.IsApplied() && ((p.Verdict.State == plan.Changing) || p.Progress.PodsAtSize != p.Progress.Pods && w.policy.Mode == "InPlace") {
		fail("applied, but %d/%d pods, changing %t", p.Progress.PodsAtSize, p.Progress.Pods, (p.Verdict.State == plan.Changing))
	}
	if p.Verdict.Reason == "Contested" {
		fail("contested, and no other controller has written")
	}
	if p.Decided && p.Decision != nil {
		if p.Reverted == "" && w.situation.Decision.Verifying() == nil { // or values of before are restored
			checkDecision(w, p, fail)
			checkPace(w, p, fail)
			checkSteps(w, p, fail)
			checkCeilings(w, p, fail)
		}
	}
	if is[plan.Rewrite](p) {
		checkQuotaOfRollout(w, p, fail)
	}
	checkMissingUsage(w, p, fail)
	if is[plan.Resize](p) {
		i := slices.IndexFunc(w.situation.Pods, func(q workload.Pod) bool { return q.UID == as[plan.Resize](p).UID })
		if pod := w.situation.Pods[i]; !pod.Running || pod.Terminating || w.isLeaving(pod) && !w.onlyRescues(pod, as[plan.Resize](p).Sizes) {
			fail("pod %s is not to be touched", pod.Name)
		}
		if w.withdraws(p) {
			checkWithdrawal(w.situation.Pods[i], *as[plan.Resize](p), fail)
		} else {
			checkSizes(w, p.Decision, w.situation.Pods[i].Containers, as[plan.Resize](p).Sizes, true, fail)
		}
	}
	if len(p.NewPods.Sizes) > 0 {
		w.checkNewPods(p, fail)
	}
	if is[plan.Rewrite](p) {
		checkSizes(w, p.Decision, w.situation.Deployment.Containers, as[plan.Rewrite](p).Sizes, false, fail)
	}
}

// isLeaving reports whether a rollout that makes progress is about to replace the pod.
func (w world) isLeaving(pod workload.Pod) bool {
	d := w.situation.Deployment
	return !pod.Current && !d.Paused && !d.Stuck
}

// stays reports whether the pod runs, and neither ends nor is replaced by a rollout.
func (w world) stays(pod workload.Pod) bool {
	return pod.Running && !pod.Terminating && (pod.Current || w.policy.Mode == "InPlace" && !w.isLeaving(pod))
}

// onlyRescues reports whether the sizes only raise memory, and only where a container has less than an OOM
// kill has shown to be necessary.
func (w world) onlyRescues(pod workload.Pod, sizes []plan.Size) bool {
	for _, size := range sizes {
		has, _ := pod.Container(size.Container)
		rec, _ := w.situation.Recommendation(size.Container)
		memory, cpu := has.Resources, size.Resources
		memory.Requests.MemoryBytes, memory.Limits.MemoryBytes = size.Requests.MemoryBytes, size.Limits.MemoryBytes
		switch {
		case memory != cpu, size.Requests.MemoryBytes < has.Requests.MemoryBytes, size.Limits.MemoryBytes < has.Limits.MemoryBytes:
			return false
		case has.Resources != size.Resources && has.Requests.MemoryBytes >= rec.OOMFloor:
			return false
		}
	}
	return true
}

// withdraws reports whether the plan withdraws a resize. One that took the room of other pods is not remembered: the pod asks for
// the part that fits.
func (w world) withdraws(p plan.Plan) bool {
	step := as[plan.Resize](p)
	if step == nil || step.Withdraws != nil {
		return step != nil
	}
	pod, _ := w.situation.Pod(step.UID)
	return pod.Resize.Deferred && !slices.ContainsFunc(step.Sizes, func(size plan.Size) bool {
		c, _ := pod.Container(size.Container)
		return !isOneOf(size.Resources, c.Resources, pod.Actual.Of(c.Name))
	})
}

// checkWithdrawal: a resize is withdrawn after its grace, and takes nothing from the pod that its kubelet has applied.
func checkWithdrawal(pod workload.Pod, step plan.Resize, fail func(string, ...any)) {
	if !pod.Resize.Deferred && !pod.Resize.Infeasible {
		fail("the resize of pod %s is withdrawn, and its kubelet does not mind it: %+v", pod.Name, pod.Resize)
	}
	for _, size := range step.Sizes {
		c, _ := pod.Container(size.Container)
		if actual := pod.Actual.Of(c.Name); !isOneOf(size.Resources, c.Resources, actual) {
			fail("the resize of pod %s is withdrawn to %s, and it has %s", pod.Name, sayResources(size.Resources), sayResources(actual))
		}
	}
}

// isOneOf reports whether each amount is either the declared or the applied one. One less keeps the QoS class.
func isOneOf(size, declared, applied workload.Resources) bool {
	for _, r := range both {
		for _, of := range []func(workload.Resources) int64{r.Request, r.Limit} {
			if v, has := of(size), of(applied); v != of(declared) && v != has && v != has-1 {
				return false
			}
		}
	}
	return true
}

// checkMissingUsage: while usage is missing, nothing is lowered that is within its bounds. The end
// of a boost and a template that is reverted are not usage.
func checkMissingUsage(w world, p plan.Plan, fail func(string, ...any)) {
	s := w.situation
	if s.MissingUsage == "" {
		return
	}
	if p.Decided && p.Decision != nil && s.Decision != nil && p.Reverted == "" && s.Ceilings == (plan.Ceilings{}) {
		for name, before := range s.Decision.Requests {
			for _, r := range both {
				if r.Of(s.Bounds.PodMax) > 0 { // a decision that no pod has may be more than the sum allows
					c, _ := s.Deployment.Container(name)
					r.Set(&before, min(r.Of(before), r.Of(w.grantedTo(c))))
				}
			}
			w.checkNotLower("the decision of "+name, name, before, p.Decision.Requests[name], fail)
		}
	}
	switch step := p.Step.(type) {
	case plan.Resize:
		i := slices.IndexFunc(s.Pods, func(q workload.Pod) bool { return q.UID == step.UID })
		for _, size := range step.Sizes {
			if c, _ := s.Pods[i].Container(size.Container); w.policy.Containers[c.Name].Boost == nil && !w.withdraws(p) {
				w.checkNotLower("pod "+step.Pod, c.Name, c.Requests, withoutSlack(s.Pods[i], size), fail)
			}
		}
	case plan.Rewrite:
		for _, size := range step.Sizes {
			if c, _ := s.Deployment.Container(size.Container); p.Decision.Reason != "Reverted" {
				requests := size.Requests
				for _, r := range both {
					if p.Decision.Request(c.Name, r) == 0 { // an original value
						r.Set(&requests, 0)
					}
				}
				w.checkNotLower("the template", c.Name, c.Requests, requests, fail)
			}
		}
	}
}

// withoutSlack has the requests of a size, without the smallest amount that may be missing to a limit.
// That amount keeps the pod Burstable, because no pod may change its QoS class.
func withoutSlack(pod workload.Pod, size plan.Size) quantity.Amounts {
	out := size.Requests
	if pod.QoS != corev1.PodQOSBurstable {
		return out
	}
	for _, r := range both {
		if r.Of(out)+1 == r.Limit(size.Resources) {
			r.Set(&out, r.Limit(size.Resources))
		}
	}
	return out
}

// mostAllowed is the upper limit of a container request from all bounds together.
func (w world) mostAllowed(container string) quantity.Amounts {
	most := quantity.Amounts{CPUMillis: math.MaxInt64, MemoryBytes: math.MaxInt64}
	bound := func(a quantity.Amounts) {
		for _, r := range both {
			r.Set(&most, min(r.Of(most), cmp.Or(r.Of(a), math.MaxInt64)))
		}
	}
	s, policy := w.situation, w.policy.Containers[container]
	bound(policy.MaxAllowed)
	bound(quantity.Amounts{MemoryBytes: w.broken(container)})
	bound(s.Bounds.ContainerMax)
	bound(s.Bounds.ContainerDefault)
	if policy.Limits != plan.LimitsStay {
		bound(policy.LimitPolicy.MaxAllowed)
		return most
	}
	lists := [][]workload.Container{s.Deployment.Containers}
	for _, pod := range s.Pods {
		lists = append(lists, pod.Containers)
	}
	for _, c := range slices.Concat(lists...) {
		if c.Name == container {
			bound(c.Limits)
		}
	}
	return most
}

// broken is the request of memory of a container that no raise has helped; 0 for any other.
func (w world) broken(container string) int64 {
	rec, _ := w.situation.Recommendation(container)
	if end, why := rec.ClimbEnd(); why == recommend.RaiseDidNotHelp {
		return end
	}
	return 0
}

// checkNotLower fails if a request that may stay is lowered. 0 means no request.
func (w world) checkNotLower(what, container string, before, after quantity.Amounts, fail func(string, ...any)) {
	most := w.mostAllowed(container)
	for _, r := range both {
		if v := r.Of(after); v > 0 && v < min(r.Of(before), r.Of(most)) {
			fail("%s is lowered while usage is missing: %s to %s, up to %s is allowed", what, sayAmounts(before), sayAmounts(after), sayAmounts(most))
		}
	}
}

// evicted ends the name of a pod that has come for one that was evicted.
const evicted = "-e"

// evicts reports whether pods are evicted where they cannot be resized.
func (w world) evicts() bool { return w.policy.MayEvict() }

// checkEviction allows one eviction at a time, if there are enough replicas and all are available, or of a pod that is down
// for an urgent decision. It allows none once the API server is known not to size new pods.
func checkEviction(w world, p plan.Plan, fail func(string, ...any)) {
	s := w.situation
	if !w.evicts() {
		fail("pod %s is evicted, and the policy does not ask for that", as[plan.Evict](p).Pods[0].Name)
	}
	if s.Deployment.Replicas < w.policy.MinReplicas || s.Deployment.Paused || s.Deployment.RollingOut {
		fail("pod %s is evicted of %d replicas, paused %t, rolling out %t", as[plan.Evict](p).Pods[0].Name, s.Deployment.Replicas, s.Deployment.Paused, s.Deployment.RollingOut)
	}
	if p.NewPods.IneffectiveOnPod != "" || s.NewPods.IneffectiveOnPod != "" || s.NewPods.EffectiveSince.IsZero() || saySizes(p.NewPods.Sizes) != saySizes(s.NewPods.Sizes) || w.Vain > 0 {
		fail("pod %s is evicted without effect: %+v, %d before", as[plan.Evict](p).Pods[0].Name, s.NewPods, w.Vain)
	}
	ready := 0
	victim, _ := s.Pod(as[plan.Evict](p).Pods[0].UID)
	for _, pod := range s.Pods {
		isDown := pod.Running && !pod.Ready && p.Decision.IsUrgentRestart()
		if (pod.Ready || isDown && !victim.Ready) && pod.Current && !pod.Terminating && !pod.Ended {
			ready++
		}
		canNever := pod.Resize.Infeasible || len(pod.Actual) == 0 || regexp.MustCompile(`QoS class|has no requests|never hold`).MatchString(p.Verdict.Message) || len(s.RejectedResizes[pod.UID]) > 0
		isHurt := lacksMemory(pod, p.NewPods.Sizes) || as[plan.Evict](p).IfBusy || isThrottled(pod, p.NewPods.Sizes) || canNever
		if pod.UID == as[plan.Evict](p).Pods[0].UID && !isHurt {
			fail("pod %s is evicted, and its size does not hurt it", pod.Name)
		}
		if pod.UID == as[plan.Evict](p).Pods[0].UID && (!pod.Running || pod.Terminating || !pod.Current) {
			fail("pod %s is not to be touched", pod.Name)
		}
	}
	if ready < int(s.Deployment.Replicas) {
		fail("pod %s is evicted while %d of %d are ready", as[plan.Evict](p).Pods[0].Name, ready, s.Deployment.Replicas)
	}
}

// lacksMemory reports whether a container of the pod has less memory than its size.
func lacksMemory(pod workload.Pod, sizes []plan.Size) bool {
	return slices.ContainsFunc(sizes, func(size plan.Size) bool {
		return pod.Actual.Of(size.Container).Requests.MemoryBytes < size.Requests.MemoryBytes
	})
}

// isThrottled reports whether the CPU limit of a container is below its size.
func isThrottled(pod workload.Pod, sizes []plan.Size) bool {
	return slices.ContainsFunc(sizes, func(size plan.Size) bool {
		limit := pod.Actual.Of(size.Container).Limits.CPUMillis
		return 0 < limit && limit < size.Requests.CPUMillis
	})
}

// admitted is a new pod as the API server makes it, if it sizes new pods.
func (w *world) admitted(made workload.Pod, sizes []plan.Size) workload.Pod {
	if w.evicts() && !w.Ineffective {
		made.Containers = withSizes(made.Containers, sizes)
		made.QoS = workload.QoSOf(made.Containers, made.Others)
		w.Vain = 0
		caughtUp(&made)
	}
	made.Created = w.Now
	return made
}

// checkNewPods: the API server takes the pods that it has put the sizes into.
func (w world) checkNewPods(p plan.Plan, fail func(string, ...any)) {
	if w.policy.Mode != "Initial" && !w.evicts() || w.policy.Suspended {
		fail("new pods are sized, and the policy does not ask for that")
	}
	sized := w.newPod("made")
	made := sized.Containers
	after := withSizes(made, p.NewPods.Sizes)
	sized.Containers = after
	if broken, ours := brokenRule(sized, p.NewPods.Sizes, w.situation.Bounds); ours {
		fail("the API server refuses new pods: %s", broken)
	}
	for i, c := range after {
		if exceeds(c.Requests, c.Limits) && c.Resources != made[i].Resources {
			fail("container %s requests more than its limit: %s", c.Name, sayResources(c.Resources))
		}
		for _, size := range p.NewPods.Sizes {
			comesOrGoes := func(r plan.Resource) bool {
				return r.Request(size.Resources) > 0 && (r.Limit(size.Resources) > 0) != (r.Limit(made[i].Resources) > 0)
			}
			if size.Container == c.Name && slices.ContainsFunc(both, comesOrGoes) {
				fail("a limit of container %s comes or goes: %s beside %s", c.Name, sayResources(size.Resources), sayResources(made[i].Resources))
			}
		}
	}
}

// checkDecision: within what is allowed, and never below what is known to be needed.
func checkDecision(w world, p plan.Plan, fail func(string, ...any)) {
	for name, requests := range p.Decision.Requests {
		policy := w.policy.Containers[name]
		for _, r := range both {
			v, most, b := r.Of(requests), r.Of(policy.MaxAllowed), w.situation.Bounds
			if v > 0 && most > 0 && v > max(most, r.Of(b.ContainerMin)) {
				fail("container %s requests %d of %s, more than %d", name, v, r, most)
			}
			if most := r.Of(b.ContainerMax); most > 0 && v > most {
				fail("container %s requests %d of %s, more than %d", name, v, r, most)
			}
			if v > 0 && !r.IsControlledBy(w.policy.Containers[name]) {
				fail("container %s is decided where it is not managed: %+v", name, requests)
			}
		}
		before := w.situation.Decision
		for _, rec := range w.situation.Recommendations {
			lowered := before != nil && before.Requests[name].MemoryBytes > requests.MemoryBytes
			allowed := policy.MaxAllowed == quantity.Amounts{} && policy.LimitPolicy.MaxAllowed == quantity.Amounts{} && w.situation.Bounds == workload.Bounds{} && policy.Limits != plan.LimitsStay && w.situation.Ceilings == plan.Ceilings{}
			if rec.Name == name && lowered && allowed && requests.MemoryBytes > 0 && requests.MemoryBytes < rec.LowerBound.MemoryBytes {
				fail("container %s is lowered to %d, below its lower bound %d", name, requests.MemoryBytes, rec.LowerBound.MemoryBytes)
			}
			_, hasEnded := rec.ClimbEnd()
			if rec.Name == name && lowered && allowed && requests.MemoryBytes > 0 && w.policy.IsRaiseOnly(plan.Memory) && p.Reverted == "" && hasEnded != recommend.RaiseDidNotHelp {
				fail("container %s is lowered from %d to %d although memory is raise-only", name, before.Requests[name].MemoryBytes, requests.MemoryBytes)
			}
		}
	}
}

// checkPace: what can wait waits for its cooldown and its window, and moves by a step at
// most. Which moves were urgent is known where only usage can be the reason.
func checkPace(w world, p plan.Plan, fail func(string, ...any)) {
	now := p.Decision.Time
	for _, c := range w.situation.Deployment.Containers {
		policy := w.policy.Containers[c.Name]
		isBound := policy.MinAllowed != quantity.Amounts{} || policy.MaxAllowed != quantity.Amounts{} || policy.LimitPolicy != plan.LimitPolicy{} || w.broken(c.Name) > 0
		if isBound || policy.Limits == plan.LimitsStay || w.situation.Bounds != (workload.Bounds{}) || w.situation.LargestNode != (quantity.Amounts{}) || w.situation.Ceilings != (plan.Ceilings{}) {
			continue
		}
		rec, _ := w.situation.Recommendation(c.Name)
		written := row.Written(w.situation, c)
		for _, r := range both {
			before, after, lower := r.Of(w.current(c)), r.Of(p.Decision.Requests[c.Name]), r.Of(rec.LowerBound)
			if w.policy.IsRaiseOnly(r) || row.Of(w.situation, w.policy).Find(c.Name).IsGuaranteed {
				lower = max(lower, requestIn(written, r)) // it gets back what the template has, at once
			}
			isKilled := r == plan.Memory && before < rec.OOMFloor
			direction, pace := window.ScaleUp, w.policy.ScaleUp
			if after < before {
				direction, pace = window.ScaleDown, w.policy.ScaleDown
			}
			if after == 0 || before == 0 || after == before || isKilled {
				continue
			}
			if percent := float64(pace.MaxStepPercent) / 100; percent > 0 {
				most, least := int64(float64(before)*(1+percent))+1, int64(float64(before)*(1-percent))-1
				most, least = max(lower, most, before+grain(r, most, written)), min(least, before-grain(r, least, written)) // or by the least step
				if after > most || after < least {
					fail("container %s goes from %d to %d, by more than a step of %d %%", c.Name, before, after, pace.MaxStepPercent)
				}
			}
			if before < lower {
				continue
			}
			if open, _ := w.policy.Windows.Opens(direction, now); !open {
				fail("container %s goes from %d to %d outside of the windows", c.Name, before, after)
			}
			cooldown := w.policy.Cooldown
			if pace.Cooldown != nil {
				cooldown = *pace.Cooldown
			}
			if last := w.situation.Decision; last != nil && !last.Time.After(now) && now.Sub(last.Time) < cooldown {
				fail("container %s goes from %d to %d, %s after the last decision", c.Name, before, after, now.Sub(last.Time))
			}
		}
	}
}

// requestIn is the request that the API server gives a pod of a template.
func requestIn(template workload.Resources, r plan.Resource) int64 {
	return cmp.Or(r.Request(template), r.Limit(template))
}

// grain is the least step of a request of this amount, or of whole CPUs.
func grain(r plan.Resource, v int64, written workload.Resources) int64 {
	switch {
	case r == plan.CPU && written.Limits.CPUMillis > 0 && written.Limits.CPUMillis%1000 == 0:
		return 1000
	case r == plan.CPU:
		return 1
	case v < 64*mebi:
		return 64 << 10
	}
	return mebi
}

// checkQuotaOfRollout: where no old pod may go before, the first new pod fits.
func checkQuotaOfRollout(w world, p plan.Plan, fail func(string, ...any)) {
	if w.situation.Deployment.Unavailable > 0 || w.situation.Deployment.Replicas == 0 {
		return
	}
	written := w
	written.apply(as[plan.Rewrite](p).Sizes)
	made := written.newPod("made")
	if !slices.ContainsFunc(w.situation.Pods, func(p workload.Pod) bool { return !p.Terminating && !p.Ended }) {
		made.Overhead = quantity.Amounts{} // admission adds it, so only a pod that stays tells
	}
	for _, q := range w.situation.Quotas {
		if more := countedBy(q.Key, made); more > 0 && q.Used+more > q.Hard {
			fail("a rollout begins whose first pod wants %d of %s: %d of %d are used", more, q.Key, q.Used, q.Hard)
		}
	}
}

// checkLimit: a limit is as its policy says, as far as the LimitRange lets it. The request in to may be the least bit less
// than what the limit follows.
func checkLimit(w world, name string, r plan.Resource, from, to workload.Resources, fail func(string, ...any)) {
	b, shape := w.situation.Bounds, w.policy.Containers[name].LimitPolicy
	limit, least, most, need := r.Limit(to), r.Of(shape.MinAllowed), r.Of(shape.MaxAllowed), int64(0)
	if r == plan.Memory {
		need = knownNeed(w, name)
	}
	isKept := limit == r.Limit(from) && limit < need
	if most > 0 && limit > max(most, r.Of(b.ContainerMin)) && !isKept {
		fail("the limit of container %s becomes %d, more than %d", name, limit, most)
	}
	if b != (workload.Bounds{}) || isKept {
		return
	}
	if limit < least && (most == 0 || least <= most) {
		fail("the limit of container %s becomes %d, less than %d", name, limit, least)
	}
	if headroom := r.Headroom(shape); headroom != nil && least == 0 && most == 0 {
		want := float64(r.Request(to)) * float64(100+*headroom) / 100
		if slack := 2 + float64(*headroom)/50; math.Abs(float64(limit)-min(want, float64(r.Most()))) > slack {
			fail("the limit of container %s becomes %d, with a request of %d and %d %% of headroom", name, limit, r.Request(to), *headroom)
		}
	}
}

// current is the decided size of a container, else the largest size in a pod, else the template's.
func (w world) current(c workload.Container) quantity.Amounts {
	var most quantity.Amounts
	for _, pod := range w.situation.Pods {
		for _, in := range pod.Containers {
			if in.Name == c.Name && !in.Unreadable && w.stays(pod) {
				for _, r := range both {
					r.Set(&most, max(r.Of(most), r.Request(in.Resources)))
				}
			}
		}
	}
	for _, r := range both {
		r.Set(&most, cmp.Or(w.situation.Decision.Request(c.Name, r), r.Of(most), r.Request(c.Resources)))
	}
	return most
}

// randomNode is as large as a few containers, or not known.
func randomNode(r *rand.Rand) quantity.Amounts {
	if r.IntN(3) == 0 {
		return quantity.Amounts{}
	}
	return quantity.Amounts{
		CPUMillis:   1 + int64(math.Exp(r.Float64()*10)),
		MemoryBytes: mebi + int64(math.Exp(r.Float64()*9)*mebi),
	}
}

// checkSizes: nothing that is not managed changes, no limit comes or goes, none is
// below its request, and no memory limit falls below what is known to be used.
func checkSizes(w world, d *plan.Decision, containers []workload.Container, sizes []plan.Size, inPlace bool, fail func(string, ...any)) {
	for _, size := range sizes {
		i := slices.IndexFunc(containers, func(c workload.Container) bool { return c.Name == size.Container })
		if i < 0 {
			fail("container %s does not exist", size.Container)
			continue
		}
		before, after, policy := containers[i].Resources, size.Resources, w.policy.Containers[size.Container]
		if !inPlace {
			written := w
			written.apply(sizes)
			after = written.situation.Deployment.Containers[i].Resources
		}
		c, isInTemplate := w.situation.Deployment.Container(size.Container)
		wasHeld := slices.ContainsFunc(w.situation.Originals, func(h plan.Original) bool { return h.Container == size.Container })
		for _, r := range both {
			shape, decided := policy.LimitPolicy, d.Request(size.Container, r)
			request, limit, had, has := r.Request(after), r.Limit(after), r.Request(before), r.Limit(before)
			isFree := r.Headroom(shape) == nil && r.Of(shape.MinAllowed) == 0
			if most := w.raiseLimit(c, r); isInTemplate && most > 0 && isFree && limit > max(most, has, request) {
				fail("a limit of container %s is raised from %d to %d, and %d is the most", size.Container, has, limit, most)
			}
			if policy.Limits == plan.LimitsFollow && decided > 0 && has > 0 && limit != has {
				checkLimit(w, size.Container, r, before, after, fail)
			}
			changed := r.Differs(before, after)
			switch {
			case changed && !r.IsControlledBy(w.policy.Containers[size.Container]) && !wasHeld:
				fail("%s of container %s is changed and not managed", r, size.Container)
			case changed && inPlace && r.Restarts(containers[i]):
				fail("%s of container %s is changed, which restarts it", r, size.Container)
			case policy.Limits == plan.LimitsStay && limit != has && !wasHeld:
				fail("the %s limit of container %s is changed with RequestsOnly", r, size.Container)
			case policy.Limits == plan.LimitsRise && inPlace && limit < has && (r == plan.Memory || has != had):
				fail("the %s limit of container %s is lowered from %d to %d", r, size.Container, has, limit)
			case (limit == 0) != (has == 0):
				fail("the %s limit of container %s comes or goes", r, size.Container)
			case limit > 0 && request > limit:
				fail("container %s requests %d of %s, above its limit %d", size.Container, request, r, limit)
			case request < 0 || max(request, limit) > r.Most():
				fail("%s of container %s is out of range: %d, %d", r, size.Container, request, limit)
			case inPlace && had > 0 && request == 0:
				fail("the %s request of container %s goes", r, size.Container)
			case r == plan.Memory && decided > 0 && limit < has && limit < knownNeed(w, size.Container): // else its original value is restored
				fail("the memory limit of container %s falls to %d, below %d", size.Container, limit, knownNeed(w, size.Container))
			}
		}
	}
}

func randomRule(r *rand.Rand) plan.LimitRule {
	return []plan.LimitRule{plan.LimitsStay, plan.LimitsRise, plan.LimitsFollow, plan.LimitsFollow}[r.IntN(4)]
}

func knownNeed(w world, container string) (need int64) {
	for _, rec := range w.situation.Recommendations {
		if rec.Name == container {
			need = rec.OOMFloor
			for _, reason := range rec.Reasons {
				if reason.Code == recommend.Peak {
					need = max(need, reason.Value)
				}
			}
			if end := w.broken(container); end > 0 {
				need = min(need, end)
			}
		}
	}
	return need
}

// checkDeterminism: the same again, and the same whatever the order of the lists.
func checkDeterminism(t *testing.T, r *rand.Rand, w world, p plan.Plan, now time.Time) {
	t.Helper()
	if again := say(w.next(now)); again != say(p) {
		t.Errorf("planned again:\n%s", again)
	}
	s := w.situation
	s.Pods, s.Recommendations, s.Originals = shuffled(r, s.Pods), shuffled(r, s.Recommendations), shuffled(r, s.Originals)
	s.Deployment.Containers, s.Quotas = shuffledBehindSidecars(r, s.Deployment.Containers), shuffled(r, s.Quotas)
	if other := say(plan.Next(s, w.policy, now)); other != say(p) {
		t.Errorf("planned in another order:\n%s", other)
	}
}

// shuffledBehindSidecars keeps the native sidecars in front and in their order, in which they start: it tells
// which of them run beside an init container.
func shuffledBehindSidecars(r *rand.Rand, containers []workload.Container) []workload.Container {
	isSidecar := func(c workload.Container) bool { return c.IsSidecar }
	others := slices.DeleteFunc(shuffled(r, containers), isSidecar)
	sidecars := slices.DeleteFunc(slices.Clone(containers), func(c workload.Container) bool { return !isSidecar(c) })
	return append(sidecars, others...)
}

func shuffled[T any](r *rand.Rand, list []T) []T {
	out := slices.Clone(list)
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// carryOut does what the controller, the API server and the kubelet would do, and
// tells whether the world has changed.
func (w *world) carryOut(t *testing.T, r *rand.Rand, p plan.Plan) bool {
	t.Helper()
	defer w.count()
	s := &w.situation
	s.Decision, s.RevertedChanges = p.Decision, p.RevertedChanges
	changed := false
	if w.policy.Edited {
		w.Vain = 0 // a person wants it to be tried again
	}
	if w.evicts() {
		asked := s.NewPods.AskedSince
		if saySizes(s.NewPods.Sizes) != saySizes(p.NewPods.Sizes) {
			asked, changed = time.Time{}, true
		} else if asked.IsZero() {
			asked, changed = w.Now, true
		}
		changed = changed || is[plan.Record](p)
		s.NewPods = p.NewPods
		s.NewPods.Sizes, s.NewPods.AskedSince = p.NewPods.Sizes, asked
	} else {
		s.NewPods = plan.NewPods{}
	}
	for i := range s.Pods { // the kubelets catch up
		if caughtUp(&s.Pods[i]) {
			changed = true
		}
		if w.evicts() && !s.Pods[i].Ready && strings.HasSuffix(s.Pods[i].Name, evicted) {
			s.Pods[i].Ready, changed = true, true
		}
	}
	w.count()
	if s.Deployment.RollingOut {
		s.Deployment.RollingOut, changed = false, true
		for i := range s.Pods {
			s.Pods[i] = w.newPod(s.Pods[i].Name + "x")
		}
	}
	switch {
	case is[plan.Resize](p):
		i := slices.IndexFunc(s.Pods, func(q workload.Pod) bool { return q.UID == as[plan.Resize](p).UID })
		if i < 0 {
			return true // a rollout has replaced it
		}
		pod := s.Pods[i]
		after := pod
		after.Containers = withSizes(pod.Containers, as[plan.Resize](p).Sizes)
		for _, list := range [][]workload.Container{after.Containers, after.Others} {
			if full := defaulted(list, s.Bounds); fmt.Sprint(full) != fmt.Sprint(list) {
				t.Errorf("the API server adds to what a resize of pod %s requests: %v, and not %v", pod.Name, full, list)
			}
		}
		if qos := workload.QoSOf(after.Containers, after.Others); qos != pod.QoS {
			t.Errorf("the QoS class of pod %s changes from %s to %s", pod.Name, pod.QoS, qos)
		}
		for _, q := range s.Quotas {
			if more := countedBy(q.Key, after) - countedBy(q.Key, pod); more > 0 && q.Used+more > q.Hard {
				t.Errorf("the API server refuses %d more of %s: %d of %d are used", more, q.Key, q.Used, q.Hard)
			}
		}
		if broken, ours := brokenRule(after, as[plan.Resize](p).Sizes, s.Bounds); broken != "" {
			if ours {
				t.Errorf("the API server refuses: %s", broken)
			}
			w.reject(pod.UID, plan.RejectedResize{Sizes: as[plan.Resize](p).Sizes, Reason: "LimitRange", Message: broken})
			return true
		}
		if room, isKnown := s.Room[pod.Node]; isKnown && raises(pod.Containers, after.Containers) && !w.withdraws(p) {
			for _, of := range both {
				key := map[plan.Resource]string{plan.CPU: "requests.cpu", plan.Memory: "memory"}[of]
				if more := countedBy(key, after) - countedBy(key, pod); more > of.Of(room) {
					t.Errorf("a raise asks for %s more of %s, and the node has %s", of.Format(more), of, of.Format(of.Of(room)))
				}
			}
		}
		s.Pods[i].Containers = after.Containers
		if w.evicts() || w.policy.Verifies() || w.Set != "" {
			s.Pods[i].Resized = w.Now
		}
		s.Pods[i].Resize = workload.Resize{InProgress: r.IntN(2) == 0}
		if gone := as[plan.Resize](p).Withdraws; gone != nil {
			w.reject(pod.UID, *gone)
		} else if w.Crowded && strings.HasSuffix(pod.Name, "1") && raises(pod.Containers, after.Containers) {
			s.Pods[i].Resize = workload.Resize{Deferred: true, Since: w.Now}
		}
		return true
	case is[plan.Evict](p):
		i := slices.IndexFunc(s.Pods, func(q workload.Pod) bool { return q.UID == as[plan.Evict](p).Pods[0].UID })
		before := s.Pods[i]
		s.Pods = slices.Clone(s.Pods)
		s.Pods[i] = w.admitted(w.newPod(before.Name+evicted), p.NewPods.Sizes)
		if w.Ineffective && fmt.Sprint(withSizes(s.Pods[i].Containers, p.NewPods.Sizes)) != fmt.Sprint(s.Pods[i].Containers) {
			w.Vain++
		}
		s.Pods[i].Ready = r.IntN(2) == 0
		if broken, ours := brokenRule(s.Pods[i], p.NewPods.Sizes, s.Bounds); ours && !w.Ineffective {
			t.Errorf("the API server makes no new pod: %s", broken)
		}
		return true
	case is[plan.TakeOver](p):
		for _, h := range as[plan.TakeOver](p).Originals {
			s.Originals = slices.DeleteFunc(slices.Clone(s.Originals), func(before plan.Original) bool { return before.Container == h.Container })
			s.Originals = append(s.Originals, h)
		}
		return true
	case is[plan.Rewrite](p):
		w.apply(as[plan.Rewrite](p).Sizes)
		s.Deployment.RollingOut = true
		if w.Set != "" {
			w.Set += "x"
		}
		made := w.newPod("made")
		if broken, ours := brokenRule(made, as[plan.Rewrite](p).Sizes, s.Bounds); ours {
			t.Errorf("the template makes no pods: %s", broken)
		}
		for _, c := range made.Containers {
			if exceeds(c.Requests, c.Limits) && slices.ContainsFunc(as[plan.Rewrite](p).Sizes, func(size plan.Size) bool { return size.Container == c.Name }) {
				t.Errorf("the template makes no pods: container %s requests more than its limit: %s", c.Name, sayResources(c.Resources))
			}
		}
		return true
	case is[plan.Restore](p):
		w.restore()
		return true
	}
	return changed
}

// apply is server-side apply: what we have applied before and no longer do is removed,
// except for values without a record, which the controller sends as it is.
func (w *world) apply(sizes []plan.Size) {
	containers := slices.Clone(w.situation.Deployment.Containers)
	for i, c := range containers {
		for _, before := range w.Applied {
			if before.Container == c.Name {
				containers[i].Resources = without(containers[i].Resources, w.onlyOriginals(before))
			}
		}
	}
	w.situation.Deployment.Containers, w.Applied = withSizes(containers, sizes), sizes
}

func (w *world) onlyOriginals(size plan.Size) (out workload.Resources) {
	for _, h := range w.situation.Originals {
		for _, r := range both {
			if h.Container == size.Container && h.Has(r) {
				r.Copy(&out, size.Resources)
			}
		}
	}
	return out
}

func without(has, gone workload.Resources) workload.Resources {
	for _, r := range both {
		if r.Request(gone) > 0 {
			r.Set(&has.Requests, 0)
		}
		if r.Limit(gone) > 0 {
			r.Set(&has.Limits, 0)
		}
	}
	return has
}

// restore restores the original values and ends our ownership.
func (w *world) restore() {
	var found []plan.Size
	for _, h := range w.situation.Originals {
		found = append(found, plan.Size{Container: h.Container, Resources: h.Resources})
	}
	if len(found) > 0 {
		w.apply(found)
	}
	w.Applied, w.situation.Originals = nil, nil
}

func exceeds(a, b quantity.Amounts) bool {
	return slices.ContainsFunc(both, func(r plan.Resource) bool { return r.Of(b) > 0 && r.Of(a) > r.Of(b) })
}

// raises reports whether a container requests more.
func raises(before, after []workload.Container) bool {
	for i := range before {
		if slices.ContainsFunc(both, func(r plan.Resource) bool { return r.Request(after[i].Resources) > r.Request(before[i].Resources) }) {
			return true
		}
	}
	return false
}

// caughtUp applies what the pod declares, unless its kubelet has put that off.
func caughtUp(pod *workload.Pod) (changed bool) {
	if pod.Resize.Deferred && !pod.Resize.Since.IsZero() {
		return false
	}
	var actual workload.Reported
	for _, c := range slices.Concat(pod.Containers, pod.Others) {
		actual = append(actual, workload.NamedResources{Name: c.Name, Resources: c.Resources})
		changed = changed || pod.Actual.Of(c.Name) != c.Resources
	}
	if pod.Resize.InProgress {
		pod.Resize, changed = workload.Resize{}, true
	}
	pod.Actual = actual
	return changed
}

// merged applies sizes, where 0 is nothing of ours.
func merged(before, size workload.Resources) workload.Resources {
	for _, r := range both {
		r.Put(&before, cmp.Or(r.Request(size), r.Request(before)), cmp.Or(r.Limit(size), r.Limit(before)))
	}
	return before
}

func withSizes(containers []workload.Container, sizes []plan.Size) []workload.Container {
	out := slices.Clone(containers)
	for i := range out {
		for _, size := range sizes {
			if size.Container == out[i].Name {
				out[i].Resources = merged(out[i].Resources, size.Resources)
			}
		}
	}
	return out
}

type limitRule struct{ request, limit, least, most, ratio int64 }

func rulesFor(r plan.Resource, of workload.Resources, least, most quantity.Amounts, ratio workload.Ratios) limitRule {
	return limitRule{r.Request(of), r.Limit(of), r.Of(least), r.Of(most), r.Ratio(ratio)}
}

// brokenRule is the LimitRanger of the API server. ours tells whether a container that
// we size breaks it.
func brokenRule(pod workload.Pod, sizes []plan.Size, b workload.Bounds) (broken string, ours bool) {
	hasRequests := true
	for _, c := range pod.Containers {
		hasRequests = hasRequests && c.Requests.CPUMillis > 0 && c.Requests.MemoryBytes > 0
		for _, res := range both {
			r := rulesFor(res, c.Resources, b.ContainerMin, b.ContainerMax, b.ContainerRatio)
			isSized := slices.ContainsFunc(sizes, func(s plan.Size) bool { return s.Container == c.Name }) && r.request > 0
			switch {
			case r.request < r.least:
				return fmt.Sprintf("container %s is below %d", c.Name, r.least), isSized
			case r.most > 0 && (r.limit > r.most || r.request > r.most):
				return fmt.Sprintf("container %s is above %d", c.Name, r.most), isSized
			case r.most > 0 && r.limit == 0:
				return fmt.Sprintf("container %s has no limit", c.Name), false
			case r.ratio > 0 && (r.request == 0 || r.limit == 0):
				return fmt.Sprintf("container %s has no ratio", c.Name), false
			case r.ratio > 0 && float64(r.limit)/float64(r.request)*1000 > float64(r.ratio):
				return fmt.Sprintf("container %s has a ratio above %d", c.Name, r.ratio), isSized
			}
		}
	}
	sum := kubernetesSum(pod, resourcehelper.PodResourcesOptions{ExcludeOverhead: true})
	for _, res := range both {
		switch r := rulesFor(res, sum, b.PodMin, b.PodMax, b.PodRatio); {
		case r.request < r.least || 0 < r.limit && r.limit < r.least:
			return fmt.Sprintf("the pod is below %d", r.least), hasRequests
		case r.most > 0 && (r.limit == 0 || max(r.limit, r.request) > r.most):
			return fmt.Sprintf("the pod is above %d", r.most), true
		case r.ratio > 0 && (min(r.request, r.limit) == 0 || float64(r.limit)/float64(r.request)*1000 > float64(r.ratio)):
			return fmt.Sprintf("the pod has a ratio above %d", r.ratio), hasRequests
		}
	}
	return "", false
}

// defaulted are the containers as the API server stores them when a pod is created, and when it is resized.
func defaulted(containers []workload.Container, b workload.Bounds) []workload.Container {
	containers = slices.Clone(containers)
	for i := range containers {
		c := &containers[i]
		if declared := c.Resources; !c.Unreadable {
			limits := workload.Resources{Requests: declared.Limits}
			c.Resources = merged(workload.Resources{Requests: b.ContainerDefaultRequest, Limits: b.ContainerDefault}, merged(limits, declared))
		}
	}
	return containers
}

// newPod is a pod as the API server makes it from the template.
func (w *world) newPod(name string) workload.Pod {
	made := pod(name, defaulted(w.situation.Deployment.Containers, w.situation.Bounds)...)
	made.ReplicaSet = w.Set
	made.Others, made.Overhead = defaulted(w.situation.Deployment.Others, w.situation.Bounds), w.Overhead
	made.QoS = workload.QoSOf(made.Containers, made.Others)
	caughtUp(&made)
	return made
}

// randomInitContainers are native sidecars and others, in any order.
func randomInitContainers(r *rand.Rand, b workload.Bounds) (out []workload.Container) {
	for i := range 1 + r.IntN(3) {
		requests := quantity.Amounts{CPUMillis: 1 + int64(math.Exp(r.Float64()*6)), MemoryBytes: mebi + int64(math.Exp(r.Float64()*5)*mebi)}
		out = append(out, workload.Container{
			Name: fmt.Sprintf("init-%d", i), Resources: resources(atMost(requests, b.ContainerMax), atMost(requests, b.ContainerMax)), IsSidecar: r.IntN(2) == 0,
		})
	}
	return out
}

// addInitContainers adds native sidecars, of which some take the name and the policy of a container, and
// init containers that end.
func addInitContainers(d *workload.Deployment, init []workload.Container) {
	var sidecars []workload.Container
	for _, c := range init {
		if c.IsSidecar {
			sidecars = append(sidecars, c)
		} else {
			c.SidecarsBefore = len(sidecars)
			d.Others = append(d.Others, c)
		}
	}
	if len(sidecars) > 0 && len(d.Containers) > 1 { // one that is managed
		d.Containers[0].IsSidecar = true
	}
	d.Containers = append(sidecars, d.Containers...)
}

// randomWorld makes up a world that the API server would accept.
func randomWorld(r *rand.Rand) world {
	some := func(p float64) bool { return r.Float64() < p }
	cpu := func() int64 { return 1 + int64(math.Exp(r.Float64()*9)) }
	memory := func() int64 { return mebi + int64(math.Exp(r.Float64()*8)*mebi*(0.5+r.Float64())) }
	isHuge, isOdd := some(0.05), some(0.5)
	amount := func() quantity.Amounts {
		if isHuge && some(0.5) {
			return quantity.Amounts{CPUMillis: quantity.MaxCPUMillis - r.Int64N(1000), MemoryBytes: quantity.MaxMemoryBytes - r.Int64N(1000)}
		}
		if isOdd && some(0.25) { // 0 beside a limit, thousandths of bytes, 1e3, and 1e9
			return quantity.Amounts{CPUMillis: []int64{quantity.Smallest, 100, 1e6}[r.IntN(3)], MemoryBytes: []int64{quantity.Smallest, 1000, 1e9}[r.IntN(3)]}
		}
		return quantity.Amounts{CPUMillis: cpu(), MemoryBytes: memory()}
	}
	partly := func(a quantity.Amounts, p float64) quantity.Amounts {
		if some(p) {
			a.CPUMillis = 0
		}
		if some(p) {
			a.MemoryBytes = 0
		}
		return a
	}

	w := world{policy: plan.Policy{Cooldown: time.Duration(r.IntN(3)) * 5 * time.Minute, Tolerance: 0.1, Containers: map[string]plan.ContainerPolicy{}}}
	w.Now, w.Chance, w.policy.Mode = noon, r.Uint64(), "InPlace"
	if some(0.4) {
		w.policy.Mode = "Rollout"
	} else if some(0.15) {
		w.policy.Mode = "Initial"
	}
	if some(0.4) {
		w.policy.Fallback = "Rollout"
	}
	w.policy.Suspended = some(0.02)
	s := &w.situation
	chance := r.Float64()
	s.Deployment = workload.Deployment{UID: "uid-web", ResourceVersion: "1", Paused: chance < 0.03, Stuck: chance > 0.97}
	for _, name := range []string{"app", "side", "log"}[:1+r.IntN(3)] {
		requests, limits := partly(amount(), 0.15), partly(amount(), 0.4)
		switch {
		case some(0.15):
			limits = requests // Guaranteed, where nothing is missing
		case limits.CPUMillis > 0:
			limits.CPUMillis = max(limits.CPUMillis, requests.CPUMillis)
		}
		if limits.MemoryBytes > 0 {
			limits.MemoryBytes = max(limits.MemoryBytes, requests.MemoryBytes)
		}
		s.Deployment.Containers = append(s.Deployment.Containers, workload.Container{
			Name: name, Resources: resources(requests, limits), RestartOnCPU: some(0.05), RestartOnMemory: some(0.05), Unreadable: some(0.01),
		})
		policy := plan.ContainerPolicy{CPU: some(0.9), Memory: some(0.9), Limits: randomRule(r)}
		if some(0.3) {
			policy.MaxAllowed = partly(amount(), 0.3)
		}
		if some(0.2) {
			policy.MinAllowed = atMost(partly(amount(), 0.3), policy.MaxAllowed)
		}
		w.policy.Containers[name] = policy
	}
	if some(0.3) {
		s.Bounds = workload.Bounds{Name: "limits", ContainerMax: partly(amount(), 0.5), PodMax: partly(amount(), 0.7), ContainerDefault: partly(amount(), 0.6)}
		s.Bounds.ContainerMin = atMost(partly(amount(), 0.7), s.Bounds.ContainerMax)
		s.Bounds.ContainerDefault = atMost(s.Bounds.ContainerDefault, s.Bounds.ContainerMax).Or(s.Bounds.ContainerMax)
		s.Bounds.ContainerDefaultRequest = s.Bounds.ContainerDefault.Or(s.Bounds.ContainerMin)
		s.Bounds.DefaultName = "limits"
		if some(0.4) {
			s.Bounds.ContainerRatio = workload.Ratios{CPU: 1000 + r.Int64N(3000), Memory: 1000 + r.Int64N(3000)}
		}
		if some(0.3) {
			s.Bounds.PodMin = atMost(partly(amount(), 0.5), s.Bounds.PodMax)
			s.Bounds.PodRatio = workload.Ratios{CPU: 1000 + r.Int64N(3000)}
		}
	}
	if some(0.4) {
		addInitContainers(&s.Deployment, randomInitContainers(r, s.Bounds))
	}
	if some(0.1) {
		w.Overhead = partly(amount(), 0.5)
	}
	if some(0.1) {
		s.Scaled = workload.Scaled{CPU: "web"}
	}
	if some(0.4) {
		s.LargestNode = randomNode(r)
	}
	for i := range r.IntN(7) {
		p := w.newPod(fmt.Sprintf("web-%d", i))
		for j := range p.Containers { // made before the LimitRange was
			c := &p.Containers[j]
			if declared := s.Deployment.Containers[j]; i%3 == 0 {
				c.Resources = defaulted([]workload.Container{declared}, workload.Bounds{})[0].Resources
			}
			if c.Limits.CPUMillis > 0 {
				c.Limits.CPUMillis = max(c.Limits.CPUMillis, c.Requests.CPUMillis)
			}
			if c.Limits.MemoryBytes > 0 {
				c.Limits.MemoryBytes = max(c.Limits.MemoryBytes, c.Requests.MemoryBytes)
			}
		}
		p.Running, p.Terminating, p.Current = !some(0.05), some(0.05), !some(0.1)
		if !isHuge && some(0.3) { // resized before
			for j := range p.Containers {
				c := &p.Containers[j]
				c.Requests.CPUMillis, c.Limits.CPUMillis = c.Requests.CPUMillis*3, c.Limits.CPUMillis*3
			}
		}
		if some(0.1) && s.Bounds.PodMin == (quantity.Amounts{}) && s.Bounds.PodRatio == (workload.Ratios{}) {
			p.Containers = append(p.Containers, container("injected"))
		}
		p.QoS = workload.QoSOf(p.Containers, p.Others)
		caughtUp(&p)
		p.Resize.Deferred, p.Resize.Infeasible = some(0.05), some(0.05)
		if !p.Running {
			p.Ended = some(0.5)
		}
		s.Pods = append(s.Pods, p)
	}
	for _, c := range s.Deployment.Containers {
		if some(0.85) {
			s.Recommendations = append(s.Recommendations, randomRecommendation(r, c.Name, w.policy.Containers[c.Name], amount()))
		}
	}
	if some(0.5) {
		s.Decision = &plan.Decision{Time: noon.Add(time.Duration(r.IntN(1200)-1000) * time.Second), Reason: "ScaleUp", Requests: map[string]quantity.Amounts{}}
		for _, c := range s.Deployment.Containers {
			if a := partly(amount(), 0.2); some(0.8) && a != (quantity.Amounts{}) {
				s.Decision.Requests[c.Name] = a
			}
		}
	}
	s.Deployment.Replicas, s.Deployment.Unavailable = int32(len(s.Pods)), int32(r.IntN(2))
	if some(0.4) {
		w.randomPace(r)
	}
	if some(0.3) {
		s.Quotas, w.Others = randomQuotas(r)
	}
	for _, name := range slices.Sorted(maps.Keys(w.policy.Containers)) {
		policy := w.policy.Containers[name]
		if some(0.3) {
			policy.LimitPolicy = randomLimitPolicy(r)
			w.policy.Containers[name] = policy
		}
	}
	if w.policy.Fallback == "" && some(0.5) {
		w.policy.Fallback, w.policy.MinReplicas, w.Ineffective = "Recreate", 1+r.Int32N(3), some(0.3)
		for i := range s.Pods { // flags of a kubelet are about a resize
			if s.Pods[i].Resize != (workload.Resize{}) {
				s.Pods[i].Resized = noon.Add(-time.Hour)
			}
		}
	}
	w.Crowded = some(0.3)
	s.Ceilings = randomCeilings(r)
	w.count()
	return w
}

// randomRecommendation keeps recommend's promises: lower <= target <= upper, within
// the policy, and above the peak but for maxAllowed.
func randomRecommendation(r *rand.Rand, name string, policy plan.ContainerPolicy, a quantity.Amounts) recommend.Container {
	scale := func(f float64) quantity.Amounts {
		return quantity.Amounts{
			CPUMillis:   max(1, min(int64(float64(a.CPUMillis)*f), quantity.MaxCPUMillis)),
			MemoryBytes: max(1, min(int64(float64(a.MemoryBytes)*f), quantity.MaxMemoryBytes)),
		}
	}
	clamp := func(b quantity.Amounts) quantity.Amounts {
		b.CPUMillis, b.MemoryBytes = max(b.CPUMillis, policy.MinAllowed.CPUMillis), max(b.MemoryBytes, policy.MinAllowed.MemoryBytes)
		return atMost(b, policy.MaxAllowed)
	}
	rec := recommend.Container{Name: name, Uncapped: a, Target: clamp(a), LowerBound: clamp(scale(0.8)), UpperBound: clamp(scale(1 + r.Float64()))}
	peak := scale(0.7).MemoryBytes
	rec.Reasons = []recommend.Reason{{Resource: "memory", Code: "Peak", Value: peak}}
	if r.Float64() < 0.1 {
		rec.OOMFloor = scale(0.8).MemoryBytes
	}
	if r.Float64() < 0.1 { // raises did not help
		end, code := clamp(scale(r.Float64())).MemoryBytes, recommend.UsageFollowsLimit
		rec.Target.MemoryBytes = min(rec.Target.MemoryBytes, end)
		rec.LowerBound.MemoryBytes, rec.UpperBound.MemoryBytes = min(rec.LowerBound.MemoryBytes, end), min(rec.UpperBound.MemoryBytes, end)
		if r.IntN(2) == 0 {
			code, rec.OOMFloor = recommend.RaiseDidNotHelp, 0
			rec.Target.MemoryBytes, rec.LowerBound.MemoryBytes, rec.UpperBound.MemoryBytes = end, end, end
		}
		rec.Reasons = append(rec.Reasons, recommend.Reason{Resource: "memory", Code: code, Value: end})
	}
	if !policy.CPU {
		rec.Target.CPUMillis, rec.LowerBound.CPUMillis, rec.UpperBound.CPUMillis = 0, 0, 0
	}
	if !policy.Memory {
		rec.Target.MemoryBytes, rec.LowerBound.MemoryBytes, rec.UpperBound.MemoryBytes, rec.OOMFloor, rec.Reasons = 0, 0, 0, 0, nil
	}
	return rec
}

func atMost(a, most quantity.Amounts) quantity.Amounts {
	for _, r := range both {
		r.Set(&a, min(r.Of(a), cmp.Or(r.Of(most), math.MaxInt64)))
	}
	return a
}

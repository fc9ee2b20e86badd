// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/vpa"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

const (
	nodeCPU = 8000 // millicores
	// The requests of DaemonSets on a node, and their CPU usage.
	daemonCPU, daemonMemory, daemonUse = 300, gibi / 2, 150
	mostPods                           = 110

	// consolidateAfter is Karpenter's: how long no pod may have come to a node, or left it, before it is disrupted.
	consolidateAfter = 3 // intervals
	// spread is how many pods of a Deployment a node gets while another node has room.
	spread = 2
)

// beginning is a Monday.
var beginning = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// environment describes the nodes and series of a simulation.
type environment struct {
	name, about string
	memoryGiB   int64
	// isDaily takes only series that have a day, and scalesMemory scales their memory to the same amount per core.
	isDaily, scalesMemory bool
	// generated takes generated series, whatever the folder has.
	generated bool
	// keepsNodes removes only empty nodes.
	keepsNodes bool
	// plainPods starts new pods as in the template.
	plainPods bool
}

// cluster is a fleet on its nodes.
type cluster struct {
	environment
	policy policy
	fleet  []*deployment
	nodes  []*node
	// step is the current interval, and now is the end of it.
	step   int
	now    time.Time
	counts counts
	serial int // of pods
}

// node is a node. All have the same size.
type node struct {
	name string
	pods []*pod
	// allocated is the sum of the amounts that the kubelet has granted to pods. claimed is the sum that the scheduler and
	// the node autoscaler count. A pod whose resize is Deferred counts with the larger of its current and its desired
	// amounts.
	allocated, claimed quantity.Amounts
	// event is the last interval in which a pod came or went.
	event int
	// busy is the share of CPU in use: 0 to 1. An eviction makes it unknown until the next interval, and 0 until then.
	busy float64
}

// pod is a pod with one container, without a CPU limit. In the template, its memory limit equals its request.
type pod struct {
	// Pod is the operator's view of the pod. Its containers and Actual follow asked and has.
	workload.Pod

	of         *deployment
	node       *node
	asked, has quantity.Amounts
	// limit is the memory limit that the kubelet has applied.
	limit int64
	// lacks is true if it had less than decided at the end of the last interval.
	lacks bool

	// average, minute and needs are its demand: CPU in the interval and in a minute of it, and memory. used is the average
	// CPU that it gets.
	average, minute, used float64 // millicores
	needs                 int64
	isKilled              bool
	kills                 int32

	rejected    []rejectedUntil
	withdrawals int
	vpa         vpa.Pod // as VPA sees it
}

const container = "app"

func resourcesOf(a quantity.Amounts, limit int64) workload.Resources {
	return workload.Resources{Requests: a, Limits: quantity.Amounts{MemoryBytes: limit}}
}

// limitFor is the memory limit beside a request, for a container with that limit; 0 for a new one.
func (d *deployment) limitFor(request, current int64) int64 {
	if d.lowersLimits {
		return request
	}
	return max(request, d.template.MemoryBytes, current)
}

func (p *pod) isDeferred() bool { return p.Resize.Deferred }

// claims are the requests that the scheduler counts.
func (p *pod) claims() quantity.Amounts {
	return quantity.Amounts{CPUMillis: max(p.asked.CPUMillis, p.has.CPUMillis), MemoryBytes: max(p.asked.MemoryBytes, p.has.MemoryBytes)}
}

func plus(a, b quantity.Amounts) quantity.Amounts {
	return quantity.Amounts{CPUMillis: a.CPUMillis + b.CPUMillis, MemoryBytes: a.MemoryBytes + b.MemoryBytes}
}

func minus(a, b quantity.Amounts) quantity.Amounts {
	return quantity.Amounts{CPUMillis: a.CPUMillis - b.CPUMillis, MemoryBytes: a.MemoryBytes - b.MemoryBytes}
}

func fitsIn(a, room quantity.Amounts) bool {
	return a.CPUMillis <= room.CPUMillis && a.MemoryBytes <= room.MemoryBytes
}

// allocatable is the capacity of a node for the requests of pods.
func (w environment) allocatable() quantity.Amounts {
	return quantity.Amounts{CPUMillis: nodeCPU - daemonCPU, MemoryBytes: w.memoryGiB*gibi - daemonMemory}
}

// newCluster starts a fleet with the sizes of its templates.
func newCluster(w environment, p policy, all []series, count int, seed uint64) *cluster {
	c := &cluster{environment: w, policy: p, fleet: newFleet(all, w, count, seed), now: beginning}
	for _, d := range c.fleet {
		d.lowersLimits = p.profile == "" || p.lowersLimits
		d.sizer = p.sizerFor(d, w)
		for range replicas {
			p := &pod{of: d}
			d.pods = append(d.pods, p)
			c.start(p, d.template)
		}
	}
	return c
}

// advance simulates an interval. Its decisions take effect with the next one.
func (c *cluster) advance(isMeasured bool) {
	c.now = beginning.Add(time.Duration(c.step+1) * interval)
	for _, d := range c.fleet {
		d.want(c.step)
	}
	before := c.counts
	c.serve()
	for _, d := range c.fleet {
		d.sizer.act(c, d)
	}
	c.grant()
	for _, d := range c.fleet {
		if d.random.IntN(rolloutEvery) == 0 {
			d.revision++
			for _, p := range d.pods {
				c.recreate(p, d.sizer.newPod(d))
			}
		}
	}
	c.consolidate()
	c.step++
	if !isMeasured {
		c.counts = before
	}
}

// serve gives pods the CPU that their nodes have, and kills those that need more memory than they have.
func (c *cluster) serve() {
	c.counts.nodeHours += float64(len(c.nodes)) * interval.Hours()
	for _, n := range c.nodes {
		n.share()
		inUse := float64(daemonUse)
		for _, p := range n.pods {
			inUse += p.used
			c.counts.note(p)
		}
		n.busy = min(1, inUse/nodeCPU)
		c.counts.pressed += n.pressed(c.memoryGiB * gibi)
	}
}

// pressed counts the pods that the kubelet would evict, since the node runs out of memory: first those that use most above
// their requests. They are only counted.
func (n *node) pressed(memory int64) (count int) {
	inUse, over := int64(daemonMemory), make([]int64, 0, len(n.pods))
	uses := func(p *pod) int64 { return min(p.needs, p.limit) }
	order := slices.SortedFunc(slices.Values(n.pods), func(a, b *pod) int {
		return cmp.Compare(uses(b)-b.has.MemoryBytes, uses(a)-a.has.MemoryBytes)
	})
	for _, p := range order {
		inUse, over = inUse+uses(p), append(over, uses(p))
	}
	for ; inUse > memory; count++ {
		inUse -= over[count]
	}
	return count
}

// share shares a node's CPU out by requests. The other pods get the CPU that a pod does not need.
func (n *node) share() {
	left, weights := float64(nodeCPU-daemonUse), 0.0
	weight := func(p *pod) float64 { return float64(max(p.has.CPUMillis, 1)) }
	order := slices.SortedFunc(slices.Values(n.pods), func(a, b *pod) int {
		return cmp.Or(cmp.Compare(a.minute/weight(a), b.minute/weight(b)), cmp.Compare(a.Name, b.Name))
	})
	for _, p := range order {
		weights += weight(p)
	}
	for _, p := range order {
		got := min(p.minute, left*weight(p)/weights)
		left, weights = left-got, weights-weight(p)
		p.used = p.average
		if got < p.minute {
			p.used *= got / p.minute
		}
		p.isKilled = p.needs > p.limit
	}
}

// recount sums up a node's pods.
func (n *node) recount() {
	n.allocated, n.claimed = quantity.Amounts{}, quantity.Amounts{}
	for _, p := range n.pods {
		n.allocated, n.claimed = plus(n.allocated, p.has), plus(n.claimed, p.claims())
	}
}

// start starts a pod with a size, on the fullest node that has room or on a new one.
func (c *cluster) start(p *pod, size quantity.Amounts) {
	c.serial++
	name := fmt.Sprintf("pod-%07d", c.serial)
	p.limit = p.of.limitFor(size.MemoryBytes, 0)
	resources := resourcesOf(size, p.limit)
	p.Pod = workload.Pod{
		Name: name, UID: types.UID(name), ResourceVersion: "1", Current: true, ReplicaSet: p.of.replicaSet(), Running: true, Ready: true,
		Created: c.now, Started: c.now, ReadyChanged: c.now, QoS: corev1.PodQOSBurstable,
		Containers: []workload.Container{{Name: container, Resources: resources}}, Actual: workload.Reported{{Name: container, Resources: resources}},
	}
	p.of.isChanged = true
	p.asked, p.has, p.lacks, p.kills, p.rejected, p.withdrawals = size, size, false, 0, nil, 0
	p.vpa = vpa.Pod{Started: c.now, ContainerStarted: c.now}
	rooms := c.rooms()
	i := c.place(rooms, size, p.of)
	var n *node
	if i < 0 {
		n = &node{name: fmt.Sprint("node-", c.serial)}
		c.nodes = append(c.nodes, n)
	} else {
		n = rooms[i].node
	}
	n.pods, n.event = append(n.pods, p), c.step
	p.node, p.Node = n, n.name
	n.recount()
}

// recreate deletes a pod, and starts the next one.
func (c *cluster) recreate(p *pod, size quantity.Amounts) {
	n := p.node
	n.pods, n.event = slices.DeleteFunc(n.pods, func(other *pod) bool { return other == p }), c.step
	n.recount()
	c.start(p, size)
}

// evict recreates a pod that was not resized in place.
func (c *cluster) evict(p *pod, size quantity.Amounts) {
	c.counts.evictions++
	p.node.busy = 0
	c.recreate(p, size)
}

// room is the free capacity of a node, as the scheduler counts it.
type room struct {
	node  *node
	free  quantity.Amounts
	count int
}

func (c *cluster) rooms() []room {
	rooms := make([]room, 0, len(c.nodes))
	for _, n := range c.nodes {
		rooms = append(rooms, room{n, minus(c.allocatable(), n.claimed), len(n.pods)})
	}
	return rooms
}

// place returns the room that is fullest with a pod of that size, and rather one with few pods of the same Deployment; -1
// for none.
func (c *cluster) place(rooms []room, size quantity.Amounts, of *deployment) int {
	best, least := -1, math.Inf(1)
	for i, r := range rooms {
		if !fitsIn(size, r.free) || r.count >= mostPods {
			continue
		}
		left := c.part(minus(r.free, size))
		if left >= least {
			continue
		}
		same := 0
		for _, p := range r.node.pods {
			if p.of == of {
				same++
			}
		}
		if same >= spread {
			left += 10 // more than any room
		}
		if left < least {
			best, least = i, left
		}
	}
	return best
}

// part is an amount in nodes: the sum of both resources.
func (c *cluster) part(a quantity.Amounts) float64 {
	of := c.allocatable()
	return float64(a.CPUMillis)/float64(of.CPUMillis) + float64(a.MemoryBytes)/float64(of.MemoryBytes)
}

// ask resizes a pod in place. Without room on its node, the resize is Deferred.
func (c *cluster) ask(p *pod, size quantity.Amounts, now time.Time) {
	if size == p.asked {
		return
	}
	c.counts.resizes++
	p.asked, p.Resized, p.Pod.Resize = size, now, workload.Resize{}
	p.Containers = []workload.Container{{Name: container, Resources: resourcesOf(size, p.of.limitFor(size.MemoryBytes, p.limit))}}
	p.Kills = slices.Clone(p.Kills)
	for i := range p.Kills {
		p.Kills[i].HitBytes = 0 // as it is unknown to the operator after a resize
	}
	if !c.grantTo(p) {
		p.Pod.Resize = workload.Resize{Deferred: true, Since: now}
	}
	p.node.recount()
}

// grantTo applies what a pod asks for if its node has room, as its kubelet does.
func (c *cluster) grantTo(p *pod) bool {
	if room := minus(c.allocatable(), minus(p.node.allocated, p.has)); !fitsIn(p.asked, room) && !fitsIn(p.asked, p.has) {
		return false
	}
	p.of.isChanged = true
	p.has, p.Pod.Resize, p.withdrawals = p.asked, workload.Resize{}, 0
	p.limit = p.of.limitFor(p.has.MemoryBytes, p.limit)
	p.Actual = workload.Reported{{Name: container, Resources: resourcesOf(p.has, p.limit)}}
	p.node.recount()
	return true
}

// grant lets kubelets try again what is Deferred, the longest first.
func (c *cluster) grant() {
	for _, n := range c.nodes {
		waiting := slices.DeleteFunc(slices.Clone(n.pods), func(p *pod) bool { return !p.isDeferred() })
		slices.SortStableFunc(waiting, func(a, b *pod) int { return a.Pod.Resize.Since.Compare(b.Pod.Resize.Since) })
		for _, p := range waiting {
			c.grantTo(p)
		}
	}
	for _, d := range c.fleet {
		for _, p := range d.pods {
			p.lacks = !fitsIn(d.sizer.decided(p), p.has)
		}
	}
}

// busyFrom is the share of a node's CPU in use from which on it has none to spare.
const busyFrom = 0.9

// consolidate removes nodes by the rules of Karpenter: the empty ones, and one whose pods fit on the others. Those with few
// pods, and then the emptier ones, come first.
func (c *cluster) consolidate() {
	isQuiet := func(n *node) bool { return c.step-n.event >= consolidateAfter }
	c.nodes = slices.DeleteFunc(c.nodes, func(n *node) bool { return len(n.pods) == 0 && isQuiet(n) })
	if c.keepsNodes {
		return
	}
	order := slices.DeleteFunc(slices.Clone(c.nodes), func(n *node) bool { return len(n.pods) == 0 || !isQuiet(n) })
	slices.SortStableFunc(order, func(a, b *node) int {
		return cmp.Or(cmp.Compare(len(a.pods), len(b.pods)), cmp.Compare(c.part(a.claimed), c.part(b.claimed)))
	})
	for _, n := range order {
		if !c.fitElsewhere(n) {
			continue
		}
		c.nodes = slices.DeleteFunc(c.nodes, func(other *node) bool { return other == n })
		for _, p := range largestFirst(n.pods) {
			c.counts.consolidations++
			c.start(p, p.of.sizer.newPod(p.of))
		}
		return
	}
}

func largestFirst(pods []*pod) []*pod {
	return slices.SortedStableFunc(slices.Values(pods), func(a, b *pod) int { return cmp.Compare(b.has.CPUMillis, a.has.CPUMillis) })
}

// fitElsewhere reports whether all pods of a node fit on the others as they are now.
func (c *cluster) fitElsewhere(n *node) bool {
	if !fitsIn(n.claimed, c.free(n)) {
		return false
	}
	rooms := slices.DeleteFunc(c.rooms(), func(r room) bool { return r.node == n })
	for _, p := range largestFirst(n.pods) {
		i := c.place(rooms, p.claims(), p.of)
		if i < 0 {
			return false
		}
		rooms[i].free, rooms[i].count = minus(rooms[i].free, p.claims()), rooms[i].count+1
	}
	return true
}

// free is the room of all nodes but one.
func (c *cluster) free(without *node) (sum quantity.Amounts) {
	for _, n := range c.nodes {
		if left := minus(c.allocatable(), n.claimed); n != without {
			sum = plus(sum, quantity.Amounts{CPUMillis: max(0, left.CPUMillis), MemoryBytes: max(0, left.MemoryBytes)})
		}
	}
	return sum
}

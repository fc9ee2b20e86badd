// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/traces"
)

func generated() []series { return newSeriesOf(traces.Make(10, 3*24*time.Hour, interval)) }

func named(t *testing.T, name string) policy {
	t.Helper()
	p, err := parsePolicy(name)
	must.Succeed(t, err)
	return p
}

// check reports what must hold after each interval.
func check(t *testing.T, c *cluster) {
	t.Helper()
	seen := map[*pod]bool{}
	for i, n := range c.nodes {
		var has, claimed quantity.Amounts
		for _, p := range n.pods {
			if seen[p] || p.node != n {
				t.Fatalf("interval %d: pod %s is on two nodes", c.step, p.Name)
			}
			seen[p] = true
			has, claimed = plus(has, p.has), plus(claimed, p.claims())
			if !p.isDeferred() && p.has != p.asked {
				t.Fatalf("interval %d: pod %s has %v, asks for %v, and waits for nothing", c.step, p.Name, p.has, p.asked)
			}
			if min(p.has.CPUMillis, p.has.MemoryBytes) == 0 {
				t.Fatalf("interval %d: pod %s has %v", c.step, p.Name, p.has)
			}
			if p.used > p.average+1e-9 {
				t.Fatalf("interval %d: pod %s gets %g of the %g that it wants", c.step, p.Name, p.used, p.average)
			}
		}
		if has != n.allocated || claimed != n.claimed || !fitsIn(has, c.allocatable()) || len(n.pods) > mostPods {
			t.Fatalf("interval %d: node %d has %v, and counts %v of %v", c.step, i, has, n.allocated, c.allocatable())
		}
	}
	if len(seen) != len(c.fleet)*replicas {
		t.Fatalf("interval %d: %d of %d pods are on a node", c.step, len(seen), len(c.fleet)*replicas)
	}
}

// TestInvariants: in every environment and under every policy, no node is over its capacity and no pod is lost. Node-hours are
// the sum of the open nodes, and the same seed leads to the same counts. Of the pairs, it runs every third.
func TestInvariants(t *testing.T) {
	all := generated()
	for i, w := range environments {
		for j, name := range strings.Split(usual, ",") {
			if (i+j)%3 > 0 {
				continue
			}
			t.Run(w.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				sum := 0.0
				simulated := func(check func(*cluster)) counts {
					c := newCluster(w, named(t, name), all, 6, 1)
					for range perDay {
						check(c)
						c.advance(true)
					}
					return c.counts
				}
				first := simulated(func(c *cluster) {
					check(t, c)
					sum += float64(len(c.nodes)) * interval.Hours()
				})
				if math.Abs(first.nodeHours-sum) > 1e-6 {
					t.Errorf("node-hours are %g, and open nodes sum up to %g", first.nodeHours, sum)
				}
				if again := simulated(func(*cluster) {}); again != first {
					t.Errorf("a second run counts %+v, and the first one %+v", again, first)
				}
			})
		}
	}
}

// fixed wants a size.
type fixed struct{ size quantity.Amounts }

func (f fixed) act(*cluster, *deployment)           {}
func (f fixed) decided(*pod) quantity.Amounts       { return f.size }
func (f fixed) newPod(*deployment) quantity.Amounts { return f.size }

// TestAResizeWaitsForRoomOnItsNode: of two pods on a node, one asks for all that the other leaves.
func TestAResizeWaitsForRoomOnItsNode(t *testing.T) {
	c := newCluster(environments[0], named(t, "Balanced/Wait"), generated(), 2, 1)
	c.now = beginning.Add(interval)
	for _, d := range c.fleet { // one pod each
		for _, p := range d.pods[1:] {
			c.recreate(p, quantity.Amounts{CPUMillis: nodeCPU - daemonCPU, MemoryBytes: 30 * gibi})
		}
		c.recreate(d.pods[0], quantity.Amounts{CPUMillis: 3000, MemoryBytes: 4 * gibi})
	}
	p, other := c.fleet[0].pods[0], c.fleet[1].pods[0]
	if p.node != other.node {
		t.Fatal("the pods are not on one node")
	}
	c.ask(p, quantity.Amounts{CPUMillis: 6000, MemoryBytes: 4 * gibi}, c.now)
	p.of.sizer, other.of.sizer = fixed{p.asked}, fixed{other.has}
	if !p.isDeferred() || p.has.CPUMillis != 3000 || p.node.claimed.CPUMillis != 9000 || p.node.allocated.CPUMillis != 6000 {
		t.Fatalf("asked for %v, has %v, and the node counts %v and %v", p.asked, p.has, p.node.claimed, p.node.allocated)
	}
	c.ask(other, quantity.Amounts{CPUMillis: 1000, MemoryBytes: 4 * gibi}, c.now)
	c.grant()
	if p.isDeferred() || p.has.CPUMillis != 6000 {
		t.Errorf("with room, it has %v", p.has)
	}
	check(t, c)
}

// TestFullNodesShareByRequests: what a pod does not want goes to the others.
func TestFullNodesShareByRequests(t *testing.T) {
	pods := []*pod{
		{has: quantity.Amounts{CPUMillis: 1000}, average: 500, minute: 500},
		{has: quantity.Amounts{CPUMillis: 1000}, average: 4000, minute: 8000},
		{has: quantity.Amounts{CPUMillis: 2000}, average: 8000, minute: 8000},
	}
	(&node{pods: pods}).share()
	left := float64(nodeCPU - daemonUse - 500)
	for i, want := range []float64{500, 4000 * (left / 3) / 8000, left * 2 / 3} {
		if math.Abs(pods[i].used-want) > 1e-6 {
			t.Errorf("pod %d gets %g, want %g", i, pods[i].used, want)
		}
	}
}

// TestOneNodeIsConsolidatedAtATime: its pods move to the others, and nothing is removed where only empty nodes may be.
func TestOneNodeIsConsolidatedAtATime(t *testing.T) {
	for name, want := range map[string]int{"base": 2, "no-consolidation": 3} {
		c := newCluster(environments[0], named(t, "krr"), generated(), 3, 1)
		c.keepsNodes = name != "base"
		c.nodes = nil
		for _, d := range c.fleet {
			n := &node{event: -consolidateAfter}
			for _, p := range d.pods {
				p.node, p.asked, p.has = n, quantity.Amounts{CPUMillis: 100, MemoryBytes: gibi}, quantity.Amounts{CPUMillis: 100, MemoryBytes: gibi}
				n.pods = append(n.pods, p)
			}
			d.sizer = fixed{d.pods[0].has}
			n.recount()
			c.nodes = append(c.nodes, n)
		}
		c.consolidate()
		check(t, c)
		if len(c.nodes) != want || c.counts.consolidations != (3-want)*replicas {
			t.Errorf("%s: %d nodes, %d pods moved", name, len(c.nodes), c.counts.consolidations)
		}
	}
}

// TestSeriesStartAtMidnight: days of the fleet coincide only if those of the series do.
func TestSeriesStartAtMidnight(t *testing.T) {
	trace := backtest.Trace{Step: time.Minute, HasMemory: true}
	for at := int64(86_400 - 600); at < 3*86_400+600; at += 60 {
		trace.Samples = append(trace.Samples, backtest.Sample{At: at, CPUMillis: float64(at % 86_400 / 3600), MemoryBytes: 1 + at%300})
	}
	s, ok := newSeries(trace)
	if !ok || len(s.cpu) != 2*perDay || s.cpu[0] != 0 || s.cpu[perDay-1] != 23 || s.memory[0] != 241 || math.Abs(s.peakHourByMean-2) > 1e-9 {
		t.Errorf("%t, %d intervals, peak by mean %g", ok, len(s.cpu), s.peakHourByMean)
	}
}

func TestACommandWithoutAFolderUsesGeneratedUsage(t *testing.T) {
	var out bytes.Buffer
	args := []string{"-worlds", "day", "-policies", "vpa,Balanced/Recreate", "-seeds", "2", "-days", "1", "-deployments", "3"}
	must.Succeed(t, run(args, &out, io.Discard))
	if lines := strings.Count(out.String(), "\n"); lines != 9 || !strings.Contains(out.String(), "\n| Balanced/Recreate | x") {
		t.Errorf("it prints %d lines: %s", lines, out.String())
	}
	for _, wrong := range [][]string{{"-worlds", "moon"}, {"-policies", "Balanced"}, {"-policies", "Bold/Wait"}, {"-policies", "Safe/Never"}, {"-policies", "Safe/Recreate/kept"}, {"-seeds", "0"}, {"-policies", "vpa*x"}, {"/nowhere"}} {
		if err := run(wrong, io.Discard, io.Discard); err == nil {
			t.Errorf("%v is accepted", wrong)
		}
	}
}

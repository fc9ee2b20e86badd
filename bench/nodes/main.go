// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Nodes simulates a fleet of recorded usage on nodes that a node autoscaler packs. The operator, the Vertical Pod
// Autoscaler (VPA) and constants size it. Nodes compares the costs of the nodes and the shortages of the pods, in Markdown:
//
//	go -C bench run ./nodes [flags] [FOLDER]
//
// The folder holds tables as "kubectl vscaler report" reads them. Series without memory are left out. Without a folder, usage
// is generated.
//
// The model, in intervals of 5 minutes:
//
//   - Each Deployment has 4 pods of one series, scaled to about half a CPU, that differ by 10 %. Demand does not depend on
//     what pods get. Pods see more CPU than they request if their node has it; a full node shares by requests.
//   - The closed loop: each policy learns from what pods got, and from OOM kills where they needed more than their limits. In the
//     template, memory limits are requests. Rivals keep that. By default, the operator lowers no limit.
//   - The scheduler takes the fullest node with room, and a new node at once where none has room. A resize that finds no room on its
//     node is Deferred until there is.
//   - Nodes have 8 CPUs. Every interval, the empty nodes go, and one whose pods fit on the others, as Karpenter does, if no pod
//     came or went for 15 minutes. Each Deployment is rolled out every 3 days.
//   - The operator is driven by its own plans, with the defaults of the API. Budgets of disruptions, quotas and priorities are
//     not part of the model.
//
// A policy is a profile and a fallback such as Balanced/Wait, with "/limits" if it lowers limits (RequestsAndLimits), and "/kept" after
// Wait if a Deferred resize is never withdrawn.
// Rivals are vpa (InPlaceOrRecreate), vpa*0.9 (with that share of its CPU) and krr.
//
// The same folder and seeds lead to the same tables, on any number of processors.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/bench/tables"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/vpa"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/profile"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/traces"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "nodes:", err)
		os.Exit(1)
	}
}

var environments = []environment{
	{name: "base", about: "nodes of 8 CPUs and 32 GiB", memoryGiB: 32},
	{name: "base-1:8", about: "nodes of 8 CPUs and 64 GiB", memoryGiB: 64},
	{name: "day", about: "series with a day, 3 GiB for each core, nodes of 8 CPUs and 32 GiB", memoryGiB: 32, isDaily: true, scalesMemory: true},
	{name: "web", about: "generated web services and office hours, nodes of 8 CPUs and 32 GiB", memoryGiB: 32, isDaily: true, scalesMemory: true, generated: true},
	{name: "web-1:8", about: "the same, nodes of 8 CPUs and 64 GiB", memoryGiB: 64, isDaily: true, scalesMemory: true, generated: true},
	{name: "no-consolidation", about: "as base, but only empty nodes are removed", memoryGiB: 32, keepsNodes: true},
	{name: "template-sizes", about: "as base, but the operator's new pods start as in the template", memoryGiB: 32, plainPods: true},
}

// policy says who sizes the pods, and how.
type policy struct {
	name string
	// profile and fallback are the operator's; no profile for a rival.
	profile     profile.Profile
	fallback    v1beta1.Fallback
	keepsClaims bool
	// lowersLimits is true for RequestsAndLimits.
	lowersLimits bool
	// vpaPart is the share of VPA's CPU; 0 for KRR.
	vpaPart float64
}

var fallbacks = []v1beta1.Fallback{v1beta1.FallbackWait, v1beta1.FallbackRecreate}

const usual = "vpa,vpa*0.9,krr,Balanced/Wait,Balanced/Wait/limits,Balanced/Wait/kept,Balanced/Recreate,Frugal/Recreate"

func parsePolicy(name string) (p policy, err error) {
	p.name = name
	parts := strings.Split(name, "/")
	switch rival, part, isPart := strings.Cut(name, "*"); {
	case name == "krr":
		return p, nil
	case rival == "vpa":
		if p.vpaPart = 1; isPart {
			p.vpaPart, err = strconv.ParseFloat(part, 64)
		}
		return p, err
	case len(parts) == 3 && parts[2] == "kept":
		p.keepsClaims = true
	case len(parts) == 3 && parts[2] == "limits":
		p.lowersLimits = true
	case len(parts) != 2:
		return p, fmt.Errorf("%q is not a policy such as Balanced/Wait", name)
	}
	p.profile, p.fallback = profile.Profile(parts[0]), v1beta1.Fallback(parts[1])
	if !slices.Contains(profile.All(), p.profile) || !slices.Contains(fallbacks, p.fallback) || p.keepsClaims && p.fallback != v1beta1.FallbackWait {
		return p, fmt.Errorf("%q has an unknown profile or fallback, or keeps what its fallback evicts", name)
	}
	return p, nil
}

func (p policy) sizerFor(d *deployment, w environment) sizer {
	switch {
	case p.profile != "":
		return newOperator(p, d, w)
	case p.vpaPart > 0:
		return &vpaSizer{model: vpa.NewModel(), environment: w, part: p.vpaPart}
	}
	return newDaily(d, w)
}

type options struct {
	environments               []environment
	policies                   []policy
	skip                       tables.Patterns
	seeds, warmUp, days, count int
}

func run(args []string, out, progress io.Writer) error {
	o := options{}
	flags := flag.NewFlagSet("nodes", flag.ContinueOnError)
	flags.SetOutput(progress)
	names := flags.String("worlds", "", "the `worlds` to simulate, such as base,web; all by default")
	policies := flags.String("policies", usual, "the `policies` to compare, with the first one")
	flags.Func("skip", "leave out the series that match one of these `patterns`", func(text string) (err error) {
		o.skip, err = tables.ParsePatterns(text)
		return err
	})
	flags.IntVar(&o.seeds, "seeds", 3, "how many fleets are drawn, with the seeds 1, 2 and so on")
	flags.IntVar(&o.warmUp, "warm-up", 3, "how many days are simulated before those that are measured")
	flags.IntVar(&o.days, "days", 7, "how many days are measured")
	flags.IntVar(&o.count, "deployments", 100, "how many Deployments a fleet has")
	if err := flags.Parse(args); err != nil {
		return err
	}
	for _, name := range strings.Split(*policies, ",") {
		p, err := parsePolicy(name)
		if err != nil {
			return err
		}
		o.policies = append(o.policies, p)
	}
	wanted := strings.Split(*names, ",")
	for _, w := range environments {
		if *names == "" || slices.Contains(wanted, w.name) {
			o.environments = append(o.environments, w)
		}
	}
	if *names != "" && len(o.environments) != len(wanted) || min(o.seeds, o.warmUp+1, o.days, o.count) < 1 || flags.NArg() > 1 {
		return errors.New("unknown worlds, no seeds, days or Deployments, or more than one folder: see -help")
	}
	recorded := traces.Make(50, 14*24*time.Hour, interval)
	generated := slices.DeleteFunc(slices.Clone(recorded), func(t backtest.Trace) bool {
		return !strings.HasPrefix(t.Name, "diurnal") && !strings.HasPrefix(t.Name, "weekly")
	})
	if flags.NArg() == 1 {
		var err error
		if recorded, err = tables.Read(os.DirFS(flags.Arg(0))); err != nil {
			return fmt.Errorf("folder %s: %w", flags.Arg(0), err)
		}
		recorded = slices.DeleteFunc(recorded, o.skip.Match)
	}
	return o.simulate(newSeriesOf(recorded), newSeriesOf(generated), out, progress)
}

// simulate writes a table for each environment.
func (o options) simulate(recorded, generated []series, out, progress io.Writer) error {
	fmt.Fprintf(out, "Seeds 1 to %d, %d Deployments of %d pods, %d days after %d of warm-up. Ratios are to %s, paired by seed.\n\n",
		o.seeds, o.count, replicas, o.days, o.warmUp, o.policies[0].name)
	for _, w := range o.environments {
		began, all := time.Now(), recorded
		if w.generated {
			all = generated
		}
		if w.isDaily {
			all = slices.DeleteFunc(slices.Clone(all), func(s series) bool { return s.peakHourByMean < dayRatio })
		}
		if len(all) == 0 {
			fmt.Fprintf(out, "### %s: no series\n\n", w.name)
			continue
		}
		if err := write(out, w, o.policies, o.results(w, all)); err != nil {
			return err
		}
		fmt.Fprintf(progress, "%s: %d series, took %.0f s\n", w.name, len(all), time.Since(began).Seconds())
	}
	return nil
}

// results are the counts by policy and seed.
func (o options) results(w environment, all []series) [][]counts {
	results, free := make([][]counts, len(o.policies)), make(chan struct{}, runtime.GOMAXPROCS(0))
	var group sync.WaitGroup
	for i, p := range o.policies {
		results[i] = make([]counts, o.seeds)
		for seed := range o.seeds {
			free <- struct{}{}
			group.Go(func() {
				c := newCluster(w, p, all, o.count, uint64(seed+1))
				for step := range (o.warmUp + o.days) * perDay {
					c.advance(step >= o.warmUp*perDay)
				}
				results[i][seed] = c.counts
				<-free
			})
		}
	}
	group.Wait()
	return results
}

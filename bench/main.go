// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench measures the operator and the Vertical Pod Autoscaler on real API servers, one after the other, with the same
// fleet. "make bench-cluster" builds what it needs.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/bench/cluster"
)

func main() { cluster.Program("bench", run) }

func run(ctx context.Context, args []string, out io.Writer, progress cluster.Progress) error {
	o := cluster.Options{Progress: progress}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.IntVar(&o.Scalers, "scalers", 1000, "number of scalers, each with a Deployment of 3 pods of 2 containers")
	flags.DurationVar(&o.Idle, "idle", time.Minute, "how long the stage idle lasts")
	flags.DurationVar(&o.Wave, "wave", 2*time.Minute, "how long the stage wave lasts after its first change, in whole minutes")
	stages := flags.String("stages", strings.Join(cluster.Stages, ","), "the stages to run, after the start")
	flags.StringVar(&o.Operator, "operator", "", "the operator's program")
	flags.StringVar(&o.Recommender, "vpa-recommender", "", "the program of VPA's recommender; without it, VPA is left out")
	flags.StringVar(&o.Updater, "vpa-updater", "", "the program of VPA's updater")
	if err := cluster.Parse(flags, args); err != nil {
		return err
	}
	began := time.Now()
	o.Stages = strings.Split(*stages, ",")
	results, err := cluster.Run(ctx, o)
	if results.Operator != nil {
		fmt.Fprint(out, results.Table(), cluster.Measured(began))
	}
	return err
}

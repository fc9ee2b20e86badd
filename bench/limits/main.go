// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Limits measures one operator process with as many objects as Kubernetes supports, in Markdown:
//
//	go -C bench run ./limits [flags]
//
// The fleet is the one of the benchmark of clusters: each scaler has a Deployment with its ReplicaSet and pods of 2 containers.
// The operator is a process of its own, with the limit of one CPU. The API server is part of this program: it serves the
// objects over HTTP/2 and TLS, from memory, and plays the kubelets, which apply a resize after a second. So the table has no
// costs of an API server, and no admission.
//
// A run has four stages:
//
//   - start: all objects exist when the operator starts. It ends when the status of each scaler has a recommendation for each
//     container, which takes 2 minutes of usage.
//   - learn: usage is steady, and evidence grows.
//   - idle: the same, later.
//   - wave: the usage of all pods grows by a half, but for those of the kills. The wave is measured from its first change on.
//     Meanwhile, the first containers of some pods are OOM-killed, and as many templates are edited, one a second.
//
// Usage follows the hour by 5 %, and differs between pods and measurements by 10 %.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/bench/cluster"
)

func main() { cluster.Program("limits", run) }

// options say what to measure.
type options struct {
	// Scalers and Pods are the number of scalers, and of the pods of each.
	Scalers, Pods int
	// Kills is the number of OOM kills, and of edits of templates.
	Kills int
	// Delay is how long the API server takes for a write, on average.
	Delay time.Duration
	// Learn, Idle and Wave are how long these stages last.
	Learn, Idle, Wave time.Duration
	// MemoryLimit is the memory limit of the operator, in MiB.
	MemoryLimit int
	// Operator is the path of its program; built if empty.
	Operator string
}

func run(ctx context.Context, args []string, out io.Writer, progress cluster.Progress) error {
	o := options{}
	flags := flag.NewFlagSet("limits", flag.ContinueOnError)
	flags.IntVar(&o.Scalers, "scalers", 50_000, "number of scalers, each with a Deployment")
	flags.IntVar(&o.Pods, "pods", cluster.Pods, "number of pods of a Deployment, of 2 containers each")
	flags.IntVar(&o.Kills, "kills", 40, "number of OOM kills in the wave, and of edits of templates")
	flags.DurationVar(&o.Delay, "delay", 0, "how long the API server takes for a write: at random from 0.1 to 1.9 of this")
	flags.DurationVar(&o.Learn, "learn", 5*time.Minute, "how long the stage learn lasts")
	flags.DurationVar(&o.Idle, "idle", 3*time.Minute, "how long the stage idle lasts")
	flags.DurationVar(&o.Wave, "wave", 5*time.Minute, "how long the stage wave lasts after its first change")
	flags.IntVar(&o.MemoryLimit, "memory", 2560, "the operator's memory limit in MiB")
	flags.StringVar(&o.Operator, "operator", "", "the operator's program; it is built if this is empty")
	if err := cluster.Parse(flags, args); err != nil {
		return err
	}
	began := time.Now()
	s := &session{options: o, table: out, progress: progress}
	if err := s.run(ctx); err != nil {
		return err
	}
	_, err := fmt.Fprint(out, cluster.Measured(began))
	return err
}

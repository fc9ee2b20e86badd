// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/hack/internal/stage"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/process"
)

// runner is one run.
type runner struct {
	options
	root  string // the repository
	dir   string
	began time.Time

	programs programs
	cluster  *stage.Cluster
	operator *process.Process
	config   *rest.Config
	admin    client.Client
	access   *access // of the tests; nil where none needs a cluster
}

// run is all of it, with an end that cleans up whatever happens.
func run(ctx context.Context, o options) (err error) {
	r := &runner{options: o, began: time.Now(), dir: o.dir, programs: programs{stock: o.stock}}
	if r.root, err = stage.Root(); err != nil {
		return err
	}
	if r.dir == "" {
		if r.dir, err = os.MkdirTemp("", "verticalscaler-scorecard-"); err != nil {
			return fmt.Errorf("making a temporary folder: %w", err)
		}
	} else if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return fmt.Errorf("making the folder: %w", err)
	}
	defer func() { r.cleanUp(err != nil) }()
	err = r.work(ctx)
	if ctx.Err() != nil {
		return errors.New("ended before all was done")
	}
	return r.explain(err)
}

func (r *runner) work(ctx context.Context) error {
	installed, err := readBundle(r.bundle)
	if err != nil {
		return err
	}
	r.programs.version = installed.version
	if r.record != "" {
		if err := r.start(ctx, installed); err != nil {
			return err
		}
		return r.recordStored(ctx)
	}
	config, err := readConfig(r.bundle)
	if err != nil {
		return err
	}
	stages, err := selectTests(config, r.selector)
	if err != nil {
		return err
	}
	if anyNeedsCluster(stages) {
		if err := r.start(ctx, installed); err != nil {
			return err
		}
	}
	var outcomes []outcome
	for _, tests := range stages {
		more, err := r.runStage(ctx, tests)
		if err != nil {
			return err
		}
		outcomes = append(outcomes, more...)
	}
	r.say("%d tests of %s:", len(outcomes), filepath.Base(r.bundle))
	fmt.Print(render(outcomes, r.strict))
	if failed := failedOf(outcomes, r.strict); failed > 0 {
		return fmt.Errorf("%d of %d tests failed", failed, len(outcomes))
	}
	return nil
}

// start brings up a cluster with the operator, as the bundle wants it.
func (r *runner) start(ctx context.Context, b *bundle) (err error) {
	r.say("Starting a cluster in %s, and building the operator", r.dir)
	if r.cluster, err = stage.StartCluster(r.clusterDir, filepath.Join(r.dir, "cluster")); err != nil {
		return err
	}
	bin := filepath.Join(r.root, "bin", "scorecard")
	manager := filepath.Join(bin, "verticalscaler-operator")
	r.programs.ours = filepath.Join(bin, "scorecard-tests")
	for _, build := range []struct{ pkg, binary, log string }{
		{".", manager, "build-operator.log"},
		{"./test/scorecard/main", r.programs.ours, "build-tests.log"},
	} {
		p, err := stage.Build(r.root, build.pkg, build.binary, filepath.Join(r.dir, build.log))
		if err != nil {
			return err
		}
		defer p.Stop(time.Second)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.Ended:
		}
		if p.Err() != nil {
			return p.Failure()
		}
	}
	if err := r.cluster.Await(ctx); err != nil {
		return err
	}
	if r.config, r.admin, err = r.cluster.Admin("verticalscaler-scorecard-stage"); err != nil {
		return err
	}
	r.say("The cluster is up; installing %s from the bundle", b.name)
	if err := stage.Apply(ctx, r.admin, b.objects...); err != nil {
		return err
	}
	configuration, err := withoutPorts(b.configuration)
	if err != nil {
		return err
	}
	operator := stage.Operator{Binary: manager, Dir: r.dir, Configuration: configuration, Env: []string{
		"POD_NAMESPACE=" + stage.SystemNamespace, "OPERATOR_DEPLOYMENT=" + b.deployment,
	}}
	if r.operator, err = operator.Start(ctx, r.config, r.admin); err != nil {
		return err
	}
	r.access, err = newAccess(ctx, r.config, r.admin, r.root)
	if err == nil {
		r.say("The operator runs, with the rights of ServiceAccount %s/%s and no others", stage.SystemNamespace, stage.ServiceAccount)
	}
	return err
}

// explain adds the operator's last words to an error, where it was the operator that
// ended.
func (r *runner) explain(err error) error {
	if r.operator != nil && r.operator.HasEnded() {
		return errors.Join(err, r.operator.Failure())
	}
	return err
}

// cleanUp ends what was started, the operator first, and removes the folder. After a
// failure the logs stay.
func (r *runner) cleanUp(failed bool) {
	r.operator.Stop(30 * time.Second)
	if r.cluster != nil {
		r.cluster.Stop(30 * time.Second)
	}
	switch {
	case r.options.dir != "":
		r.say("All has ended; kept is %s", r.dir)
	case failed:
		if r.cluster != nil {
			r.cluster.Clear()
		}
		if err := os.RemoveAll(filepath.Join(r.dir, rootsFolder)); err != nil {
			r.say("The tests' roots stay: %v", err)
		}
		r.say("All has ended; the logs are kept in %s", r.dir)
	default:
		if err := os.RemoveAll(r.dir); err != nil {
			r.say("All has ended, but the folder stays: %v", err)
			return
		}
		r.say("All has ended, and nothing is left behind")
	}
}

// say prints a line of progress.
func (r *runner) say(format string, args ...any) {
	fmt.Printf("%6.1fs  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster measures the operator, and VPA beside it, on a real API server with simulated nodes.
//
// Both sides get the same fleet, each on a cluster of its own, one after the other. The kernel reports
// the costs of a program's process, and the API server's audit log those of its requests.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// Stages are the stages of a run, in order. Each side always starts.
var Stages = []string{"idle", "oom", "wave"}

// Options say what to measure.
type Options struct {
	// Scalers is the number of scalers, and of VPAs. At least 100, because 40 have OOM kills.
	Scalers int
	// Idle and Wave are how long these stages last, the wave from its first change on. The wave takes whole
	// minutes, as the budget does.
	Idle, Wave time.Duration
	// Stages are those to run. Others are left out.
	Stages []string
	// Operator, Recommender and Updater are the paths of the programs. Without Recommender, VPA is left out.
	Operator, Recommender, Updater string
	Progress                       Progress

	dir string // of logs and configuration
}

// Measures are the results of one side, in seconds, bytes or counts, by name.
type Measures map[string]float64

// Results are the results of a run. A side that was not measured is empty.
type Results struct {
	Scalers, ChangesPerMinute int
	Operator, VPA             Measures
}

// Run measures both sides. If one fails, it returns the results of the other, and an error.
func Run(ctx context.Context, o Options) (out Results, err error) {
	if o.dir, err = os.MkdirTemp("", "verticalscaler-bench-"); err != nil {
		return out, fmt.Errorf("creating a folder: %w", err)
	}
	out = Results{Scalers: o.Scalers, ChangesPerMinute: AllowedInMinute(o.Scalers, Pods)}
	if out.Operator, err = o.measure(ctx, operatorSide); err != nil {
		return out, fmt.Errorf("measuring the operator (logs in %s): %w", o.dir, err)
	}
	if o.Recommender != "" {
		if out.VPA, err = o.measure(ctx, vpaSide); err != nil {
			return out, fmt.Errorf("measuring VPA (logs in %s): %w", o.dir, err)
		}
	}
	return out, os.RemoveAll(o.dir)
}

// side has the differences between the operator and VPA.
type side struct {
	name   string
	create func(*rig, context.Context) error
	start  func(*rig, Options) (programs, error)
	// sized counts the objects with a recommendation.
	sized func(*rig, context.Context) (int, error)
	// patience is how long to wait for the first larger pod after an OOM kill.
	patience time.Duration
}

var operatorSide = side{
	name:   "operator",
	create: (*rig).createScalers, start: (*rig).startOperator, sized: (*rig).sizedScalers,
	patience: time.Minute,
}

var vpaSide = side{
	name:   "VPA",
	create: (*rig).createVPAs, start: (*rig).startVPA, sized: (*rig).sizedVPAs,
	patience: 4 * time.Minute, // Its loops run once a minute.
}

// session is a side at work.
type session struct {
	Options
	*rig
	which    side
	programs programs
	observer *observer
	out      Measures
}

// measure runs the stages of a side on a cluster of its own.
func (o Options) measure(ctx context.Context, which side) (out Measures, err error) {
	ctx, endWatches := context.WithCancel(ctx)
	defer endWatches()
	progress := func(format string, args ...any) { o.Progress(which.name+": "+format, args...) }
	r, err := startRig(ctx, o.Scalers, progress)
	if err != nil {
		return nil, err
	}
	s := &session{Options: o, which: which, rig: r, out: Measures{}}
	defer func() {
		s.programs.stop()
		endWatches()
		err = errors.Join(err, r.stop())
	}()
	if err := s.begin(ctx); err != nil {
		return nil, fmt.Errorf("stage start: %w", err)
	}
	for _, stage := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"idle", s.idle}, {"oom", s.killWhileIdle}, {"wave", s.raiseAll},
	} {
		if !slices.Contains(o.Stages, stage.name) {
			continue
		}
		progress("stage %s", stage.name)
		if err := stage.run(ctx); err != nil {
			return nil, fmt.Errorf("stage %s: %w", stage.name, err)
		}
	}
	now, err := s.programs.usage()
	s.out["total cpu"], s.out["peak rss"] = now.CPU.Seconds(), now.Peak
	return s.out, err
}

// begin measures the start with the whole fleet.
func (s *session) begin(ctx context.Context) (err error) {
	if err := s.seed(ctx); err != nil {
		return err
	}
	if err := s.which.create(s.rig, ctx); err != nil {
		return err
	}
	if s.observer, err = s.observe(ctx); err != nil {
		return err
	}
	mark, began := s.env.Mark(), time.Now()
	if s.programs, err = s.which.start(s.rig, s.Options); err != nil {
		return err
	}
	if err := s.await(ctx, "recommendations", 30*time.Minute, func() (int, error) {
		if _, err := s.programs.usage(); err != nil { // A program has ended.
			return 0, err
		}
		n, err := s.which.sized(s.rig, ctx)
		return s.Scalers - n, err
	}); err != nil {
		return err
	}
	now, err := s.programs.usage()
	if err != nil {
		return err
	}
	writes, err := s.writes(mark, s.programs, isSteady)
	s.out["start seconds"], s.out["start cpu"], s.out["start writes"] = time.Since(began).Seconds(), now.CPU.Seconds(), float64(len(writes))
	return err
}

// sizedScalers counts the scalers with a recommendation.
func (r *rig) sizedScalers(ctx context.Context) (n int, err error) {
	var list v1beta1.VerticalScalerList
	if err := r.env.Client.List(ctx, &list); err != nil {
		return 0, err
	}
	for i := range list.Items {
		if rec := list.Items[i].Status.Recommendation; rec != nil && len(rec.ContainerRecommendations) == Containers {
			n++
		}
	}
	return n, nil
}

// sizedVPAs does the same for VPA.
func (r *rig) sizedVPAs(ctx context.Context) (n int, err error) {
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": vpaKind["apiVersion"], "kind": "VerticalPodAutoscalerList"}}
	if err := r.env.Client.List(ctx, list); err != nil {
		return 0, err
	}
	for i := range list.Items {
		recs, _, err := unstructured.NestedSlice(list.Items[i].Object, "status", "recommendation", "containerRecommendations")
		if err != nil {
			return 0, err
		}
		if len(recs) == Containers {
			n++
		}
	}
	return n, nil
}

// idle measures what it costs that nothing happens.
func (s *session) idle(ctx context.Context) error {
	mark := s.env.Mark()
	before, err := s.programs.usage()
	if err != nil {
		return err
	}
	if err := Pause(ctx, s.Idle); err != nil {
		return err
	}
	after, err := s.programs.usage()
	if err != nil {
		return err
	}
	writes, err := s.writes(mark, s.programs, isSteady)
	s.out["idle cpu"] = (after.CPU - before.CPU).Seconds() / s.Idle.Minutes()
	s.out["idle writes"] = float64(len(writes)) / s.Idle.Minutes()
	s.out["idle rss"] = after.RSS
	return err
}

// quantiles notes the median and the 99th percentile, and which share there is of all that should be.
func (s *session) quantiles(name string, took []time.Duration, of int) {
	slices.Sort(took)
	s.out[name+" answered"] = float64(len(took)) / float64(of)
	if len(took) > 0 {
		s.out[name+" p50"] = took[len(took)/2].Seconds()
		s.out[name+" p99"] = took[len(took)*99/100].Seconds()
	}
}

// kills is how many Deployments have an OOM kill in a stage, of two.
const kills = 20

// spared are the Deployments for the OOM kills of a stage: nothing else changes their size. They are spread over
// the fleet.
func spared(deployments, stage int) (out []int) {
	for i := range kills {
		out = append(out, (2*i+stage)*deployments/(2*kills))
	}
	return out
}

// killWhileIdle measures the time from an OOM kill until the first pod of the Deployment requests more
// memory, while the programs have nothing else to do.
func (s *session) killWhileIdle(ctx context.Context) error {
	return s.killAll(ctx, "oom", spared(s.Scalers, 0), 500*time.Millisecond)
}

func (s *session) killAll(ctx context.Context, name string, deployments []int, every time.Duration) error {
	for _, i := range deployments {
		if err := s.kill(ctx, i, name); err != nil {
			return err
		}
		if err := Pause(ctx, every); err != nil {
			return err
		}
	}
	var took []time.Duration
	count := func() int {
		took = nil
		for _, i := range deployments {
			if d, ok := s.observer.answered(i); ok && d <= s.which.patience {
				took = append(took, d)
			}
		}
		return len(took)
	}
	for deadline := time.Now().Add(s.which.patience); count() < kills && time.Now().Before(deadline); {
		if err := Pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	s.quantiles(name, took, kills)
	return nil
}

// raiseAll measures a wave: all Deployments need more at once. Containers are OOM-killed meanwhile.
func (s *session) raiseAll(ctx context.Context) error {
	mark := s.env.Mark()
	before, err := s.programs.usage()
	if err != nil {
		return err
	}
	isSpared := map[int]bool{}
	for stage := range 2 {
		for _, i := range spared(s.Scalers, stage) {
			isSpared[i] = true
		}
	}
	s.usage.raise(func(deployment int) bool { return !isSpared[deployment] })
	inWave := func(w testkit.Write) bool {
		i, ok := DeploymentOf(w.Name)
		return isChange(w) && ok && !isSpared[i]
	}
	var first time.Time
	for deadline := time.Now().Add(10 * time.Minute); first.IsZero(); {
		changes, err := s.writes(mark, s.programs, inWave)
		if err != nil {
			return err
		}
		if len(changes) > 0 {
			first = changes[0].Received
		} else if time.Now().After(deadline) {
			return errors.New("nothing was changed for 10 minutes")
		}
		if err := Pause(ctx, time.Second); err != nil {
			return err
		}
	}
	s.progress("the wave has begun")
	if err := Pause(ctx, 20*time.Second); err != nil {
		return err
	}
	if err := s.killAll(ctx, "oom in wave", spared(s.Scalers, 1), time.Second); err != nil {
		return err
	}
	end := first.Add(s.Wave)
	if err := Pause(ctx, time.Until(end)); err != nil {
		return err
	}
	changes, err := s.writes(mark, s.programs, func(w testkit.Write) bool { return inWave(w) && w.Received.Before(end) })
	if err != nil {
		return err
	}
	after, err := s.programs.usage()
	if err != nil {
		return err
	}
	needed := (s.Scalers - len(isSpared)) * Pods
	allowed := min(needed, AllowedInMinute(s.Scalers, Pods)*int(s.Wave.Minutes()))
	s.out["wave changes"], s.out["wave needed"], s.out["wave share"] = float64(len(changes)), float64(needed), float64(len(changes))/float64(allowed)
	s.out["wave cpu"] = (after.CPU - before.CPU).Seconds()
	return nil
}

// Pause waits.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// AllowedInMinute is how many changes of pods the operator's default budget allows for a fleet with that many pods of each
// Deployment. OOM kills may make some more.
func AllowedInMinute(deployments, each int) int {
	c := operatorconfig.Default().Budget
	percentOf := func(pods int) int { return pods * c.PodPercentPerMinute / 100 }
	inNamespace := max(c.ChangesPerMinutePerNamespace, percentOf(min(deployments, PerNamespace)*each))
	namespaces := (deployments + PerNamespace - 1) / PerNamespace
	return min(inNamespace*namespaces, max(c.ChangesPerMinute, percentOf(deployments*each)))
}

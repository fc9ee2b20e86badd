// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// facts are what one must know to judge a measurement.
type facts struct {
	at                    time.Time
	commit, cpu           string
	loadBefore, loadAfter string
}

func factsOf(ctx context.Context) (facts, error) {
	f := facts{at: time.Now().UTC(), loadBefore: load(), cpu: model()}
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--exclude=*").Output()
	if err != nil {
		return f, fmt.Errorf("reading the commit: %w", err)
	}
	f.commit = strings.TrimSpace(string(commit))
	return f, nil
}

// String is one line in Markdown.
func (f facts) String() string {
	return fmt.Sprintf("Measured %s, commit %s, %s, %d CPUs (%s), %s. Load average before and after: %s, %s.\n",
		f.at.Format("2006-01-02 15:04 UTC"), f.commit, runtime.GOOS+"/"+runtime.GOARCH, runtime.NumCPU(), f.cpu, runtime.Version(), f.loadBefore, f.loadAfter)
}

// model is the name of the CPU, where the system tells it.
func model() string {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return "unknown CPU"
	}
	info, err := fs.CPUInfo()
	if err != nil || len(info) == 0 {
		return "unknown CPU"
	}
	return info[0].ModelName
}

// load is the load average of the last minute, where the system tells it.
func load() string {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return "unknown"
	}
	average, err := fs.LoadAvg()
	if err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%.1f", average.Load1)
}

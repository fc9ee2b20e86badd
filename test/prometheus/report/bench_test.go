// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build prometheus

package report

import (
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
)

// BenchmarkReport reports 8 days of 5,000 containers with a sample a minute. It shows the CPU time of the plugin and of
// Prometheus besides the time on the clock, because the two share the machine, and the most memory of the plugin.
func BenchmarkReport(b *testing.B) {
	const deployments, days = 5000, 8
	plugin, prometheus := build(b), start(b, deployments, days)
	for b.Loop() {
		before := prometheus.seconds(b)
		command := exec.CommandContext(b.Context(), plugin, "report", "-A", "--from-metrics", "--prometheus="+prometheus.address,
			"--until="+until.Format(time.RFC3339), "-o=csv", "--output-file="+filepath.Join(b.TempDir(), "report.csv"))
		if out, err := command.CombinedOutput(); err != nil || len(out) > 0 {
			b.Fatalf("%v: %s", err, out)
		}
		used := command.ProcessState.SysUsage().(*syscall.Rusage)
		b.ReportMetric((command.ProcessState.UserTime() + command.ProcessState.SystemTime()).Seconds(), "plugin-cpu-s")
		b.ReportMetric(prometheus.seconds(b)-before, "prometheus-cpu-s")
		b.ReportMetric(float64(used.Maxrss)/1024, "plugin-MiB")
	}
}

// seconds is the CPU time that Prometheus has used.
func (f *recorded) seconds(b *testing.B) float64 {
	b.Helper()
	process, err := procfs.NewProc(f.server.PID())
	if err != nil {
		b.Fatal(err)
	}
	stat, err := process.Stat()
	if err != nil {
		b.Fatal(err)
	}
	return stat.CPUTime()
}

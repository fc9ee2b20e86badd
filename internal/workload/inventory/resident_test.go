// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// fleetEnv is the number of scalers that a process stores on its own.
const fleetEnv = "TEST_FLEET_SCALERS"

// BenchmarkResident measures the resident memory of a process (VmRSS) and its peak (VmHWM) after it has stored a whole
// fleet: as BenchmarkFleet, with the program and garbage. Each fleet has its own process, with the shipped memory limit,
// as app.LimitMemory sets it.
func BenchmarkResident(b *testing.B) {
	limit := shippedMemoryLimit(b) / 100 * 90
	for _, scalers := range []int{0, 1_000, 5_000, 16_667} {
		b.Run(fmt.Sprintf("scalers=%d", scalers), func(b *testing.B) {
			var now, most int
			for range b.N {
				process := exec.CommandContext(b.Context(), os.Args[0], "-test.run", "^TestStoreFleet$", "-test.v")
				process.Env = append(os.Environ(), fmt.Sprintf("%s=%d", fleetEnv, scalers), fmt.Sprintf("GOMEMLIMIT=%d", limit))
				out, err := process.CombinedOutput()
				if err != nil {
					b.Fatalf("%v: %s", err, out)
				}
				now, most = now+kibOf(b, out, "VmRSS:"), most+kibOf(b, out, "VmHWM:")
			}
			b.ReportMetric(float64(now)/float64(b.N)/(1<<10), "MiB/VmRSS")
			b.ReportMetric(float64(most)/float64(b.N)/(1<<10), "MiB/VmHWM")
			b.ReportMetric(float64(6*scalers), "containers")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// TestStoreFleet is the process of BenchmarkResident. On its own, it stores one scaler.
func TestStoreFleet(t *testing.T) {
	scalers := 1
	if text := os.Getenv(fleetEnv); text != "" {
		var err error
		if scalers, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	cluster := newEncodedCluster(t, scalers)
	cached, histories := cluster.ours(t.Context()), cluster.histories()
	status, err := os.ReadFile("/proc/self/status")
	must.Succeed(t, err)
	t.Logf("\n%s", status)
	if stored := len(cached.Pods.pods.all()); stored != 3*scalers || histories.Len() != scalers {
		t.Errorf("%d pods and %d histories are stored, not those of %d scalers", stored, histories.Len(), scalers)
	}
	runtime.KeepAlive(cached)
}

// kibOf is an amount of /proc/self/status, in KiB.
func kibOf(b *testing.B, status []byte, name string) int {
	b.Helper()
	for line := range bytes.Lines(status) {
		if words := strings.Fields(string(line)); len(words) == 3 && words[0] == name {
			kib, err := strconv.Atoi(words[1])
			must.Succeed(b, err)
			return kib
		}
	}
	b.Fatalf("no %s in %s", name, status)
	return 0
}

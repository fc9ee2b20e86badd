// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

func TestLimitMemory(t *testing.T) {
	for name, tc := range map[string]struct {
		limit, goLimit string
		want           int64
		wrong          bool
	}{
		"nothing is set":              {want: math.MaxInt64},
		"a tenth is left":             {limit: "536870912", want: 483183820},
		"a limit that was raised":     {limit: "2147483648", want: 1932735283},
		"more than any machine has":   {limit: "9223372036854775807", want: 8301034833169298226},
		"GOMEMLIMIT takes precedence": {limit: "536870912", goLimit: "1GiB", want: math.MaxInt64},
		"no number":                   {limit: "512Mi", wrong: true},
		"no limit":                    {limit: "0", wrong: true},
		"negative":                    {limit: "-1", wrong: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() { debug.SetMemoryLimit(math.MaxInt64) })
			debug.SetMemoryLimit(math.MaxInt64)
			err := LimitMemory(func(key string) string {
				return map[string]string{MemoryLimitEnv: tc.limit, "GOMEMLIMIT": tc.goLimit}[key]
			})
			if (err != nil) != tc.wrong {
				t.Fatalf("LimitMemory() = %v", err)
			}
			if got := debug.SetMemoryLimit(-1); !tc.wrong && (got > tc.want || float64(got) < 0.99*float64(tc.want)) {
				t.Errorf("Go's limit is %d, want %d", got, tc.want)
			}
		})
	}
}

func TestHowMuchGarbageIsKept(t *testing.T) {
	for gogc, want := range map[string]int{"": garbagePercent, "200": 123} { // Go has read it at the start.
		before := debug.SetGCPercent(123)
		err := LimitMemory(func(key string) string { return map[string]string{"GOGC": gogc}[key] })
		if got := debug.SetGCPercent(before); err != nil || got != want {
			t.Errorf("with GOGC=%s, garbage may take %d %% of the live heap, want %d %%, %v", gogc, got, want, err)
		}
	}
}

// In any installation, the operator knows the memory limit of its own container, also after a user
// has changed it. A GOMEMLIMIT of its own would not follow.
func TestTheContainerPassesItsMemoryLimit(t *testing.T) {
	passes := regexp.MustCompile(`- name: ` + MemoryLimitEnv + `\n +valueFrom:\n +resourceFieldRef:\n +containerName: manager\n( +divisor: "0"\n)? +resource: limits\.memory\n`)
	limits := regexp.MustCompile(`limits:\n( +cpu: .*\n)? +memory: \w+\n`)
	for _, file := range []string{"dist/install.yaml", "bundle/manifests/verticalscaler-operator.clusterserviceversion.yaml"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", file))
		must.Succeed(t, err)
		if len(passes.FindAll(text, -1)) != 1 || len(limits.FindAll(text, -1)) != 1 || strings.Contains(string(text), "GOMEMLIMIT") {
			t.Errorf("%s: the manager does not pass its memory limit in %s alone", file, MemoryLimitEnv)
		}
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package process_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/process"
)

func TestStopEndsProcesses(t *testing.T) {
	cases := map[string]struct {
		script string
		want   string // how it ended
	}{
		"that end on SIGTERM":    {script: "echo ready; exec sleep 60", want: "signal: terminated"},
		"that ignore SIGTERM":    {script: "trap '' TERM; echo ready; while :; do sleep 0.1; done", want: "signal: killed"},
		"that have ended before": {script: "echo ready; exit 3", want: "exit status 3"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread() // the child ends with the thread that started it
			defer runtime.UnlockOSThread()
			log := filepath.Join(t.TempDir(), "log")
			p, err := process.Start("a script", log, exec.Command("sh", "-c", tc.script))
			if err != nil {
				t.Fatal(err)
			}
			for content := []byte(nil); len(content) == 0; time.Sleep(time.Millisecond) { // until the script has begun
				content, _ = os.ReadFile(log)
			}
			if strings.Contains(tc.script, "exit 3") {
				<-p.Ended
			}
			p.Stop(200 * time.Millisecond)
			if !p.HasEnded() || p.Err() == nil || p.Err().Error() != tc.want {
				t.Errorf("ended: %v, %v; want %s", p.HasEnded(), p.Err(), tc.want)
			}
			if got := p.Failure().Error(); !strings.Contains(got, tc.want) || !strings.Contains(got, "  ready") {
				t.Errorf("Failure() = %q, want how it ended and what it wrote", got)
			}
		})
	}
	var none *process.Process
	none.Stop(0) // Stop of a process that was never started does nothing
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build planted

package planted

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// bug is a change of one source file, and the tests that must find it.
type bug struct {
	file     string
	from, to string // from must occur exactly once in the file
	caughtBy []tests
}

// tests are some tests of one package. At least one of them must fail.
type tests struct{ pkg, run string }

// TestPlantedBugsAreCaught plants each bug, and expects each of its tests to fail.
func TestPlantedBugsAreCaught(t *testing.T) {
	for name, planted := range bugs {
		t.Run(name, func(t *testing.T) {
			overlay := plant(t, planted)
			for _, tests := range planted.caughtBy {
				t.Run(strings.TrimPrefix(tests.pkg, "./"), func(t *testing.T) { mustFail(t, overlay, tests) })
			}
		})
	}
}

// plant returns the path of an overlay in which the file has the bug.
func plant(t *testing.T, planted bug) string {
	t.Helper()
	path := filepath.Join(testkit.Root(), planted.file)
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), planted.from); n != 1 {
		t.Fatalf("%s has %d places for this bug, want 1: %s", planted.file, n, planted.from)
	}
	dir := t.TempDir()
	changed := filepath.Join(dir, "changed.go")
	write(t, changed, []byte(strings.Replace(string(source), planted.from, planted.to, 1)))
	content, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	write(t, overlay, content)
	return overlay
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// mustFail runs the tests with the overlay. A test that passes is an error, and so is one that does
// not compile or does not exist.
func mustFail(t *testing.T, overlay string, tests tests) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-timeout=5m", "-run="+tests.run, tests.pkg)
	cmd.Dir = testkit.Root()
	// An environment variable also reaches the builds that a test starts itself.
	cmd.Env = append(os.Environ(), strings.TrimSpace("GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay))
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		t.Errorf("go %s passes: the bug is not found\n%s", strings.Join(cmd.Args[1:], " "), out)
	case !strings.Contains(string(out), "--- FAIL: "):
		t.Errorf("go %s fails, but no test of it does:\n%s", strings.Join(cmd.Args[1:], " "), out)
	default:
		for line := range strings.Lines(string(out)) {
			if strings.HasPrefix(line, "--- FAIL: ") {
				t.Log(strings.TrimSpace(line))
			}
		}
	}
}

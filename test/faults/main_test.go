// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build faults

// Package faults runs the unmodified manager as a process against a real API server, and kills it. It compares how each run
// ends with a run without faults. docs/faults.md describes it.
package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

var (
	// env is the API server that all runs share. Each has its own namespace.
	env *testkit.Env
	// manager is the path of the operator's binary.
	manager string
)

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "verticalscaler-faults-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	manager = filepath.Join(folder, "manager")
	build := exec.Command("go", "build", "-o", manager, "./cmd/operator")
	build.Dir, build.Env = testkit.Root(), append(os.Environ(), "CGO_ENABLED=0")
	build.Stderr = os.Stderr
	code := 1
	if err := build.Run(); err == nil {
		code = testkit.SteppedMain(m, &env)
	}
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build olm

package olm

import (
	"os/exec"
	"path/filepath"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/process"
)

// stopTimeout is how long a process may take to end after SIGTERM.
const stopTimeout = 30 * time.Second

// start starts a program that logs to a file with its name in the folder of the test.
func start(name string, cmd *exec.Cmd) (*process.Process, error) {
	return process.Start(name, filepath.Join(work, name+".log"), cmd)
}

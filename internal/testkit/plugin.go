// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
)

// Plugin builds kubectl-vscaler, unless it is up to date, and returns its path.
var Plugin = sync.OnceValues(func() (binary string, err error) {
	binary = filepath.Join(Root(), "bin", "test", "kubectl-vscaler")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "./cmd/kubectl-vscaler")
	build.Dir = Root()
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the plugin: %w: %s", err, out)
	}
	return binary, nil
})

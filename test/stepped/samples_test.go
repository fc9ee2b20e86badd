// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package stepped

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// The samples can be applied together and alone, beside the admission policies.
func TestTheSamplesCanBeApplied(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(testkit.Root(), "config", "samples", "*.yaml"))
	if err != nil || len(files) < 5 {
		t.Fatalf("%d samples, %v", len(files), err)
	}
	for _, file := range files {
		from := "--filename=" + file
		if filepath.Base(file) == "kustomization.yaml" {
			from = "--kustomize=" + filepath.Dir(file)
		}
		for _, command := range []string{"apply", "delete"} {
			if out, err := exec.CommandContext(t.Context(), env.Kubectl(), "--kubeconfig", env.Kubeconfig(), command, from).CombinedOutput(); err != nil {
				t.Errorf("kubectl %s %s: %v: %s", command, from, err, out)
			}
		}
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"path/filepath"
	"strings"
	"testing"
)

// This test has no build tag.
func TestNoClusterIsStartedWithoutABuildTag(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "nowhere") // A cluster that starts after all fails fast.
	t.Setenv(assetsVariable, nowhere)
	t.Setenv(kubeconfigVariable, nowhere)
	t.Setenv(binaryVariable, nowhere)
	for name, start := range map[string]func() (*Env, error){
		"Start": Start, "StartCluster": StartCluster, "StartClusterWith": func() (*Env, error) { return StartClusterWith(ClusterOptions{}) },
	} {
		if _, err := start(); err == nil || !strings.Contains(err.Error(), "without a build tag may not") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

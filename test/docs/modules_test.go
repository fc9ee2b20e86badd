// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A newcomer runs the demo and the tests. Go compiles their common dependencies once if the operator and the cluster have them in
// the same version. The benchmarks have other versions of some, but those of Kubernetes.
func TestModulesHaveTheSameDependencies(t *testing.T) {
	t.Parallel()
	operator := requirements(t, "go.mod")
	for module, prefix := range map[string]string{"hack/cluster/go.mod": "", "test/libraries/go.mod": "", "bench/go.mod": "k8s.io/a"} {
		shared := 0
		for path, version := range requirements(t, module) {
			ours, isShared := operator[path]
			if !isShared || !strings.HasPrefix(path, prefix) {
				continue
			}
			if shared++; version != ours {
				t.Errorf("%s requires %s %s, and go.mod requires %s", module, path, version, ours)
			}
		}
		if shared == 0 {
			t.Errorf("%s has no dependency of go.mod", module)
		}
	}
}

// requirements are the versions that a go.mod file requires, by module.
func requirements(t *testing.T, file string) map[string]string {
	t.Helper()
	versions := map[string]string{}
	text, _, _ := strings.Cut(read(t, filepath.Join(root, filepath.FromSlash(file))), "\nexclude (")
	for _, match := range regexp.MustCompile(`(?m)^(?:\t|require )(\S+) (v\S+)`).FindAllStringSubmatch(text, -1) {
		versions[match[1]] = match[2]
	}
	return versions
}

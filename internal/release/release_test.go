// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package release_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/release"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

func TestInstall(t *testing.T) {
	const downloads = "https://github.com/verticalscaler/verticalscaler-operator/releases"
	for _, tc := range []struct {
		release release.Release
		file    string
		want    string
	}{
		{release.Release{}, release.NewPods, "kubectl apply --server-side -f " + downloads + "/latest/download/new-pods.yaml"},
		{release.Release{Version: "v0.1.0-dev"}, release.NewPods, "kubectl apply --server-side -f dist/new-pods.yaml"},
		{
			release.Release{Version: "devel", Namespace: "operators"},
			release.Policies,
			"cat dist/policies.yaml | sed 's/namespace: .*/namespace: operators/' | kubectl apply --server-side -f -",
		},
		{release.Release{Version: "v0.1.0", Namespace: "operators"}, release.NewPods, "kubectl apply --server-side -f " + downloads + "/download/v0.1.0/new-pods.yaml"},
		{release.Release{Version: "v0.1.0", Namespace: "verticalscaler-system"}, release.Recreate, "kubectl apply --server-side -f " + downloads + "/download/v0.1.0/recreate.yaml"},
		{
			release.Release{Version: "v0.1.0", Namespace: "operators"},
			release.Recreate,
			"curl -sSL " + downloads + "/download/v0.1.0/recreate.yaml | sed 's/namespace: .*/namespace: operators/' | kubectl apply --server-side -f -",
		},
		{
			release.Release{Namespace: "operators"},
			release.Policies,
			"curl -sSL " + downloads + "/latest/download/policies.yaml | sed 's/namespace: .*/namespace: operators/' | kubectl apply --server-side -f -",
		},
	} {
		if got := tc.release.Install(tc.file); got != tc.want {
			t.Errorf("%+v: %s\nwant %s", tc.release, got, tc.want)
		}
	}
}

// Only the files whose commands name a namespace have one, and each of them just the service account's.
func TestTheFilesAreAsTheCommandsExpect(t *testing.T) {
	for file, namespaces := range map[string]int{release.NewPods: 0, release.AdmissionPolicies: 0, release.Recreate: 1, release.Policies: 1} {
		text, err := os.ReadFile(filepath.Join("..", "..", "dist", file))
		must.Succeed(t, err)
		if got := strings.Count(string(text), "  namespace: "); got != namespaces || strings.Count(string(text), "kind: ServiceAccount") != namespaces {
			t.Errorf("%s has %d namespaces, want %d", file, got, namespaces)
		}
	}
}

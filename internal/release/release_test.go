// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package release_test

import (
	"os"
	"path/filepath"
	"slices"
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

// The list, the messages that the operator reads, and the label have what the manifests have.
func TestTheAdmissionPoliciesHaveTheVersionOfTheRelease(t *testing.T) {
	text := func(file string) string {
		content, err := os.ReadFile(filepath.Join("..", "..", "config", filepath.FromSlash(file)))
		must.Succeed(t, err)
		return string(content)
	}
	_, version, _ := strings.Cut(text("manager/kustomization.yaml"), "newTag: ")
	version, _, _ = strings.Cut(version, "\n")
	const component = "components/admission-policies/"
	_, resources, _ := strings.Cut(text(component+"kustomization.yaml"), "resources:\n")
	var names []string
	for line := range strings.Lines(resources) {
		if file, ok := strings.CutPrefix(strings.TrimSpace(line), "- "); ok && strings.HasSuffix(file, ".yaml") {
			names = append(names, "verticalscaler-"+strings.ReplaceAll(strings.TrimSuffix(file, ".yaml"), "_", "-"))
		}
	}
	if !slices.Equal(names, release.AdmissionPolicyNames) {
		t.Errorf("the component has %q, the list %q", names, release.AdmissionPolicyNames)
	}
	for file, want := range map[string]string{
		"kustomization.yaml": release.VersionLabel + ": " + version + "}", "operator_objects.yaml": "(policies " + version + ")", "operator_deployments.yaml": "(policies " + version + ")",
	} {
		if strings.Count(text(component+file), want) != 1 {
			t.Errorf("%s has no %q", file, want)
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

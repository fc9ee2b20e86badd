// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// A releaseTree is a repository with what the scripts of a release read, as version 0.1.0, which is not released.
type releaseTree struct {
	t    *testing.T
	root string
}

func newReleaseTree(t *testing.T) releaseTree {
	t.Helper()
	r := releaseTree{t, t.TempDir()}
	for _, name := range []string{"hack/version.sh", "hack/releasable.sh"} {
		r.write(name, read(t, filepath.Join(root, filepath.FromSlash(name))))
	}
	r.write("config/manager/kustomization.yaml", "images:\n- name: manager\n  newName: example.com/scaler-operator\n  newTag: v0.1.0\n")
	r.write("config/components/admission-policies/one.yaml", "labels: {app.kubernetes.io/version: v0.1.0}\nmessage: no (policies v0.1.0)\napiVersion: v0.1.00\n")
	r.write("config/manifests/bases/verticalscaler-operator.clusterserviceversion.yaml", "metadata:\n  annotations:\n    createdAt: \"2026-01-02T00:00:00Z\"\n")
	r.write("catalog/verticalscaler-operator.yaml", "candidate:\n  bundles:\n    - image: example.com/scaler-operator-bundle:v0.1.0\n"+
		"fast:\n  bundles:\n    - image: example.com/scaler-operator-bundle:v0.1.0\nstable:\n  bundles:\n    - image: example.com/scaler-operator-bundle:v0.1.0\n")
	r.write("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n\n* A new thing.\n\n[Unreleased]: https://example.com/commits/main\n")
	r.write("bundle/manifests/released.yaml", "kind: Released\n")
	r.write("examples/one/go.mod", "module one\n\nrequire github.com/verticalscaler/verticalscaler-operator/api v0.1.0\n")
	r.git("init", "-q", ".")
	r.commit()
	return r
}

func (r releaseTree) write(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.root, filepath.FromSlash(name))
	must.Succeed(r.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Succeed(r.t, os.WriteFile(path, []byte(text), 0o755))
}

func (r releaseTree) read(name string) string {
	r.t.Helper()
	return read(r.t, filepath.Join(r.root, filepath.FromSlash(name)))
}

func (r releaseTree) git(args ...string) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...)
	cmd.Dir = r.root
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func (r releaseTree) commit() {
	r.t.Helper()
	r.git("add", "-A")
	r.git("commit", "-q", "-m", "change")
}

// run runs a script, which must say these words if it fails. No words mean that it must succeed.
func (r releaseTree) run(script, version, words string) {
	r.t.Helper()
	out, err := exec.CommandContext(r.t.Context(), filepath.Join(r.root, "hack", script), version).CombinedOutput()
	switch {
	case words == "" && err != nil:
		r.t.Fatalf("%s %s: %v\n%s", script, version, err, out)
	case words != "" && (err == nil || !strings.Contains(string(out), words)):
		r.t.Fatalf("%s %s: %v, %q; want %q", script, version, err, out, words)
	}
}

func TestTheFirstVersionIsMadeAndReleased(t *testing.T) {
	r := newReleaseTree(t)
	r.run("releasable.sh", "0.1.0", "CHANGELOG.md has no entry '## [0.1.0] - DATE'")
	r.run("version.sh", "0.1.0", "")
	r.run("releasable.sh", "0.1.0", "these files differ from the commit")
	r.commit()
	r.run("releasable.sh", "0.1.0", "")
	r.git("tag", "v0.1.0")
	r.run("releasable.sh", "0.1.0", "") // the tagged commit itself
	if text := r.read("CHANGELOG.md"); !regexp.MustCompile(`(?s)## \[Unreleased\]\n\n## \[0\.1\.0\] - 2\d{3}-\d\d-\d\d\n\n\* A new thing\.`).MatchString(text) {
		t.Errorf("the changelog is\n%s", text)
	}
	r.write("more.md", "After the release.\n")
	r.commit()
	r.run("releasable.sh", "0.1.0", "0.1.0 has been released: the tag v0.1.0 is another commit")
	r.run("version.sh", "0.1.0", "0.1.0 has been released: the tag v0.1.0 exists")
}

func TestALaterVersionKeepsTheReleasedBundle(t *testing.T) {
	r := newReleaseTree(t)
	r.git("tag", "v0.1.0")
	r.write("bundle/manifests/released.yaml", "kind: Changed\n")
	r.commit()
	r.run("releasable.sh", "0.2.0", "this tree is version 0.1.0. Run 'make version VERSION=0.2.0'")
	r.run("version.sh", "0.0.9", "0.0.9 is older than 0.1.0")
	r.run("version.sh", "0.2.0", "")
	r.commit()
	r.run("releasable.sh", "0.2.0", "")
	if got := r.read("catalog/bundles/v0.1.0/manifests/released.yaml"); got != "kind: Released\n" {
		t.Errorf("the kept bundle is %q", got)
	}
	want := "candidate:\n  bundles:\n    - image: example.com/scaler-operator-bundle:v0.1.0\n    - image: example.com/scaler-operator-bundle:v0.2.0\nfast:"
	if got := r.read("catalog/verticalscaler-operator.yaml"); !strings.HasPrefix(got, want) || strings.Count(got, "v0.2.0") != 1 {
		t.Errorf("the channels are\n%s", got)
	}
	if got := r.read("config/manager/kustomization.yaml"); !strings.HasSuffix(got, "newTag: v0.2.0\n") {
		t.Errorf("the version is\n%s", got)
	}
	if got := r.read("config/components/admission-policies/one.yaml"); got != "labels: {app.kubernetes.io/version: v0.2.0}\nmessage: no (policies v0.2.0)\napiVersion: v0.1.00\n" {
		t.Errorf("the admission policies are of\n%s", got)
	}
	if got := r.read("examples/one/go.mod"); !strings.HasSuffix(got, "verticalscaler-operator/api v0.2.0\n") {
		t.Errorf("the module is\n%s", got)
	}
	r.run("version.sh", "0.3.0", "CHANGELOG.md has no entry under Unreleased")
}

// A version that was only planned is in no catalog. Without a channel, a version cannot be released.
func TestAnUnreleasedVersionIsRenamed(t *testing.T) {
	r := newReleaseTree(t)
	r.run("version.sh", "0.1.1", "")
	if got := r.read("catalog/verticalscaler-operator.yaml"); strings.Contains(got, "v0.1.0") || strings.Count(got, "v0.1.1") != 3 {
		t.Errorf("the channels are\n%s", got)
	}
	r.write("catalog/verticalscaler-operator.yaml", "candidate:\n  bundles: []\n")
	r.run("releasable.sh", "0.1.1", "has no channel with 0.1.1")
}

func TestAMalformedVersionIsRefused(t *testing.T) {
	r := newReleaseTree(t)
	for _, version := range []string{"", "v0.1.0", "0.1", "0.1.0-rc1", "01.0.0", "0.1.0 "} {
		for _, script := range []string{"version.sh", "releasable.sh"} {
			r.run(script, version, "VERSION is '"+version+"', want three numbers without v")
		}
	}
	r.write("catalog/bundles/v0.1.0/metadata", "")
	r.run("releasable.sh", "0.1.0", "0.1.0 is an older version")
}

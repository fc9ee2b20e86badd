// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build sdk

package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// These tests run operator-sdk itself, as catalogs do. "make bundle-validate" builds it and
// sets OPERATOR_SDK to its path.

// accepted maps messages that do not concern the bundle, by their exact text, to the
// reason. Any other message fails the test.
var accepted = map[string]string{
	`Warning: Value : The "operatorhub" validator is deprecated; for equivalent validation use "operatorhub/v2", ` +
		`"standardcapabilities" and "standardcategories" validators`: "catalogs still run the validator by that name",
	"The Optional(stage: alpha) Community Operator bundle validator is deprecated and will be removed in a future release. " +
		"You can do these checks using the external validator: " +
		"https://github.com/redhat-openshift-ecosystem/ocp-olm-catalog-validator/": "it is about the validator",
}

// manifestList names the platforms that a release builds the image for.
const manifestList = `{"manifests": [
	{"platform": {"os": "linux", "architecture": "amd64"}},
	{"platform": {"os": "linux", "architecture": "arm64"}}
]}`

func TestTheSDKAcceptsTheBundle(t *testing.T) {
	selectors := append([]string{"", "suite=operatorframework"}, optionalValidators(t)...)
	if len(selectors) < 10 {
		t.Errorf("there are only these validators: %v", selectors)
	}
	for _, selector := range selectors {
		t.Run("selector "+selector, func(t *testing.T) {
			messages, err := sdkValidate(t, inTree("bundle"), selector)
			if err != nil {
				t.Error(err)
			}
			for _, m := range messages {
				if reason, ok := accepted[m]; ok {
					t.Logf("accepted, since %s: %s", reason, m)
				} else {
					t.Error(m)
				}
			}
		})
	}
}

func TestTheSDKRefusesBrokenBundles(t *testing.T) {
	count := 0
	for name, tc := range breakages {
		if tc.sdk == "" {
			continue
		}
		count++
		t.Run(name, func(t *testing.T) {
			// The selector matches every validator with a name.
			messages, err := sdkValidate(t, breakBundle(t, tc.how), "name")
			if !contains(messages, tc.sdk) {
				t.Errorf("want %q, got %s, error %v", tc.sdk, listed(messages), err)
			}
		})
	}
	if count < 10 {
		t.Errorf("operator-sdk was asked about %d broken bundles only", count)
	}
}

// Releases and upgrade tests generate bundles of other versions, next to the tree's bundle.
func TestABundleOfAnotherVersion(t *testing.T) {
	kustomize, err := filepath.Abs(os.Getenv("KUSTOMIZE"))
	if err != nil || os.Getenv("KUSTOMIZE") == "" {
		t.Fatal("KUSTOMIZE does not say where kustomize is: run make bundle-validate")
	}
	base := inTree("config", "manifests", "bases", "verticalscaler-operator.clusterserviceversion.yaml")
	before, err := os.ReadFile(base)
	if err != nil {
		t.Fatal(err)
	}
	image := "registry.example.com:5000/operators/vs@sha256:" + strings.Repeat("0123456789abcdef", 4)
	dir := filepath.Join(t.TempDir(), "next")
	cmd := exec.Command(inTree("hack", "bundle.sh"), "1.2.3-rc.1", image, dir)
	cmd.Env = append(os.Environ(), "OPERATOR_SDK="+sdk(t), "KUSTOMIZE="+kustomize)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if complaints := Complaints(dir); len(complaints) > 0 {
		t.Error(listed(complaints))
	}
	b, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := b.deployments()[0].Spec.Template.Spec.Containers[0].Image
	if b.CSV.Name != "verticalscaler-operator.v1.2.3-rc.1" || got != image {
		t.Errorf("%s runs %s", b.CSV.Name, got)
	}
	after, err := os.ReadFile(base)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) {
		t.Error("the base of the tree's bundle has changed")
	}
}

// optionalValidators are selectors for each validator that operator-sdk knows.
func optionalValidators(t testing.TB) (selectors []string) {
	t.Helper()
	out, err := exec.Command(sdk(t), "bundle", "validate", "--list-optional").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "name=") {
				selectors = append(selectors, word)
			}
		}
	}
	return selectors
}

// sdkValidate runs "operator-sdk bundle validate". It returns the output, and an error if
// the bundle is rejected.
func sdkValidate(t testing.TB, dir, selector string) (messages []string, err error) {
	t.Helper()
	args := []string{
		"bundle", "validate", dir, "-o", "json-alpha1",
		"--optional-values=k8s-version=1.34",
		"--optional-values=index-path=" + dir + ".Dockerfile",
		"--optional-values=container-tools=docker",
	}
	if selector != "" {
		args = append(args, "--select-optional", selector)
	}
	cmd := exec.Command(sdk(t), args...)
	cmd.Env = append(os.Environ(), "PATH="+engine(t)+string(filepath.ListSeparator)+os.Getenv("PATH"))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	var result struct {
		Passed  bool `json:"passed"`
		Outputs []struct {
			Message string `json:"message"`
		} `json:"outputs"`
	}
	// If the bundle cannot be read, there is only a message, and no result.
	if json.Unmarshal(stdout.Bytes(), &result) == nil {
		for _, o := range result.Outputs {
			messages = append(messages, o.Message)
		}
		if err == nil && !result.Passed {
			err = errors.New("the bundle has not passed")
		}
	}
	for line := range strings.Lines(stderr.String()) {
		if _, text, found := strings.Cut(line, " msg="); found && !strings.Contains(line, "level=info") {
			messages = append(messages, strings.Trim(strings.TrimSpace(text), `"`))
		}
	}
	slices.Sort(messages)
	return messages, err
}

func sdk(t testing.TB) string {
	t.Helper()
	path, err := filepath.Abs(os.Getenv("OPERATOR_SDK"))
	if err != nil || os.Getenv("OPERATOR_SDK") == "" {
		t.Fatal("OPERATOR_SDK does not say where operator-sdk is: run make bundle-validate")
	}
	return path
}

// engine creates a fake docker for the validator that compares the image with the labels
// and the affinity: the image of this version may not have been pushed yet.
func engine(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	script := "#!/bin/sh\n[ \"$1\" = pull ] || cat <<'END'\n" + manifestList + "\nEND\n"
	if err := os.WriteFile(filepath.Join(dir, "docker"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

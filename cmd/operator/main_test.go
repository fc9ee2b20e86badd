// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/x509"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// inImage is the environment variable of a child without files of the system.
const inImage = "TEST_WITHOUT_SYSTEM_ROOTS"

// root is the root of the repository.
var root = filepath.Join("..", "..")

// The image has no certificates of a system. The program brings its own.
func TestPublicCertificatesAreVerifiedInTheImage(t *testing.T) {
	if os.Getenv(inImage) != "" {
		pool, err := x509.SystemCertPool()
		must.Succeed(t, err)
		if pool.Equal(x509.NewCertPool()) {
			t.Fatal("there are no roots")
		}
		fmt.Println("there are roots")
		return
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	child.Env = append(os.Environ(), inImage+"=1", "SSL_CERT_FILE="+nowhere, "SSL_CERT_DIR="+nowhere)
	if out, err := child.CombinedOutput(); err != nil || !strings.Contains(string(out), "there are roots") {
		t.Errorf("without the system's files: %v\n%s", err, out)
	}
}

// The program follows the memory limit that its container passes.
func TestTheMemoryLimitIsRead(t *testing.T) {
	arguments, flags := os.Args, flag.CommandLine
	defer func() { os.Args, flag.CommandLine = arguments, flags }()
	os.Args, flag.CommandLine = []string{"operator"}, flag.NewFlagSet("operator", flag.ContinueOnError)
	t.Setenv("GOMEMLIMIT", "")
	t.Setenv("MEMORY_LIMIT", "many")
	if err := run(); err == nil || !strings.Contains(err.Error(), `MEMORY_LIMIT must be a positive number of bytes, not "many"`) {
		t.Errorf("run() = %v", err)
	}
}

// A release must not bring roots that browsers no longer trust: docs/release.md has the
// command that updates them.
func TestTheRootsAreAsNewAsTheRelease(t *testing.T) {
	find := func(pattern, file string) string {
		t.Helper()
		text, err := os.ReadFile(file)
		must.Succeed(t, err)
		found := regexp.MustCompile(pattern).FindSubmatch(text)
		if found == nil {
			t.Fatalf("%s has no %s", file, pattern)
		}
		return string(found[1])
	}
	roots, err := time.Parse("20060102150405", find(`x509roots/fallback v0\.0\.0-(\d{14})-`, filepath.Join(root, "go.mod")))
	must.Succeed(t, err)
	release, err := time.Parse(time.RFC3339, find(`createdAt: "?([^"\n]+)"?\n`, filepath.Join(root, "config", "manifests", "bases", "verticalscaler-operator.clusterserviceversion.yaml")))
	must.Succeed(t, err)
	if age := release.Sub(roots); age > 180*24*time.Hour {
		t.Errorf("the certificate authorities are %d days older than the release", int(age.Hours()/24))
	}
}

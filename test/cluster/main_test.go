// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

// Package cluster holds the scenarios: the running operator on a whole control plane,
// where the real controllers make, replace and collect the pods, and where nodes
// played by kwok resize them, put resizes off and kill containers.
//
// The operators have the rights of the installed service account and no others, and the
// admission policies look at all that they write.
//
// Usage is dictated by the test, and each round of it counts as a minute. Nothing
// here waits for a fixed time, and no test rests on the periodic resync unless it
// says so. The operator of a test watches the test's namespace only, so that tests
// run side by side.
package cluster

import (
	"flag"
	"os"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// env is the cluster that all tests share. Each test has its own namespace.
var env *testkit.Env

// atOnce is the number of tests that run side by side. They wait for the cluster
// most of the time, so it is more than there are cores.
const atOnce = "6"

// logVariable, set to anything, makes the operators log to stderr.
const logVariable = "VERTICALSCALER_TEST_LOG"

func TestMain(m *testing.M) {
	flag.Parse()
	isSet := false
	flag.Visit(func(f *flag.Flag) { isSet = isSet || f.Name == "test.parallel" })
	if !isSet {
		if err := flag.Set("test.parallel", atOnce); err != nil {
			panic(err)
		}
	}
	logger := logr.Discard()
	if os.Getenv(logVariable) != "" {
		logger = zap.New(zap.UseDevMode(true), zap.WriteTo(os.Stderr))
	}
	ctrl.SetLogger(logger)
	os.Exit(testkit.InstalledMain(m, &env))
}

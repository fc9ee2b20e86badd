// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

// Package cluster tests the running operator on a whole control plane. The real controllers
// create, replace and delete the pods. kwok simulates nodes that resize the pods, defer
// resizes and kill containers.
//
// The operators have exactly the rights of the installed service account, and the admission
// policies check all their writes.
//
// The tests control the usage, and each round of usage counts as a minute. No test waits
// for a fixed time, and no test depends on the periodic resync unless it says so. The
// operator of a test watches only the test's namespace, so that tests run in parallel.
package cluster

import (
	"flag"
	"os"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// env is the cluster that all tests share. Each test has its own namespace.
var env *testkit.Env

// atOnce is the number of parallel tests. They mostly wait for the cluster, so it exceeds
// the number of cores.
const atOnce = "6"

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", atOnce); err != nil { // A flag of the command line comes later.
		panic(err)
	}
	os.Exit(testkit.InstalledMain(m, &env))
}

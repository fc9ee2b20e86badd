// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package integration tests with a real API server: what it accepts and rejects, and which
// events make the running manager reconcile.
package integration

import (
	"os"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// env is the API server that all tests share. Each test has its own namespace.
var env *testkit.Env

func TestMain(m *testing.M) { os.Exit(testkit.Main(m, &env)) }

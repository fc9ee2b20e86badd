// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package integration holds the tests against a real API server: what it accepts and
// refuses, and whether the running manager is woken by what it should be.
package integration

import (
	"os"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// env is the API server that all tests share. Each test has its own namespace.
var env *testkit.Env

func TestMain(m *testing.M) { os.Exit(testkit.Main(m, &env)) }

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package apiserver tests the operator against a real API server, step by step: the test says when time passes, and
// controllers and kubelets are scripts (test/world). The operator has exactly the rights of the installed service
// account, the admission policies check its writes, and a monitor checks what it promises.
package apiserver

import (
	"os"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// env is the API server that all tests share. Each test has its own namespace.
var env *testkit.Env

func TestMain(m *testing.M) { os.Exit(testkit.SteppedMain(m, &env)) }

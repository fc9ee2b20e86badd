// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package stepped

import (
	"os"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// env is the API server that all tests share. Each test has its own namespace.
var env *testkit.Env

func TestMain(m *testing.M) { os.Exit(testkit.SteppedMain(m, &env)) }

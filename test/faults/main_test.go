// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build faults

// Package faults runs the unmodified manager against a real control plane, kills it, and disturbs what it sees. It compares
// how each run ends with a run without faults. docs/faults.md describes it.
package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/test/faults/internal/operator"
)

var (
	env *testkit.Env
	// manager is the path of the operator's binary.
	manager string
	results = &table{}
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard()) // the operators have logs of their own
	code, err := prepareAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func prepareAndRun(m *testing.M) (code int, err error) {
	folder, err := os.MkdirTemp("", "verticalscaler-faults-")
	if err != nil {
		return 1, fmt.Errorf("creating a folder for the manager: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	if manager, err = operator.Build(context.Background(), folder); err != nil {
		return 1, err
	}
	if env, err = testkit.StartCluster(); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, env.Stop()) }()
	code = m.Run()
	results.print(os.Stdout)
	return code, nil
}

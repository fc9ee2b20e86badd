// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vpa holds no code, only tests and benchmarks beside the Vertical Pod Autoscaler's
// own library: that internal/backtest/vpa gives the same answers, and that a container
// costs no more here. It is a module of its own, so that the operator does not depend on
// that library.
package vpa

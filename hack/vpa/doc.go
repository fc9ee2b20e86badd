// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vpa holds no code, only tests and benchmarks beside the Vertical Pod Autoscaler's
// own library: that internal/backtest/vpa answers what it answers, and what a container
// costs here and there. It is a module of its own, so that the operator does not depend on
// that library.
package vpa

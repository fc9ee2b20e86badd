// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vpa holds no code, only tests: that internal/backtest/vpa answers what the
// Vertical Pod Autoscaler's own library answers. It is a module of its own, so that the
// operator does not depend on that library.
package vpa

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vpa contains only tests that use the library of the Vertical Pod Autoscaler. They check that
// internal/backtest/vpa returns the same results. It is a separate module, so that the operator does not depend on
// that library.
package vpa

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bundle tests what the validators of operator-sdk do not check of the bundle: its examples, its rights, its
// links and its architectures.
package bundle

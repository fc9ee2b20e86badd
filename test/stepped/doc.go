// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stepped tests the operator step by step: the test says when time passes, and controllers and kubelets are scripts
// (test/world). Most tests run on an API server in memory. Tests about schema, rights, admission or other clients need a real
// one, and have the build tag integration. The operator has exactly the rights of the installed service account there, and the
// admission policies check its writes.
package stepped

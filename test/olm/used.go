// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package olm installs, upgrades and removes the operator with the real Operator
// Lifecycle Manager, on a whole control plane.
//
// OLM's two controllers and the catalog server are processes of the test. Workloads run on
// simulated kwok nodes. The operator's pod runs on another node, whose kubelet is the test
// (kubelet_test.go). Its process gets exactly what OLM specifies in the pod: an empty root
// directory with the volumes, the environment and the service account's token. So the
// operator has exactly the rights that OLM granted, and the Deployment is available when
// its probes succeed.
//
// The tests have the build tag olm; make test-olm runs them.
package olm

import _ "embed"

// RBACUsed records the rights that the operator uses: a list of group, resource, verbs and
// scope (Namespaced or Cluster). The scorecard compares it with the rights in the bundle.
//
//go:embed testdata/rbac-used.yaml
var RBACUsed []byte

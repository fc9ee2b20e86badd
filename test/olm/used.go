// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package olm installs, upgrades and removes the operator with the real Operator
// Lifecycle Manager, on a whole control plane.
//
// OLM's two controllers and the server of the catalog are processes of the test.
// Workloads run on nodes that kwok plays. The operator's own pod runs on one further
// node whose kubelet is the test (kubelet_test.go): what OLM asks for in the pod is
// what the process gets, an empty root directory with the volumes, the environment and
// the service account's token, and nothing else. So the operator has exactly the rights
// that OLM gave it, and the Deployment is available when its probes succeed.
//
// The tests have the build tag olm; make test-olm runs them.
package olm

import _ "embed"

// RBACUsed records the rights that the operator uses: a list of group, resource, verbs
// and scope (Namespaced or Cluster). The scorecard compares it with the rights that
// the bundle asks for.
//
//go:embed testdata/rbac-used.yaml
var RBACUsed []byte

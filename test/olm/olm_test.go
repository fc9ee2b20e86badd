// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build olm

package olm

import "testing"

// TestOLM covers the life cycle of the operator under OLM. The scenarios share the cluster
// and its CRDs, so they run one after the other. Each begins and ends without the operator.
// The last one checks the rights that all of them have used.
func TestOLM(t *testing.T) {
	t.Run("AllNamespaces", allNamespaces)
	t.Run("OwnNamespace", ownNamespace)
	t.Run("SingleNamespace", singleNamespace)
	t.Run("MultiNamespace", multiNamespace)
	t.Run("Upgrade", upgrade)
	t.Run("Uninstall", uninstall)
	t.Run("UninstallInTheWrongOrder", uninstallInTheWrongOrder)
	t.Run("Rights", rights)
}

// scenarios is the number of scenarios before Rights, with TestNewPods and TestRecreate; passed is how many of them passed.
const scenarios = 9

var passed int

// counted counts the scenario as passed, once it has.
func counted(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if !t.Failed() {
			passed++
		}
	})
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

// packageName is the name of the package in all catalogs, and of our folder in the hubs.
const packageName = "verticalscaler-operator"

// hubs are the repositories that take bundles. The hub community-operators can have file-based catalogs, too, but not for a first
// version: its workflow operator_fbc_validate.yaml renders a template that does not exist before the first release. So its
// catalog follows the bundle's channels, as it does for the other operators there.
var hubs = []string{"community-operators", "community-operators-prod"}

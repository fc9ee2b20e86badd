// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "regexp"

// packageName is the name of the package in all catalogs, and of our folder in the hubs.
const packageName = "verticalscaler-operator"

// A hub is a repository that takes bundles.
type hub struct {
	name string
	// catalogs are the names that ci.yaml may give to catalogs.
	catalogs *regexp.Regexp
	// registries are the prefixes that images of bundles must have in catalogs: allowed_bundle_registries in the config.yaml of
	// the hub. None means any.
	registries []string
	// rendersTemplates says whether each pull request with a ci.yaml renders the templates that it names.
	rendersTemplates bool
}

// The hub community-operators can have file-based catalogs, too, but not for a first version: its workflow
// operator_fbc_validate.yaml renders a template that does not exist before the first release. So its catalog follows the
// bundle's channels, as it does for the other operators there.
var hubs = []hub{
	{name: "community-operators", catalogs: regexp.MustCompile(`^latest$`), rendersTemplates: true},
	{
		name:       "community-operators-prod",
		catalogs:   regexp.MustCompile(`^v4\.(1[2-9]|2[0-2])$`),
		registries: []string{"quay.io/community-operator-pipeline-prod/", "quay.io/openshift-community-operators/"},
	},
}

// image is the name that the hub gives to the bundle's image: it builds the image itself.
func (h hub) image(tag string) string {
	registry := "quay.io/operatorhubio/"
	if len(h.registries) > 0 {
		registry = h.registries[0]
	}
	return registry + packageName + tag
}

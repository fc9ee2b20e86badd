// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/yaml"
)

// What ci.yaml and release-config.yaml may say.
var configRules = []rule{
	{
		name: "ci.yaml obeys its schema", source: static + "common/operator.py check_schema_operator_ci_config",
		check: func(s *submission) []string { return ciSchema.problems("ci.yaml", s.config) },
	},
	{
		name: "each catalog has one template", source: static + "common/operator.py check_catalog_usage_ci_config",
		check: catalogUsage,
	},
	{
		name: "the hub has the catalogs", source: "k8s-operatorhub/community-operators docs/contributing-fbc.md, Differences from community-operators-prod",
		check: knownCatalogs,
	},
	{
		name: "ci.yaml names the update graph", source: static + "community/operator.py check_ci_upgrade_graph",
		applies: withoutCatalog, check: updateGraph,
	},
	{
		name: "each named template exists", source: "k8s-operatorhub/community-operators .github/workflows/operator_fbc_validate.yaml fbc-validate",
		applies: func(s *submission) bool { return s.hub.rendersTemplates }, check: renderedTemplates,
	},
	{
		name: "release-config.yaml obeys its schema", source: static + "common/bundle.py check_validate_schema_bundle_release_config",
		applies: withBundle, check: releaseConfigSchema,
	},
	{
		name: "release-config.yaml fits ci.yaml", source: static + "common/bundle.py check_bundle_release_config",
		applies: withBundle, check: releaseConfigFits,
	},
}

// A mapping is one of fbc.catalog_mapping in ci.yaml.
type mapping struct {
	Template string   `json:"template_name"`
	Catalogs []string `json:"catalog_names"`
	Type     string   `json:"type"`
}

func (s *submission) mappings() (mappings []mapping) {
	data, err := yaml.Marshal(lookup(s.config, "fbc", "catalog_mapping"))
	if err != nil || yaml.Unmarshal(data, &mappings) != nil {
		return nil // the rule about the schema says why
	}
	return mappings
}

func catalogUsage(s *submission) (out []string) {
	templates := map[string][]string{}
	for _, m := range s.mappings() {
		for _, catalog := range m.Catalogs {
			templates[catalog] = append(templates[catalog], m.Template)
		}
	}
	for _, catalog := range slices.Sorted(maps.Keys(templates)) {
		if len(templates[catalog]) > 1 {
			out = append(out, fmt.Sprintf("catalog %s has the templates %v", catalog, templates[catalog]))
		}
	}
	return out
}

func knownCatalogs(s *submission) (out []string) {
	for _, m := range s.mappings() {
		for _, catalog := range m.Catalogs {
			if !s.hub.catalogs.MatchString(catalog) {
				out = append(out, fmt.Sprintf("%s has no catalog %s", s.hub.name, catalog))
			}
		}
	}
	return out
}

func updateGraph(s *submission) []string {
	if text(s.config, "updateGraph") == "" {
		return []string{"updateGraph is missing: the hub would take replaces-mode, and our bundles name no version that they replace"}
	}
	return nil
}

func renderedTemplates(s *submission) (out []string) {
	for _, m := range s.mappings() {
		if _, exists := s.templates[m.Template]; !exists && s.fbc() {
			out = append(out, fmt.Sprintf("ci.yaml names the template %s, which does not exist", m.Template))
		}
	}
	return out
}

func releaseConfigSchema(s *submission) []string {
	if s.release == nil {
		return nil
	}
	return releaseSchema.problems("release-config.yaml", s.release)
}

func releaseConfigFits(s *submission) (out []string) {
	if s.release == nil {
		return nil
	}
	if !s.fbc() {
		return []string{"there is a release-config.yaml, but fbc.enabled in ci.yaml is not true"}
	}
	mappings := s.mappings()
	for _, r := range s.releaseEntries() {
		if !slices.ContainsFunc(mappings, func(m mapping) bool { return m.Template == r.Template }) {
			out = append(out, fmt.Sprintf("ci.yaml maps no catalog to the template %s", r.Template))
		}
	}
	return out
}

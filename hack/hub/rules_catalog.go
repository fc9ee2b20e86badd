// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

const addBundle = pipelines + "operatorcert/entrypoints/add_bundle_to_fbc.py "

// What the hub's catalog becomes after the merge. The pull request passes without these rules, and users get a wrong catalog, or
// the pull request that the hub opens then fails.
var catalogRules = []rule{
	{
		name: "the hub can release the bundle to its catalog", source: addBundle + "release_bundle_to_fbc",
		applies: withCatalog, check: canRelease,
	},
	{
		name: "the hub's catalog has our channels and updates", source: addBundle + "BasicTemplate.create, BasicTemplate.create_basic_channel_entry",
		applies: withCatalog, check: sameChannels,
	},
	{
		name: "the hub's catalog has our default channel", source: addBundle + "BasicTemplate.create",
		applies: withCatalog, check: sameDefaultChannel,
	},
	{
		name: "the hub's catalog has each bundle once", source: addBundle + "BasicTemplate.add_bundle_if_not_present",
		applies: withCatalog, check: bundlesOnce,
	},
	{
		name: "the hub's catalog has each version once in a channel", source: addBundle + "BasicTemplate.amend",
		applies: withCatalog, check: versionsOnce,
	},
	{
		name: "each channel has one head", source: pipelines + "operatorcert/opm.py validate_catalog",
		applies: withCatalog, check: heads,
	},
	{
		name: "bundles in the hub's catalog are in its registries", source: static + "common/operator_catalogs.py check_bundle_images_in_fbc",
		applies: withCatalog, check: registries,
	},
}

// afterRelease calls a check with each template that the hub makes. What prevents a release is the finding of canRelease.
func (s *submission) afterRelease(check func(t template) []string) (out []string) {
	for _, name := range s.releasedTemplates() {
		if t, err := s.released(name); err == nil {
			out = append(out, check(t)...)
		}
	}
	return out
}

// releasedTemplates are the templates that release-config.yaml names and ci.yaml maps.
func (s *submission) releasedTemplates() (names []string) {
	for _, m := range s.mappings() {
		if slices.ContainsFunc(s.releaseEntries(), func(r releaseEntry) bool { return r.Template == m.Template }) {
			names = append(names, m.Template)
		}
	}
	return names
}

func canRelease(s *submission) (out []string) {
	if s.release == nil {
		return []string{"there is no release-config.yaml: the hub would build the bundle and add it to no catalog"}
	}
	for _, name := range s.releasedTemplates() {
		if _, err := s.released(name); err != nil {
			out = append(out, err.Error())
		}
	}
	return out
}

func sameChannels(s *submission) []string {
	want := s.ours.entries(s.bundleName())
	return s.afterRelease(func(t template) (out []string) {
		got := t.entries(s.bundleName())
		for _, channel := range slices.Sorted(maps.Keys(want)) {
			if len(got[channel]) == 0 {
				out = append(out, "the version is not in the channel "+channel)
			}
			// Several entries are the finding of versionsOnce.
			if len(got[channel]) == 1 && !got[channel][0].equal(want[channel][0]) {
				out = append(out, fmt.Sprintf("in the channel %s it is %+v, must be %+v", channel, got[channel][0], want[channel][0]))
			}
		}
		for _, channel := range slices.Sorted(maps.Keys(got)) {
			if _, ok := want[channel]; !ok {
				out = append(out, "the version is in the channel "+channel+", which it has not reached")
			}
		}
		return out
	})
}

func sameDefaultChannel(s *submission) []string {
	return s.afterRelease(func(t template) []string {
		if t.defaultChannel == s.ours.defaultChannel {
			return nil
		}
		return []string{fmt.Sprintf("the default channel is %s, must be %s: name it as defaultChannel in release-config.yaml",
			t.defaultChannel, s.ours.defaultChannel)}
	})
}

func bundlesOnce(s *submission) []string {
	return s.afterRelease(func(t template) []string {
		if names := t.names(); len(t.images) > len(names) {
			return []string{fmt.Sprintf("%d versions have %d images of bundles: %s", len(names), len(t.images), strings.Join(t.images, ", "))}
		}
		return nil
	})
}

func versionsOnce(s *submission) []string {
	return s.afterRelease(func(t template) (out []string) {
		for _, name := range t.names() {
			entries := t.entries(name)
			for _, channel := range slices.Sorted(maps.Keys(entries)) {
				if n := len(entries[channel]); n > 1 {
					out = append(out, fmt.Sprintf("%s is in the channel %s %d times", name, channel, n))
				}
			}
		}
		return out
	})
}

func heads(s *submission) []string {
	return s.afterRelease(func(t template) (out []string) {
		for _, c := range t.channels {
			superseded := map[string]bool{}
			for _, e := range c.entries {
				superseded[e.Replaces] = true
				for _, name := range e.Skips {
					superseded[name] = true
				}
			}
			heads := map[string]bool{}
			for _, e := range c.entries {
				if !superseded[e.Name] {
					heads[e.Name] = true
				}
			}
			if len(heads) != 1 {
				out = append(out, fmt.Sprintf("the channel %s has the heads %v", c.name, slices.Sorted(maps.Keys(heads))))
			}
		}
		return out
	})
}

func registries(s *submission) []string {
	if len(s.hub.registries) == 0 {
		return nil
	}
	return s.afterRelease(func(t template) (out []string) {
		for _, image := range t.images {
			if !slices.ContainsFunc(s.hub.registries, func(prefix string) bool { return strings.HasPrefix(image, prefix) }) {
				out = append(out, fmt.Sprintf("%s is in none of %v", image, s.hub.registries))
			}
		}
		return out
	})
}

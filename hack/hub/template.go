// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"sigs.k8s.io/yaml"
)

// A template is a basic template of a catalog (olm.template.basic), without icons and descriptions.
type template struct {
	defaultChannel string
	channels       []channel
	images         []string
}

type channel struct {
	name    string
	entries []entry
}

// An entry is a version in a channel, and which versions it updates.
type entry struct {
	Name      string   `json:"name"`
	Replaces  string   `json:"replaces,omitempty"`
	Skips     []string `json:"skips,omitempty"`
	SkipRange string   `json:"skipRange,omitempty"`
}

func parseTemplate(data []byte) (template, error) {
	var file struct {
		Entries []struct {
			Schema         string  `json:"schema"`
			Name           string  `json:"name"`
			Image          string  `json:"image"`
			DefaultChannel string  `json:"defaultChannel"`
			Entries        []entry `json:"entries"`
		} `json:"entries"`
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		return template{}, err
	}
	var t template
	for _, e := range file.Entries {
		switch e.Schema {
		case "olm.package":
			t.defaultChannel = e.DefaultChannel
		case "olm.channel":
			t.channels = append(t.channels, channel{e.Name, e.Entries})
		case "olm.bundle":
			t.images = append(t.images, e.Image)
		}
	}
	if len(t.channels) == 0 {
		return template{}, errors.New("the template has no channel")
	}
	return t, nil
}

// entries are the entries of a version, by channel.
func (t template) entries(name string) map[string][]entry {
	found := map[string][]entry{}
	for _, c := range t.channels {
		for _, e := range c.entries {
			if e.Name == name {
				found[c.name] = append(found[c.name], e)
			}
		}
	}
	return found
}

// A releaseEntry is one of catalog_templates in release-config.yaml: what the hub adds to a template.
type releaseEntry struct {
	Template       string   `json:"template_name"`
	Channels       []string `json:"channels"`
	DefaultChannel string   `json:"defaultChannel,omitempty"`
	Replaces       string   `json:"replaces,omitempty"`
	Skips          []string `json:"skips,omitempty"`
	SkipRange      string   `json:"skipRange,omitempty"`
}

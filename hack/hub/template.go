// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

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

func (e entry) equal(other entry) bool {
	return e.Name == other.Name && e.Replaces == other.Replaces && slices.Equal(e.Skips, other.Skips) && e.SkipRange == other.SkipRange
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

// names are the names of all versions in the channels.
func (t template) names() (names []string) {
	for _, c := range t.channels {
		for _, e := range c.entries {
			if !slices.Contains(names, e.Name) {
				names = append(names, e.Name)
			}
		}
	}
	return names
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

// before is the template that a hub has before a version is released there, if it has all earlier ones: our catalog without the
// version, with the hub's images. ok is false if there is none: the version is the first.
func (t template) before(h hub, name string) (earlier template, ok bool) {
	earlier.defaultChannel = t.defaultChannel
	for _, c := range t.channels {
		rest := slices.DeleteFunc(slices.Clone(c.entries), func(e entry) bool { return e.Name == name })
		if len(rest) > 0 {
			earlier.channels = append(earlier.channels, channel{c.name, rest})
		}
	}
	for _, other := range earlier.names() {
		earlier.images = append(earlier.images, h.image(strings.TrimPrefix(other, packageName+".")))
	}
	return earlier, len(earlier.channels) > 0
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

// releaseEntries reads release-config.yaml.
func (s *submission) releaseEntries() (entries []releaseEntry) {
	data, err := yaml.Marshal(s.release["catalog_templates"])
	if err != nil || yaml.Unmarshal(data, &entries) != nil {
		return nil // the rule about the schema says why
	}
	return entries
}

// released is the template that the hub makes of the submission, as its function release_bundle_to_fbc does
// (operator-pipelines, operatorcert/entrypoints/add_bundle_to_fbc.py): a new one takes the default channel of the first entry,
// or else its first channel. To an existing one, entries and the image are added unless the same are there.
func (s *submission) released(name string) (t template, err error) {
	t, exists := s.templates[name]
	if !exists {
		t, exists = s.ours.before(s.hub, s.bundleName())
	}
	image := s.hub.image("@sha256:" + strings.Repeat("f", 64))
	for _, r := range s.releaseEntries() {
		if r.Template != name || len(r.Channels) == 0 {
			continue
		}
		if r.DefaultChannel != "" && !slices.Contains(r.Channels, r.DefaultChannel) {
			return t, fmt.Errorf("the default channel %s is not among the channels %v", r.DefaultChannel, r.Channels)
		}
		if !exists {
			exists = true
			t.defaultChannel = r.Channels[0]
			if r.DefaultChannel != "" {
				t.defaultChannel = r.DefaultChannel
			}
		}
		t.add(r, entry{s.bundleName(), r.Replaces, r.Skips, r.SkipRange})
		if !slices.Contains(t.images, image) {
			t.images = append(t.images, image)
		}
	}
	return t, nil
}

// add adds an entry to channels, which are created if they do not exist.
func (t *template) add(r releaseEntry, e entry) {
	for _, name := range r.Channels {
		i := slices.IndexFunc(t.channels, func(c channel) bool { return c.name == name })
		if i < 0 {
			i = len(t.channels)
			t.channels = append(t.channels, channel{name: name})
		}
		if !slices.ContainsFunc(t.channels[i].entries, e.equal) {
			t.channels[i].entries = append(slices.Clone(t.channels[i].entries), e)
		}
	}
}

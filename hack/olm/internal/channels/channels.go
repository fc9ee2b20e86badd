// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package channels gives a file-based catalog plain channel names.
//
// The semver template makes one channel for each kind and major version: "stable-v0", "stable-v1". Users of VerticalScaler
// subscribe to "stable", "fast" or "candidate", whatever the major version: here all channels of a kind become one. Edges
// within a major version stay as the template has made them; from one major version to the next there is one edge, from
// the last bundle of the older to the first upgrade target of the newer, so that nobody skips the last of a major version.
package channels

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// channel is an olm.channel. Only what the semver template writes can be in it: anything else is an error, not lost.
type channel struct {
	Schema  string  `json:"schema"`
	Package string  `json:"package"`
	Name    string  `json:"name"`
	Entries []entry `json:"entries"`
}

type entry struct {
	Name     string   `json:"name"`
	Replaces string   `json:"replaces,omitempty"`
	Skips    []string `json:"skips,omitempty"`
}

// What the template names a channel of a major version.
var majorChannel = regexp.MustCompile(`^([a-z]+)-v([0-9]+)$`)

// Plain returns the catalog, a stream of YAML documents, with plain channel names. Documents that name no channel stay as
// they are, byte by byte.
func Plain(catalog []byte) ([]byte, error) {
	var others [][]byte
	byKind := map[string]map[int]channel{}
	for _, document := range documents(catalog) {
		var head struct {
			Schema string `json:"schema"`
		}
		if err := yaml.Unmarshal(document, &head); err != nil {
			return nil, fmt.Errorf("reading the catalog: %w", err)
		}
		switch head.Schema {
		case "olm.package":
			renamed, err := plainDefault(document)
			if err != nil {
				return nil, err
			}
			others = append(others, renamed)
		case "olm.channel":
			var c channel
			if err := yaml.UnmarshalStrict(document, &c); err != nil {
				return nil, fmt.Errorf("reading a channel: %w", err)
			}
			kind, major, err := split(c.Name)
			if err != nil {
				return nil, err
			}
			if byKind[kind] == nil {
				byKind[kind] = map[int]channel{}
			}
			byKind[kind][major] = c
		default:
			others = append(others, document)
		}
	}

	var out bytes.Buffer
	for _, document := range others {
		write(&out, document)
	}
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		joined, err := join(kind, byKind[kind])
		if err != nil {
			return nil, err
		}
		text, err := yaml.Marshal(joined)
		if err != nil {
			return nil, err
		}
		write(&out, text)
	}
	return out.Bytes(), nil
}

func write(out *bytes.Buffer, document []byte) {
	out.WriteString("---\n")
	out.Write(document)
}

// documents splits a stream at its separators. Empty documents are left out.
func documents(stream []byte) [][]byte {
	var found [][]byte
	var current []byte
	add := func() {
		if len(bytes.TrimSpace(current)) > 0 {
			found = append(found, current)
		}
		current = nil
	}
	for line := range bytes.Lines(stream) {
		if strings.TrimRight(string(line), "\r\n") == "---" {
			add()
			continue
		}
		current = append(current, line...)
	}
	add()
	return found
}

// split takes the name of a channel apart, into its kind and major version.
func split(name string) (kind string, major int, err error) {
	parts := majorChannel.FindStringSubmatch(name)
	if parts == nil {
		return "", 0, fmt.Errorf("channel %q is not of a major version: the template must have "+
			"generateMajorChannels: true and generateMinorChannels: false", name)
	}
	major, err = strconv.Atoi(parts[2])
	return parts[1], major, err
}

// plainDefault gives a package the plain name of its default channel.
func plainDefault(document []byte) ([]byte, error) {
	var p map[string]any
	if err := yaml.Unmarshal(document, &p); err != nil {
		return nil, err
	}
	name, _ := p["defaultChannel"].(string)
	kind, _, err := split(name)
	if err != nil {
		return nil, fmt.Errorf("default channel: %w", err)
	}
	p["defaultChannel"] = kind
	return yaml.Marshal(p)
}

// join makes one channel out of those of the major versions.
func join(kind string, majors map[int]channel) (channel, error) {
	var joined channel
	last := ""
	for _, major := range slices.Sorted(maps.Keys(majors)) {
		c := majors[major]
		first, head, err := ends(c)
		if err != nil {
			return channel{}, err
		}
		c.Entries[first].Replaces = last
		last = c.Entries[head].Name
		joined.Schema, joined.Package, joined.Name = c.Schema, c.Package, kind
		joined.Entries = append(joined.Entries, c.Entries...)
	}
	return joined, nil
}

// ends finds the head of a channel, which no other entry replaces or skips, and the entry at the end of the chain of
// replacements from there, which replaces nothing.
func ends(c channel) (first, head int, err error) {
	index := map[string]int{}
	superseded := map[string]bool{}
	for i, e := range c.Entries {
		index[e.Name] = i
		superseded[e.Replaces] = true
		for _, name := range e.Skips {
			superseded[name] = true
		}
	}
	var heads []string
	for _, e := range c.Entries {
		if !superseded[e.Name] {
			heads = append(heads, e.Name)
		}
	}
	if len(heads) != 1 {
		return 0, 0, fmt.Errorf("channel %s has not one head but %q", c.Name, heads)
	}
	head = index[heads[0]]
	first = head
	for range c.Entries {
		next := c.Entries[first].Replaces
		if next == "" {
			return first, head, nil
		}
		i, known := index[next]
		if !known {
			return 0, 0, fmt.Errorf("channel %s: %s replaces %s, which is not in it", c.Name, c.Entries[first].Name, next)
		}
		first = i
	}
	return 0, 0, fmt.Errorf("channel %s: replacements go in a circle", c.Name)
}

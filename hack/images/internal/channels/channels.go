// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package channels gives a file-based catalog plain channel names.
//
// The semver template of opm has one channel for each kind and major version: "stable-v0", "stable-v1". Users of
// VerticalScaler subscribe to "stable", "fast" or "candidate", whatever the major version: here all channels of a kind become
// one. Edges within a major version stay as in the template's result. One edge leads from one major version to the next,
// from the last bundle of the older to the first upgrade target of the newer, so that no upgrade skips the last bundle of a
// major version.
package channels

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"sigs.k8s.io/yaml"
)

// channel is an olm.channel. Only what the semver template writes can be in it: anything else is an error.
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

// The names that the template gives to channels of a major version.
var majorChannel = regexp.MustCompile(`^([a-z]+)-v([0-9]+)$`)

// The line between two documents of a stream.
var separator = regexp.MustCompile(`(?m)^---\r?\n`)

// Plain returns the catalog, a stream of YAML documents, with plain channel names. Documents that name no channel stay as
// they are, byte by byte.
func Plain(catalog []byte) ([]byte, error) {
	var out bytes.Buffer
	byKind := map[string]map[int]channel{}
	for _, document := range separator.Split(string(catalog), -1) {
		var head map[string]any
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			return nil, fmt.Errorf("reading the catalog: %w", err)
		}
		var err error
		switch head["schema"] {
		case nil: // an empty document
		case "olm.package":
			err = writePackage(&out, head)
		case "olm.channel":
			err = collect(byKind, document)
		default:
			out.WriteString("---\n" + document)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		joined, err := join(kind, byKind[kind])
		if err != nil {
			return nil, err
		}
		if err := write(&out, joined); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// writePackage writes a package with the plain name of its default channel.
func writePackage(out *bytes.Buffer, pkg map[string]any) error {
	name, _ := pkg["defaultChannel"].(string)
	kind, _, err := split(name)
	if err != nil {
		return fmt.Errorf("default channel: %w", err)
	}
	pkg["defaultChannel"] = kind
	return write(out, pkg)
}

// collect sorts a channel in by its kind and major version.
func collect(byKind map[string]map[int]channel, document string) error {
	var c channel
	if err := yaml.UnmarshalStrict([]byte(document), &c); err != nil {
		return fmt.Errorf("reading a channel: %w", err)
	}
	kind, major, err := split(c.Name)
	if err != nil {
		return err
	}
	if byKind[kind] == nil {
		byKind[kind] = map[int]channel{}
	}
	byKind[kind][major] = c
	return nil
}

func write(out *bytes.Buffer, document any) error {
	text, err := yaml.Marshal(document)
	out.WriteString("---\n" + string(text))
	return err
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

// join returns one channel for those of the major versions.
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
	superseded := map[string]bool{}
	for _, e := range c.Entries {
		superseded[e.Replaces] = true
		for _, name := range e.Skips {
			superseded[name] = true
		}
	}
	var heads []int
	for i, e := range c.Entries {
		if !superseded[e.Name] {
			heads = append(heads, i)
		}
	}
	if len(heads) != 1 {
		return 0, 0, fmt.Errorf("channel %s has %d heads, must have one", c.Name, len(heads))
	}
	first = heads[0]
	for range c.Entries {
		next := c.Entries[first].Replaces
		if next == "" {
			return first, heads[0], nil
		}
		i := slices.IndexFunc(c.Entries, func(e entry) bool { return e.Name == next })
		if i < 0 {
			return 0, 0, fmt.Errorf("channel %s: %s replaces %s, which is not in it", c.Name, c.Entries[first].Name, next)
		}
		first = i
	}
	return 0, 0, fmt.Errorf("channel %s: replacements go in a circle", c.Name)
}

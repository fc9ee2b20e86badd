// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// packageName is the name of the package in all catalogs, and of our folder in the hubs.
const packageName = "verticalscaler-operator"

// hubs are the repositories that take bundles. The hub community-operators can have file-based catalogs, too, but not for a first
// version: its workflow operator_fbc_validate.yaml renders a template that does not exist before the first release. So its
// catalog follows the bundle's channels, as it does for the other operators there.
var hubs = []string{"community-operators", "community-operators-prod"}

// An entry is a version in a channel, and which versions it updates.
type entry struct {
	Name      string   `json:"name"`
	Replaces  string   `json:"replaces,omitempty"`
	Skips     []string `json:"skips,omitempty"`
	SkipRange string   `json:"skipRange,omitempty"`
}

// A template is a basic template of a catalog (olm.template.basic), without icons and descriptions.
type template struct {
	Entries []struct {
		Schema         string  `json:"schema"`
		Name           string  `json:"name"`
		DefaultChannel string  `json:"defaultChannel"`
		Entries        []entry `json:"entries"`
	} `json:"entries"`
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

// A source is a bundle, and where it is in our catalog.
type source struct {
	folder, version string
	entries         []releaseEntry
	// missing are the channels of the bundle that the version has not reached.
	missing []string
}

func readSource(bundle, catalog string) (source, error) {
	var csv struct {
		Metadata struct {
			Name        string            `json:"name"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec struct {
			Version string `json:"version"`
		} `json:"spec"`
	}
	var metadata struct {
		Annotations map[string]string `json:"annotations"`
	}
	var ours template
	for path, into := range map[string]any{
		filepath.Join(bundle, "manifests", packageName+".clusterserviceversion.yaml"): &csv,
		filepath.Join(bundle, "metadata", "annotations.yaml"):                         &metadata,
		catalog: &ours,
	} {
		if err := read(path, into); err != nil {
			return source{}, err
		}
	}
	src := source{folder: bundle, version: csv.Spec.Version, entries: ours.releaseEntries(csv.Metadata.Name)}
	image := csv.Metadata.Annotations["containerImage"]
	switch {
	case !strings.HasSuffix(image, ":v"+src.version) && !strings.Contains(image, "@sha256:"):
		return src, fmt.Errorf("%s runs the image %q, which is not that of version %s", bundle, image, src.version)
	case len(src.entries) == 0:
		return src, fmt.Errorf("%s is in no channel of %s: name it in catalog/verticalscaler-operator.yaml, and run make bundle", csv.Metadata.Name, catalog)
	}
	for channel := range strings.SplitSeq(metadata.Annotations["operators.operatorframework.io.bundle.channels.v1"], ",") {
		if !slices.ContainsFunc(src.entries, func(e releaseEntry) bool { return slices.Contains(e.Channels, channel) }) {
			src.missing = append(src.missing, channel)
		}
	}
	return src, nil
}

func read(path string, into any) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(content, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// releaseEntries says where a version is in our catalog. Channels with the same edges share an entry. The entry with the default
// channel comes first, because the hub creates its template from it.
func (t template) releaseEntries(name string) (entries []releaseEntry) {
	var defaultChannel string
	for _, c := range t.Entries {
		if c.Schema == "olm.package" {
			defaultChannel = c.DefaultChannel
		}
	}
	for _, c := range t.Entries {
		for _, e := range c.Entries {
			if e.Name != name {
				continue
			}
			add := releaseEntry{Template: "basic.yaml", Replaces: e.Replaces, Skips: e.Skips, SkipRange: e.SkipRange}
			at := slices.IndexFunc(entries, func(r releaseEntry) bool {
				r.Channels, r.DefaultChannel = nil, ""
				return reflect.DeepEqual(r, add)
			})
			if at < 0 {
				at = len(entries)
				entries = append(entries, add)
			}
			entries[at].Channels = append(entries[at].Channels, c.Name)
			if c.Name == defaultChannel {
				entries[at].DefaultChannel = c.Name
			}
		}
	}
	slices.SortStableFunc(entries, func(a, b releaseEntry) int { return strings.Compare(b.DefaultChannel, a.DefaultChannel) })
	return entries
}

// writeHub writes our folder in a hub. Earlier files are removed. A hub without a file-based catalog adds a version to all of
// the bundle's channels, so it gets none that has not reached them.
func (src source) writeHub(out io.Writer, root, ci string) error {
	if err := os.RemoveAll(root); err != nil {
		return err
	}
	var settings struct {
		FBC struct {
			Enabled bool `json:"enabled"`
		} `json:"fbc"`
	}
	if err := read(ci, &settings); err != nil {
		return err
	}
	if !settings.FBC.Enabled && len(src.missing) > 0 {
		fmt.Fprintf(out, "%s: not yet, because the version has not reached %s\n", filepath.Base(root), strings.Join(src.missing, ", "))
		return nil
	}
	operator := filepath.Join(root, "operators", packageName)
	version := filepath.Join(operator, src.version)
	for _, part := range []string{"manifests", "metadata", "tests"} {
		if err := os.CopyFS(filepath.Join(version, part), os.DirFS(filepath.Join(src.folder, part))); err != nil {
			return err
		}
	}
	content, err := os.ReadFile(ci)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(operator, "ci.yaml"), content, 0o644); err != nil {
		return err
	}
	if settings.FBC.Enabled {
		if content, err = yaml.Marshal(map[string]any{"catalog_templates": src.entries}); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(version, "release-config.yaml"), append([]byte("---\n"), content...), 0o644); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%s: %s\n", filepath.Base(root), operator)
	return nil
}

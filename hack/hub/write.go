// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// What is written of: the bundle in a folder, and where it is in our catalog.
type source struct {
	folder        string
	name, version string
	ours          template
	// channels are those that the bundle's annotations name.
	channels []string
}

func readSource(bundle, catalog string) (source, error) {
	src := source{folder: bundle}
	data, err := os.ReadFile(catalog)
	if err != nil {
		return src, err
	}
	if src.ours, err = parseTemplate(data); err != nil {
		return src, fmt.Errorf("%s: %w", catalog, err)
	}
	csv, err := readOptional(filepath.Join(bundle, "manifests", packageName+".clusterserviceversion.yaml"))
	if err != nil {
		return src, err
	}
	metadata, err := readOptional(filepath.Join(bundle, "metadata", "annotations.yaml"))
	if err != nil {
		return src, err
	}
	src.name, src.version = text(csv, "metadata", "name"), text(csv, "spec", "version")
	image := text(csv, "metadata", "annotations", "containerImage")
	src.channels = strings.Split(text(metadata, "annotations", "operators.operatorframework.io.bundle.channels.v1"), ",")
	switch {
	case src.name == "" || src.version == "":
		return src, fmt.Errorf("%s has no ClusterServiceVersion with a name and a version", bundle)
	case !strings.HasSuffix(image, ":v"+src.version) && !strings.Contains(image, "@sha256:"):
		return src, fmt.Errorf("%s runs the image %q, which is not that of version %s", bundle, image, src.version)
	case len(src.ours.entries(src.name)) == 0:
		return src, fmt.Errorf("%s is in no channel of %s: name it in catalog/verticalscaler-operator.yaml, and run make catalog", src.name, catalog)
	}
	return src, nil
}

// write writes the folder of each hub. What was there before is removed.
func write(out io.Writer, bundle, catalog, config, folder string) error {
	src, err := readSource(bundle, catalog)
	if err != nil {
		return err
	}
	for _, hub := range hubs {
		root := filepath.Join(folder, hub)
		if err := os.RemoveAll(root); err != nil {
			return err
		}
		ci, err := os.ReadFile(filepath.Join(config, hub, "ci.yaml"))
		if err != nil {
			return err
		}
		var settings struct {
			FBC struct {
				Enabled bool `json:"enabled"`
			} `json:"fbc"`
		}
		if err := yaml.Unmarshal(ci, &settings); err != nil {
			return fmt.Errorf("%s: ci.yaml: %w", hub, err)
		}
		if missing := src.notReached(); !settings.FBC.Enabled && len(missing) > 0 {
			fmt.Fprintf(out, "%s: not yet, because the version has not reached %s\n", hub, strings.Join(missing, ", "))
			continue
		}
		if err := src.write(filepath.Join(root, "operators", packageName), ci, settings.FBC.Enabled); err != nil {
			return fmt.Errorf("%s: %w", hub, err)
		}
		fmt.Fprintf(out, "%s: %s\n", hub, filepath.Join(root, "operators", packageName))
	}
	return nil
}

// notReached are the channels of the bundle that the version has not reached. A hub without a file-based catalog adds a version
// to all of the bundle's channels.
func (src source) notReached() []string {
	reached := src.ours.entries(src.name)
	return slices.DeleteFunc(slices.Clone(src.channels), func(name string) bool { return len(reached[name]) > 0 })
}

// write writes our folder in a hub.
func (src source) write(operator string, ci []byte, fbc bool) error {
	version := filepath.Join(operator, src.version)
	for _, part := range []string{"manifests", "metadata", "tests"} {
		if err := os.CopyFS(filepath.Join(version, part), os.DirFS(filepath.Join(src.folder, part))); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(operator, "ci.yaml"), ci, 0o644); err != nil || !fbc {
		return err
	}
	release, err := releaseConfig(src.ours, src.name)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(version, "release-config.yaml"), release, 0o644)
}

// releaseConfig says where the hub adds a version to its catalog: where it is in ours. Channels with the same edges share an
// entry. The entry with the default channel comes first, because the hub creates its template from it.
func releaseConfig(ours template, name string) ([]byte, error) {
	var entries []releaseEntry
	for _, c := range ours.channels {
		i := slices.IndexFunc(c.entries, func(e entry) bool { return e.Name == name })
		if i < 0 {
			continue
		}
		e := c.entries[i]
		add := releaseEntry{Template: "basic.yaml", Replaces: e.Replaces, Skips: e.Skips, SkipRange: e.SkipRange}
		same := func(r releaseEntry) bool {
			r.Channels, r.DefaultChannel = nil, ""
			return reflect.DeepEqual(r, add)
		}
		at := slices.IndexFunc(entries, same)
		if at < 0 {
			at = len(entries)
			entries = append(entries, add)
		}
		entries[at].Channels = append(entries[at].Channels, c.name)
		if c.name == ours.defaultChannel {
			entries[at].DefaultChannel = c.name
		}
	}
	slices.SortStableFunc(entries, func(a, b releaseEntry) int { return strings.Compare(b.DefaultChannel, a.DefaultChannel) })
	data, err := yaml.Marshal(map[string]any{"catalog_templates": entries})
	return append([]byte("---\n"), data...), err
}

// readOptional reads a YAML object. It is nil if there is no such file.
func readOptional(path string) (map[string]any, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var o map[string]any
	if err := yaml.Unmarshal(data, &o); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return o, nil
}

// text returns a text of nested objects, or "".
func text(o map[string]any, path ...string) string {
	for _, key := range path[:len(path)-1] {
		o, _ = o[key].(map[string]any)
	}
	value, _ := o[path[len(path)-1]].(string)
	return value
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/operator-framework/api/pkg/manifests"
	"sigs.k8s.io/yaml"
)

// A submission is what a pull request to a hub adds.
type submission struct {
	hub  hub
	root string
	// files are the paths of all files, relative to root, with slashes.
	files []string
	// operator is our folder.
	operator string
	// versions are the names of the folders of bundles, and others the names of further folders.
	versions, others []string

	// config is ci.yaml, and release is release-config.yaml of the bundle. Both are nil if there is no such file.
	config, release map[string]any
	// csv and annotations are those of the bundle, and objects its manifests by file name.
	csv         map[string]any
	annotations map[string]any
	objects     map[string]map[string]any
	// bundle is the bundle as OLM reads it.
	bundle *manifests.Bundle

	// ours is our own catalog. templates are the basic templates in the folder, by name.
	ours      template
	templates map[string]template
}

// fbc reports whether the operator has a file-based catalog on the hub.
func (s *submission) fbc() bool {
	section, _ := s.config["fbc"].(map[string]any)
	enabled, _ := section["enabled"].(bool)
	return enabled
}

// version is the submitted version, or empty if there is not exactly one.
func (s *submission) version() string {
	if len(s.versions) != 1 {
		return ""
	}
	return s.versions[0]
}

// bundleName is the name of the ClusterServiceVersion.
func (s *submission) bundleName() string { return text(s.csv, "metadata", "name") }

// load reads a submission. What the rules judge may be missing; what cannot be read is an error.
func load(h hub, root, catalog string) (*submission, error) {
	s := &submission{hub: h, root: root, operator: filepath.Join(root, "operators", packageName), templates: map[string]template{}}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(root, path)
		s.files = append(s.files, filepath.ToSlash(relative))
		return err
	})
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(s.operator)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		switch {
		case !entry.IsDir() || entry.Name() == "catalog-templates":
		case isDir(s.operator, entry.Name(), "manifests") && isDir(s.operator, entry.Name(), "metadata"):
			s.versions = append(s.versions, entry.Name())
		default:
			s.others = append(s.others, entry.Name())
		}
	}
	if s.config, err = readOptional(filepath.Join(s.operator, "ci.yaml")); err != nil {
		return nil, err
	}
	if err := s.loadTemplates(catalog); err != nil {
		return nil, err
	}
	return s, s.loadBundle()
}

func (s *submission) loadTemplates(catalog string) error {
	data, err := os.ReadFile(catalog)
	if err != nil {
		return err
	}
	if s.ours, err = parseTemplate(data); err != nil {
		return fmt.Errorf("%s: %w", catalog, err)
	}
	paths, err := filepath.Glob(filepath.Join(s.operator, "catalog-templates", "*.yaml"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if s.templates[filepath.Base(path)], err = parseTemplate(data); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// loadBundle reads the bundle, if there is one.
func (s *submission) loadBundle() (err error) {
	if s.version() == "" {
		return nil
	}
	folder := filepath.Join(s.operator, s.version())
	if s.release, err = readOptional(filepath.Join(folder, "release-config.yaml")); err != nil {
		return err
	}
	metadata, err := readOptional(filepath.Join(folder, "metadata", "annotations.yaml"))
	if err != nil {
		return err
	}
	s.annotations, _ = metadata["annotations"].(map[string]any)
	paths, err := filepath.Glob(filepath.Join(folder, "manifests", "*.yaml"))
	if err != nil {
		return err
	}
	s.objects = map[string]map[string]any{}
	for _, path := range paths {
		o, err := readOptional(path)
		if err != nil {
			return err
		}
		s.objects[filepath.Base(path)] = o
		if strings.HasSuffix(path, ".clusterserviceversion.yaml") {
			s.csv = o
		}
	}
	if s.csv == nil {
		return fmt.Errorf("%s has no ClusterServiceVersion", folder)
	}
	s.bundle, err = manifests.GetBundleFromDir(folder)
	return err
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

func isDir(path ...string) bool {
	info, err := os.Stat(filepath.Join(path...))
	return err == nil && info.IsDir()
}

// lookup returns a field of nested objects, or nil.
func lookup(o map[string]any, path ...string) any {
	for _, key := range path[:len(path)-1] {
		o, _ = o[key].(map[string]any)
	}
	return o[path[len(path)-1]]
}

// text returns a text of nested objects, or "".
func text(o map[string]any, path ...string) string {
	value, _ := lookup(o, path...).(string)
	return value
}

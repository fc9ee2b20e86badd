// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// What a pull request may add.
var layoutRules = []rule{
	{
		name: "all files belong to the operator", source: pipelines + "operatorcert/parsed_file.py ParserRules.check_extra_files",
		check: extraFiles,
	},
	{
		name: "one bundle is added", source: pipelines + "operatorcert/parsed_file.py ParserRules.check_added_bundles",
		check: addedBundles,
	},
	{
		name: "bundles and catalogs are not added at once", source: pipelines + "operatorcert/parsed_file.py ParserRules.check_affected_catalog_operators",
		check: addedCatalogs,
	},
	{
		name: "each further folder is a bundle", source: pipelines + "operatorcert/operator_repo/core.py Bundle.probe",
		check: folders,
	},
	{
		name: "yamllint has no errors", source: pipelines + "ansible/roles/operator-pipeline/templates/openshift/tasks/yaml-lint.yml",
		check: yamllint,
	},
}

func extraFiles(s *submission) (out []string) {
	for _, file := range s.files {
		if !strings.HasPrefix(file, "operators/"+packageName+"/") && !strings.HasPrefix(file, "catalogs/") {
			out = append(out, file+" is outside of operators/"+packageName)
		}
	}
	return out
}

func addedBundles(s *submission) []string {
	if len(s.versions) != 1 {
		return []string{fmt.Sprintf("the bundles are %v, must be one", s.versions)}
	}
	return nil
}

func addedCatalogs(s *submission) (out []string) {
	for _, file := range s.files {
		if strings.HasPrefix(file, "catalogs/") {
			out = append(out, file+" is in another pull request than the bundle: the hub opens it")
		}
	}
	return out
}

func folders(s *submission) (out []string) {
	for _, name := range s.others {
		out = append(out, name+" has no manifests or no metadata")
	}
	return out
}

// yamllint applies the rules of yamllint's default configuration that generated files can violate: no trailing spaces, no
// carriage returns, at most two empty lines, a newline at the end, no duplicate keys.
func yamllint(s *submission) (out []string) {
	for _, file := range s.files {
		if ext := path.Ext(file); ext != ".yaml" && ext != ".yml" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(s.root, filepath.FromSlash(file)))
		if err != nil {
			out = append(out, err.Error())
			continue
		}
		for _, problem := range lint(data) {
			out = append(out, file+": "+problem)
		}
	}
	return out
}

func lint(data []byte) (out []string) {
	empty := 0
	for i, line := range bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n")) {
		if empty++; len(line) > 0 {
			empty = 0
		}
		switch {
		case bytes.HasSuffix(line, []byte("\r")):
			out = append(out, fmt.Sprintf("line %d ends with a carriage return", i+1))
		case len(bytes.TrimRight(line, " \t")) < len(line):
			out = append(out, fmt.Sprintf("line %d ends with spaces", i+1))
		case empty == 3:
			out = append(out, fmt.Sprintf("line %d is the third empty line", i+1))
		}
	}
	if !bytes.HasSuffix(data, []byte("\n")) {
		out = append(out, "there is no newline at the end")
	}
	var content any
	if err := yaml.UnmarshalStrict(data, &content); err != nil {
		out = append(out, err.Error())
	}
	return out
}

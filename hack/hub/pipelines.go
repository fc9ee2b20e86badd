// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// runStaticTests runs the hub's own static checks, from a checkout of operator-pipelines. Left out are those that ask a server for
// the versions of OpenShift.
func runStaticTests(checkout string, s *submission) (findings []string, err error) {
	const offline = "check_osdk_bundle_validate_operatorhub,check_osdk_bundle_validate_operator_framework,check_replaces_availability"
	scratch, err := os.MkdirTemp("", "hub")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch) //nolint:errcheck // it is in the folder for temporary files
	results := filepath.Join(scratch, "results.json")
	cmd := exec.Command("python3", "-m", "operatorcert.entrypoints.static_tests", "--repo-path", s.root, "--output-file", results,
		"--skip-tests", offline, packageName, s.version(), "")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+checkout+string(os.PathListSeparator)+os.Getenv("PYTHONPATH"))
	if log, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, log)
	}
	output, err := os.ReadFile(results)
	if err != nil {
		return nil, err
	}
	var result struct {
		Outputs []struct{ Type, Message, Check string }
	}
	if err := json.Unmarshal(output, &result); err != nil {
		return nil, fmt.Errorf("reading %s: %w", results, err)
	}
	for _, o := range result.Outputs {
		// The hub recommends file-based catalogs, which do not work for a first version on community-operators.
		if o.Check != "check_using_fbc" {
			findings = append(findings, fmt.Sprintf("%s: %s: %s", o.Type, o.Check, o.Message))
		}
	}
	return findings, nil
}

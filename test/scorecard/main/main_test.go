// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"flag"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	environment := map[string]string{"SCORECARD_NAMESPACE": "here"}
	getenv := func(name string) string { return environment[name] }

	s, name, err := parse([]string{"examples-reconcile"}, getenv, nil)
	if err != nil || name != "examples-reconcile" || s.Bundle != "/bundle" || s.Namespace != "here" || s.Wait != 30*time.Second ||
		s.Image != "registry.k8s.io/pause:3.10.1" {
		t.Errorf("as in a pod: %q, %+v, %v", name, s, err)
	}
	environment["SCORECARD_POD_IMAGE"], environment["SCORECARD_WAIT"] = "example.com/pause:1", "1m"
	if s, _, err = parse([]string{"x"}, getenv, nil); err != nil || s.Image != "example.com/pause:1" || s.Wait != time.Minute {
		t.Errorf("by the environment: %+v, %v", s, err)
	}
	s, _, err = parse([]string{"x", "-bundle=b", "-namespace=n", "-image=i", "-wait=2s"}, getenv, nil)
	if err != nil || s.Bundle != "b" || s.Namespace != "n" || s.Image != "i" || s.Wait != 2*time.Second {
		t.Errorf("by flags: %+v, %v", s, err)
	}

	for name, bad := range map[string][]string{
		"the test is missing": nil, "unexpected argument": {"x", "y"}, "not defined": {"x", "-none"},
	} {
		if _, _, err := parse(bad, getenv, nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("parse(%q) = %v, want %q", bad, err, name)
		}
	}
	environment["SCORECARD_WAIT"] = "long"
	if _, _, err := parse([]string{"x"}, getenv, nil); err == nil {
		t.Error("a wait that is none is taken")
	}
	delete(environment, "SCORECARD_WAIT")
	var help bytes.Buffer
	if _, _, err := parse([]string{"-h"}, getenv, &help); !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "rbac-used-is-granted, upgrade-keeps-status") {
		t.Errorf("help: %v, %q", err, help.String())
	}
}

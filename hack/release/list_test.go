// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
	"github.com/spdx/tools-golang/spdxlib"
)

// The program of the list is this test, which is made of more than ten modules.
func TestTheListHasTheModulesOfTheProgram(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := hello(t.TempDir()).list(platforms[2], program, strings.Repeat("ab", 32))
	if err != nil {
		t.Fatal(err)
	}
	var doc v2_3.Document
	if err := spdxjson.ReadInto(bytes.NewReader(text), &doc); err != nil {
		t.Fatal(err)
	}
	if err := spdxlib.ValidateDocument(&doc); err != nil {
		t.Error(err)
	}
	listed := map[string]*v2_3.Package{}
	for _, p := range doc.Packages {
		listed[p.PackageName] = p
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || len(info.Deps) < 10 {
		t.Fatalf("the test has no modules: %+v", info)
	}
	for _, m := range info.Deps {
		p := listed[m.Path]
		if p == nil || p.PackageVersion != m.Version {
			t.Errorf("%s %s is listed as %+v", m.Path, m.Version, p)
			continue
		}
		if p.PackageLicenseDeclared == unknown {
			t.Errorf("%s has no licence", m.Path)
		}
	}
	if want := len(info.Deps) + 2; len(doc.Packages) != want || len(listed) != want || len(doc.Relationships) != want {
		t.Errorf("%d packages with %d names and %d relationships, want %d: the modules, Go and the plugin", len(doc.Packages), len(listed), len(doc.Relationships), want)
	}
	for name, want := range map[string]string{"sigs.k8s.io/krew": "Apache-2.0", "k8s.io/apimachinery": "Apache-2.0", "github.com/google/licensecheck": "BSD-3-Clause", "stdlib": "BSD-3-Clause"} {
		if p := listed[name]; p == nil || p.PackageLicenseDeclared != want {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if p := listed[plugin]; p == nil || p.PackageChecksums[0].Value != strings.Repeat("ab", 32) || p.PackageVersion != "v1.2.3" {
		t.Errorf("the plugin is listed as %+v", p)
	}
}

// The API is a module of this tree. The list has its name and version, not its folder.
func TestListOfAModuleInATree(t *testing.T) {
	const path = "example.org/operator/api"
	listed := modules(&debug.BuildInfo{Deps: []*debug.Module{
		{Path: path, Version: "v1.2.3", Replace: &debug.Module{Path: "./api", Version: "(devel)"}},
		{Path: "example.org/old", Version: "v1.0.0", Replace: &debug.Module{Path: "example.org/new", Version: "v2.0.0"}},
	}}, t.TempDir())
	if got := listed[0]; got.PackageName != path || got.PackageVersion != "v1.2.3" || got.PackageLicenseDeclared != "Apache-2.0" {
		t.Errorf("the API is listed as %+v", got)
	}
	if got := listed[1]; got.PackageName != "example.org/new" || got.PackageVersion != "v2.0.0" || got.PackageLicenseDeclared != unknown {
		t.Errorf("a replaced module is listed as %+v", got)
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/licensecheck"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
	"golang.org/x/mod/module"
)

const unknown = "NOASSERTION"

// list returns what the plugin in an archive is made of, in SPDX's format: the modules that
// the Go linker wrote into the program, and Go's own library.
func (r release) list(p platform, program, sum string) ([]byte, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, err
	}
	cache, err := goEnv("GOMODCACHE")
	if err != nil {
		return nil, err
	}
	root := &v2_3.Package{
		PackageName: plugin, PackageSPDXIdentifier: plugin, PackageVersion: r.version,
		PackageFileName:         p.archive(),
		PackageDownloadLocation: r.url(p.archive()),
		PackageSupplier:         &common.Supplier{SupplierType: "Organization", Supplier: "The VerticalScaler Authors"},
		PackageChecksums:        []common.Checksum{{Algorithm: common.SHA256, Value: sum}},
		PackageHomePage:         repository,
		PackageLicenseConcluded: "Apache-2.0", PackageLicenseDeclared: "Apache-2.0",
		PackageCopyrightText:  "Copyright The VerticalScaler Authors.",
		PrimaryPackagePurpose: "APPLICATION",
	}
	doc := &v2_3.Document{
		SPDXVersion: v2_3.Version, DataLicense: v2_3.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName:      p.archive(),
		DocumentNamespace: r.url(p.base()) + ".spdx.json#" + sum, // a name for this list and no other
		CreationInfo: &v2_3.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Organization", Creator: "The VerticalScaler Authors"}, {CreatorType: "Tool", Creator: "hack/release"}},
			Created:  r.created.UTC().Format(time.RFC3339),
		},
		Packages:      []*v2_3.Package{root},
		Relationships: []*v2_3.Relationship{relation("DOCUMENT", common.TypeRelationshipDescribe, root)},
	}
	for _, dependency := range slices.Concat([]*v2_3.Package{library(info.GoVersion)}, modules(info, cache)) {
		doc.Packages = append(doc.Packages, dependency)
		doc.Relationships = append(doc.Relationships, relation(root.PackageSPDXIdentifier, common.TypeRelationshipContains, dependency))
	}
	var out bytes.Buffer
	err = spdxjson.Write(doc, &out, spdxjson.Indent("  "), spdxjson.EscapeHTML(false))
	return out.Bytes(), err
}

func relation(from common.ElementID, kind string, to *v2_3.Package) *v2_3.Relationship {
	return &v2_3.Relationship{
		RefA: common.DocElementID{ElementRefID: from}, RefB: common.DocElementID{ElementRefID: to.PackageSPDXIdentifier}, Relationship: kind,
	}
}

// library is the standard library, which is in every program.
func library(version string) *v2_3.Package {
	version, _, _ = strings.Cut(strings.TrimPrefix(version, "go"), " ")
	return dependency("stdlib", version, "https://go.dev/dl/go"+version+".src.tar.gz", "BSD-3-Clause")
}

// modules are those in a program, replaced ones by their replacement. A module of this tree, which is replaced by its
// folder, has its own name and our licence.
func modules(info *buildinfo.BuildInfo, cache string) (packages []*v2_3.Package) {
	for _, m := range info.Deps {
		isOurs := m.Replace != nil && strings.HasPrefix(m.Replace.Path, ".")
		if m.Replace != nil && !isOurs {
			m = m.Replace
		}
		location := unknown
		folder := ""
		if path, err := module.EscapePath(m.Path); err == nil {
			location = "https://proxy.golang.org/" + path + "/@v/" + m.Version + ".zip"
			folder = filepath.Join(cache, filepath.FromSlash(path)+"@"+m.Version)
		}
		license := "Apache-2.0"
		if !isOurs {
			license = licenseIn(folder)
		}
		packages = append(packages, dependency(m.Path, m.Version, location, license))
	}
	return packages
}

var unusual = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func dependency(name, version, location, license string) *v2_3.Package {
	return &v2_3.Package{
		PackageName: name, PackageVersion: version,
		PackageSPDXIdentifier:   common.ElementID(unusual.ReplaceAllString(name+"-"+version, "-")),
		PackageDownloadLocation: location,
		PackageLicenseConcluded: unknown, PackageLicenseDeclared: license,
		PackageCopyrightText: unknown,
		PackageExternalReferences: []*v2_3.PackageExternalReference{{
			Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: "pkg:golang/" + name + "@" + strings.ReplaceAll(version, "+", "%2B"),
		}},
		PrimaryPackagePurpose: "LIBRARY",
	}
}

// licenseIn returns the licences that a module's own files declare, as an expression of SPDX.
// The modules are here, because the program has just been compiled from them.
func licenseIn(folder string) string {
	paths, _ := filepath.Glob(filepath.Join(folder, "*"))
	var found []string
	for _, path := range paths {
		name := strings.ToUpper(filepath.Base(path))
		if !strings.HasPrefix(name, "LICENSE") && !strings.HasPrefix(name, "LICENCE") && !strings.HasPrefix(name, "COPYING") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			continue // a folder of licences
		}
		// Most of the text must be that of known licences.
		if scan := licensecheck.Scan(text); scan.Percent >= 75 {
			for _, match := range scan.Match {
				found = append(found, match.ID)
			}
		}
	}
	slices.Sort(found)
	if found = slices.Compact(found); len(found) == 0 {
		return unknown
	}
	return strings.Join(found, " AND ")
}

func goEnv(name string) (string, error) {
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		return "", fmt.Errorf("asking Go for %s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
)

// A place is the file that declares a test, and the build tag that the test needs, if any.
type place struct {
	file string // below the root, with slashes
	tag  string
}

// level is the word for what a test needs: CONTRIBUTING.md.
func (p place) level() string {
	if p.tag == "" {
		return "unit"
	}
	return p.tag
}

// locate finds the declaration of a test below root. It does not see subtests, which exist only when
// the test runs.
func locate(root string, t Test) (place, error) {
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(t.Folder), "*_test.go"))
	if err != nil {
		return place{}, err
	}
	for _, name := range files {
		source, err := os.ReadFile(name)
		if err != nil {
			return place{}, err
		}
		if !bytes.Contains(source, []byte("func "+t.Function+"(")) {
			continue // It need not be parsed.
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return place{}, err
		}
		if !declares(file, t.Function) {
			continue
		}
		tag, err := tagOf(file)
		if err != nil {
			return place{}, fmt.Errorf("%s: %w", t, err)
		}
		return place{path.Join(t.Folder, filepath.Base(name)), tag}, nil
	}
	return place{}, fmt.Errorf("there is no test %s", t)
}

func declares(file *ast.File, function string) bool {
	for _, declaration := range file.Decls {
		if f, ok := declaration.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == function {
			return true
		}
	}
	return false
}

// tagOf is the build tag that a file needs: empty, or a single one.
func tagOf(file *ast.File) (string, error) {
	for _, group := range file.Comments {
		if group.Pos() > file.Package {
			break
		}
		for _, comment := range group.List {
			if !constraint.IsGoBuild(comment.Text) {
				continue
			}
			expression, err := constraint.Parse(comment.Text)
			if err != nil {
				return "", err
			}
			tag, ok := expression.(*constraint.TagExpr)
			if !ok {
				return "", fmt.Errorf("it needs the build tags %s, and one is understood", expression)
			}
			return tag.Tag, nil
		}
	}
	return "", nil
}

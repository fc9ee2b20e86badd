// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reasons finds where the source gives a reason, so that tests can tell whether
// they have come to all of these places.
package reasons

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Site is a place in the source that gives a reason.
type Site struct {
	// At is the file, line and column.
	At string
	// Reason is the reason, as statuses have it.
	Reason string
	// Message matches what is said with it; anything where that is made somewhere else.
	Message *regexp.Regexp
}

// Sites finds them in a folder's source, tests aside: each Reason constant of the API, which
// is in the other folder, that is an argument, a result, a field or assigned, with the
// longest text beside it. One that is only compared with gives nothing.
func Sites(t testing.TB, folder, api string) (all []Site) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	constants := map[string]string{}
	set := token.NewFileSet()
	declarations, err := filepath.Glob(filepath.Join(api, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range declarations {
		parsed, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 && strings.HasPrefix(v.Names[0].Name, "Reason") {
				constants[v.Names[0].Name], _ = strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			}
			return true
		})
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		var path []ast.Node
		ast.Inspect(parsed, func(n ast.Node) bool {
			if n == nil {
				path = path[:len(path)-1]
				return true
			}
			path = append(path, n)
			selector, ok := n.(*ast.SelectorExpr)
			if !ok || !strings.HasPrefix(selector.Sel.Name, "Reason") {
				return true
			}
			if from, ok := selector.X.(*ast.Ident); !ok || from.Name != "v1beta1" {
				return true
			}
			reason, ok := constants[selector.Sel.Name]
			if !ok {
				t.Errorf("%s: %s is no constant in api/v1beta1", set.Position(n.Pos()), selector.Sel.Name)
			}
			if text, isGiven := textBeside(path); isGiven {
				all = append(all, Site{At: set.Position(n.Pos()).String(), Reason: reason, Message: pattern(text)})
			}
			return true
		})
	}
	return all
}

// textBeside is the longest text in what the last node is an argument, a result or a
// field of. isGiven is false where it is only compared.
func textBeside(path []ast.Node) (text string, isGiven bool) {
	for i := len(path) - 1; i >= 0; i-- {
		switch path[i].(type) {
		case *ast.BinaryExpr, *ast.CaseClause:
			return "", false
		case *ast.CallExpr, *ast.ReturnStmt, *ast.CompositeLit:
			ast.Inspect(path[i], func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					if s, err := strconv.Unquote(lit.Value); err == nil && len(s) > len(text) {
						text = s
					}
				}
				return true
			})
			return text, true
		case *ast.AssignStmt, *ast.BlockStmt:
			return "", true
		}
	}
	return "", true
}

// pattern matches what a format makes.
func pattern(format string) *regexp.Regexp {
	return regexp.MustCompile(regexp.MustCompile(`%[a-z]`).ReplaceAllString(regexp.QuoteMeta(format), `.*`))
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reasons finds the places in the source that give a reason, so that a test can tell
// whether it has reached all of them.
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
	// Reason is the reason, as it appears in a status.
	Reason string
	// Message matches the message given with the reason. It matches anything where another place
	// writes the message.
	Message *regexp.Regexp
}

// Sites returns the sites in a folder's source without its tests. A site is a use of one of the
// Reason constants of the API, declared in the folder api, as an argument, a result, a field or an
// assigned value. A comparison is no site.
func Sites(t testing.TB, folder, api string) (all []Site) {
	t.Helper()
	set := token.NewFileSet()
	constants := map[string]string{}
	for _, file := range parseFolder(t, set, api) {
		addReasons(file, constants)
	}
	for _, file := range parseFolder(t, set, folder) {
		var path []ast.Node
		ast.Inspect(file, func(n ast.Node) bool {
			if n == nil {
				path = path[:len(path)-1]
				return true
			}
			path = append(path, n)
			name, ok := reasonName(n)
			if !ok {
				return true
			}
			at := set.Position(n.Pos()).String()
			reason, ok := constants[name]
			if !ok {
				t.Errorf("%s: %s is not a constant of api/v1beta1", at, name)
			}
			if text, isGiven := textBeside(path); isGiven {
				all = append(all, Site{At: at, Reason: reason, Message: pattern(text)})
			}
			return true
		})
	}
	return all
}

// parseFolder parses the Go files of a folder without its tests.
func parseFolder(t testing.TB, set *token.FileSet, folder string) (parsed []*ast.File) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, f)
	}
	return parsed
}

// addReasons adds the Reason constants that a file declares, by name.
func addReasons(file *ast.File, constants map[string]string) {
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 && strings.HasPrefix(v.Names[0].Name, "Reason") {
			constants[v.Names[0].Name], _ = strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
		}
		return true
	})
}

// reasonName is the name of the Reason constant that the node selects from package v1beta1.
func reasonName(n ast.Node) (name string, ok bool) {
	selector, ok := n.(*ast.SelectorExpr)
	if !ok || !strings.HasPrefix(selector.Sel.Name, "Reason") {
		return "", false
	}
	from, ok := selector.X.(*ast.Ident)
	return selector.Sel.Name, ok && from.Name == "v1beta1"
}

// textBeside is the longest text in the call, return or literal that the last node of the path
// belongs to. isGiven is false where the node is only compared.
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

// pattern matches the texts that a format produces.
func pattern(format string) *regexp.Regexp {
	return regexp.MustCompile(regexp.MustCompile(`%[a-z]`).ReplaceAllString(regexp.QuoteMeta(format), `.*`))
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command prose extracts the texts that users read from Go and YAML files, so that Vale can
// check them: string literals with several words, and descriptions, summaries and messages.
//
// Each text is a list item on the line that it has in its source, so that Vale's line numbers
// are those of the source: bin/vale/internal/plan/plan.go.md:57 is internal/plan/plan.go:57.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	out := flag.String("out", "bin/vale", "The folder for the extracted texts.")
	flag.Parse()
	for _, root := range flag.Args() {
		if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
				return err
			}
			return extract(path, filepath.Join(*out, path+".md"))
		}); err != nil {
			fmt.Fprintln(os.Stderr, "prose:", err)
			os.Exit(1)
		}
	}
}

// extract writes the texts of one file, if it has any.
func extract(path, to string) error {
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var found texts
	switch filepath.Ext(path) {
	case ".go":
		found, err = ofGo(source)
	case ".yaml":
		found = ofYAML(source)
	}
	if err != nil || len(found) == 0 {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, []byte(strings.Join(found, "\n")+"\n"), 0o644)
}

// texts are lines of Markdown.
type texts []string

// add adds a text that begins on a line. Texts of one or two words are names or codes.
func (t *texts) add(line int, text string) {
	text = strings.ReplaceAll(strings.TrimSpace(text), "<", "&lt;")
	if len(strings.Fields(text)) < 3 {
		return
	}
	if !strings.ContainsAny(text[len(text)-1:], ".!?:;") {
		text += "."
	}
	prefix := "- "
	for i, part := range strings.Split(text, "\n") {
		if strings.HasPrefix(part, "  ") { // a table or an example: code in Markdown
			part = "    " + part
		}
		if missing := line + i - len(*t); missing > 0 {
			*t = append(*t, slices.Repeat([]string{""}, missing)...)
		} else {
			prefix = " " // a second text on the line
		}
		(*t)[line+i-1] += prefix + part
		prefix = "  "
	}
}

// ofGo finds string literals. Concatenated ones are one text.
func ofGo(source []byte) (found texts, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			n.Tag = nil
		case *ast.BasicLit, *ast.BinaryExpr:
			text, ok := literal(n.(ast.Expr))
			found.add(files.Position(n.Pos()).Line, text)
			return !ok
		}
		return true
	})
	return found, nil
}

// literal is the text of a literal, or of several that are added, with X for other values.
func literal(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, isLeft := literal(e.X)
		right, isRight := literal(e.Y)
		if e.Op == token.ADD && (isLeft || isRight) {
			return left + right, true
		}
		return "", false
	}
	return "X", false
}

var key = regexp.MustCompile(`^(\s*(?:- )?)(?:description|summary|message): (.+)$`)

// ofYAML finds descriptions, summaries and messages, of one or several lines.
func ofYAML(source []byte) (found texts) {
	lines := strings.Split(string(source), "\n")
	for i := 0; i < len(lines); i++ {
		m := key.FindStringSubmatch(lines[i])
		if m == nil {
			continue
		}
		start, text := i+1, strings.Trim(m[2], `"'`)
		if strings.ContainsAny(text[:1], "|>") {
			start, text = i+2, ""
		}
		for deeper := strings.Repeat(" ", len(m[1])+1); i+1 < len(lines) && (lines[i+1] == "" || strings.HasPrefix(lines[i+1], deeper)); i++ {
			text += "\n" + strings.TrimSpace(lines[i+1])
		}
		found.add(start, strings.TrimPrefix(text, "\n"))
	}
	return found
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command prose extracts the texts that users read from Go and YAML files, so that Vale can
// check them: string literals with several words, and descriptions, summaries and messages.
// With -comments, it extracts the comments of Go files instead, including those of tests.
//
// Each text is a list item on the line that it has in its source, so Vale's line numbers are the
// source's. For example, bin/vale/internal/plan/plan.go.md:57 is internal/plan/plan.go:57.
package main

import (
	"bytes"
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
	comments := flag.Bool("comments", false, "Extract the comments of Go files instead.")
	flag.Parse()
	readers := map[string]reader{".go": ofGo, ".yaml": ofYAML}
	if *comments {
		readers = map[string]reader{".go": ofComments}
	}
	for _, root := range flag.Args() {
		if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			read := readers[filepath.Ext(path)]
			if err != nil || d.IsDir() || read == nil || strings.HasSuffix(path, "_test.go") && !*comments {
				return err
			}
			return extract(path, filepath.Join(*out, path+".md"), read)
		}); err != nil {
			fmt.Fprintln(os.Stderr, "prose:", err)
			os.Exit(1)
		}
	}
}

// A reader finds the texts of a file.
type reader func(source []byte) (texts, error)

// extract writes the texts of one file, if it has any.
func extract(path, to string, read reader) error {
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	found, err := read(source)
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

// notProse are licences, directives, markers and examples of code.
var notProse = regexp.MustCompile(`^//(?:\t|[a-z]+:|nolint| ?\+| Copyright | SPDX-)`)

// ofComments finds the comments on lines of their own.
func ofComments(source []byte) (found texts, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(file) {
		return nil, err
	}
	lines := bytes.Split(source, []byte("\n"))
	for _, group := range file.Comments {
		start, text := files.Position(group.Pos()), ""
		if len(bytes.TrimSpace(lines[start.Line-1][:start.Column-1])) > 0 {
			continue // at the end of a line of code
		}
		for _, comment := range group.List {
			if line := comment.Text; !notProse.MatchString(line) {
				text += strings.TrimSpace(strings.TrimPrefix(line, "//"))
			}
			text += "\n"
		}
		prose := strings.TrimLeft(text, "\n")
		found.add(start.Line+len(text)-len(prose), prose)
	}
	return found, nil
}

var key = regexp.MustCompile(`^(\s*(?:- )?)(?:description|summary|message): (.+)$`)

// ofYAML finds descriptions, summaries and messages, of one or several lines.
func ofYAML(source []byte) (found texts, err error) {
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
	return found, nil
}

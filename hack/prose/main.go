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
	"strconv"
	"strings"
)

func main() {
	out := flag.String("out", "bin/vale", "The folder for the extracted texts.")
	flag.Parse()
	for _, root := range flag.Args() {
		if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			return extract(path, *out)
		}); err != nil {
			fmt.Fprintln(os.Stderr, "prose:", err)
			os.Exit(1)
		}
	}
}

// extract writes the texts of one file, if it has any.
func extract(path, out string) error {
	read := map[string]func([]byte) (texts, error){".go": ofGo, ".yaml": ofYAML}[filepath.Ext(path)]
	if read == nil || strings.HasSuffix(path, "_test.go") {
		return nil
	}
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	found, err := read(source)
	if err != nil || len(found) == 0 {
		return err
	}
	path = filepath.Join(out, path+".md")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(found.markdown()), 0o644)
}

// texts are lines of Markdown, by the number of their line.
type texts map[int]string

func (t texts) markdown() string {
	var b strings.Builder
	for line, left := 1, len(t); left > 0; line++ {
		if text, ok := t[line]; ok {
			b.WriteString(text)
			left--
		}
		b.WriteByte('\n')
	}
	return b.String()
}

var (
	words = regexp.MustCompile(`(?s)\pL\S* .*\S* \S*\pL`)
	ends  = regexp.MustCompile(`[.!?…:;]["')]*$`)
)

// add adds a text of one or several lines. Texts of fewer than three words are names or codes.
func (t texts) add(line int, text string) {
	if !words.MatchString(text) {
		return
	}
	if text = strings.TrimSpace(text); !ends.MatchString(text) {
		text += "."
	}
	text = strings.ReplaceAll(text, "<", "&lt;")
	if before, ok := t[line]; ok {
		t[line] = before + " " + strings.ReplaceAll(text, "\n", " ")
		return
	}
	prefix := "- "
	for i, part := range strings.Split(text, "\n") {
		if strings.HasPrefix(part, "  ") { // a table or an example, which Markdown takes for code
			part = "    " + part
		}
		t[line+i], prefix = prefix+part, "  "
	}
}

// ofGo finds string literals. Concatenated ones are one text.
func ofGo(source []byte) (texts, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	found := texts{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec, *ast.Field:
			_, isField := n.(*ast.Field)
			return isField && n.(*ast.Field).Tag == nil
		case *ast.BasicLit, *ast.BinaryExpr:
			text, ok := literal(n.(ast.Expr))
			if ok {
				found.add(files.Position(n.Pos()).Line, text)
			}
			return !ok
		}
		return true
	})
	return found, nil
}

// literal is the text of a literal, or of several with other values between them.
func literal(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		left, leftOK := literal(e.X)
		right, rightOK := literal(e.Y)
		if e.Op != token.ADD || !leftOK && !rightOK {
			return "", false
		}
		return left + right, true
	}
	return "X", false
}

var key = regexp.MustCompile(`^(\s*(?:- )?)(?:description|summary|message): (.+)$`)

// ofYAML finds descriptions, summaries and messages, of one or several lines.
func ofYAML(source []byte) (texts, error) {
	found := texts{}
	lines := strings.Split(string(source), "\n")
	for i := 0; i < len(lines); i++ {
		m := key.FindStringSubmatch(lines[i])
		if m == nil {
			continue
		}
		start, parts := i, []string{strings.Trim(m[2], `"'`)}
		if strings.HasPrefix(m[2], "|") || strings.HasPrefix(m[2], ">") {
			start, parts = i+1, nil
		}
		for ; i+1 < len(lines) && (strings.TrimSpace(lines[i+1]) == "" || strings.HasPrefix(lines[i+1], strings.Repeat(" ", len(m[1])+1))); i++ {
			parts = append(parts, strings.TrimSpace(lines[i+1]))
		}
		found.add(start+1, strings.Join(parts, "\n"))
	}
	return found, nil
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package commands finds the commands in the documentation and checks, without running
// them, that the targets, tests and scripts that they name exist.
package commands

import (
	"fmt"
	"go/build/constraint"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	inlineCode = regexp.MustCompile("`([^`\n]+)`")
	isCommand  = regexp.MustCompile(`^(make|go test|\.ci/[\w-]+|hack/[\w./-]+\.sh)( |$)`)
	comment    = regexp.MustCompile(`\s+#.*$`)
)

// Of lists the commands in a Markdown text that call make, go test or a script of this
// repository: the lines of code blocks and inline code.
func Of(markdown string) (commands []string) {
	add := func(text string) {
		text = strings.TrimPrefix(comment.ReplaceAllString(strings.TrimSpace(text), ""), "$ ")
		for part := range strings.SplitSeq(text, " && ") {
			if isCommand.MatchString(part) {
				commands = append(commands, part)
			}
		}
	}
	fenced := false
	for line := range strings.Lines(markdown) {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			fenced = !fenced
		case fenced, strings.HasPrefix(line, "    "):
			add(line)
		default:
			// In a table, "|" is escaped.
			for _, match := range inlineCode.FindAllStringSubmatch(strings.ReplaceAll(line, `\|`, "|"), -1) {
				add(match[1])
			}
		}
	}
	return commands
}

// packagesOf are the packages that a target tests if PKG does not say. A target without
// an entry tests all packages.
var packagesOf = map[string][]string{
	"test-integration": {"./test/stepped", "./test/integration"},
	"test-cluster":     {"./test/cluster", "./test/install"},
	"test-olm":         {"./test/olm"},
	"test-node":        {"./test/node"},
	"test-node-olm":    {"./test/node/olm"},
	"test-prometheus":  {"./test/prometheus", "./test/prometheus/rules"},
	"test-web":         {"./cmd/kubectl-vscaler"},
	"bundle-validate":  {"./test/bundle"},
}

// tagOf is the build tag of a target's tests.
func tagOf(target string) string {
	switch target {
	case "bundle-validate":
		return "sdk"
	case "test-node-olm":
		return "node"
	case "bench":
		return "integration"
	}
	return strings.TrimPrefix(target, "test-")
}

// Check says what a command names that does not exist below root, the folder of the
// Makefile.
func Check(root, command string) error {
	words, err := split(command)
	if err != nil {
		return err
	}
	switch words[0] {
	case "make":
		return checkMake(root, words[1:])
	case "go":
		return tests{root: root}.parse(words[2:]).check()
	default:
		_, err := os.Stat(filepath.Join(root, filepath.FromSlash(words[0])))
		return err
	}
}

func checkMake(root string, words []string) error {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		return err
	}
	var targets []string
	t := tests{root: root}
	for _, word := range words {
		name, value, isVariable := strings.Cut(word, "=")
		switch {
		case isVariable && name == "PKG":
			t.packages = strings.Fields(value)
		case isVariable && name == "ARGS":
			arguments, err := split(value)
			if err != nil {
				return err
			}
			t = t.parse(arguments)
		case isVariable, strings.HasPrefix(word, "-"):
		default:
			if !strings.Contains(string(makefile), "\n"+word+":") {
				return fmt.Errorf("the Makefile has no target %s", word)
			}
			targets = append(targets, word)
			t.tags = append(t.tags, tagOf(word))
		}
	}
	if len(targets) == 0 {
		return nil
	}
	if len(t.packages) == 0 {
		t.packages = packagesOf[targets[0]]
	}
	return t.check()
}

// tests are what a command selects.
type tests struct {
	root     string
	packages []string // none: all
	tags     []string
	patterns []string // of -run, -bench and -fuzz
}

// parse adds what the arguments of go test select.
func (t tests) parse(arguments []string) tests {
	for i, argument := range arguments {
		name, value, hasValue := strings.Cut(argument, "=")
		if !hasValue && i+1 < len(arguments) {
			value = arguments[i+1]
		}
		switch name {
		case "-run", "-bench", "-fuzz":
			t.patterns = append(t.patterns, value)
		case "-tags":
			t.tags = append(t.tags, strings.Split(value, ",")...)
		default:
			if strings.HasPrefix(argument, "./") {
				t.packages = append(t.packages, argument)
			}
		}
	}
	return t
}

// check fails unless there are the packages, and a test for each alternative of each
// pattern.
func (t tests) check() error {
	var names []string
	for _, pkg := range t.packages {
		found, err := t.testsIn(pkg)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return fmt.Errorf("package %s has no tests with the build tags %q", pkg, t.tags)
		}
		names = append(names, found...)
	}
	if len(t.packages) == 0 && len(t.patterns) > 0 {
		var err error
		if names, err = t.testsIn("./..."); err != nil {
			return err
		}
	}
	for _, pattern := range t.patterns {
		if err := matches(pattern, names); err != nil {
			return err
		}
	}
	return nil
}

// matches fails unless each alternative of a pattern matches a name.
func matches(pattern string, names []string) error {
	for alternative := range strings.SplitSeq(pattern, "|") {
		if alternative == "^$" {
			continue // no test, beside a benchmark
		}
		alternative, _, _ = strings.Cut(alternative, "/")
		expression, err := regexp.Compile(alternative)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(names, expression.MatchString) {
			return fmt.Errorf("no test matches %q", alternative)
		}
	}
	return nil
}

var function = regexp.MustCompile(`^func ((?:Test|Benchmark|Fuzz|Example)\w*)\(`)

// testsIn lists the tests of a package, or of all packages below it.
func (t tests) testsIn(pkg string) (names []string, err error) {
	dir, isTree := strings.CutSuffix(pkg, "...")
	dir = filepath.Join(t.root, filepath.FromSlash(dir))
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != dir && (!isTree || entry.Name() == "bin" || strings.HasPrefix(entry.Name(), ".")):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil || !t.builds(string(source)) {
			return err
		}
		for line := range strings.Lines(string(source)) {
			if match := function.FindStringSubmatch(line); match != nil {
				names = append(names, match[1])
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("looking for tests in %s: %w", pkg, err)
	}
	return names, nil
}

// builds says whether a file is built with the tags.
func (t tests) builds(source string) bool {
	for line := range strings.Lines(source) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "package ") {
			break
		}
		if !constraint.IsGoBuild(line) {
			continue
		}
		expression, err := constraint.Parse(line)
		return err == nil && expression.Eval(func(tag string) bool { return tag == "linux" || slices.Contains(t.tags, tag) })
	}
	return true
}

// split splits a command into words as a shell does, as far as quotes go.
func split(command string) (words []string, err error) {
	var word strings.Builder
	quote, inWord := rune(0), false
	for _, r := range command {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, inWord = r, true
		case quote == 0 && r == ' ':
			if inWord {
				words = append(words, word.String())
				word.Reset()
			}
			inWord = false
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a quote is not closed in %s", command)
	}
	if inWord {
		words = append(words, word.String())
	}
	if len(words) == 0 {
		return nil, fmt.Errorf("there is no command in %q", command)
	}
	return words, nil
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// commands are all commands that do something, but for those of cobra.
func commands(t *testing.T) (all []*cobra.Command) {
	t.Helper()
	var add func(c *cobra.Command)
	add = func(c *cobra.Command) {
		if c.HasParent() && !c.HasSubCommands() {
			all = append(all, c)
		}
		for _, sub := range c.Commands() {
			add(sub)
		}
	}
	root, _ := newRoot(genericiooptions.NewTestIOStreamsDiscard())
	add(root)
	if len(all) < 12 {
		t.Fatalf("only %d commands are found", len(all))
	}
	return all
}

// verb is the command without the program: "import vpa".
func verb(c *cobra.Command) string { return strings.TrimPrefix(c.CommandPath(), cli.Name+" ") }

func TestEveryCommandIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/plugin.md")
	must.Succeed(t, err)
	headings := regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(string(page), -1)
	for _, c := range commands(t) {
		isIn := func(heading []string) bool { return slices.Contains(strings.Split(heading[1], " and "), verb(c)) }
		if !slices.ContainsFunc(headings, isIn) {
			t.Errorf("docs/plugin.md has no section %q", verb(c))
		}
		if c.Short == "" || !strings.Contains(c.Long, "Exit codes: 0: ") {
			t.Errorf("%s --help has no summary, or no exit codes", verb(c))
		}
		for line := range strings.SplitSeq(c.Long, "\n") {
			if utf8.RuneCountInString(line) > 130 {
				t.Errorf("%s --help: a line of %d columns: %s", verb(c), utf8.RuneCountInString(line), line)
			}
		}
	}
}

func TestEveryCommandIsCompleted(t *testing.T) {
	for _, c := range commands(t) {
		words := strings.Fields(verb(c))
		words[len(words)-1] = words[len(words)-1][:1]
		if out, _, _ := run(t, nil, append([]string{"__complete"}, words...)...); !strings.Contains(out, c.Name()+"\t"+c.Short) {
			t.Errorf("%q is not completed: %s", verb(c), out)
		}
		if c.ValidArgsFunction == nil {
			t.Errorf("the arguments of %s are completed with files", verb(c))
		}
		for _, name := range []string{"output", "sort-by", "dry-run", "to", "profile", "policy"} {
			flag := c.Flags().Lookup(name)
			if flag == nil || verb(c) == "support-bundle" { // its output is a file
				continue
			}
			complete, ok := c.GetFlagCompletionFunc(name)
			if !ok {
				t.Errorf("the values of %s --%s are not completed", verb(c), name)
				continue
			}
			values, _ := complete(c, nil, "")
			for _, value := range values {
				if (name == "output" || name == "sort-by" || name == "to") && !strings.Contains(flag.Usage, value) {
					t.Errorf("%s --help does not name --%s=%s", verb(c), name, value)
				}
			}
		}
	}
}

// The commands in the documentation and in the examples have only flags that exist.
func TestDocumentedCommandsExist(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	must.Succeed(t, err)
	texts := map[string]string{}
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		must.Succeed(t, err)
		texts[page] = string(text)
	}
	for _, c := range commands(t) {
		texts[verb(c)+" --help"] = c.Example
	}
	// In a block, the command ends with the line, a pipe, a redirection or a comment; in a text, with a backtick.
	command := regexp.MustCompile("kubectl vscaler (-?-?[a-z][^\n`|>#]*)")
	checked := 0
	for name, text := range texts {
		for _, match := range command.FindAllStringSubmatch(strings.ReplaceAll(text, "kubectl vscaler [", ""), -1) {
			checked++
			if what := wrongIn(strings.Fields(match[1])); what != "" {
				t.Errorf("%s: kubectl vscaler %s: %s", name, match[1], what)
			}
		}
	}
	for _, args := range [][]string{{"statsu"}, {"status", "--everything"}, {"top", "web", "-x"}, {"import", "vpa", "--to=x"}} {
		if wrongIn(args) == "" {
			t.Errorf("%v is not found to be wrong", args)
		}
	}
	if checked < 60 {
		t.Errorf("only %d commands are found", checked)
	}
}

// wrongIn says what is wrong with the arguments of the program; empty if nothing is.
func wrongIn(args []string) string {
	root, _ := newRoot(genericiooptions.NewTestIOStreamsDiscard())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	c, rest, err := root.Find(args)
	switch {
	case err != nil:
		return err.Error()
	case c == root && len(args) > 0 && !strings.HasPrefix(args[0], "-"):
		return "there is no such command"
	}
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	for i, arg := range rest {
		if arg == "-" || !strings.HasPrefix(arg, "-") {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimRight(strings.TrimLeft(arg, "-"), ".,;:)"), "=")
		flag := c.Flag(name)
		if !strings.HasPrefix(arg, "--") {
			flag = c.Flags().ShorthandLookup(name)
			if flag == nil {
				flag = c.InheritedFlags().ShorthandLookup(name)
			}
		}
		if flag == nil {
			return "there is no flag " + rest[i]
		}
	}
	return ""
}

// The shortcuts for k9s call commands of this plugin with flags that it has, and ask before they
// change something.
func TestK9sCallsWhatExists(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "..", "config", "k9s", "plugins.yaml"))
	must.Succeed(t, err)
	var file struct {
		Plugins map[string]struct {
			ShortCut, Description, Command string
			Scopes, Args                   []string
			Background, Confirm            bool
		}
	}
	if err := yaml.UnmarshalStrict(content, &file); err != nil || len(file.Plugins) < 5 {
		t.Fatalf("%v: there are only %d plugins", err, len(file.Plugins))
	}
	shortCuts := map[string]bool{}
	for name, plugin := range file.Plugins {
		for _, scope := range plugin.Scopes {
			if shortCuts[scope+plugin.ShortCut] {
				t.Errorf("%s has the shortcut of another one", name)
			}
			shortCuts[scope+plugin.ShortCut] = true
		}
		script, _, _ := strings.Cut(strings.ReplaceAll(strings.Join(plugin.Args, " "), `"`, ""), " 2>&1 | ")
		words := strings.Fields(strings.TrimPrefix(plugin.Command+" "+script, "sh -c "))
		if len(words) < 3 || words[0] != "kubectl" || words[1] != "vscaler" {
			t.Fatalf("%s runs %q", name, words)
		}
		if what := wrongIn(words[2:]); what != "" || plugin.Description == "" || len(plugin.Scopes) == 0 {
			t.Errorf("%s: %s: it has the description %q and the scopes %q", name, what, plugin.Description, plugin.Scopes)
		}
		if changes := slices.Contains([]string{"suspend", "resume", "rollback"}, words[2]); plugin.Confirm != changes || plugin.Background != changes {
			t.Errorf("%s is confirmed: %t, in the background: %t", name, plugin.Confirm, plugin.Background)
		}
	}
}

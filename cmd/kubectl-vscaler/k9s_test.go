// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"
)

// k9sPlugin is what a plugin of k9s consists of.
type k9sPlugin struct {
	ShortCut    string   `json:"shortCut"`
	Description string   `json:"description"`
	Scopes      []string `json:"scopes"`
	Command     string   `json:"command"`
	Background  bool     `json:"background"`
	Confirm     bool     `json:"confirm"`
	Args        []string `json:"args"`
}

// The shortcuts for k9s call commands of this plugin with flags that it has, and ask before they
// change something.
func TestK9sCallsWhatExists(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "..", "config", "k9s", "plugins.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Plugins map[string]k9sPlugin `json:"plugins"`
	}
	if err := yaml.UnmarshalStrict(content, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Plugins) < 5 {
		t.Errorf("there are only %d plugins", len(file.Plugins))
	}
	shortCuts := map[string]string{}
	for name, plugin := range file.Plugins {
		t.Run(name, func(t *testing.T) {
			if plugin.Description == "" || len(plugin.Scopes) == 0 {
				t.Errorf("it has the description %q and the scopes %q", plugin.Description, plugin.Scopes)
			}
			for _, scope := range plugin.Scopes {
				if other := shortCuts[scope+plugin.ShortCut]; other != "" {
					t.Errorf("%s has the same shortcut", other)
				}
				shortCuts[scope+plugin.ShortCut] = name
			}
			verb := parsedVerb(t, plugin)
			changes := slices.Contains([]string{"suspend", "resume", "rollback"}, verb)
			if plugin.Confirm != changes || plugin.Background != changes {
				t.Errorf("%s is confirmed: %t, in the background: %t", verb, plugin.Confirm, plugin.Background)
			}
		})
	}
}

// parsedVerb is the command that a plugin of k9s calls, with a check of its flags.
func parsedVerb(t *testing.T, plugin k9sPlugin) string {
	t.Helper()
	words := append([]string{plugin.Command}, plugin.Args...)
	if plugin.Command == "sh" {
		script, _, _ := strings.Cut(plugin.Args[1], " 2>&1 | ")
		words = strings.Fields(strings.ReplaceAll(script, `"`, ""))
	}
	if len(words) < 3 || words[0] != "kubectl" || words[1] != "vscaler" {
		t.Fatalf("it runs %q", words)
	}
	root, _ := newRoot(genericiooptions.NewTestIOStreamsDiscard())
	command, rest, err := root.Find(words[2:])
	if err != nil {
		t.Fatal(err)
	}
	if err := command.ParseFlags(rest); err != nil {
		t.Error(err)
	}
	if err := command.ValidateArgs(command.Flags().Args()); err != nil {
		t.Error(err)
	}
	return command.Name()
}

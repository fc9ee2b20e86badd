// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// The shortcuts for k9s call commands of this plugin with flags that it has, and ask before they
// change something.
func TestK9sCallsWhatExists(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "..", "config", "k9s", "plugins.yaml"))
	if err != nil {
		t.Fatal(err)
	}
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

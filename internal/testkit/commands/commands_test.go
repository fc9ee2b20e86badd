// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package commands_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/commands"
)

func TestCommandsAreFoundInCodeOnly(t *testing.T) {
	const text = "Run make nothing, `make test`, or `kubectl get pods`.\n" +
		"| a claim | `go test ./x -run 'A\\|B'` |\n\n" +
		"    make demo DEMO=once   # ends by itself\n\n" +
		"```\n$ make fmt && make lint\n.ci/run\n```\n"
	want := []string{"make test", "go test ./x -run 'A|B'", "make demo DEMO=once", "make fmt", "make lint", ".ci/run"}
	if diff := cmp.Diff(want, commands.Of(text)); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
}

func TestACommandThatNamesNothingIsRefused(t *testing.T) {
	for command, good := range map[string]bool{
		"make demo DEMO=once": true,
		"make nothing":        false,
		"make fmt nothing":    false,
		"hack/verify.sh":      true,
		"hack/nothing.sh":     false,
		"go test ./internal/testkit/commands -run TestCommands":                    true,
		"go test ./internal/testkit/commands -run 'TestCommands|TestACommand'":     true,
		"go test ./internal/testkit/commands -run 'TestCommands|TestNoSuchThing'":  false,
		"go test ./internal/testkit/commands -run TestCommands/a":                  true,
		"go test ./internal/nothing -run TestCommands":                             false,
		"go test ./internal/testkit/...":                                           true,
		"go test ./test/cluster -run TestInPlaceSizes":                             false, // needs a tag
		"go test -tags cluster ./test/cluster -run TestInPlaceSizes":               true,
		"make test PKG=./internal/testkit/commands ARGS='-run TestCommands -v'":    true,
		"make test PKG=./internal/testkit/commands ARGS='-run TestNoSuchThing -v'": false,
		"make test ARGS='-run TestCommands'":                                       true,
		"make test ARGS='-run TestNoSuchThing'":                                    false,
		"make test PKG=./test/cluster ARGS='-run TestInPlaceSizes'":                false, // another target's
		"make test-cluster ARGS='-run TestInPlaceSizes -v'":                        true,
		"make test-cluster ARGS='-run TestNoSuchThing -v'":                         false,
		"make test-integration ARGS=-v":                                            true,
		"make test-integration PKG=./test/benchmark ARGS='-bench TemplateChange'":  true,
		"make test-integration PKG=./test/benchmark ARGS='-bench NoSuchThing'":     false,
		"make bench ARGS=-record":                                                  true,
		"make bench PKG=./test/benchmark ARGS='-bench PodCreation'":                true,
		"make bench PKG=./test/benchmark ARGS='-bench NoSuchThing'":                false,
		"make test ARGS='-run TestCommands":                                        false, // a quote is open
	} {
		if err := commands.Check("../../..", command); (err == nil) != good {
			t.Errorf("%s: %v", command, err)
		}
	}
}

func TestTablesAreRead(t *testing.T) {
	const text = "# Page\n\n| a | b |\n|---|---|\n| x | `A\\|B` |\n| y | |\n\ntext\n\n## More\n\n| c |\n|---|\n| z |\n"
	want := []commands.Row{
		{Heading: "Page", Cells: []string{"x", "`A|B`"}}, {Heading: "Page", Cells: []string{"y", ""}}, {Heading: "More", Cells: []string{"z"}},
	}
	if diff := cmp.Diff(want, commands.Rows(text)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

func TestEvidenceThatDoesNotExistIsRefused(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	for evidence, good := range map[string]bool{
		"docs/README.md": true, "docs/nothing.md": false, "make test": true, "make nothing": false, "a word": false,
	} {
		if err := commands.Exists(root, evidence); (err == nil) != good {
			t.Errorf("%q: %v", evidence, err)
		}
	}
}

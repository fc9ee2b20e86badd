// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBuildForTwoPlatforms(t *testing.T) {
	folder := t.TempDir()
	for name, content := range map[string]string{
		"Dockerfile":     "FROM scratch\nARG TARGETARCH\nARG VERSION\nLABEL version=$VERSION\nCOPY --from=build $TARGETARCH/tool /tool\n",
		"out/amd64/tool": "a", "out/arm64/tool": "b",
	} {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	archive := filepath.Join(folder, "new", "tool.tar")
	var out bytes.Buffer
	err := run([]string{
		"build", "-name", "example.com:5000/shop/tool:v1", "-file", filepath.Join(folder, "Dockerfile"),
		"-stage", "build=" + filepath.Join(folder, "out"), "-arg", "VERSION=v1", "-platform", "linux/amd64,linux/arm64",
		"-archive", archive,
	}, nil, &out)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(out.String()); got != archive {
		t.Errorf("it prints %q, want the archive", got)
	}
	if _, err := os.Stat(archive); err != nil {
		t.Error(err)
	}
}

func TestRunExplainsMistakes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "Dockerfile")
	if err := os.WriteFile(file, []byte("FROM debian"), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		args []string
		want string
	}{
		"no command":         {nil, "a command is missing"},
		"an unknown command": {[]string{"biuld"}, `there is no command "biuld"`},
		"an argument":        {[]string{"build", "x"}, `unexpected argument "x"`},
		"no name":            {[]string{"build", "-archive", "a.tar"}, "-name and -archive are required"},
		"half a label":       {[]string{"build", "-label", "a"}, "want KEY=VALUE"},
		"another system": {
			[]string{"build", "-name", "a:b", "-archive", "a.tar", "-file", file, "-platform", "darwin/arm64"}, "want linux/ARCH",
		},
		"a base image": {[]string{"build", "-name", "a:b", "-archive", "a.tar", "-file", file}, "must be FROM scratch"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := run(tc.args, nil, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("run() = %v, want an error with %q", err, tc.want)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	for args, want := range map[string]string{"--help": "channels", "build -help": "-platform"} {
		var out bytes.Buffer
		if err := run(strings.Fields(args), nil, &out); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("images %s prints %q, %v", args, out.String(), err)
		}
	}
}

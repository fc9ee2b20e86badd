// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The page about Go shows the code of the example, which is tested with an API server.
func TestThePageAboutGoShowsTheExample(t *testing.T) {
	code := read(t, filepath.Join(root, "examples", "create-scaler", "main.go"))
	from := strings.Index(code, "// connect returns")
	if from < 0 {
		t.Fatal("the example has no function connect")
	}
	page := read(t, filepath.Join(root, "docs", "go-client.md"))
	if want := "```go\n" + code[from:] + "```\n"; !strings.Contains(page, want) {
		t.Errorf("docs/go-client.md does not show the example:\n%s", want)
	}
	imports, _, _ := strings.Cut(code, "func main()")
	_, shown, _ := strings.Cut(page, "The imports are:\n\n```go\n")
	shown, _, _ = strings.Cut(shown, "```")
	for line := range strings.Lines(shown) {
		if !strings.Contains(imports, "\t"+line) {
			t.Errorf("the example does not import %s", line)
		}
	}
}

// The modules that use the API ask for the version that is released with the operator.
func TestTheAPIHasTheVersionOfTheOperator(t *testing.T) {
	manager := read(t, filepath.Join(root, "config", "manager", "kustomization.yaml"))
	version := regexp.MustCompile(`newTag: (v\S+)`).FindStringSubmatch(manager)[1]
	const api = "github.com/verticalscaler/verticalscaler-operator/api"
	for _, module := range []string{".", "examples/create-scaler", "hack/vpa"} {
		if want := api + " " + version + "\n"; !strings.Contains(read(t, filepath.Join(root, module, "go.mod")), want) {
			t.Errorf("%s/go.mod does not ask for %s: see docs/release.md", module, want)
		}
	}
}

// A program that imports the types compiles no client and nothing of the operator.
func TestTheAPIBringsFewPackages(t *testing.T) {
	packages := func(of string) (outside []string) {
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", of)
		list.Dir = filepath.Join(root, "api")
		list.Env = append(os.Environ(), "GOWORK=off")
		out, err := list.Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(out))
	}
	record := read(t, filepath.Join(root, "docs", "adr", "0058-the-api-is-a-module-for-old-libraries.md"))
	for of, row := range map[string]string{"./v1beta1": "`api/v1beta1`", "./...": "with the apply configurations"} {
		found := packages(of)
		if !regexp.MustCompile(row + ` \| \d+ \| ` + fmt.Sprint(len(found)) + ` \|`).MatchString(record) {
			t.Errorf("ADR 58 does not say that %s has %d packages", row, len(found))
		}
		for _, path := range found {
			if of == "./v1beta1" && strings.HasPrefix(path, "k8s.io/client-go/") || strings.HasPrefix(path, "sigs.k8s.io/controller-runtime") {
				t.Errorf("%s brings %s", of, path)
			}
		}
	}
}

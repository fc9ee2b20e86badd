// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestLimitMemory(t *testing.T) {
	for name, tc := range map[string]struct {
		limit, goLimit string
		want           int64
		wrong          bool
	}{
		"nothing is set":              {want: math.MaxInt64},
		"a tenth is left":             {limit: "536870912", want: 483183820},
		"a limit that was raised":     {limit: "2147483648", want: 1932735283},
		"more than any machine has":   {limit: "9223372036854775807", want: 8301034833169298226},
		"GOMEMLIMIT takes precedence": {limit: "536870912", goLimit: "1GiB", want: math.MaxInt64},
		"no number":                   {limit: "512Mi", wrong: true},
		"no limit":                    {limit: "0", wrong: true},
		"negative":                    {limit: "-1", wrong: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() { debug.SetMemoryLimit(math.MaxInt64) })
			debug.SetMemoryLimit(math.MaxInt64)
			err := LimitMemory(func(key string) string {
				return map[string]string{MemoryLimitEnv: tc.limit, "GOMEMLIMIT": tc.goLimit}[key]
			})
			if (err != nil) != tc.wrong {
				t.Fatalf("LimitMemory() = %v", err)
			}
			if got := debug.SetMemoryLimit(-1); !tc.wrong && (got > tc.want || float64(got) < 0.99*float64(tc.want)) {
				t.Errorf("Go's limit is %d, want %d", got, tc.want)
			}
		})
	}
}

// However the operator is installed, it knows the memory limit of its own container, also
// after a user has changed the limit. A GOMEMLIMIT of its own would not follow.
func TestTheContainerPassesItsMemoryLimit(t *testing.T) {
	for _, file := range []string{"dist/install.yaml", "bundle/manifests/verticalscaler-operator.clusterserviceversion.yaml"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", file))
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			var content any
			if err := yaml.Unmarshal([]byte(document), &content); err != nil {
				t.Fatal(err)
			}
			eachManager(content, func(container map[string]any) {
				found++
				passesItsMemoryLimit(t, file, container)
			})
		}
		if found != 1 {
			t.Errorf("%s has %d managers", file, found)
		}
	}
}

// eachManager calls back for each container manager in a document.
func eachManager(content any, found func(container map[string]any)) {
	switch content := content.(type) {
	case map[string]any:
		if content["name"] == "manager" && content["env"] != nil {
			found(content)
		}
		for _, inner := range content {
			eachManager(inner, found)
		}
	case []any:
		for _, inner := range content {
			eachManager(inner, found)
		}
	}
}

func passesItsMemoryLimit(t *testing.T, file string, container map[string]any) {
	t.Helper()
	if limit, _, err := unstructured.NestedString(container, "resources", "limits", "memory"); err != nil || limit == "" {
		t.Errorf("%s: the manager has no memory limit: %v", file, container["resources"])
	}
	passed := false
	variables, _, err := unstructured.NestedSlice(container, "env")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range variables {
		variable, ok := e.(map[string]any)
		if !ok {
			t.Fatalf("%s: %v is no variable", file, e)
		}
		if variable["name"] == "GOMEMLIMIT" {
			t.Errorf("%s: the manager has %v", file, variable)
		}
		if variable["name"] != MemoryLimitEnv {
			continue
		}
		reference, _, err := unstructured.NestedMap(variable, "valueFrom", "resourceFieldRef")
		if err != nil {
			t.Fatal(err)
		}
		passed = reference["containerName"] == "manager" && reference["resource"] == "limits.memory" && (reference["divisor"] == nil || reference["divisor"] == "0")
	}
	if !passed {
		t.Errorf("%s: %s is not the memory limit of the manager: %v", file, MemoryLimitEnv, container["env"])
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package fakenode

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/utils/expression"
)

func TestKwokAcceptsTheConfiguration(t *testing.T) {
	content, err := Config()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(content, "${") {
		t.Error("a placeholder was left in the configuration")
	}
	file := filepath.Join(t.TempDir(), "kwok.yaml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	objects, err := config.Load(context.Background(), file)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, stage := range config.FilterWithType[*internalversion.Stage](objects) {
		names = append(names, stage.Name)
		for _, match := range stage.Spec.Selector.MatchExpressions {
			if _, err := expression.NewRequirement(match.JQ.Key, match.JQ.Operator, match.JQ.Values); err != nil {
				t.Errorf("stage %s: %s: %v", stage.Name, match.JQ.Key, err)
			}
		}
	}
	slices.Sort(names)
	want := []string{
		"node-heartbeat-with-lease", "node-initialize", "pod-complete", "pod-delete", "pod-observe", "pod-oom",
		"pod-ready", "pod-resize", "pod-resize-pending", "pod-restart",
	}
	if !slices.Equal(names, want) {
		t.Errorf("stages are %q, want %q", names, want)
	}
	if got := len(config.FilterWithType[*internalversion.Metric](objects)); got != 1 {
		t.Errorf("%d metrics, want 1", got)
	}
	if got := len(config.FilterWithType[*internalversion.ClusterResourceUsage](objects)); got != 1 {
		t.Errorf("%d usages, want 1", got)
	}
}

func TestResized(t *testing.T) {
	container := func(name, cpu string) map[string]any {
		return map[string]any{"name": name, "resources": map[string]any{"requests": map[string]any{"cpu": cpu}}}
	}
	sidecar := container("side", "1")
	sidecar["restartPolicy"] = "Always"
	plain := map[string]any{"name": "main"}
	empty := map[string]any{"name": "main", "resources": map[string]any{}}

	cases := map[string]struct {
		containers, inits, statuses, initStatuses []any
		want                                      bool
	}{
		"same resources":                        {containers: []any{container("main", "1")}, statuses: []any{container("main", "1")}},
		"other resources":                       {containers: []any{container("main", "2")}, statuses: []any{container("main", "1")}, want: true},
		"order does not matter":                 {containers: []any{container("a", "1"), container("b", "2")}, statuses: []any{container("b", "2"), container("a", "1")}},
		"the second container differs":          {containers: []any{container("a", "1"), container("b", "2")}, statuses: []any{container("a", "1"), container("b", "1")}, want: true},
		"no resources are empty resources":      {containers: []any{plain}, statuses: []any{empty}},
		"resources appear":                      {containers: []any{container("main", "1")}, statuses: []any{empty}, want: true},
		"a container without a status is none":  {containers: []any{container("main", "1")}},
		"a sidecar differs":                     {containers: []any{plain}, statuses: []any{empty}, inits: []any{sidecar}, initStatuses: []any{container("side", "2")}, want: true},
		"a finished init container is left out": {containers: []any{plain}, statuses: []any{empty}, inits: []any{container("init", "1")}, initStatuses: []any{container("init", "2")}},
	}
	query, err := expression.NewQuery(resized)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := map[string]any{
				"spec":   map[string]any{"containers": tc.containers},
				"status": map[string]any{"containerStatuses": tc.statuses},
			}
			if tc.inits != nil {
				pod["spec"].(map[string]any)["initContainers"] = tc.inits
				pod["status"].(map[string]any)["initContainerStatuses"] = tc.initStatuses
			}
			got, err := query.Execute(context.Background(), pod)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != 1 || got[0] != tc.want {
				t.Errorf("resized = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestNodes(t *testing.T) {
	nodes := Nodes(2)
	if len(nodes) != 2 || nodes[0].Name != "fake-1" || nodes[1].Name != "fake-2" {
		t.Fatalf("Nodes(2) = %v, want fake-1 and fake-2", nodes)
	}
	for _, node := range nodes {
		room := node.Status.Allocatable
		if room.Cpu().String() != "8" || room.Memory().String() != "16Gi" || room.Pods().String() != "110" {
			t.Errorf("%s has room for %v, want 8 CPUs, 16Gi, 110 pods", node.Name, room)
		}
		if got, want := node.Annotations["metrics.k8s.io/resource-metrics-path"], "/metrics/nodes/"+node.Name+"/metrics/resource"; got != want {
			t.Errorf("%s has its metrics at %s, want %s", node.Name, got, want)
		}
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// PatchFormat is a format of patches.
type PatchFormat string

// The formats of patches.
const (
	// Kustomize is a strategic merge patch for each workload, for a Kustomize component.
	Kustomize PatchFormat = "kustomize"
	// SSA is a manifest for each workload with only the fields that kubectl apply --server-side owns.
	SSA PatchFormat = "ssa"
	// HelmValues are values for the chart of each workload.
	HelmValues PatchFormat = "helm-values"
)

// PatchFormats are all formats.
func PatchFormats() []PatchFormat { return []PatchFormat{Kustomize, SSA, HelmValues} }

// PatchHeader is the first line of each file, and marks it as written by this package.
const PatchHeader = "# Written by kubectl vscaler report.\n"

// Patch is a file that sets the requests of a workload to those for Git.
type Patch struct {
	// File is the name of the file, unique to the workload.
	File string
	Text []byte
}

// Patches are patches, by file name, for workloads with a container whose request differs from the recommendation for Git. Each
// has all containers of the report. Limits that are set follow the requests in proportion, like those of a scaler. There are
// none for workloads that another object controls: it would undo them. Rollouts have Helm values only: without the schema of
// their kind, a merge replaces the whole list of containers. The path locates the resources of a container in Helm values, with
// the placeholders {deployment} and {container}; empty means DefaultHelmPath.
func (r *Report) Patches(format PatchFormat, path string) (patches []Patch, err error) {
	byFile := map[string][]*Row{}
	for i := range r.Containers {
		row := &r.Containers[i]
		file := row.Namespace + "_" + row.Kind + "_" + row.Workload + ".yaml" // names have no underscore
		byFile[file] = append(byFile[file], row)
	}
	for file, rows := range byFile {
		differs := slices.ContainsFunc(rows, func(row *Row) bool { return row.Git() != row.Requests })
		if !differs || rows[0].Controller != "" || rows[0].Kind == rollout && format != HelmValues {
			continue
		}
		slices.SortFunc(rows, func(a, b *Row) int { return cmp.Compare(a.Name, b.Name) })
		content := manifestOf(format, rows)
		if format == HelmValues {
			if content, err = valuesOf(rows, path); err != nil {
				return nil, err
			}
		}
		text, err := yaml.Marshal(content)
		if err != nil {
			return nil, err
		}
		patches = append(patches, Patch{File: file, Text: []byte(PatchHeader + string(text))})
	}
	slices.SortFunc(patches, func(a, b Patch) int { return cmp.Compare(a.File, b.File) })
	return patches, nil
}

// groupOfKind is the API group of a kind that has manifests.
func groupOfKind(kind string) string {
	if kind == cronJob {
		return "batch"
	}
	return "apps"
}

// manifestOf is the part of a workload that has the resources of its containers.
func manifestOf(format PatchFormat, rows []*Row) map[string]any {
	pod := map[string][]any{}
	for _, row := range rows {
		list := "containers"
		if row.IsSidecar {
			list = "initContainers"
		}
		pod[list] = append(pod[list], map[string]any{"name": row.Name, "resources": row.resources()})
	}
	metadata := map[string]any{"name": rows[0].Workload}
	if format == SSA {
		metadata["namespace"] = rows[0].Namespace
	}
	spec := map[string]any{"template": map[string]any{"spec": pod}}
	if rows[0].Kind == cronJob {
		spec = map[string]any{"jobTemplate": map[string]any{"spec": spec}}
	}
	return map[string]any{"apiVersion": groupOfKind(rows[0].Kind) + "/v1", "kind": rows[0].Kind, "metadata": metadata, "spec": spec}
}

// DefaultHelmPath is the path of a container's resources in a chart's values: resources, as helm create writes
// it, or with several containers one key for each.
func DefaultHelmPath(containers int) string {
	if containers == 1 {
		return "resources"
	}
	return "{container}.resources"
}

// valuesOf are the values of a workload's chart.
func valuesOf(rows []*Row, path string) (map[string]any, error) {
	values := map[string]any{}
	for _, row := range rows {
		at, keys := values, strings.Split(cmp.Or(path, DefaultHelmPath(len(rows))), ".")
		for i, key := range keys {
			key = strings.NewReplacer("{deployment}", row.Workload, "{container}", row.Name).Replace(key)
			if i == len(keys)-1 {
				if at[key] != nil {
					return nil, fmt.Errorf("the containers of %s %s/%s have the same path of values: it must contain {container}", row.Kind, row.Namespace, row.Workload)
				}
				at[key] = row.resources()
				break
			}
			below, ok := at[key].(map[string]any)
			if !ok {
				below = map[string]any{}
				at[key] = below
			}
			at = below
		}
	}
	return values, nil
}

// resources are the requests for Git, and the limits that follow. An unset request without a recommendation
// stays unset.
func (r *Row) resources() map[string]any {
	git := r.Git()
	requests, limits := map[string]string{}, map[string]string{}
	if git.CPUMillis > 0 {
		cpu := quantity.CPU(git.CPUMillis)
		requests["cpu"] = cpu.String()
	}
	if git.MemoryBytes > 0 {
		memory := quantity.Memory(git.MemoryBytes)
		requests["memory"] = memory.String()
	}
	resources := map[string]any{"requests": requests}
	if limit := following(git.CPUMillis, r.Requests.CPUMillis, r.Limits.CPUMillis); limit > 0 {
		cpu := quantity.CPU(min(limit, quantity.MaxCPUMillis))
		limits["cpu"] = cpu.String()
	}
	if limit := following(git.MemoryBytes, r.Requests.MemoryBytes, r.Limits.MemoryBytes); limit > 0 {
		memory := quantity.Memory(min(quantity.RoundMemory(limit), quantity.MaxMemoryBytes))
		limits["memory"] = memory.String()
	}
	if len(limits) > 0 {
		resources["limits"] = limits
	}
	return resources
}

// following is the limit that follows a request, in the proportion of today's limit to today's request. A
// request that is not set equals the limit.
func following(request, today, limit int64) int64 {
	if limit == 0 {
		return 0
	}
	return int64(math.Ceil(float64(request) * max(float64(limit)/float64(cmp.Or(today, limit)), 1)))
}

// Component is a Kustomize component with the patches in some files, named as by Patches.
func Component(files []string) ([]byte, error) {
	patches := []any{}
	for _, file := range slices.Sorted(slices.Values(files)) {
		of := strings.Split(strings.TrimSuffix(file, ".yaml"), "_")
		if len(of) != 3 {
			continue
		}
		patches = append(patches, map[string]any{"path": file, "target": map[string]string{
			"group": groupOfKind(of[1]), "version": "v1", "kind": of[1], "namespace": of[0], "name": of[2],
		}})
	}
	text, err := yaml.Marshal(map[string]any{"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component", "patches": patches})
	return []byte(PatchHeader + string(text)), err
}

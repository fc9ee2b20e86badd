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
	// Kustomize is a strategic merge patch for each Deployment, for a Kustomize component.
	Kustomize PatchFormat = "kustomize"
	// SSA is a manifest for each Deployment that has only what kubectl apply --server-side shall own.
	SSA PatchFormat = "ssa"
	// HelmValues are values for the chart of each Deployment.
	HelmValues PatchFormat = "helm-values"
)

// PatchFormats are all formats.
func PatchFormats() []PatchFormat { return []PatchFormat{Kustomize, SSA, HelmValues} }

// PatchHeader is the first line of each file, by which it is known to be written by this package.
const PatchHeader = "# Written by kubectl vscaler report.\n"

// Patch is a file that sets the requests of a Deployment to those for Git.
type Patch struct {
	Namespace, Deployment string
	// File is the name of the file, which no other Deployment has.
	File string
	Text []byte
}

// Patches are patches for the Deployments of which a container does not request what is recommended for Git, by
// namespace and name. Each has all containers of the report. Limits that are set follow the requests in
// proportion, like those of a scaler. There are none for Deployments that another object controls: it would undo
// them. The path says where Helm values have the resources of a container, with the placeholders {deployment} and
// {container}; empty is DefaultHelmPath.
func (r *Report) Patches(format PatchFormat, path string) (patches []Patch, err error) {
	byDeployment := map[[2]string][]*Row{}
	for i := range r.Containers {
		row := &r.Containers[i]
		of := [2]string{row.Namespace, row.Deployment}
		byDeployment[of] = append(byDeployment[of], row)
	}
	for of, rows := range byDeployment {
		differs := slices.ContainsFunc(rows, func(row *Row) bool { return row.Git() != row.Requests })
		if !differs || rows[0].Controller != "" {
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
		patches = append(patches, Patch{
			Namespace: of[0], Deployment: of[1], File: of[0] + "_" + of[1] + ".yaml", // names have no underscore
			Text: []byte(PatchHeader + string(text)),
		})
	}
	slices.SortFunc(patches, func(a, b Patch) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Deployment, b.Deployment))
	})
	return patches, nil
}

// manifestOf is the part of a Deployment that has the resources of its containers.
func manifestOf(format PatchFormat, rows []*Row) map[string]any {
	pod := map[string][]any{}
	for _, row := range rows {
		list := "containers"
		if row.IsSidecar {
			list = "initContainers"
		}
		pod[list] = append(pod[list], map[string]any{"name": row.Name, "resources": row.resources()})
	}
	metadata := map[string]any{"name": rows[0].Deployment}
	if format == SSA {
		metadata["namespace"] = rows[0].Namespace
	}
	return map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
		"spec": map[string]any{"template": map[string]any{"spec": pod}},
	}
}

// DefaultHelmPath is where a chart's values have the resources of a container: resources, as helm create writes
// it, or with several containers one key for each.
func DefaultHelmPath(containers int) string {
	if containers == 1 {
		return "resources"
	}
	return "{container}.resources"
}

// valuesOf are the values of a Deployment's chart.
func valuesOf(rows []*Row, path string) (map[string]any, error) {
	values := map[string]any{}
	for _, row := range rows {
		at, keys := values, strings.Split(cmp.Or(path, DefaultHelmPath(len(rows))), ".")
		for i, key := range keys {
			key = strings.NewReplacer("{deployment}", row.Deployment, "{container}", row.Name).Replace(key)
			if i == len(keys)-1 {
				if at[key] != nil {
					return nil, fmt.Errorf("the containers of Deployment %s/%s have the same path of values: it must contain {container}", row.Namespace, row.Deployment)
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

// resources are the requests for Git, and the limits that follow. A request that is not set and that nothing
// recommends stays so.
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

// Component is a Kustomize component with the patches in some files, which must be named like those of Patches.
func Component(files []string) ([]byte, error) {
	patches := []any{}
	for _, file := range slices.Sorted(slices.Values(files)) {
		namespace, deployment, _ := strings.Cut(strings.TrimSuffix(file, ".yaml"), "_")
		patches = append(patches, map[string]any{"path": file, "target": map[string]string{
			"group": "apps", "version": "v1", "kind": "Deployment", "namespace": namespace, "name": deployment,
		}})
	}
	text, err := yaml.Marshal(map[string]any{"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component", "patches": patches})
	return []byte(PatchHeader + string(text)), err
}

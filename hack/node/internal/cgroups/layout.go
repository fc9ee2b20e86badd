// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cgroups gives the node a cgroup of its own, and tells which limits are in force below it.
//
// It serves both generations. With version 1 every controller is a tree of its own (or shares one), and the node gets
// one child in each of them; with version 2 there is a single tree. In both cases nothing but that child is touched,
// with one exception that version 2 forces on us: see [Group.Create].
package cgroups

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Tree is one cgroup tree of the host.
type Tree struct {
	// Mount is where the host has it.
	Mount string `json:"mount"`
	// Controllers are what the kernel calls them when mounting: cpu, memory, name=systemd. Version 2 does not
	// mount by controller and leaves them empty.
	Controllers []string `json:"controllers,omitempty"`
}

// Layout is what the host offers.
type Layout struct {
	Version int    `json:"version"`
	Trees   []Tree `json:"trees"`
}

// The super block options of a version 1 mount name its controllers among other things; these are the controllers.
var knownControllers = []string{
	"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "net_cls", "net_prio", "blkio", "perf_event",
	"hugetlb", "pids", "rdma", "misc",
}

// Detect finds the trees that hold the cpu and the memory controller. On a hybrid host both generations are mounted,
// and the one that owns these two wins: a controller lives in one generation only.
func Detect() (Layout, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Layout{}, err
	}
	return choose(string(mounts), func(mount string) []string {
		text, err := os.ReadFile(filepath.Join(mount, "cgroup.controllers"))
		if err != nil {
			return nil
		}
		return strings.Fields(string(text))
	})
}

func choose(mountinfo string, controllersOf func(mount string) []string) (Layout, error) {
	var first, second []Tree
	taken := map[string]bool{}
	for line := range strings.Lines(mountinfo) {
		// 35 27 0:30 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
		before, after, ok := strings.Cut(line, " - ")
		place, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(place) < 5 || len(kind) < 3 {
			continue
		}
		mount := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\134`, `\`).Replace(place[4])
		switch kind[0] {
		case "cgroup":
			var controllers []string
			for option := range strings.SplitSeq(kind[2], ",") {
				if slices.Contains(knownControllers, option) || strings.HasPrefix(option, "name=") {
					controllers = append(controllers, option)
				}
			}
			key := strings.Join(controllers, ",")
			// The same tree may be mounted twice, for example inside a container. One way in is enough.
			if len(controllers) > 0 && !taken[key] {
				taken[key] = true
				first = append(first, Tree{Mount: mount, Controllers: controllers})
			}
		case "cgroup2":
			second = append(second, Tree{Mount: mount})
		}
	}

	one := Layout{Version: 1, Trees: first}
	if one.tree("cpu") != nil && one.tree("memory") != nil {
		return one, nil
	}
	for _, tree := range second {
		controllers := controllersOf(tree.Mount)
		if slices.Contains(controllers, "cpu") && slices.Contains(controllers, "memory") {
			return Layout{Version: 2, Trees: []Tree{tree}}, nil
		}
	}
	return Layout{}, fmt.Errorf("no cgroup tree with the cpu and memory controllers is mounted (version 1: %d trees, version 2: %d)",
		len(first), len(second))
}

// tree is where a controller lives.
func (l Layout) tree(controller string) *Tree {
	for i := range l.Trees {
		if l.Version == 2 || slices.Contains(l.Trees[i].Controllers, controller) {
			return &l.Trees[i]
		}
	}
	return nil
}

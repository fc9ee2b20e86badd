// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cgroups gives the node a cgroup of its own.
//
// It serves both versions. With version 1 every controller has a tree of its own (or shares one), and the node gets one child in
// each of them. With version 2 there is a single tree. In both cases only that child is changed, with one exception that
// version 2 requires: see [Group.Create].
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
	// Controllers have the names that the kernel uses when mounting: cpu, memory, name=systemd. Empty with version 2,
	// which does not mount by controller.
	Controllers []string `json:"controllers,omitempty"`
}

// Layout is the cgroup layout of the host.
type Layout struct {
	Version int    `json:"version"`
	Trees   []Tree `json:"trees"`
}

// has reports whether a controller lives in the tree.
func (t Tree) has(controller string) bool {
	return len(t.Controllers) == 0 || slices.Contains(t.Controllers, controller)
}

// Detect finds the trees that hold the cpu and the memory controller. On a hybrid host both versions are mounted, and the one
// that has these two controllers wins: a controller lives in one version only.
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
	one := Layout{Version: 1}
	var two []string
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
			tree := Tree{Mount: mount, Controllers: slices.DeleteFunc(strings.Split(kind[2], ","), isOption)}
			// The same tree may be mounted twice, for example inside a container. One way in is enough.
			known := slices.ContainsFunc(one.Trees, func(t Tree) bool { return slices.Equal(t.Controllers, tree.Controllers) })
			if len(tree.Controllers) > 0 && !known {
				one.Trees = append(one.Trees, tree)
			}
		case "cgroup2":
			two = append(two, mount)
		}
	}
	if controller := func(name string) bool {
		return slices.ContainsFunc(one.Trees, func(t Tree) bool { return t.has(name) })
	}; controller("cpu") && controller("memory") {
		return one, nil
	}
	for _, mount := range two {
		controllers := controllersOf(mount)
		if slices.Contains(controllers, "cpu") && slices.Contains(controllers, "memory") {
			return Layout{Version: 2, Trees: []Tree{{Mount: mount}}}, nil
		}
	}
	return Layout{}, fmt.Errorf("no cgroup tree with the cpu and memory controllers is mounted (version 1: %d trees, version 2: %d)",
		len(one.Trees), len(two))
}

// isOption reports whether a super block option of a version 1 mount is not one of its controllers.
func isOption(option string) bool {
	switch option {
	case "cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "net_cls", "net_prio", "blkio", "perf_event", "hugetlb", "pids",
		"rdma", "misc":
		return false
	}
	return !strings.HasPrefix(option, "name=")
}

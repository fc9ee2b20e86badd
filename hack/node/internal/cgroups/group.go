// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Group is the node's own child in every tree of the layout.
type Group struct {
	Name   string `json:"name"`
	Layout Layout `json:"layout"`
}

// The kubelet requires these controllers. It uses others (cpuset, io, hugetlb) where they exist.
var needed = []string{"cpu", "memory", "pids"}

// leaf holds the node's own processes with version 2, which allows a cgroup either processes or children with
// controllers, but not both.
const leaf = "node"

func (g *Group) paths() []string {
	paths := make([]string, len(g.Layout.Trees))
	for i, tree := range g.Layout.Trees {
		paths[i] = filepath.Join(tree.Mount, g.Name)
	}
	return paths
}

// Create creates the group's folders. With version 2 a controller reaches a child only if its parent passes it on. Hosts with
// systemd do so for memory and pids, and for cpu once anything uses it. Create switches missing ones on.
func (g *Group) Create() error {
	if g.Layout.Version == 2 {
		if err := passOn(g.Layout.Trees[0].Mount); err != nil {
			return err
		}
	}
	for i, path := range g.paths() {
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
		tree := g.Layout.Trees[i]
		switch {
		case g.Layout.Version == 2:
			if err := os.Mkdir(filepath.Join(path, leaf), 0o755); err != nil {
				return err
			}
		case tree.has("cpuset"):
			if err := inheritCPUs(tree.Mount, path); err != nil {
				return err
			}
		}
	}
	return nil
}

func passOn(root string) error {
	passed, err := os.ReadFile(filepath.Join(root, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	for _, controller := range needed {
		if slices.Contains(strings.Fields(string(passed)), controller) {
			continue
		}
		if err := write(root, "cgroup.subtree_control", "+"+controller); err != nil {
			return fmt.Errorf("the cgroup root does not pass the %s controller on to its children, and will not be told to"+
				" (inside a container, give it its processes a cgroup of their own first): %w", controller, err)
		}
	}
	return nil
}

// inheritCPUs fills a version 1 cpuset: a new one is empty, and nothing can run in it.
func inheritCPUs(parent, child string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, file))
		if err != nil {
			return err
		}
		if err := write(child, file, strings.TrimSpace(string(value))); err != nil {
			return err
		}
	}
	return write(child, "cgroup.clone_children", "1")
}

// Join moves a process to the top of the group, from where a new cgroup namespace takes its root.
func (g *Group) Join(pid int) error {
	for _, path := range g.paths() {
		if err := write(path, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

// Settle moves a process that has its namespace to the leaf, and passes every controller on to the pods. Only version 2 needs
// that.
func (g *Group) Settle(pid int) error {
	if g.Layout.Version == 1 {
		return nil
	}
	top := g.paths()[0]
	if err := write(filepath.Join(top, leaf), "cgroup.procs", strconv.Itoa(pid)); err != nil {
		return err
	}
	available, err := os.ReadFile(filepath.Join(top, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, controller := range strings.Fields(string(available)) {
		if err := write(top, "cgroup.subtree_control", "+"+controller); err != nil {
			return err
		}
	}
	return nil
}

// Destroy kills all processes in the group and removes it. It is safe to call for a group that does not exist.
func (g *Group) Destroy(limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for _, path := range g.paths() {
		for {
			err := uproot(path)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("removing cgroup %s: %w", path, err)
			}
			// Killed processes leave their cgroup a moment later.
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nil
}

// uproot tries once: it kills all processes, then removes children before parents.
func uproot(top string) error {
	var folders []string
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && entry.IsDir() {
			folders = append(folders, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, folder := range slices.Backward(folders) {
		procs, err := os.ReadFile(filepath.Join(folder, "cgroup.procs"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for line := range strings.Lines(string(procs)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		// Not os.Remove: it tries unlink first, and reports the error of that.
		if err := syscall.Rmdir(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func write(folder, file, value string) error {
	return os.WriteFile(filepath.Join(folder, file), []byte(value), 0o644)
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package keeper is the part of the node that stays outside the sandbox. It creates the cgroup, starts the sandbox, and
// cleans up when the node ends, whatever the cause.
package keeper

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/verticalscaler/verticalscaler-operator/hack/node/internal/node"
)

// Folder is the folder that the user names. Everything about a node follows from it, so nodes with different folders are
// independent.
type Folder string

// Open returns the folder with an absolute path, so that it means the same to every process.
func Open(path string) (Folder, error) {
	if path == "" {
		return "", errors.New("-dir is missing")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	// Symbolic links are resolved if the folder exists; two names of one folder must be one node.
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		abs = real
	}
	return Folder(abs), nil
}

// ID is short because it becomes part of a cgroup's name.
func (f Folder) ID() string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(f)))[:10]
}

func (f Folder) state() string      { return filepath.Join(string(f), "state") }
func (f Folder) logs() string       { return filepath.Join(string(f), "logs") }
func (f Folder) kubeconfig() string { return filepath.Join(string(f), "kubeconfig") }

// lock takes the folder for this process, and records its owner. The kernel releases the lock when the process ends, so a lock
// that cannot be taken always has an owner that runs.
func (f Folder) lock() (unlock func(), owner int, err error) {
	path := filepath.Join(string(f), "lock")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, 0, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer file.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, 0, err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, 0, err
		}
		owner, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return nil, 0, fmt.Errorf("%s is locked by an unknown process", path)
		}
		return nil, owner, nil
	}
	err = file.Truncate(0)
	if err == nil {
		_, err = fmt.Fprintln(file, os.Getpid())
	}
	if err != nil {
		file.Close()
		return nil, 0, err
	}
	return func() {
		_ = os.Remove(path)
		file.Close()
	}, 0, nil
}

// Spec returns the spec of the node that runs in the folder, or that ended without being cleaned up.
func (f Folder) Spec() (node.Spec, error) {
	spec, err := node.Load(f.state())
	if errors.Is(err, fs.ErrNotExist) {
		return spec, fmt.Errorf("no node runs in %s", f)
	}
	return spec, err
}

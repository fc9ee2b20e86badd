// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// folder is where one cluster lives.
type folder string

func (f folder) path(elements ...string) string {
	return filepath.Join(append([]string{string(f)}, elements...)...)
}

func (f folder) kubeconfig(user string) string { return f.path(user + ".kubeconfig") }
func (f folder) log(component string) string   { return f.path("logs", component+".log") }
func (f folder) audit() string                 { return f.path("audit.log") }
func (f folder) ready() string                 { return f.path("ready") }
func (f folder) lock() string                  { return f.path("localcluster.lock") }

// contents are the names in the folder that belong to the cluster, apart from kubeconfigs.
func (f folder) contents() []string {
	return []string{f.ready(), f.audit(), f.path("etcd"), f.path("logs"), f.path("pki"), f.path("home")}
}

// claim takes the folder for this process. The kernel releases it when the process ends, whatever the cause.
func (f folder) claim() (release func(), err error) {
	if err := os.MkdirAll(string(f), 0o755); err != nil {
		return nil, err
	}
	if err := f.refuseForeignFiles(); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(f.lock(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer lock.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking %s: %w", lock.Name(), err)
		}
		holder, _ := os.ReadFile(lock.Name())
		return nil, fmt.Errorf("%s is in use by the cluster of process %s", f, strings.TrimSpace(string(holder)))
	}
	if err := lock.Truncate(0); err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintln(lock, os.Getpid()); err != nil {
		return nil, err
	}
	return func() { lock.Close() }, nil
}

// refuseForeignFiles fails for a folder that no cluster has used before but that has a file with one of our names, which would be
// removed.
func (f folder) refuseForeignFiles() error {
	if _, err := os.Stat(f.lock()); err == nil {
		return nil
	}
	for _, path := range f.contents() {
		if _, err := os.Lstat(path); err == nil {
			return fmt.Errorf("%s is not ours and would be replaced: choose another folder", path)
		}
	}
	return nil
}

// clear removes the files of an earlier cluster, which are of no use with new certificates. It only removes names that we write.
func (f folder) clear() error {
	kubeconfigs, err := filepath.Glob(f.path("*.kubeconfig"))
	if err != nil {
		return err
	}
	for _, path := range append(f.contents(), kubeconfigs...) {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	for _, dir := range []string{"logs", "home"} {
		if err := os.MkdirAll(f.path(dir), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
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
	return Folder(abs), err
}

func (f Folder) state() string      { return filepath.Join(string(f), "state") }
func (f Folder) logs() string       { return filepath.Join(string(f), "logs") }
func (f Folder) kubeconfig() string { return filepath.Join(string(f), "kubeconfig") }
func (f Folder) pid() string        { return filepath.Join(string(f), "keeper.pid") }

// Spec is the spec of the node that runs in the folder, or that ended without being cleaned up.
func (f Folder) Spec() (s Spec, err error) {
	text, err := os.ReadFile(filepath.Join(f.state(), SpecFile))
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(text, &s)
}

// keeper is the process that keeps the node of the folder; 0 if none runs.
func (f Folder) keeper() int {
	text, err := os.ReadFile(f.pid())
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		return 0
	}
	// Process numbers are used again.
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !strings.Contains(string(command), "\x00"+string(f)+"\x00") {
		return 0
	}
	return pid
}

// Start starts a keeper for the node of a spec, and returns when the node is ready.
//
// The keeper has a session of its own, because it must outlive Ctrl-C in order to clean up. Until the node is ready, the
// kernel asks the keeper to end when this process ends, by whatever signal; see [Keep].
func Start(f Folder, spec Spec, images []string) error {
	if pid := f.keeper(); pid != 0 {
		return fmt.Errorf("a node runs in %s already (process %d); end it with down.sh, or choose another folder", f, pid)
	}
	if err := f.prepare(spec, images); err != nil {
		return err
	}
	path := filepath.Join(f.logs(), "keeper.log")
	log, err := os.Create(path)
	if err != nil {
		return err
	}
	defer log.Close()
	keeper := exec.Command("/proc/self/exe", "keep", string(f))
	keeper.Args[0] = "nodebox"
	keeper.Dir = "/"
	keeper.Stdout, keeper.Stderr = log, log
	keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGTERM}

	// A signal must not end this process before the keeper has cleaned up.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	// The kernel sends Pdeathsig when the thread ends that has started the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := keeper.Start(); err != nil {
		return err
	}
	if err := os.WriteFile(f.pid(), []byte(strconv.Itoa(keeper.Process.Pid)), 0o644); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = keeper.Wait() // it logs why it has ended
		close(ended)
	}()
	for {
		select {
		case <-signals:
			_ = keeper.Process.Signal(syscall.SIGTERM)
			<-ended
			return errors.New("interrupted")
		case <-ended:
			said, _ := os.ReadFile(path)
			return fmt.Errorf("the node has ended; logs are in %s:\n%s", f.logs(), said)
		case <-time.After(100 * time.Millisecond):
		}
		if _, err := os.Stat(f.kubeconfig()); err == nil {
			fmt.Printf("KUBECONFIG=%s\n", f.kubeconfig())
			return nil
		}
	}
}

// prepare removes what the last node left, and fills the state folder with everything that the keeper has to know.
func (f Folder) prepare(spec Spec, images []string) error {
	// Before the old logs are removed: processes of the last node may still use them.
	if err := errors.Join(f.clean(), os.RemoveAll(f.logs())); err != nil {
		return err
	}
	archives := filepath.Join(f.state(), ImagesFolder)
	for _, folder := range []string{f.logs(), archives, filepath.Join(f.state(), SharedFolder)} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	for i, image := range images {
		// A copy, because the sandbox may hide the folder of the archive.
		content, err := os.ReadFile(image)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(archives, fmt.Sprintf("%02d.tar", i)), content, 0o644); err != nil {
			return err
		}
	}
	version, err := exec.Command("containerd", "--version").Output()
	if err != nil {
		return fmt.Errorf("asking containerd for its version: %w", err)
	}
	if spec.Containerd, err = ParseContainerdVersion(string(version)); err != nil {
		return err
	}
	// Nodes with other folders have other cgroups.
	spec.Group.Name, spec.Started = fmt.Sprintf("verticalscaler-%x", sha256.Sum256([]byte(f)))[:25], time.Now()
	return spec.save(f.state())
}

// Stop ends the node of a folder and waits until nothing is left of it. Without a node it only removes remains.
func Stop(f Folder, limit time.Duration) error {
	if pid := f.keeper(); pid != 0 {
		_ = syscall.Kill(pid, syscall.SIGTERM) // fails only if it has ended
	}
	for deadline := time.Now().Add(limit); f.keeper() != 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("the node of %s still runs after %s; see %s", f, limit, f.logs())
		}
	}
	return f.clean()
}

// clean removes everything that a node may have left: processes and cgroups first, because they use the files.
func (f Folder) clean() error {
	if spec, err := f.Spec(); err == nil && spec.Group.Name != "" {
		if err := spec.Group.Destroy(cleanLimit); err != nil {
			return err
		}
	}
	logs := filepath.Join(f.state(), ClusterLogs)
	if _, err := os.Stat(logs); err == nil {
		link := filepath.Join(f.logs(), ControlPlaneLogs)
		if err := errors.Join(os.RemoveAll(link), os.Rename(logs, link)); err != nil {
			return err
		}
	}
	return errors.Join(
		os.RemoveAll(f.state()),
		os.RemoveAll(f.kubeconfig()),
		// Links into the sandbox; the logs that they name are next to them.
		os.RemoveAll(filepath.Join(f.logs(), "containers")),
	)
}

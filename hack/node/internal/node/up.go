// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/hack/node/internal/cgroups"
)

// cleanLimit is how long processes may take to leave a cgroup after they were killed.
const cleanLimit = 20 * time.Second

// Folder is the folder that the user names, as an absolute path. Everything about a node follows from it, so nodes with different
// folders are independent.
type Folder string

func (f Folder) state() string      { return filepath.Join(string(f), "state") }
func (f Folder) logs() string       { return filepath.Join(string(f), "logs") }
func (f Folder) kubeconfig() string { return filepath.Join(string(f), "kubeconfig") }

// Up runs a node in the folder until the context ends or the node does, and then removes everything but the logs. It returns nil if
// the context has ended.
//
// It must be called on the main thread: the sandbox ends with the thread that has started it.
func Up(ctx context.Context, f Folder, spec Spec, images []string) (err error) {
	if err := os.MkdirAll(string(f), 0o755); err != nil {
		return err
	}
	lock, err := os.Create(filepath.Join(string(f), "lock"))
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("a node runs in %s already: %w", f, err)
	}
	// A node that was killed has left something. Its processes may still use the old logs.
	if err := errors.Join(f.clean(), os.RemoveAll(f.logs())); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.clean()) }()
	if err := f.copyImages(images); err != nil {
		return err
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
	if spec.Group.Layout, err = cgroups.Detect(); err != nil {
		return err
	}
	door, port, err := listen()
	if err != nil {
		return err
	}
	defer door.Close()
	spec.HostPort = port
	// Saved even if that failed half way, because the spec names what must be removed.
	if err := errors.Join(spec.Group.Create(), spec.save(f.state())); err != nil {
		return err
	}
	if err := f.run(ctx, door); ctx.Err() == nil {
		return fmt.Errorf("the node has ended; logs are in %s: %w", f.logs(), err)
	}
	return nil
}

// copyImages fills a new state folder with image archives. The sandbox may hide the folders that they are in.
func (f Folder) copyImages(images []string) error {
	archives := filepath.Join(f.state(), ImagesFolder)
	for _, folder := range []string{f.logs(), archives, filepath.Join(f.state(), SharedFolder)} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	for i, image := range images {
		content, err := os.ReadFile(image)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(archives, fmt.Sprintf("%02d.tar", i)), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// run runs the sandbox until it ends or the context does. The folder gets its kubeconfig when the node is ready.
func (f Folder) run(ctx context.Context, door *os.File) error {
	sandbox := f.command(ctx, "enter", door)
	if err := sandbox.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- sandbox.Wait() }()
	for {
		select {
		case err := <-ended:
			return err
		case <-time.After(100 * time.Millisecond):
		}
		if _, err := os.Stat(filepath.Join(f.state(), ReadyFile)); err == nil {
			break
		}
	}
	// Only now, so that a program that waits for the file finds a cluster that works.
	if err := os.Rename(filepath.Join(f.state(), KubeconfigFile), f.kubeconfig()); err != nil {
		return err
	}
	fmt.Printf("KUBECONFIG=%s\n", f.kubeconfig())
	return <-ended
}

// command is this program with another subcommand, which ends with the calling thread.
func (f Folder) command(ctx context.Context, subcommand string, door *os.File) *exec.Cmd {
	c := exec.CommandContext(ctx, "/proc/self/exe", subcommand, string(f))
	c.Args[0], c.Dir = "nodebox", "/"
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.ExtraFiles = []*os.File{door}
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	return c
}

// listen opens a free port by which the host reaches the API server. The sandbox gets the socket, which stays a socket
// of the host.
func listen() (door *os.File, actual int, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, 0, err
	}
	defer listener.Close()
	door, err = listener.(*net.TCPListener).File()
	return door, listener.Addr().(*net.TCPAddr).Port, err
}

// Enter joins the cgroup, creates the namespaces, and waits for the process in them.
//
// It is a process between [Up] and the sandbox. The root of a cgroup namespace is the cgroup of the process that creates it.
// So that process must be in the node's cgroup, and Up must stay outside to remove it. Like Up, it needs the main thread.
func Enter(f Folder, door *os.File) error {
	spec, err := f.spec()
	if err != nil {
		return err
	}
	if err := spec.Group.Join(os.Getpid()); err != nil {
		return err
	}
	if err := syscall.Unshare(syscall.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("creating a cgroup namespace: %w", err)
	}
	if err := spec.Group.Settle(os.Getpid()); err != nil {
		return err
	}
	first := f.command(context.Background(), "init", door)
	first.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC
	if err := first.Start(); err != nil {
		return fmt.Errorf("creating namespaces: %w", err)
	}
	pid := filepath.Join(f.state(), InitPIDFile)
	if err := os.WriteFile(pid, []byte(strconv.Itoa(first.Process.Pid)+"\n"), 0o644); err != nil {
		return err
	}
	return first.Wait()
}

// clean removes everything that a node may have left: processes and cgroups first, because they use the files.
func (f Folder) clean() error {
	if spec, err := f.spec(); err == nil && spec.Group.Name != "" {
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

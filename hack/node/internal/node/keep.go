// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/hack/node/internal/cgroups"
)

// cleanLimit is how long processes may take to leave a cgroup after they were killed.
const cleanLimit = 20 * time.Second

// Keep runs the node that [Start] has prepared. It returns when the node has ended and everything is removed.
//
// It must be called on the main thread, which has the signal for the end of the parent. Once the node is ready, it goes on
// without its parent.
func Keep(f Folder) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer cancel()
	err := hold(ctx, f)
	if ctx.Err() != nil {
		err = nil // asked to end
	}
	return errors.Join(err, f.clean())
}

// hold creates the cgroup and keeps the sandbox running until it ends or the context does.
func hold(ctx context.Context, f Folder) error {
	spec, err := f.Spec()
	if err != nil {
		return err
	}
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

	// The sandbox ends with the thread that started it, so that thread must stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	sandbox := exec.CommandContext(ctx, "/proc/self/exe", "enter", string(f))
	sandbox.Args[0] = "nodebox"
	sandbox.ExtraFiles = []*os.File{door}
	sandbox.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	sandbox.Stdout, sandbox.Stderr = os.Stdout, os.Stderr
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
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, 0, 0)
	// Only now, so that a program that waits for the file finds a cluster that works.
	if err := os.Rename(filepath.Join(f.state(), KubeconfigFile), f.kubeconfig()); err != nil {
		return err
	}
	return <-ended
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
// It is a process between the keeper and the sandbox. The root of a cgroup namespace is the cgroup of the process that creates
// it, so that process must be in the node's cgroup, and the keeper must stay outside to remove it.
func Enter(f Folder, door *os.File) error {
	// Both the cgroup namespace and the death signal belong to one thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	spec, err := f.Spec()
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

	first := exec.Command("/proc/self/exe", "init", string(f))
	first.Args[0] = "nodebox"
	first.Dir = "/"
	first.Stdout, first.Stderr = os.Stdout, os.Stderr
	first.ExtraFiles = []*os.File{door}
	first.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
		Setsid:     true,
	}
	if err := first.Start(); err != nil {
		return fmt.Errorf("creating namespaces: %w", err)
	}
	pid := filepath.Join(f.state(), InitPIDFile)
	if err := os.WriteFile(pid, []byte(strconv.Itoa(first.Process.Pid)+"\n"), 0o644); err != nil {
		return err
	}
	return first.Wait()
}

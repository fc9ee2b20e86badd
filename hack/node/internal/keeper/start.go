// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/hack/node/internal/node"
)

// Start starts a keeper for the node of a spec, and reports its progress until the node is ready.
//
// The keeper has a session of its own, because it must outlive Ctrl-C in order to clean up. Until the node is ready, the
// kernel asks the keeper to end when this process ends, by whatever signal; see [Keep].
func Start(f Folder, spec node.Spec, images []string) error {
	if err := prepare(f, spec, images); err != nil {
		return err
	}
	progressOut, progressIn, err := os.Pipe()
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(f.logs(), "keeper.log"))
	if err != nil {
		return err
	}
	keeper := exec.Command("/proc/self/exe", "keep", string(f))
	keeper.Args[0] = "nodebox"
	keeper.Dir = "/"
	keeper.Stdout, keeper.Stderr = log, log
	keeper.ExtraFiles = []*os.File{progressIn}
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
	progressIn.Close()
	log.Close()
	var interrupted atomic.Bool
	go func() {
		s := <-signals
		interrupted.Store(true)
		fmt.Fprintf(os.Stderr, "%s: ending the node\n", s)
		_ = keeper.Process.Signal(syscall.SIGTERM)
	}()

	for lines := bufio.NewScanner(progressOut); lines.Scan(); {
		if lines.Text() != node.Ready {
			fmt.Println(lines.Text())
		} else if !interrupted.Load() {
			fmt.Printf("KUBECONFIG=%s\n", f.kubeconfig())
			return nil
		}
	}
	_ = keeper.Wait()
	return fmt.Errorf("the node has ended; logs are in %s", f.logs())
}

// prepare removes what the last node left, and fills the state folder with everything that the keeper has to know.
func prepare(f Folder, spec node.Spec, images []string) error {
	if err := os.MkdirAll(string(f), 0o755); err != nil {
		return err
	}
	unlock, owner, err := f.lock()
	if err != nil {
		return err
	}
	if unlock == nil {
		return fmt.Errorf("a node runs in %s already (process %d); end it with down.sh, or choose another folder", f, owner)
	}
	defer unlock()
	// Before the old logs are removed: processes of the last node may still use them.
	if err := errors.Join(f.clean(), os.RemoveAll(f.logs())); err != nil {
		return err
	}
	archives := filepath.Join(f.state(), node.ImagesFolder)
	for _, folder := range []string{f.logs(), archives, filepath.Join(f.state(), node.SharedFolder)} {
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
	if spec.Containerd, err = node.ParseContainerdVersion(string(version)); err != nil {
		return err
	}
	spec.ID, spec.Started = f.ID(), time.Now()
	return spec.Save(f.state())
}

// Stop ends the node of a folder and waits until nothing is left of it. Without a node it only removes remains.
func Stop(f Folder, limit time.Duration) error {
	if _, err := os.Stat(string(f)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	deadline := time.Now().Add(limit)
	for asked := false; ; asked = true {
		unlock, owner, err := f.lock()
		if err != nil {
			return err
		}
		if unlock != nil {
			// The keeper has ended, and normally has removed everything.
			defer unlock()
			return f.clean()
		}
		if !asked {
			if err := syscall.Kill(owner, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d still runs the node of %s after %s; see %s", owner, f, limit, f.logs())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

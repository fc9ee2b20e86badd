// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/hack/node/internal/node"
)

// Options are the user's wishes.
type Options struct {
	Folder       Folder
	Name         string
	Port         int
	Timeout      time.Duration
	LocalCluster string
	CNI          string
	Images       []string
	Registries   []string
	// Foreground ties the node to this process, also after it is ready.
	Foreground bool
}

// Start starts a keeper and reports its progress until the node is ready.
//
// The keeper is a process of its own session, because it must outlive Ctrl-C in order to clean up. What ties it to
// this one is a pipe: when this process ends, by whatever signal, the keeper sees the pipe close and takes the node
// down. Only "go on without me", written into the pipe once the node is ready, prevents that.
func Start(o Options) error {
	for _, folder := range []string{string(o.Folder), o.Folder.logs()} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	unlock, owner, err := o.Folder.lock()
	if err != nil {
		return err
	}
	if unlock == nil {
		return fmt.Errorf("a node runs in %s already (process %d); end it with down.sh, or choose another folder", o.Folder, owner)
	}
	// Before the old logs go: what the last node left behind may still be using them.
	if err := o.Folder.clean(); err != nil {
		unlock()
		return err
	}
	err = prepare(o)
	unlock()
	if err != nil {
		return err
	}

	progressOut, progressIn, err := os.Pipe()
	if err != nil {
		return err
	}
	lifeOut, lifeIn, err := os.Pipe()
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(o.Folder.logs(), "keeper.log"))
	if err != nil {
		return err
	}
	keeper := exec.Command("/proc/self/exe", "keep", string(o.Folder))
	keeper.Args[0] = "nodebox"
	keeper.Dir = "/"
	keeper.Stdout, keeper.Stderr = log, log
	keeper.ExtraFiles = []*os.File{progressIn, lifeOut}
	keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}

	// From here on a signal must not end this process before the keeper has cleaned up.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if err := keeper.Start(); err != nil {
		return err
	}
	progressIn.Close()
	lifeOut.Close()
	log.Close()

	// The pipe carries lines until the keeper ends or the node is ready.
	lines := make(chan string)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(progressOut)
		for scanner.Scan() {
			lines <- scanner.Text()
		}
	}()
	var interrupted os.Signal
	ready := false
	for {
		select {
		case s := <-signals:
			if interrupted == nil {
				interrupted = s
				fmt.Fprintf(os.Stderr, "%s: ending the node\n", s)
				lifeIn.Close()
			}
		case line, ok := <-lines:
			switch {
			case !ok:
				_ = keeper.Wait()
				if interrupted != nil && ready {
					return nil // the normal end of a node in the foreground
				}
				if interrupted != nil {
					return fmt.Errorf("the node was ended by %s", interrupted)
				}
				return fmt.Errorf("the node has ended; logs are in %s", o.Folder.logs())
			case line == node.Ready && interrupted == nil:
				ready = true
				fmt.Printf("KUBECONFIG=%s\n", o.Folder.kubeconfig())
				if o.Foreground {
					continue
				}
				if _, err := io.WriteString(lifeIn, letGo); err != nil {
					return err
				}
				return nil
			case line != node.Ready:
				fmt.Println(line)
			}
		}
	}
}

// letGo releases the keeper from the process that started it.
const letGo = "go on without me\n"

// prepare fills the state folder with all that the keeper has to know.
func prepare(o Options) error {
	version, err := exec.Command("containerd", "--version").Output()
	if err != nil {
		return fmt.Errorf("asking containerd for its version: %w", err)
	}
	containerd, err := node.ParseContainerdVersion(string(version))
	if err != nil {
		return err
	}
	// Logs of the last node would be mistaken for those of this one.
	if err := empty(o.Folder.logs()); err != nil {
		return err
	}
	images := filepath.Join(o.Folder.state(), node.ImagesFolder)
	for _, folder := range []string{images, filepath.Join(o.Folder.state(), node.SharedFolder)} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	for i, image := range o.Images {
		// A copy, because the sandbox may hide the place that the archive is in.
		if err := copyFile(image, filepath.Join(images, fmt.Sprintf("%02d.tar", i))); err != nil {
			return err
		}
	}
	return node.Spec{
		Name: o.Name, ID: o.Folder.ID(), Started: time.Now(), Timeout: o.Timeout, HostPort: o.Port,
		Containerd: containerd, CNI: o.CNI, LocalCluster: o.LocalCluster, Registries: o.Registries,
	}.Save(o.Folder.state())
}

func empty(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(folder, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// Stop ends the node of a folder and waits until nothing is left of it. Without a node it only removes remains.
func Stop(f Folder, limit time.Duration) error {
	if _, err := os.Stat(string(f)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	deadline := time.Now().Add(limit)
	asked := false
	for {
		unlock, owner, err := f.lock()
		if err != nil {
			return err
		}
		if unlock != nil {
			// The keeper has gone, and normally has left nothing to do.
			defer unlock()
			return f.clean()
		}
		if !asked {
			if err := syscall.Kill(owner, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
			asked = true
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d still holds %s after %s; see %s", owner, f, limit, strings.TrimSpace(f.logs()))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

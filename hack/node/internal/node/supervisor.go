// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/hack/node/internal/sandbox"
)

// supervisor starts programs and collects every process that ends. As process 1 it inherits orphans, containerd's
// shims above all, so there must be exactly one place that waits.
type supervisor struct {
	env []string

	mu      sync.Mutex
	running map[int]*process
	// failed gets the first component that ends; they must not end.
	failed chan error
}

type process struct {
	name      string
	component bool
	done      chan struct{}
	status    syscall.WaitStatus // valid once done is closed
}

func newSupervisor(env []string) *supervisor {
	s := &supervisor{env: env, running: map[int]*process{}, failed: make(chan error, 1)}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGCHLD)
	go func() {
		for range signals {
			s.reap()
		}
	}()
	return s
}

func (s *supervisor) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		s.mu.Lock()
		p := s.running[pid]
		delete(s.running, pid)
		s.mu.Unlock()
		if p == nil {
			continue // an orphan
		}
		p.status = status
		close(p.done)
		if p.component {
			select {
			case s.failed <- fmt.Errorf("%s ended (%s); the end of its log:\n%s", p.name, describe(status), tail(logFile(p.name), 15)):
			default:
			}
		}
	}
}

// component starts a program that is meant to run for as long as the node.
func (s *supervisor) component(name string, command ...string) error {
	_, err := s.start(name, true, command)
	return err
}

// run starts a program and waits for its end. It gives up when the context ends or a component fails.
func (s *supervisor) run(ctx context.Context, name string, command ...string) error {
	p, err := s.start(name, false, command)
	if err != nil {
		return err
	}
	select {
	case <-p.done:
		if p.status.ExitStatus() != 0 {
			return fmt.Errorf("%s: %s\n%s", strings.Join(command, " "), describe(p.status), tail(logFile(name), 5))
		}
		return nil
	case err := <-s.failed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", strings.Join(command, " "), context.Cause(ctx))
	}
}

func (s *supervisor) start(name string, component bool, command []string) (*process, error) {
	log, err := os.OpenFile(logFile(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	// The names are looked up on the sandbox's PATH, which this process got too.
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env, cmd.Dir = s.env, "/"
	cmd.Stdout, cmd.Stderr = log, log

	// The lock keeps reap from meeting a process that is not yet in the list.
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{name: name, component: component, done: make(chan struct{})}
	s.running[cmd.Process.Pid] = p
	return p, nil
}

// until repeats a check until it succeeds, and gives up when the context ends or a component fails.
func (s *supervisor) until(ctx context.Context, what string, interval time.Duration, ready func() error) error {
	for {
		last := ready()
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w (last: %w)", what, context.Cause(ctx), last)
		case err := <-s.failed:
			return err
		case <-time.After(interval):
		}
	}
}

func logFile(name string) string { return filepath.Join(sandbox.Logs, name+".log") }

func describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}

// tail is the end of a text file, for an error message.
func tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return "    " + strings.Join(all[max(0, len(all)-lines):], "\n    ")
}

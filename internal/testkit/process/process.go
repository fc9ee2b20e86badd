// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process runs child processes that log to a file and end with this process.
//
// Linux ends a child when the thread that started it ends (process_linux.go). The main
// thread lives as long as the process. A program that uses this package therefore calls
// runtime.LockOSThread in an init function, and starts all children from its main
// goroutine. In a test, threads live as long unless a goroutine ends that has locked its
// thread.
package process

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Process is a program that runs until it is stopped and writes a log.
type Process struct {
	// Log is the path of its log.
	Log string
	// Ended is closed when the process has ended.
	Ended <-chan struct{}

	name string
	cmd  *exec.Cmd
	err  error // how it ended; valid after Ended is closed
}

// Start starts a program that appends to the log. The program gets its own process group,
// so that Ctrl-C does not reach it directly: this process stops its children in order.
func Start(name, log string, cmd *exec.Cmd) (*Process, error) {
	output, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("creating the log of %s: %w", name, err)
	}
	defer output.Close() //nolint:errcheck // the child has its own
	cmd.Stdout, cmd.Stderr = output, output
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	asChild(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	ended := make(chan struct{})
	p := &Process{Log: log, Ended: ended, name: name, cmd: cmd}
	go func() {
		p.err = cmd.Wait()
		close(ended)
	}()
	return p, nil
}

// PID is the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Err is the error of the process: nil after a success, and while it runs.
func (p *Process) Err() error {
	if !p.HasEnded() {
		return nil
	}
	return p.err
}

// HasEnded reports whether the process has ended.
func (p *Process) HasEnded() bool {
	select {
	case <-p.Ended:
		return true
	default:
		return false
	}
}

// Stop asks the process and its children to end, and kills them after a while. It returns
// when the process has ended.
func (p *Process) Stop(grace time.Duration) {
	if p == nil {
		return
	}
	group := -p.cmd.Process.Pid
	if !p.HasEnded() {
		_ = syscall.Kill(group, syscall.SIGTERM) // fails only if it has ended
	}
	select {
	case <-p.Ended:
	case <-time.After(grace):
		_ = syscall.Kill(group, syscall.SIGKILL)
		<-p.Ended
	}
}

// Failure describes how the process ended, with the last lines of its log.
func (p *Process) Failure() error {
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("%s ended (%s); the end of %s:\n%s", p.name, how, p.Log, p.Tail(20))
}

// Tail is the end of the log, indented.
func (p *Process) Tail(lines int) string {
	content, err := os.ReadFile(p.Log)
	if err != nil {
		return "  " + err.Error()
	}
	all := bytes.Split(bytes.TrimRight(content, "\n"), []byte("\n"))
	all = all[max(0, len(all)-lines):]
	return "  " + strings.ReplaceAll(string(bytes.Join(all, []byte("\n"))), "\n", "\n  ")
}

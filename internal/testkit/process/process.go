// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process runs programs beside this one that log to a file and do not outlive
// it.
//
// Linux ends a child together with the thread that started it (process_linux.go). The
// main thread lives as long as the process: so a program that uses this package calls
// runtime.LockOSThread in an init function, and starts all children from its main
// goroutine. In a test, threads live as long unless a goroutine ends that has locked
// its own.
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

// Process is a program that runs until it is stopped, and writes a log.
type Process struct {
	// Log is the file that it writes to.
	Log string
	// Ended is closed when the process is gone.
	Ended <-chan struct{}

	name string
	cmd  *exec.Cmd
	err  error // how it ended; to be read once it has
}

// Start starts a program, which appends to the log. The program is in a process group
// of its own: Ctrl-C is ours to pass on, in order.
func Start(name, log string, cmd *exec.Cmd) (*Process, error) {
	output, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making the log of %s: %w", name, err)
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

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Err is how the process ended: nil for success, and while it runs.
func (p *Process) Err() error {
	if !p.HasEnded() {
		return nil
	}
	return p.err
}

// HasEnded says whether the process is gone.
func (p *Process) HasEnded() bool {
	select {
	case <-p.Ended:
		return true
	default:
		return false
	}
}

// Stop asks the process and its children to end, and insists after a while. It
// returns when the process is gone.
func (p *Process) Stop(grace time.Duration) {
	if p == nil {
		return
	}
	group := -p.cmd.Process.Pid
	if !p.HasEnded() {
		_ = syscall.Kill(group, syscall.SIGTERM) // fails only for one that is gone
	}
	select {
	case <-p.Ended:
	case <-time.After(grace):
		_ = syscall.Kill(group, syscall.SIGKILL)
		<-p.Ended
	}
}

// Failure tells how the process ended, with the last lines that it wrote.
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

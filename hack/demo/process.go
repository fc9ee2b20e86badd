// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// process is a program that runs until it is stopped, and writes a log.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	// ended is closed when the process is gone; err then says how.
	ended chan struct{}
	err   error
}

// start starts a program. It must be called from the main goroutine. The program is
// in a process group of its own: Ctrl-C is ours to pass on, in order.
func start(name, log string, cmd *exec.Cmd) (*process, error) {
	output, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("making the log of %s: %w", name, err)
	}
	defer output.Close() //nolint:errcheck // the child has its own
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = childAttributes()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &process{name: name, log: log, cmd: cmd, ended: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// hasEnded says whether the process is gone.
func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// stop asks the process and its children to end, and insists after a while. It
// returns when the process is gone.
func (p *process) stop(grace time.Duration) {
	if p == nil {
		return
	}
	group := -p.cmd.Process.Pid
	if !p.hasEnded() {
		_ = syscall.Kill(group, syscall.SIGTERM) // fails only for one that is gone
	}
	select {
	case <-p.ended:
	case <-time.After(grace):
		_ = syscall.Kill(group, syscall.SIGKILL)
		<-p.ended
	}
}

// failure tells how the process ended, with the last lines that it wrote.
func (p *process) failure() error {
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("%s ended (%s); the end of %s:\n%s", p.name, how, p.log, p.tail(20))
}

// tail is the end of the log, indented.
func (p *process) tail(lines int) string {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return "  " + err.Error()
	}
	all := bytes.Split(bytes.TrimRight(content, "\n"), []byte("\n"))
	all = all[max(0, len(all)-lines):]
	return "  " + strings.ReplaceAll(string(bytes.Join(all, []byte("\n"))), "\n", "\n  ")
}

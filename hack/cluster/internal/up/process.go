// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// process is one running component.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	// ended is closed when the process is gone and err says how.
	ended chan struct{}
	err   error
}

// nursery starts processes that do not outlive us.
type nursery struct {
	requests chan func()
	// lifeline is held open by us alone. Children read from the other end and leave when it closes.
	lifeline     *os.File
	lifelineRead *os.File
}

// newNursery keeps one operating system thread for starting children. Linux ties a child's fate to the thread that
// forked it, and Go is free to end a thread that it no longer needs; this one it cannot.
func newNursery() (*nursery, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	n := &nursery{requests: make(chan func()), lifeline: write, lifelineRead: read}
	go func() {
		runtime.LockOSThread()
		for request := range n.requests {
			request()
		}
		select {} // until the process ends: leaving would end the thread, and the children with it
	}()
	return n, nil
}

// start runs this same file as another component. Its output goes to the file log.
func (n *nursery) start(name, log, home string, args []string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	output, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer output.Close()

	p := &process{name: name, log: log, ended: make(chan struct{})}
	p.cmd = exec.Command(self, args...)
	p.cmd.Args[0] = name
	p.cmd.Env = environment(os.Environ(), home)
	p.cmd.Stdout, p.cmd.Stderr = output, output
	p.cmd.ExtraFiles = []*os.File{n.lifelineRead}
	p.cmd.SysProcAttr = childAttributes()

	started := make(chan error)
	n.requests <- func() { started <- p.cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

const lifelineVariable = "LOCALCLUSTER_LIFELINE"

// FollowLauncher ends this process when the launcher that started it is gone. In other processes it does nothing.
//
// On Linux the kernel does the same, sooner. This is what other systems have.
func FollowLauncher() {
	if os.Getenv(lifelineVariable) == "" {
		return
	}
	lifeline := os.NewFile(3, "lifeline") // the first of exec.Cmd's ExtraFiles
	go func() {
		// Nothing is ever written: the read ends when the last writer is gone.
		_, _ = lifeline.Read(make([]byte, 1))
		os.Exit(1)
	}()
}

// environment is what children see of ours: enough to run and to be tuned, and nothing that could point them at
// another cluster, a proxy or the user's own settings.
func environment(ours []string, home string) []string {
	env := []string{lifelineVariable + "=1", "HOME=" + home}
	for _, variable := range ours {
		switch name, _, _ := strings.Cut(variable, "="); name {
		case "PATH", "TMPDIR", "TZ", "GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GODEBUG":
			env = append(env, variable)
		}
	}
	return env
}

// stop asks the process to end and insists after the grace period. It returns when the process is gone.
func (p *process) stop(grace time.Duration) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails only for a process that is gone already
	select {
	case <-p.ended:
	case <-time.After(grace):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// failure tells that the process ended by itself, with the last lines it wrote.
func (p *process) failure() error {
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("%s ended (%s); the end of %s:\n%s", p.name, how, p.log, indent(tail(p.log, 20)))
}

// lostItsPort tells whether the process ended because somebody else took its port first.
func (p *process) lostItsPort() bool {
	return p.hasEnded() && strings.Contains(tail(p.log, 200), syscall.EADDRINUSE.Error())
}

func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// tail is the end of a file, at most so many lines of it.
func tail(path string, lines int) string {
	content, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimRight(content, "\n"), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(text, "\n", "\n  ")
}

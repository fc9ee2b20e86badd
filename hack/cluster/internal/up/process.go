// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// process is one running component.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	// ended is closed when the process has ended, and err is the reason.
	ended chan struct{}
	err   error
}

// nursery starts processes that do not outlive us.
type nursery struct {
	// lifeline is held open by us alone. Children read from the other end and leave when it closes, however we end.
	lifeline     *os.File
	lifelineRead *os.File
}

func newNursery() (*nursery, error) {
	read, write, err := os.Pipe()
	return &nursery{lifeline: write, lifelineRead: read}, err
}

// HasPrograms is true if components are programs beside this file. Then this file has only the others.
var HasPrograms bool

// programOf is the program of a component: this file itself, or one of the component's name beside it.
func programOf(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if beside := filepath.Join(filepath.Dir(self), name); HasPrograms && isFile(beside) {
		return beside, nil
	}
	return self, nil
}

func isFile(path string) bool {
	about, err := os.Stat(path)
	return err == nil && about.Mode().IsRegular()
}

// start runs a component. Its output goes to the file log.
func (n *nursery) start(name, log, home string, args []string) (*process, error) {
	program, err := programOf(name)
	if err != nil {
		return nil, err
	}
	output, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer output.Close()

	p := &process{name: name, log: log, ended: make(chan struct{})}
	p.cmd = exec.Command(program, args...)
	p.cmd.Args[0] = name
	p.cmd.Env = environment(os.Environ(), home)
	p.cmd.Stdout, p.cmd.Stderr = output, output
	p.cmd.ExtraFiles = []*os.File{n.lifelineRead}
	// The terminal's interrupts are for the launcher only, which stops its children in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithUs(p.cmd.SysProcAttr) // also a program that does not know the lifeline
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

const lifelineVariable = "LOCALCLUSTER_LIFELINE"

// FollowLauncher ends this process when the launcher that started it ends. In other processes it does nothing.
func FollowLauncher() {
	if os.Getenv(lifelineVariable) == "" {
		return
	}
	lifeline := os.NewFile(3, "lifeline") // the first of exec.Cmd's ExtraFiles
	go func() {
		// Nothing is ever written: the read ends with the last writer.
		_, _ = lifeline.Read(make([]byte, 1))
		os.Exit(1)
	}()
}

// environment returns the variables for children: enough to run and to be tuned, and nothing that could point them at another
// cluster, a proxy or the user's own settings.
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

// stop asks the process to end and insists after the grace period. It returns when the process has ended.
func (p *process) stop(grace time.Duration) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails only for a process that has ended already
	select {
	case <-p.ended:
	case <-time.After(grace):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// failure reports that the process ended by itself, with the last lines of its log.
func (p *process) failure() error {
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("%s ended (%s); the end of %s:\n%s", p.name, how, p.log, indent(tail(p.log, 20)))
}

// lostItsPort reports whether the process ended because another process took its port first.
func (p *process) lostItsPort() bool {
	select {
	case <-p.ended:
		return strings.Contains(tail(p.log, 200), syscall.EADDRINUSE.Error())
	default:
		return false
	}
}

// tail returns the last lines of a file.
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

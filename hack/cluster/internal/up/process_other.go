// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package up

import "syscall"

// childAttributes keep the terminal's interrupts away from the child: the launcher stops its children itself.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// startOf is empty when the process is gone. Here it cannot tell a process from a later one with the same id.
func startOf(pid int) string {
	if syscall.Kill(pid, 0) == syscall.ESRCH {
		return ""
	}
	return "running"
}

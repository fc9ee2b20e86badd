// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// childAttributes make the kernel kill the child when the thread that started it ends, and keep the terminal's
// interrupts away from it: the launcher stops its children itself, in order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// startOf tells when a process started, in words that only serve to compare. It is empty when the process is gone,
// waiting to be collected included. Together with the id it names a process for good: ids are used again.
func startOf(pid int) string {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The second field is the command in parentheses and may hold anything, so count from its end.
	fields := bytes.Fields(content[bytes.LastIndexByte(content, ')')+1:])
	if len(fields) < 20 || bytes.ContainsAny(fields[0], "ZX") {
		return ""
	}
	return string(fields[19])
}

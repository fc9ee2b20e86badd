// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import "syscall"

// asChild makes the kernel end the child when this process ends for any reason.
func asChild(attributes *syscall.SysProcAttr) {
	attributes.Setpgid = true
	attributes.Pdeathsig = syscall.SIGKILL
}

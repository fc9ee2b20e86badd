// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package process

import "syscall"

// asChild only keeps the terminal's signals away from the child. When this process is
// killed, the cluster stops by itself, because it watches this process. The operator stops
// when it cannot renew its lease.
func asChild(attributes *syscall.SysProcAttr) { attributes.Setpgid = true }

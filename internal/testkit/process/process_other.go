// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package process

import "syscall"

// asChild only keeps the terminal's signals away. When we are killed, the cluster
// ends by itself, since it watches us, and the operator when it can no longer renew
// its lease.
func asChild(attributes *syscall.SysProcAttr) { attributes.Setpgid = true }

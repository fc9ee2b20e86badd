// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import "syscall"

// endWithUs lets the kernel kill the process when the thread that has started it ends. Go ends threads only of goroutines that
// are locked to them, and there are none here.
func endWithUs(of *syscall.SysProcAttr) { of.Pdeathsig = syscall.SIGKILL }

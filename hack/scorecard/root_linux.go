// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"os"
	"syscall"
)

// nobody is the user and group that tests run as where we are root, as in their pods.
const nobody = 65532

// inRoot makes a process see the folder as its root directory. Who is not root may do
// that in a user namespace.
func inRoot(root string) (*syscall.SysProcAttr, error) {
	if os.Geteuid() == 0 {
		return &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}, nil
	}
	return &syscall.SysProcAttr{
		Chroot:      root,
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}, nil
}

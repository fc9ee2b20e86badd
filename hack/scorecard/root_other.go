// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import (
	"errors"
	"syscall"
)

// inRoot needs a kernel that gives everybody a root directory of their own.
func inRoot(string) (*syscall.SysProcAttr, error) {
	return nil, errors.New(`tests read /bundle, and only Linux lets a process have one of its own: use "operator-sdk scorecard" here`)
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command nodebox runs a real Kubernetes node in namespaces of its own. hack/node/up.sh calls it, and it calls itself with the
// subcommands enter and init.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/verticalscaler/verticalscaler-operator/hack/node/internal/node"
)

// The main function stays on the main thread; see [node.Up].
func init() { runtime.LockOSThread() }

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: nodebox up [flags]")
		os.Exit(2)
	}
	var err error
	switch command, args := os.Args[1], os.Args[2:]; command {
	case "up":
		err = up(args)
	case "enter":
		err = node.Enter(node.Folder(args[0]), os.NewFile(3, "door"))
	case "init":
		err = node.Init(node.Folder(args[0]), os.NewFile(3, "door"))
	default:
		err = fmt.Errorf("unknown subcommand %q", command)
	}
	var status *exec.ExitError
	if err != nil && (os.Args[1] == "up" || !errors.As(err, &status)) { // otherwise, the child has said what was wrong
		fmt.Fprintln(os.Stderr, "error:", err)
	}
	if err != nil {
		os.Exit(1)
	}
}

func up(args []string) error {
	flags := flag.NewFlagSet("up", flag.ExitOnError)
	var spec node.Spec
	var images []string
	dir := flags.String("dir", "", "folder of the node")
	flags.StringVar(&spec.LocalCluster, "localcluster", "", "the localcluster binary")
	flags.StringVar(&spec.CNI, "cni", "", "folder of the CNI plugins")
	flags.Func("image", "image archive to import; may be repeated", appendTo(&images))
	flags.Func("registry", "host name that leads to the registry inside; may be repeated", appendTo(&spec.Registries))
	_ = flags.Parse(args)
	if *dir == "" || flags.NArg() > 0 {
		return fmt.Errorf("-dir is missing, or there are arguments that are no flags: %q", flags.Args())
	}
	folder, err := filepath.Abs(*dir)
	if err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer cancel()
	// The node ends with the process that has started it, however that ends.
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGTERM), 0); errno != 0 {
		return errno
	}
	return node.Up(ctx, node.Folder(folder), spec, images)
}

func appendTo(list *[]string) func(string) error {
	return func(value string) error {
		*list = append(*list, value)
		return nil
	}
}

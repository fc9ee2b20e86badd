// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command nodebox runs a real Kubernetes node in namespaces of its own. The scripts of this folder call it, and it calls itself
// with the subcommands keep, enter and init.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/hack/node/internal/node"
)

// The main function stays on the main thread; see [node.Keep].
func init() { runtime.LockOSThread() }

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: nodebox up|down|cgroup [flags]")
		os.Exit(2)
	}
	command, args := os.Args[1], os.Args[2:]
	var err error
	switch command {
	case "up":
		err = up(args)
	case "down":
		err = down(args)
	case "cgroup":
		err = limits(args)
	case "keep":
		err = node.Keep(node.Folder(args[0]))
	case "enter":
		err = node.Enter(node.Folder(args[0]), os.NewFile(3, "door"))
	case "init":
		err = node.Init(node.Folder(args[0]), os.NewFile(3, "door"))
	default:
		err = fmt.Errorf("unknown subcommand %q", command)
	}
	var status *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &status) && (command == "enter" || command == "keep"):
		os.Exit(1) // the child has said what was wrong
	default:
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// parse reads the flags of one subcommand, and the folder that all of them have.
func parse(flags *flag.FlagSet, args []string) (node.Folder, error) {
	dir := flags.String("dir", "", "folder of the node")
	_ = flags.Parse(args)
	return node.Open(*dir)
}

func up(args []string) error {
	flags := flag.NewFlagSet("up", flag.ExitOnError)
	var spec node.Spec
	var images []string
	flags.StringVar(&spec.LocalCluster, "localcluster", "", "the localcluster binary")
	flags.StringVar(&spec.CNI, "cni", "", "folder of the CNI plugins")
	flags.Func("image", "image archive to import; may be repeated", appendTo(&images))
	flags.Func("registry", "host name that leads to the registry inside; may be repeated", appendTo(&spec.Registries))
	folder, err := parse(flags, args)
	if err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return node.Start(folder, spec, images)
}

func appendTo(list *[]string) func(string) error {
	return func(value string) error {
		*list = append(*list, value)
		return nil
	}
}

func down(args []string) error {
	folder, err := parse(flag.NewFlagSet("down", flag.ExitOnError), args)
	if err != nil {
		return err
	}
	return node.Stop(folder, time.Minute)
}

func limits(args []string) error {
	flags := flag.NewFlagSet("cgroup", flag.ExitOnError)
	folder, err := parse(flags, args)
	if err != nil {
		return err
	}
	if flags.NArg() != 2 {
		return errors.New("a pod's UID and a container's ID are expected")
	}
	spec, err := folder.Spec()
	if err != nil {
		return err
	}
	// A pod's status has it as containerd://0123...
	id := strings.TrimPrefix(flags.Arg(1), "containerd://")
	limits, err := spec.Group.Container(flags.Arg(0), id)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(limits)
}

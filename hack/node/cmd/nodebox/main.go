// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command nodebox runs a real Kubernetes node in namespaces of its own. The scripts of this folder are its front; the
// subcommands keep, enter and init are how it calls itself.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/hack/node/internal/keeper"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: nodebox up|down|exec|cgroup|rehearse [flags]")
		os.Exit(2)
	}
	command, args := os.Args[1], os.Args[2:]
	var err error
	switch command {
	case "up":
		err = up(args)
	case "down":
		err = down(args)
	case "exec":
		err = enter(args)
	case "cgroup":
		err = limits(args)
	case "rehearse":
		err = rehearse()
	case "keep":
		err = keeper.Keep(keeper.Folder(args[0]), os.NewFile(3, "progress"), os.NewFile(4, "life"))
	case "enter":
		err = keeper.Enter(keeper.Folder(args[0]), os.NewFile(3, "door"))
	case "init":
		err = keeper.Init(keeper.Folder(args[0]), os.NewFile(3, "door"))
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
func parse(flags *flag.FlagSet, args []string) (keeper.Folder, error) {
	dir := flags.String("dir", "", "folder of the node")
	_ = flags.Parse(args)
	return keeper.Open(*dir)
}

func up(args []string) error {
	flags := flag.NewFlagSet("up", flag.ExitOnError)
	var o keeper.Options
	flags.StringVar(&o.Name, "node", "node-1", "name of the node")
	flags.IntVar(&o.Port, "port", 0, "port on 127.0.0.1 for the API server; 0 is a free one")
	flags.DurationVar(&o.Timeout, "timeout", 5*time.Minute, "how long the start may take")
	flags.BoolVar(&o.Foreground, "foreground", false, "stay, and end the node when this process ends")
	flags.StringVar(&o.LocalCluster, "localcluster", "", "the localcluster binary")
	flags.StringVar(&o.CNI, "cni", "", "folder of the CNI plugins")
	flags.Func("image", "image archive to import; may be repeated", func(path string) error {
		o.Images = append(o.Images, path)
		return nil
	})
	flags.Func("registry", "host name that leads to the registry inside; may be repeated", func(name string) error {
		o.Registries = append(o.Registries, name)
		return nil
	})
	folder, err := parse(flags, args)
	if err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	o.Folder = folder
	return keeper.Start(o)
}

func down(args []string) error {
	folder, err := parse(flag.NewFlagSet("down", flag.ExitOnError), args)
	if err != nil {
		return err
	}
	return keeper.Stop(folder, time.Minute)
}

// enter becomes the command, inside. nsenter does what a Go program cannot: a process with several threads is not
// allowed into another mount namespace.
func enter(args []string) error {
	flags := flag.NewFlagSet("exec", flag.ExitOnError)
	folder, err := parse(flags, args)
	if err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("no command given")
	}
	spec, err := folder.Spec()
	if err != nil {
		return err
	}
	pid, err := folder.InitPID()
	if err != nil {
		return err
	}
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		return err
	}
	command := []string{
		"nsenter", "--target", strconv.Itoa(pid), "--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup", "--wd=/", "--",
		"/usr/bin/env", "-i",
	}
	command = append(command, spec.Environment()...)
	return syscall.Exec(nsenter, append(command, flags.Args()...), os.Environ())
}

func limits(args []string) error {
	flags := flag.NewFlagSet("cgroup", flag.ExitOnError)
	folder, err := parse(flags, args)
	if err != nil {
		return err
	}
	if flags.NArg() < 1 || flags.NArg() > 2 {
		return errors.New("a pod's UID and a container's ID are expected")
	}
	spec, err := folder.Spec()
	if err != nil {
		return err
	}
	// As the status of a pod has it: containerd://0123...
	_, id, found := strings.Cut(flags.Arg(1), "://")
	if !found {
		id = flags.Arg(1)
	}
	inForce, err := spec.Group.Container(flags.Arg(0), id)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(inForce)
}

func rehearse() error {
	version, err := keeper.Rehearse()
	if err != nil {
		return err
	}
	fmt.Printf("cgroup version %d\n", version)
	return nil
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sandbox turns a process in fresh namespaces into a small machine. It has its own view of /proc, /sys and
// cgroups, its own /run, /var/lib and /var/log, and a network with one address. None of the host's files is writable.
//
// Everything here runs inside the namespaces. Mounts and interfaces end with them, so there is nothing to undo.
package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/verticalscaler/verticalscaler-operator/hack/node/internal/cgroups"
)

// Where things are inside. The host's folder can be anywhere, also below a place that the sandbox hides, such as
// /var/lib or /run; inside it is always here.
const (
	State    = "/run/node"
	Bin      = "/run/bin"
	Temp     = "/run/tmp"
	Logs     = "/var/log"
	Address  = "10.250.0.2"
	PodRange = "10.244.0.0/24"
	// ServiceAddress is the value of KUBERNETES_SERVICE_HOST in pods: the first address of the service range.
	ServiceAddress = "10.96.0.1"
)

// Config says what to bring in from the host.
type Config struct {
	Hostname string
	State    string // becomes State
	Logs     string // becomes Logs
	// LocalCluster becomes a program in Bin. Optional.
	LocalCluster string
	Layout       cgroups.Layout
	// Hosts are names that resolve to Address. Without any, names resolve as on the host.
	Hosts []string
}

// SetUp sets up the sandbox. The caller is process 1 of new mount, network, PID, cgroup, UTS and IPC namespaces.
func SetUp(c Config) error {
	steps := []struct {
		doing string
		do    func() error
	}{
		{"detaching from the host's mounts", func() error { return syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "") }},
		{"setting the host name", func() error { return syscall.Sethostname([]byte(c.Hostname)) }},
		{"mounting folders", func() error { return mountFolders(c) }},
		{"mounting /etc/hosts", func() error { return mountHosts(c.Hosts) }},
		{"mounting /proc", mountProc},
		{"mounting /sys and cgroups", func() error { return mountSys(c.Layout) }},
		{"setting up the network", makeNetwork},
		// Last, because the steps before this one create mount points.
		{"remounting the host's files read-only", func() error { return remountReadOnly("/") }},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.doing, err)
		}
	}
	return nil
}

func mountFolders(c Config) error {
	program := filepath.Join(Bin, "localcluster")
	sources := map[string]string{State: c.State, Logs: c.Logs}
	if c.LocalCluster != "" {
		sources[program] = c.LocalCluster
	}
	// Held open, because the mounts below may hide their names.
	held := map[string]*os.File{}
	for target, source := range sources {
		file, err := os.OpenFile(source, oPath, 0)
		if err != nil {
			return err
		}
		defer file.Close()
		held[target] = file
	}
	if err := mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for _, folder := range []string{State, Bin, Temp} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(program, nil, 0o755); err != nil {
		return err
	}
	for target, file := range held {
		if err := bind("/proc/self/fd/"+strconv.Itoa(int(file.Fd())), target); err != nil {
			return err
		}
	}

	// Some paths cannot be configured (the kubelet's device plugins, results of CNI), so all of /var/lib is private.
	lib := filepath.Join(State, "var-lib")
	if err := os.MkdirAll(filepath.Join(lib, "kubelet"), 0o755); err != nil {
		return err
	}
	if err := bind(lib, "/var/lib"); err != nil {
		return err
	}
	// Volumes with mount propagation need a shared mount to propagate on.
	if err := bind("/var/lib/kubelet", "/var/lib/kubelet"); err != nil {
		return err
	}
	return syscall.Mount("", "/var/lib/kubelet", "", syscall.MS_REC|syscall.MS_SHARED, "")
}

// mountHosts covers the host's list of names, for this machine only.
func mountHosts(names []string) error {
	if len(names) == 0 {
		return nil
	}
	const path = "/run/hosts"
	text := fmt.Sprintf("127.0.0.1 localhost\n%s %s\n", Address, strings.Join(names, " "))
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	return bind(path, "/etc/hosts")
}

// The kubelet requires these values and writes them if they differ, but they belong to the whole host. So the sandbox has files
// that hold the values already.
var requiredSysctls = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

func mountProc() error {
	// The old one shows the host's processes. Where it cannot be unmounted, the new one covers it.
	_ = syscall.Unmount("/proc", syscall.MNT_DETACH)
	if err := mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	// Read-only, but for the part that belongs to the network namespace.
	for _, path := range []string{"/proc/sys", "/proc/sys/net"} {
		if err := bind(path, path); err != nil {
			return err
		}
	}
	for name, value := range requiredSysctls {
		target := filepath.Join("/proc/sys", name)
		if _, err := os.Stat(target); errors.Is(err, os.ErrNotExist) {
			continue
		}
		source := filepath.Join("/run/sysctl", name)
		if err := os.MkdirAll(filepath.Dir(source), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(source, []byte(value+"\n"), 0o444); err != nil {
			return err
		}
		if err := bind(source, target); err != nil {
			return err
		}
	}
	return remountReadOnly("/proc/sys")
}

func mountSys(layout cgroups.Layout) error {
	// A new sysfs shows the interfaces of this network namespace. The old one must go with all that is mounted below:
	// runc reads the list of mounts and would take the host's cgroup trees for its own.
	if err := syscall.Unmount("/sys", syscall.MNT_DETACH); err != nil {
		return err
	}
	if err := mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return err
	}
	const top = "/sys/fs/cgroup"
	if layout.Version == 2 {
		return mount("cgroup2", top, "cgroup2", 0, "")
	}
	if err := mount("tmpfs", top, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for _, tree := range layout.Trees {
		all := strings.Join(tree.Controllers, ",")
		folder, options := all, all
		if name, ok := strings.CutPrefix(all, "name="); ok {
			folder, options = name, "none,"+all
		}
		path := filepath.Join(top, folder)
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
		if err := mount("cgroup", path, "cgroup", 0, options); err != nil {
			return err
		}
		// A tree of two controllers is looked up under either name.
		if len(tree.Controllers) > 1 {
			for _, controller := range tree.Controllers {
				if err := os.Symlink(folder, filepath.Join(top, controller)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// makeNetwork gives the machine one address, and the address of the "kubernetes" service besides. A pair of veth
// devices carries it, because not every kernel has dummy devices.
func makeNetwork() error {
	for _, command := range []string{
		"link set lo up",
		"link add node0 type veth peer name node0p",
		"addr add " + Address + "/24 dev node0",
		"link set node0 up",
		"link set node0p up",
		// Leads nowhere; programs ask for the default route to learn their own address.
		"route add default dev node0",
		"addr add " + ServiceAddress + "/32 dev lo",
	} {
		out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", command, err, strings.TrimSpace(string(out)))
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
}

// remountReadOnly covers one file system: mounts below it, such as State and Logs, stay writable.
func remountReadOnly(target string) error {
	// A remount sets all flags, so the present ones must be repeated.
	var fs syscall.Statfs_t
	if err := syscall.Statfs(target, &fs); err != nil {
		return err
	}
	// statfs and mount use the same values for these.
	flags := uintptr(fs.Flags) & (syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC | syscall.MS_NOATIME | syscall.MS_NODIRATIME)
	if err := syscall.Mount("", target, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY|flags, ""); err != nil {
		return fmt.Errorf("remounting %s: %w", target, err)
	}
	return nil
}

func bind(source, target string) error {
	return mount(source, target, "", syscall.MS_BIND, "")
}

func mount(source, target, kind string, flags uintptr, data string) error {
	if err := syscall.Mount(source, target, kind, flags, data); err != nil {
		return fmt.Errorf("mounting %s: %w", target, err)
	}
	return nil
}

// oPath opens a name without access to what is behind it (O_PATH, which package syscall lacks).
const oPath = 0x200000

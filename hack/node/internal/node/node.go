// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/hack/node/internal/sandbox"
)

// Init is process 1 of the sandbox. It prints its progress to standard output and returns only when something failed.
func Init(f Folder, door *os.File) error {
	spec, err := f.spec()
	if err != nil {
		return err
	}
	// Child processes are looked up on this PATH, and so is "ip" during the setup of the sandbox.
	os.Clearenv()
	for _, pair := range spec.Environment() {
		name, value, _ := strings.Cut(pair, "=")
		os.Setenv(name, value)
	}
	// For commands that exec.sh runs.
	if err := os.WriteFile(filepath.Join(f.state(), EnvironmentFile), []byte(strings.Join(spec.Environment(), "\n")+"\n"), 0o644); err != nil {
		return err
	}
	err = sandbox.SetUp(sandbox.Config{
		Hostname: Name, State: f.state(), Logs: f.logs(), LocalCluster: spec.LocalCluster, Layout: spec.Group.Layout, Hosts: spec.Registries,
	})
	if err != nil {
		return err
	}
	n := &node{Spec: spec, supervisor: newSupervisor(spec.Environment())}
	return n.run(door)
}

type node struct {
	Spec
	*supervisor
}

func (n *node) run(door *os.File) error {
	ctx, cancel := context.WithDeadlineCause(context.Background(), n.Started.Add(timeout),
		fmt.Errorf("not done within %s", timeout))
	defer cancel()

	if err := n.writeConfiguration(); err != nil {
		return err
	}
	if err := n.openRegistries(); err != nil {
		return err
	}
	if err := n.component("containerd", "containerd", "--config", containerdFile); err != nil {
		return err
	}
	if err := n.component("localcluster", "localcluster", "up", "-dir", clusterFolder, "-node", Name,
		"-bind", sandbox.Address, "-port", "6443", "-metrics-server", "-timeout", timeout.String()); err != nil {
		return err
	}

	if err := n.until(ctx, "containerd", 50*time.Millisecond, func() error { return dial("unix", containerdSocket) }); err != nil {
		return err
	}
	n.say("containerd is up")
	if err := n.importImages(ctx); err != nil {
		return err
	}
	n.say("images are imported")

	if err := n.until(ctx, "the control plane", 50*time.Millisecond, func() error { _, err := os.Stat(readyFile); return err }); err != nil {
		return err
	}
	n.say("the control plane is up")
	if err := n.component("kubelet", "kubelet", "--config="+kubeletFile, "--kubeconfig="+kubeletKubeconf,
		"--hostname-override="+Name, "--node-ip="+sandbox.Address, "--v=2"); err != nil {
		return err
	}
	if err := n.openDoors(ctx, door); err != nil {
		return err
	}
	if err := n.await(ctx, "node/"+Name, "create", "condition=Ready"); err != nil {
		return err
	}
	n.say("node %s is Ready", Name)
	// The API server refuses pods until this exists.
	if err := n.await(ctx, "serviceaccount/default", "create"); err != nil {
		return err
	}
	n.say("pods can be created")
	if err := os.WriteFile(filepath.Join(sandbox.State, ReadyFile), nil, 0o644); err != nil {
		return err
	}
	return <-n.failed
}

// await waits until an object meets conditions of "kubectl wait", one after the other.
func (n *node) await(ctx context.Context, object string, conditions ...string) error {
	for _, condition := range conditions {
		command := []string{"kubectl", "wait", object, "--for=" + condition, "--timeout=" + timeout.String()}
		if err := n.supervisor.run(ctx, "kubectl", command...); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) say(format string, args ...any) {
	fmt.Printf("[%6.1fs] %s\n", time.Since(n.Started).Seconds(), fmt.Sprintf(format, args...))
}

func (n *node) writeConfiguration() error {
	for _, folder := range []string{"/var/lib/containerd", cniFolder, clusterFolder} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	// The control plane keeps its logs in a folder of its own below the state. This link is for readers outside. When the
	// node ends, the folder is moved there.
	if err := os.Symlink("../state/cluster/logs", filepath.Join(sandbox.Logs, ControlPlaneLogs)); err != nil {
		return err
	}
	// One binary holds all programs of Kubernetes. Its name selects the program.
	for _, name := range []string{"kubelet", "kubectl"} {
		if err := os.Symlink("localcluster", filepath.Join(sandbox.Bin, name)); err != nil {
			return err
		}
	}
	for path, text := range map[string]string{
		containerdFile: containerdConfig(n.Containerd, n.CNI),
		networkFile:    networkConfig(),
		kubeletFile:    kubeletConfig(),
		resolvFile:     "nameserver " + unusedNameServer + "\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// openRegistries comes before containerd, which reads the certificates that it trusts once.
func (n *node) openRegistries() error {
	if len(n.Registries) == 0 {
		return nil
	}
	certificate, authority, err := registryCertificate(n.Registries, time.Now())
	if err != nil {
		return err
	}
	if err := os.WriteFile(registryCA, authority, 0o644); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(sandbox.Address, "443"))
	if err != nil {
		return err
	}
	go serveRegistries(listener, certificate, registryAddress)
	return nil
}

func (n *node) importImages(ctx context.Context) error {
	archives, err := filepath.Glob(filepath.Join(sandbox.State, ImagesFolder, "*.tar"))
	if err != nil {
		return err
	}
	for _, archive := range archives {
		if err := n.supervisor.run(ctx, "images", "ctr", "images", "import", archive); err != nil {
			return err
		}
	}
	return nil
}

// openDoors connects the API server with the host and with pods, and writes a kubeconfig for the host.
func (n *node) openDoors(ctx context.Context, door *os.File) error {
	// Through a shell, because output and log must not mix.
	script := fmt.Sprintf(`umask 077; kubectl config view --raw --flatten >%[1]s
		kubectl --kubeconfig=%[1]s config set-cluster local --server=https://127.0.0.1:%[2]d`,
		filepath.Join(sandbox.State, KubeconfigFile), n.HostPort)
	if err := n.supervisor.run(ctx, "kubectl", "sh", "-ec", script); err != nil {
		return err
	}
	hosts, err := net.FileListener(door)
	if err != nil {
		return err
	}
	go forward(hosts, apiAddress)
	// There is no kube-proxy, but clients in pods need this one Service.
	pods, err := net.Listen("tcp", net.JoinHostPort(sandbox.ServiceAddress, "443"))
	if err != nil {
		return err
	}
	go forward(pods, apiAddress)
	return nil
}

func dial(network, address string) error {
	conn, err := net.Dial(network, address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node runs a node. Outside the sandbox, a process creates the cgroup, starts the sandbox, and cleans up when the node
// ends. Inside, process 1 starts the control plane, containerd and the kubelet, and waits for the node to be usable.
package node

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/hack/node/internal/cgroups"
	"github.com/verticalscaler/verticalscaler-operator/hack/node/internal/sandbox"
)

const (
	// PauseImage is the image that holds the namespaces of pods.
	PauseImage = "verticalscaler.local/pause:dev"
	// Name is the name of the node.
	Name = "node-1"
	// timeout is how long the start may take.
	timeout = 5 * time.Minute
)

// Files in the state folder, which the processes outside and inside both see.
const (
	SpecFile       = "spec.json"
	KubeconfigFile = "kubeconfig"
	// ReadyFile appears when the node can be used.
	ReadyFile = "ready"
	// InitPIDFile and EnvironmentFile are for exec.sh: process 1 as the host numbers it, and a variable in each line.
	InitPIDFile     = "init.pid"
	EnvironmentFile = "environment"
	ImagesFolder    = "images"
	// SharedFolder is for files that users want to be seen outside and inside.
	SharedFolder = "shared"
	// ClusterLogs are of the control plane; seen from the logs folder they are ControlPlaneLogs.
	ClusterLogs      = "cluster/logs"
	ControlPlaneLogs = "control-plane"
)

// Spec describes the node, for the process inside.
type Spec struct {
	Group        cgroups.Group     `json:"group"`
	Started      time.Time         `json:"started"`
	HostPort     int               `json:"hostPort"`
	Containerd   ContainerdVersion `json:"containerd"`
	CNI          string            `json:"cni"`
	LocalCluster string            `json:"localCluster"`
	// Registries are host names that lead to the registry inside.
	Registries []string `json:"registries,omitempty"`
}

// spec is the spec of the node that runs in the folder, or that ended without being cleaned up.
func (f Folder) spec() (s Spec, err error) {
	text, err := os.ReadFile(filepath.Join(f.state(), SpecFile))
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(text, &s)
}

// save writes the spec to the state folder.
func (s Spec) save(state string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(state, SpecFile), text, 0o644)
}

// Environment is the environment of programs inside. They need nothing of the host's.
func (s Spec) Environment() []string {
	environment := []string{
		"PATH=" + sandbox.Bin + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + sandbox.Temp,
		"TMPDIR=" + sandbox.Temp,
		"LANG=C.UTF-8",
		"KUBECONFIG=" + adminKubeconfig,
		"CONTAINERD_ADDRESS=" + containerdSocket,
		"CONTAINERD_NAMESPACE=k8s.io",
	}
	if len(s.Registries) > 0 {
		environment = append(environment, "SSL_CERT_FILE="+registryCA)
	}
	return environment
}

const (
	clusterFolder    = sandbox.State + "/cluster"
	adminKubeconfig  = clusterFolder + "/admin.kubeconfig"
	containerdSocket = "/run/containerd/containerd.sock"
	apiAddress       = sandbox.Address + ":6443"
)

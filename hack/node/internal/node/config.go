// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/verticalscaler/verticalscaler-operator/hack/node/internal/sandbox"
)

// ContainerdVersion is the part of the version that decides the format of the configuration.
type ContainerdVersion struct{ Major, Minor int }

var versionNumber = regexp.MustCompile(`\bv?([0-9]+)\.([0-9]+)\.[0-9]+`)

// ParseContainerdVersion reads the output of "containerd --version":
//
//	containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3
//	containerd containerd.io v2.1.5 fcd43222d6b07379a4be9786bda52438f0dd16a1
func ParseContainerdVersion(text string) (ContainerdVersion, error) {
	match := versionNumber.FindStringSubmatch(text)
	if match == nil {
		return ContainerdVersion{}, fmt.Errorf("no version in %q", strings.TrimSpace(text))
	}
	major, _ := strconv.Atoi(match[1])
	minor, _ := strconv.Atoi(match[2])
	return ContainerdVersion{major, minor}, nil
}

// containerdConfig differs from containerd's defaults in these points:
//   - nothing lies outside the private folders (the "opt" plugin would create /opt/containerd);
//   - a container's oom_score_adj is not lowered below containerd's own, which requires a capability that root does not
//     have everywhere;
//   - images are copied and not layered, because an overlay does not work on an overlay, as inside a container;
//   - no AppArmor profile is loaded, because profiles belong to the host's kernel.
func containerdConfig(v ContainerdVersion, cni string) string {
	head := fmt.Sprintf(`root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = %q
`, containerdSocket)
	if v.Major < 2 {
		return "version = 2\n" + head + fmt.Sprintf(`[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
`, PauseImage, cni, cniFolder)
	}
	programs := fmt.Sprintf("bin_dirs = [%q]", cni)
	if v.Minor < 1 {
		programs = fmt.Sprintf("bin_dir = %q", cni)
	}
	return "version = 3\n" + head + fmt.Sprintf(`[plugins."io.containerd.cri.v1.images"]
  snapshotter = "native"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = %q
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    %s
    conf_dir = %q
`, PauseImage, programs, cniFolder)
}

const (
	cniFolder        = "/run/cni"
	containerdFile   = "/run/containerd.toml"
	kubeletFile      = "/run/kubelet.yaml"
	resolvFile       = "/run/resolv.conf"
	networkFile      = cniFolder + "/10-pods.conflist"
	readyFile        = clusterFolder + "/ready"
	kubeletKubeconf  = clusterFolder + "/kubelet.kubeconfig"
	clusterDomain    = "cluster.local"
	unusedNameServer = "10.96.0.10"
)

// networkConfig is a bridge, without masquerading: pods reach each other and the node, and nothing else.
func networkConfig() string {
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "pods", "plugins": [{
  "type": "bridge", "bridge": "pods0", "isGateway": true, "hairpinMode": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}
}]}
`, sandbox.PodRange)
}

// kubeletConfig configures a kubelet that resizes pods as a production kubelet does. The differences are:
//   - cgroup version 1 is accepted, which the kubelet refuses by default since 1.35;
//   - the kubelet syncs pods every 10s instead of 60s, so that a deferred resize is retried while a test waits;
//   - disk pressure and image clean-up do not interfere on nearly full machines;
//   - there is no kube-proxy and no DNS, so there are no rules for them.
func kubeletConfig() string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[1]s
containerRuntimeEndpoint: unix://%[2]s
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %[3]s/pki/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: %[3]s/pki/kubelet.crt
tlsPrivateKeyFile: %[3]s/pki/kubelet.key
clusterDNS: [%[4]s]
clusterDomain: %[5]s
resolvConf: %[6]s
volumePluginDir: /var/lib/kubelet/volume-plugins
makeIPTablesUtilChains: false
oomScoreAdj: 0
syncFrequency: 10s
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: 50Mi, nodefs.available: 1%%, imagefs.available: 1%%, nodefs.inodesFree: 1%%}
`, sandbox.Address, containerdSocket, clusterFolder, unusedNameServer, clusterDomain, resolvFile)
}

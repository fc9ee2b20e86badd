// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"fmt"
	"net"

	"github.com/verticalscaler/verticalscaler-operator/hack/cluster/internal/fakenode"
	"github.com/verticalscaler/verticalscaler-operator/hack/cluster/internal/pki"
)

const (
	loopback       = "127.0.0.1"
	podNetwork     = "10.244.0.0/16"
	serviceNetwork = "10.96.0.0/16"
	apiServiceIP   = "10.96.0.1" // the first address of the service network
	frontProxy     = "front-proxy-client"
	metricsHost    = "metrics-server.kube-system.svc"
	kwokConfigFile = "kwok.yaml"
)

// The tiers of components. Each needs the one before.
const (
	databaseTier = iota
	serverTier
	lastTier
)

// component is a program of the cluster and how to run it.
type component struct {
	name string
	tier int
	// host and ports are where it listens: how many free ports it needs there.
	host  string
	ports int
	// fixed is the first port when it is not ours to choose.
	fixed int
	// health is the path that answers 200 on the first port once the component works.
	health string
	args   func(ports []int) []string
}

// identities are the certificates that the cluster's authority signs.
func identities(o Options) []pki.Identity {
	const masters = "system:masters"
	ids := []pki.Identity{
		{Name: "admin", User: "admin", Groups: []string{masters}},
		{Name: "etcd", User: "etcd", Hosts: []string{loopback, "localhost"}},
		{Name: "apiserver-etcd", User: "kube-apiserver"},
		{Name: "apiserver", User: "kube-apiserver", Hosts: []string{
			loopback, "localhost", o.Bind, apiServiceIP,
			"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		}},
		{Name: "apiserver-kubelet", User: "kube-apiserver", Groups: []string{masters}},
		{Name: "service-accounts", User: "service-accounts"},
		{Name: "controller-manager", User: "system:kube-controller-manager", Hosts: []string{loopback}},
		{Name: "scheduler", User: "system:kube-scheduler", Hosts: []string{loopback}},
		{Name: "kwok", User: "kwok", Groups: []string{masters}, Hosts: []string{loopback}},
		{Name: "metrics-server", User: "metrics-server", Groups: []string{masters}, Hosts: []string{loopback, "localhost", metricsHost}},
	}
	if o.Node != "" {
		ids = append(ids, pki.Identity{
			Name: "kubelet", User: "system:node:" + o.Node, Groups: []string{"system:nodes"},
			Hosts: []string{o.Node, loopback, o.Bind},
		})
	}
	return ids
}

// users are the identities that get a kubeconfig.
func users(o Options) []string {
	names := []string{"admin", "controller-manager", "scheduler", "kwok", "metrics-server"}
	if o.Node != "" {
		names = append(names, "kubelet")
	}
	return names
}

// Every client gets the authority to trust. Then a port that another cluster took first answers with a certificate of another
// authority, and no client mistakes one cluster for the other.

func etcd(f folder, ca *pki.Authority) component {
	return component{name: "etcd", tier: databaseTier, ports: 2, host: loopback, health: "/readyz", args: func(ports []int) []string {
		clients := fmt.Sprintf("https://%s:%d", loopback, ports[0])
		peers := fmt.Sprintf("http://%s:%d", loopback, ports[1]) // required, although there are none
		return []string{
			"--data-dir=" + f.path("etcd"),
			"--listen-client-urls=" + clients,
			"--advertise-client-urls=" + clients,
			"--listen-peer-urls=" + peers,
			"--initial-advertise-peer-urls=" + peers,
			"--initial-cluster=default=" + peers,
			"--client-cert-auth",
			"--trusted-ca-file=" + ca.CA(),
			"--cert-file=" + ca.Cert("etcd"),
			"--key-file=" + ca.Key("etcd"),
			"--unsafe-no-fsync", // nothing here has to survive a power cut
			"--log-level=warn",
		}
	}}
}

func apiServer(o Options, f folder, ca, proxyCA *pki.Authority, etcdPort int) component {
	return component{name: "kube-apiserver", tier: serverTier, ports: 1, fixed: o.Port, host: o.Bind, health: "/readyz", args: func(ports []int) []string {
		args := []string{
			fmt.Sprintf("--etcd-servers=https://%s:%d", loopback, etcdPort),
			"--etcd-cafile=" + ca.CA(),
			"--etcd-certfile=" + ca.Cert("apiserver-etcd"),
			"--etcd-keyfile=" + ca.Key("apiserver-etcd"),
			"--bind-address=" + o.Bind,
			"--advertise-address=" + o.Bind,
			fmt.Sprintf("--secure-port=%d", ports[0]),
			"--tls-cert-file=" + ca.Cert("apiserver"),
			"--tls-private-key-file=" + ca.Key("apiserver"),
			"--client-ca-file=" + ca.CA(),
			"--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction",
			"--allow-privileged=true",
			"--service-cluster-ip-range=" + serviceNetwork,
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + ca.Cert("service-accounts"),
			"--service-account-signing-key-file=" + ca.Key("service-accounts"),
			"--requestheader-client-ca-file=" + proxyCA.CA(),
			"--requestheader-allowed-names=" + frontProxy,
			"--requestheader-username-headers=X-Remote-User",
			"--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--proxy-client-cert-file=" + proxyCA.Cert(frontProxy),
			"--proxy-client-key-file=" + proxyCA.Key(frontProxy),
			"--kubelet-client-certificate=" + ca.Cert("apiserver-kubelet"),
			"--kubelet-client-key=" + ca.Key("apiserver-kubelet"),
			"--kubelet-preferred-address-types=InternalIP,Hostname",
			"--profiling=false",
		}
		if net.ParseIP(o.Bind).IsLoopback() {
			// The API refuses loopback addresses as endpoints, so the service "kubernetes" has none.
			args = append(args, "--endpoint-reconciler-type=none")
		}
		if !o.Controllers {
			// Without controllers there are no service accounts, which this plugin requires for every pod.
			args = append(args, "--disable-admission-plugins=ServiceAccount")
		}
		if o.AuditPolicy != "" {
			args = append(args, "--audit-log-path="+f.audit(), "--audit-log-format=json", "--audit-policy-file="+o.AuditPolicy)
		}
		return append(args, o.APIServerArgs...)
	}}
}

func controllerManager(f folder, ca *pki.Authority) component {
	return component{name: "kube-controller-manager", tier: lastTier, ports: 1, host: loopback, health: "/healthz", args: func(ports []int) []string {
		return append(daemon(f, ca, "controller-manager", ports[0]),
			"--leader-elect=false",
			"--profiling=false",
			"--kube-api-qps=1000", // the default makes its start take five seconds longer
			"--kube-api-burst=1000",
			"--flex-volume-plugin-dir="+f.path("home", "volume-plugins"), // the default is a system folder, which root would create
			"--service-account-private-key-file="+ca.Key("service-accounts"),
			"--use-service-account-credentials=true",
			"--root-ca-file="+ca.CA(),
			"--cluster-signing-cert-file="+ca.CA(),
			"--cluster-signing-key-file="+ca.Key("ca"),
			"--allocate-node-cidrs=true",
			"--cluster-cidr="+podNetwork,
			"--service-cluster-ip-range="+serviceNetwork,
		)
	}}
}

func scheduler(f folder, ca *pki.Authority) component {
	return component{name: "kube-scheduler", tier: lastTier, ports: 1, host: loopback, health: "/healthz", args: func(ports []int) []string {
		return append(daemon(f, ca, "scheduler", ports[0]),
			"--leader-elect=false",
			"--profiling=false",
			"--kube-api-qps=1000",
			"--kube-api-burst=1000",
		)
	}}
}

func metricsServer(f folder, ca *pki.Authority) component {
	return component{name: "metrics-server", tier: lastTier, ports: 1, host: loopback, health: "/livez", args: func(ports []int) []string {
		return append(daemon(f, ca, "metrics-server", ports[0]),
			"--kubelet-insecure-tls", // a kubelet may sign its own certificate
			"--kubelet-preferred-address-types=InternalIP,Hostname",
			"--kubelet-use-node-status-port", // kwok's is not 10250
			"--metric-resolution=10s",        // the shortest
			"--kubelet-request-timeout=5s",   // the default is too long for a resolution of 10s
		)
	}}
}

// daemon has the common flags of components that serve on a port and ask the API server who may call them.
func daemon(f folder, ca *pki.Authority, user string, port int) []string {
	kubeconfig := f.kubeconfig(user)
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=" + loopback,
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + ca.Cert(user),
		"--tls-private-key-file=" + ca.Key(user),
	}
}

func kwok(f folder, ca *pki.Authority) component {
	return component{name: "kwok", tier: lastTier, ports: 1, host: loopback, health: "/healthz", args: func(ports []int) []string {
		return []string{
			"--kubeconfig=" + f.kubeconfig("kwok"),
			"--config=" + f.path(kwokConfigFile),
			"--manage-all-nodes=false",
			"--manage-nodes-with-annotation-selector=" + fakenode.Selector,
			"--node-ip=" + loopback,
			fmt.Sprintf("--node-port=%d", ports[0]),
			fmt.Sprintf("--server-address=%s:%d", loopback, ports[0]),
			"--cidr=" + podNetwork, // for nodes that no controller gave a part of it
			"--node-lease-duration-seconds=40",
			"--tls-cert-file=" + ca.Cert("kwok"),
			"--tls-private-key-file=" + ca.Key("kwok"),
		}
	}}
}

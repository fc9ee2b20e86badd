// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build node

// Package realnode starts a real kubelet with containerd for tests, puts load on its pods,
// and reads the enforced limits from the kernel. It needs root on Linux; hack/node/check.sh
// checks the other requirements.
package realnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/cmd/operator/app"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/process"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Node is a cluster with one real node.
type Node struct {
	// Dir is the folder hack/node.
	Dir string
	// Config is a cluster administrator's.
	Config *rest.Config
	Client client.WithWatch
}

// Main is a TestMain with a node. up is the script that runs the node, a path below hack. ready prepares what all tests need. The
// node is stopped after the tests. Main does not return.
func Main(m *testing.M, up string, ready func(*Node) error) {
	code, err := run(m, up, ready)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M, path string, ready func(*Node) error) (code int, err error) {
	if out, err := Script("node/check.sh", "-q").CombinedOutput(); err != nil {
		return 1, fmt.Errorf("this machine cannot run a real node:\n%s", out)
	}
	dir, err := os.MkdirTemp("", "verticalscaler-node-")
	if err != nil {
		return 1, fmt.Errorf("making a folder for the node: %w", err)
	}
	log := filepath.Join(dir, "up.log")
	up, err := process.Start("the node", log, Script(path, "-dir", dir))
	if err != nil {
		return 1, err
	}
	defer func() {
		up.Stop(time.Minute)
		if err = errors.Join(err, up.Err()); code == 0 && err == nil {
			_ = os.RemoveAll(dir)
		} else {
			fmt.Fprintf(os.Stderr, "The node's logs are kept in %s and %s\n", log, filepath.Join(dir, "logs"))
		}
	}()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	for _, err := os.Stat(kubeconfig); err != nil; _, err = os.Stat(kubeconfig) { // it gives up by itself
		select {
		case <-up.Ended:
			return 1, up.Failure()
		case <-time.After(100 * time.Millisecond):
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return 1, fmt.Errorf("reading the node's kubeconfig: %w", err)
	}
	// Warnings of the API server belong into the log.
	// Many tests wait at once, so they poll slowly enough for a busy machine.
	config.QPS, config.Burst = 50, 100
	config.WarningHandler = rest.NewWarningWriter(os.Stderr, rest.WarningWriterOptions{Deduplicate: true})
	c, err := client.NewWithWatch(config, client.Options{Scheme: app.Scheme()})
	if err != nil {
		return 1, fmt.Errorf("making a client: %w", err)
	}
	if err := ready(&Node{Dir: dir, Config: config, Client: c}); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// Script is a command of a script below hack.
func Script(name string, args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(testkit.Root(), "hack", name), args...)
}

// Exec returns a command that runs inside the node, where pods and registries are
// reachable, in the folder that is shared with the outside.
func (n *Node) Exec(ctx context.Context, args ...string) *exec.Cmd {
	path := filepath.Join(testkit.Root(), "hack", "node", "exec.sh")
	return exec.CommandContext(ctx, path, append([]string{"-dir", n.Dir, "--", "env", "-C", "/run/node/shared"}, args...)...)
}

// Limits are the limits that the kernel enforces on a container, and the number of its OOM-killed processes. CPUShares are of
// cgroup version 1.
type Limits struct {
	CgroupVersion    int
	CPUShares        int64
	CPUQuotaMicros   int64
	CPUPeriodMicros  int64
	MemoryLimitBytes int64
	OOMKills         int64
}

// CPUMillis is the CPU limit in millicores.
func (l Limits) CPUMillis() int64 { return l.CPUQuotaMicros * 1000 / l.CPUPeriodMicros }

// Limits reads the limits of the pod's first container.
func (n *Node) Limits(t *testing.T, pod corev1.Pod) Limits {
	t.Helper()
	limits, err := n.FindLimits(t.Context(), pod)
	must.Succeed(t, err)
	return limits
}

// FindLimits is Limits for a container that may have ended.
func (n *Node) FindLimits(ctx context.Context, pod corev1.Pod) (Limits, error) {
	id := strings.TrimPrefix(pod.Status.ContainerStatuses[0].ContainerID, "containerd://")
	files := fmt.Sprintf(`.*/pod%s/%s/(cpu\.(max|shares|cfs_.*_us)|memory\.(max|limit_in_bytes|events|oom_control))`, pod.UID, id)
	out, err := n.Exec(ctx, "find", "/sys/fs/cgroup", "-ignore_readdir_race", "-regextype", "posix-extended", "-regex", files, "-exec", "grep", "-H", ".", "{}", "+").Output()
	if err != nil && len(out) == 0 { // it also fails when another pod goes while it looks
		return Limits{}, fmt.Errorf("reading the cgroup of pod %s: %w", pod.Name, err)
	}
	values := map[string]string{}
	for line := range strings.Lines(string(out)) {
		file, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		values[filepath.Base(file)] = value
		if kills, ok := strings.CutPrefix(value, "oom_kill "); ok {
			values["oom_kill"] = kills
		}
	}
	var errs error
	number := func(text string) int64 {
		if text == "max" {
			return -1
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			errs = fmt.Errorf("the cgroup of pod %s: %w: %v", pod.Name, err, values)
		}
		return n
	}
	limits := Limits{CgroupVersion: 1, OOMKills: number(values["oom_kill"])}
	if cpu, isVersion2 := values["cpu.max"]; isVersion2 {
		quota, period, _ := strings.Cut(cpu, " ")
		limits.CgroupVersion = 2
		limits.CPUQuotaMicros, limits.CPUPeriodMicros, limits.MemoryLimitBytes = number(quota), number(period), number(values["memory.max"])
		return limits, errs
	}
	limits.CPUShares, limits.MemoryLimitBytes = number(values["cpu.shares"]), number(values["memory.limit_in_bytes"])
	limits.CPUQuotaMicros, limits.CPUPeriodMicros = number(values["cpu.cfs_quota_us"]), number(values["cpu.cfs_period_us"])
	return limits, errs
}

// Load sets the usage of the container of a pod that listens on a port, through the API server's proxy, once the pod is Ready.
func (n *Node) Load(t *testing.T, pod corev1.Pod, port int32, cpuMillis, memoryMiB int64) {
	t.Helper()
	answer, err := n.set(t, pod, port, cpuMillis, memoryMiB)
	if err != nil {
		t.Fatalf("setting the load of pod %s: %v: %s", pod.Name, err, answer)
	}
	t.Logf("load of pod %s: %s", pod.Name, answer)
}

// Overload is Load with more memory than the container's limit. The container is killed, so nothing answers.
func (n *Node) Overload(t *testing.T, pod corev1.Pod, port int32, cpuMillis, memoryMiB int64) {
	t.Helper()
	answer, err := n.set(t, pod, port, cpuMillis, memoryMiB)
	t.Logf("too much load for pod %s: %s (%v)", pod.Name, answer, err)
}

// set sends a load to a container once the pod is Ready: a container that only just runs does not listen yet.
func (n *Node) set(t *testing.T, pod corev1.Pod, port int32, cpuMillis, memoryMiB int64) ([]byte, error) {
	t.Helper()
	testkit.Eventually(t, 2*time.Minute, func() string {
		must.Succeed(t, n.Client.Get(t.Context(), client.ObjectKeyFromObject(&pod), &pod))
		if !workload.ReadPod(&pod, true).Ready {
			return fmt.Sprintf("pod %s is not Ready: %v", pod.Name, pod.Status.Conditions)
		}
		return ""
	})
	return n.Pods(t, pod.Namespace).ProxyGet("http", pod.Name, fmt.Sprint(port), "/set", map[string]string{
		"cpu": fmt.Sprint(cpuMillis), "memory": fmt.Sprint(memoryMiB),
	}).DoRaw(t.Context())
}

// Pods returns the client for the pods' subresources: proxy and log.
func (n *Node) Pods(t *testing.T, namespace string) typedcorev1.PodInterface {
	t.Helper()
	clients, err := kubernetes.NewForConfig(n.Config)
	must.Succeed(t, err)
	return clients.CoreV1().Pods(namespace)
}

// Kill ends a pod's container, as a crash would. The kubelet restarts it.
func (n *Node) Kill(t *testing.T, pod corev1.Pod) {
	t.Helper()
	n.Signal(t, pod, "SIGKILL")
}

// Signal sends a signal to process 1 of a pod's container.
func (n *Node) Signal(t *testing.T, pod corev1.Pod, signal string) {
	t.Helper()
	id := strings.TrimPrefix(pod.Status.ContainerStatuses[0].ContainerID, "containerd://")
	if out, err := n.Exec(t.Context(), "ctr", "tasks", "kill", "--signal", signal, id).CombinedOutput(); err != nil {
		t.Fatalf("sending %s to the container of pod %s: %v: %s", signal, pod.Name, err, out)
	}
}

// RunningPods returns the pods of a [Deployment] whose container runs.
func (n *Node) RunningPods(t *testing.T, deployment client.ObjectKey) (running []corev1.Pod) {
	t.Helper()
	var pods corev1.PodList
	must.Succeed(t, n.Client.List(t.Context(), &pods,
		client.InNamespace(deployment.Namespace), client.MatchingLabels{"app": deployment.Name}))
	for _, pod := range pods.Items {
		if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil && pod.Status.PodIP != "" &&
			len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].State.Running != nil {
			running = append(running, pod)
		}
	}
	return running
}

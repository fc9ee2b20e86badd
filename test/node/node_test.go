// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build node

// Package node runs the operator against a real kubelet with containerd, and reads
// from the kernel what has become of its decisions. It needs root on Linux;
// hack/node/check.sh says what else.
package node

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/app"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/metricsapi"
)

const (
	namespace = "default"
	name      = "load"
	replicas  = 2
	// long is how long anything may take here: metrics-server looks every 10 s, the
	// kubelet every few, and the machine may be busy.
	long = 4 * time.Minute
)

var (
	env *testkit.Env
	dir string // of the node
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if out, err := script("check.sh", "-q").CombinedOutput(); err != nil {
		return 1, fmt.Errorf("this machine cannot run a real node:\n%s", out)
	}
	if dir, err = os.MkdirTemp("", "verticalscaler-node-"); err != nil {
		return 1, fmt.Errorf("making a folder for the node: %w", err)
	}
	defer func() {
		down := script("down.sh", "-dir", dir)
		down.Stdout, down.Stderr = os.Stdout, os.Stderr
		if downErr := down.Run(); downErr != nil && err == nil {
			err = fmt.Errorf("ending the node: %w", downErr)
		}
		if code == 0 {
			_ = os.RemoveAll(dir)
		} else {
			fmt.Fprintf(os.Stderr, "The node's logs are kept in %s\n", filepath.Join(dir, "logs"))
		}
	}()
	up := script("up.sh", "-dir", dir)
	up.Stdout, up.Stderr = os.Stdout, os.Stderr
	if err := up.Run(); err != nil {
		return 1, fmt.Errorf("starting the node: %w", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
	if err != nil {
		return 1, fmt.Errorf("reading the node's kubeconfig: %w", err)
	}
	if _, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{
		Paths: []string{filepath.Join(testkit.Root(), "config", "crd", "bases")}, ErrorIfPathMissing: true,
	}); err != nil {
		return 1, fmt.Errorf("installing the CRDs: %w", err)
	}
	c, err := client.New(config, client.Options{Scheme: app.Scheme()})
	if err != nil {
		return 1, fmt.Errorf("making a client: %w", err)
	}
	env = &testkit.Env{Config: config, Client: c}
	return m.Run(), nil
}

func script(name string, args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(testkit.Root(), "hack", "node", name), args...)
}

// TestTheKernelEnforcesWhatWasDecided follows a Deployment of real pods through a
// rise of CPU and memory and an OOM kill.
func TestTheKernelEnforcesWhatWasDecided(t *testing.T) {
	c := testkit.OperatorConfig()
	c.Collection.Interval.Duration = 5 * time.Second
	// A day is half a minute here, so that there is something to see within minutes.
	c.Recommendation.CPUHalfLife.Duration = 30 * time.Second
	c.Recommendation.RecentHalfLife.Duration = 10 * time.Second
	c.Recommendation.MinEvidence.Duration = 10 * time.Second
	c.Recommendation.ConfidenceUnit.Duration = 30 * time.Second
	source, err := metricsapi.New(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	env.StartOperator(t, c, source)

	create(t, deployment())
	create(t, &v1beta1.VerticalScaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1beta1.VerticalScalerSpec{
			DeploymentName: name,
			UpdatePolicy:   v1beta1.UpdatePolicy{CooldownSeconds: ptr.To(int32(0))},
		},
	})
	testkit.Eventually(t, long, func() string {
		if n := len(runningPods(t)); n != replicas {
			return fmt.Sprintf("%d pods run", n)
		}
		return ""
	})

	t.Run("a rise of usage raises requests and limits in the cgroup", func(t *testing.T) {
		for _, pod := range runningPods(t) {
			load(t, pod, 250, 100)
		}
		testkit.Eventually(t, long, func() string {
			return inForce(t, func(requests quantities) string {
				if requests.cpuMillis < 250 || requests.memoryBytes < 100<<20 {
					return fmt.Sprintf("decided is %+v, below the usage", requests)
				}
				return ""
			})
		})
		for _, pod := range runningPods(t) {
			if n := pod.Status.ContainerStatuses[0].RestartCount; n != 0 {
				t.Errorf("pod %s was restarted %d times", pod.Name, n)
			}
		}
	})

	t.Run("an OOM kill of one pod raises the memory of all", func(t *testing.T) {
		pods := runningPods(t)
		limit := cgroup(t, pods[0]).MemoryLimitBytes
		victim := pods[0]
		load(t, victim, 10, limit>>20+40)
		testkit.Eventually(t, long, func() string {
			for _, pod := range runningPods(t) {
				last := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated
				if pod.Name == victim.Name && last != nil && last.Reason == "OOMKilled" {
					return ""
				}
			}
			return "no OOM kill yet of pod " + victim.Name
		})
		testkit.Eventually(t, long, func() string {
			return inForce(t, func(requests quantities) string {
				if floor := limit * 12 / 10; requests.memoryBytes < floor {
					return fmt.Sprintf("decided is %d bytes, below the floor of the kill, %d", requests.memoryBytes, floor)
				}
				return ""
			})
		})
		for _, pod := range runningPods(t) {
			want := int32(0)
			if pod.Name == victim.Name {
				want = 1
			}
			if n := pod.Status.ContainerStatuses[0].RestartCount; n != want {
				t.Errorf("pod %s was restarted %d times, not %d", pod.Name, n, want)
			}
		}
	})
}

func deployment() *appsv1.Deployment {
	d := testkit.Deployment(namespace, name)
	d.Spec.Replicas = ptr.To(int32(replicas))
	spec := &d.Spec.Template.Spec
	spec.TerminationGracePeriodSeconds = ptr.To(int64(1))
	app := &spec.Containers[0]
	app.Image, app.ImagePullPolicy = "verticalscaler.local/stress:dev", corev1.PullNever
	app.Args = []string{"-cpu=20", "-memory=20"}
	app.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	app.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("300m"), corev1.ResourceMemory: resource.MustParse("128Mi")}
	app.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)},
	}}
	return d
}

// limitOverRequest is the proportion of the Deployment's limits to its requests.
const (
	cpuLimitOverRequest    = 3
	memoryLimitOverRequest = 2
)

type quantities struct{ cpuMillis, memoryBytes int64 }

// inForce says what keeps the decision from being in force in every pod's cgroup.
func inForce(t *testing.T, enough func(quantities) string) string {
	t.Helper()
	var s v1beta1.VerticalScaler
	if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &s); err != nil {
		return err.Error()
	}
	if s.Status.Decision == nil || len(s.Status.Decision.Containers) == 0 {
		return fmt.Sprintf("nothing is decided: %+v", s.Status.Conditions)
	}
	decided := s.Status.Decision.Containers[0].Requests
	if decided.CPU == nil || decided.Memory == nil {
		return fmt.Sprintf("decided is only %+v", decided)
	}
	requests := quantities{decided.CPU.MilliValue(), decided.Memory.Value()}
	if what := enough(requests); what != "" {
		return what
	}
	if c := meta.FindStatusCondition(s.Status.Conditions, "Applied"); c == nil || c.Status != metav1.ConditionTrue {
		return fmt.Sprintf("not applied: %+v", c)
	}
	pods := runningPods(t)
	if len(pods) != replicas {
		return fmt.Sprintf("%d pods run", len(pods))
	}
	for _, pod := range pods {
		got := cgroup(t, pod)
		if want := requests.memoryBytes * memoryLimitOverRequest; got.MemoryLimitBytes != want {
			return fmt.Sprintf("pod %s: the cgroup's memory limit is %d, not %d", pod.Name, got.MemoryLimitBytes, want)
		}
		// The quota of a period of 100 ms is a tenth of a millisecond per millicore.
		if want := requests.cpuMillis * cpuLimitOverRequest * got.CPUPeriodMicros / 1000; got.CPUQuotaMicros != want {
			return fmt.Sprintf("pod %s: the cgroup's CPU quota is %d, not %d", pod.Name, got.CPUQuotaMicros, want)
		}
		// With cgroup v1 a core has 1024 shares; v2 weighs on another scale.
		if want := requests.cpuMillis * 1024 / 1000; got.CgroupVersion == 1 && got.CPUShares != want {
			return fmt.Sprintf("pod %s: the cgroup's CPU shares are %d, not %d", pod.Name, got.CPUShares, want)
		}
	}
	return ""
}

type limits struct {
	CgroupVersion    int
	CPUShares        int64
	CPUQuotaMicros   int64
	CPUPeriodMicros  int64
	MemoryLimitBytes int64
}

func cgroup(t *testing.T, pod corev1.Pod) (l limits) {
	t.Helper()
	out, err := script("cgroup.sh", "-dir", dir, string(pod.UID), pod.Status.ContainerStatuses[0].ContainerID).CombinedOutput()
	if err != nil {
		t.Fatalf("reading the cgroup of pod %s: %v: %s", pod.Name, err, out)
	}
	if err := json.Unmarshal(out, &l); err != nil {
		t.Fatalf("decoding the cgroup of pod %s: %v: %s", pod.Name, err, out)
	}
	return l
}

// load sets what a pod's container uses, through the API server's proxy. A container
// that is killed for it does not answer any more.
func load(t *testing.T, pod corev1.Pod, cpuMillis, memoryMiB int64) {
	t.Helper()
	clients, err := kubernetes.NewForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := clients.CoreV1().Pods(pod.Namespace).ProxyGet("http", pod.Name, "8080", "/set", map[string]string{
		"cpu": fmt.Sprint(cpuMillis), "memory": fmt.Sprint(memoryMiB),
	}).DoRaw(t.Context())
	t.Logf("load of pod %s: %s (%v)", pod.Name, answer, err)
}

func runningPods(t *testing.T) (running []corev1.Pod) {
	t.Helper()
	var pods corev1.PodList
	if err := env.Client.List(t.Context(), &pods, client.InNamespace(namespace), client.MatchingLabels{"app": name}); err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil && pod.Status.PodIP != "" &&
			len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].State.Running != nil {
			running = append(running, pod)
		}
	}
	return running
}

func create(t *testing.T, obj client.Object) {
	t.Helper()
	if err := env.Client.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
}

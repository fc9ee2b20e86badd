// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build node

package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
	"github.com/verticalscaler/verticalscaler-operator/test/node/internal/realnode"
)

// program is a real program in a container, with the resources of its template.
type program struct {
	image   string
	command []string
	env     []corev1.EnvVar

	cpu, cpuLimit, memory, memoryLimit string
	// boost adds a startupBoost to the scaler.
	boost bool

	// fill is the usual load of a pod, by which it is sized, and strain a load that the limits of the template allow.
	fill, strain func(*testing.T, corev1.Pod) error
	// check returns an error if a process has lost what the limits of the template gave to the first one.
	check func(first, now process) error
}

// process is a running container with its log.
type process struct {
	log    string
	limits realnode.Limits
}

// number returns the number after a name in the log.
func (p process) number(name string) int64 {
	found := regexp.MustCompile(name + `: (\d+)`).FindStringSubmatch(p.log)
	if found == nil {
		return 0
	}
	n, _ := strconv.ParseInt(found[1], 10, 64)
	return n
}

// numbers is a C source for which the compiler needs 130 MiB: an array of a million numbers.
const numbers = `#define A 1,1,1,1,1,1,1,1,1,1,
#define B A A A A A A A A A A
#define C B B B B B B B B B B
#define D C C C C C C C C C C
#define E D D D D D D D D D D
int a[] = {E E E E E E E E E E};`

// compiles is a shell that starts a compiler at each SIGUSR1.
const compiles = `build() { gcc -ffreestanding -S -o /dev/null -x c - <<<"$SOURCE" && echo build succeeded || echo build failed; }
trap build USR1
while true; do sleep 1 & wait $!; done`

// serves is a server that works for about a second before it listens.
const serves = `require("crypto").pbkdf2Sync("", "", 1e6, 64, "sha512")
require("http").createServer((_, answer) => answer.end()).listen(8080)`

// keys is how many keys of 10000 bytes Redis has.
const keys = 8000

var (
	java = program{
		image: "java", command: []string{"/jdk/bin/java", "-XX:MaxRAMPercentage=75", "-cp", "/", "Server"},
		cpu: "100m", cpuLimit: "1", memory: "512Mi", memoryLimit: "512Mi",
		fill: get("hold", "mebibytes", "60"), strain: get("hold", "mebibytes", "220"),
		check: func(first, now process) error {
			if was, is := first.number("max heap"), now.number("max heap"); is < was {
				return fmt.Errorf("the maximum of the heap is %d MiB, not %d", is>>20, was>>20)
			}
			return nil
		},
	}
	javascript = program{
		image: "node", command: []string{"node", "-e", serves},
		cpu: "100m", cpuLimit: "500m", memory: "128Mi", memoryLimit: "256Mi",
		fill: nothing, strain: nothing, check: func(_, _ process) error { return nil },
	}
	programs = map[string]program{
		"java": java, "java with a boost": boosted(java), "node": javascript, "node with a boost": boosted(javascript),
		"go": {
			image: "stress", command: []string{"/stress", "serve"},
			env: []corev1.EnvVar{{Name: "GOMEMLIMIT", ValueFrom: &corev1.EnvVarSource{
				ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory"},
			}}},
			cpu: "100m", cpuLimit: "500m", memory: "128Mi", memoryLimit: "256Mi",
			fill:   nothing,
			strain: get("set", "goheap", "100"),
			check: func(_, now process) error {
				if set := now.number("GOMEMLIMIT"); set > now.limits.MemoryLimitBytes {
					return fmt.Errorf("GOMEMLIMIT is %d MiB, and the limit %d", set>>20, now.limits.MemoryLimitBytes>>20)
				}
				return nil
			},
		},
		"redis": {
			image: "redis",
			// A snapshot takes long enough to rewrite all keys meanwhile. Values of zeros make it a small file.
			command: strings.Fields("/redis-server --port 8080 --protected-mode no --save  --dir /tmp --enable-debug-command yes --rdb-key-save-delay 2000"),
			cpu:     "100m", cpuLimit: "500m", memory: "192Mi", memoryLimit: "256Mi",
			fill: func(t *testing.T, pod corev1.Pod) error {
				t.Helper()
				return redis(t, pod, "DEBUG", "POPULATE", fmt.Sprint(keys), "key", "10000")
			},
			strain: func(t *testing.T, pod corev1.Pod) error {
				t.Helper()
				rewrite := fmt.Sprintf("local new = string.rep('x', 10000) for i = 1, %d do redis.call('SETRANGE', 'key:' .. i - 1, 0, new) end", keys)
				if err := errors.Join(redis(t, pod, "BGSAVE"), redis(t, pod, "EVAL", rewrite, "0")); err != nil {
					return err
				}
				await(t, pod, "Background saving (terminated|error)", 1)
				return nil
			},
			check: func(_, now process) error {
				if !strings.Contains(now.log, "Background saving terminated with success") {
					return errors.New("BGSAVE failed")
				}
				return nil
			},
		},
		"gcc": {
			image: "gcc", command: []string{"bash", "-c", compiles}, env: []corev1.EnvVar{{Name: "SOURCE", Value: numbers}},
			cpu: "100m", cpuLimit: "1", memory: "128Mi", memoryLimit: "256Mi",
			fill: nothing,
			strain: func(t *testing.T, pod corev1.Pod) error {
				t.Helper()
				for i := range builds {
					node.Signal(t, pod, "SIGUSR1")
					await(t, pod, "build (succeeded|failed)", i+1)
				}
				return nil
			},
			check: func(_, now process) error {
				if n := strings.Count(now.log, "build succeeded"); n < builds {
					return fmt.Errorf("%d of %d builds succeeded", n, builds)
				}
				return nil
			},
		},
	}
)

// builds is how often the compiler is started in each pod.
const builds = 3

// nothing is the load of a program that only starts.
func nothing(*testing.T, corev1.Pod) error { return nil }

func boosted(p program) program {
	p.boost = true
	return p
}

// get is a load that a program puts on itself after a request.
func get(path, key, value string) func(*testing.T, corev1.Pod) error {
	return func(t *testing.T, pod corev1.Pod) error {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		_, err := node.Pods(t, pod.Namespace).ProxyGet("http", pod.Name, fmt.Sprint(realnode.AppPort), path, map[string]string{key: value}).DoRaw(ctx)
		return err
	}
}

func redis(t *testing.T, pod corev1.Pod, args ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	out, err := node.Exec(ctx, append([]string{"redis-cli", "-e", "-h", pod.Status.PodIP, "-p", fmt.Sprint(realnode.AppPort)}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("redis-cli %s: %w: %s", args[0], err, out)
	}
	return nil
}

// await waits until the log of a pod has so many matches.
func await(t *testing.T, pod corev1.Pod, pattern string, n int) {
	t.Helper()
	expression := regexp.MustCompile(pattern)
	testkit.Eventually(t, long, func() string {
		if found := expression.FindAllString(processOf(t, pod).log, -1); len(found) < n {
			return fmt.Sprintf("the log has %d of %d matches of %q", len(found), n, pattern)
		}
		return ""
	})
}

// TestRealProgramsKeepTheirLimits compares, for each program, a process from before the reduction of requests, one that starts
// after it, and those of the next revision. None is killed, has less heap than the template's limits give, or starts with less
// CPU. It is not parallel to other tests, because it reports how long starts take.
func TestRealProgramsKeepTheirLimits(t *testing.T) {
	images := t.TempDir()
	if out, err := realnode.Script("node/programs.sh", images).CombinedOutput(); err != nil {
		t.Fatalf("building the images: %v: %s", err, out)
	}
	archives, _ := filepath.Glob(filepath.Join(images, "*.tar"))
	for _, archive := range archives {
		if out, err := node.Exec(t.Context(), "ctr", "images", "import", archive).CombinedOutput(); err != nil {
			t.Fatalf("importing %s: %v: %s", archive, err, out)
		}
	}
	var rows sync.Map
	t.Run("programs", func(t *testing.T) {
		for name, p := range programs {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := &record{old: map[types.UID]bool{}, pods: map[types.UID]corev1.Pod{}, kills: map[string]bool{}, lowered: map[string]bool{}}
				rows.Store(name, r)
				p.run(t, r)
			})
		}
	})
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "program\tkills\tOutOfMemoryErrors\tResizeErrors\tlimits lowered\tseconds until Ready: first, again, deployed\tagain/first\tsaved: CPU, memory")
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		r, _ := rows.Load(name)
		fmt.Fprintf(table, "%s\t%s\n", name, r)
	}
	_ = table.Flush()
	t.Logf("\n%s", &text)
}

// run is the scene of one program.
func (p program) run(t *testing.T, r *record) {
	t.Helper()
	scaling := v1beta1.Scaling{UpdatePolicy: v1beta1.UpdatePolicy{NewPods: v1beta1.NewPodsSized}}
	if p.boost {
		scaling.ResourcePolicy = policies(v1beta1.ContainerPolicy{ContainerName: v1beta1.AnyContainer, StartupBoost: &v1beta1.StartupBoost{
			CPU: &v1beta1.CPUStartupBoost{Type: v1beta1.BoostFactor, Factor: ptr.To(int32(3)), DurationSeconds: ptr.To(int32(1))},
		}})
	}
	s := stage(t, func(d *appsv1.Deployment) {
		app := &d.Spec.Template.Spec.Containers[0]
		app.Image, app.Command, app.Args, app.Env = fmt.Sprintf("verticalscaler.local/%s:dev", p.image), p.command, nil, p.env
		app.ReadinessProbe.ProbeHandler = corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(realnode.AppPort)}}
		if p.image == "gcc" {
			app.ReadinessProbe = nil
		}
		app.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(p.cpu), corev1.ResourceMemory: resource.MustParse(p.memory)}
		app.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(p.cpuLimit), corev1.ResourceMemory: resource.MustParse(p.memoryLimit)}
		r.template = app.Resources
	}, scaling)
	s.uses(measured.cpuMillis, measured.memoryMiB)
	r.follow(t, s)
	defer r.isClean(t)

	old := r.started(t, s, 1)
	first := processOf(t, old[0])
	must.Succeed(t, p.fill(t, old[0]))
	s.eachPod(t, func(requests corev1.ResourceList, used amounts) bool {
		r.saved = fmt.Sprintf("%d %%, %d %%", 100-100*requests.Cpu().MilliValue()/r.template.Requests.Cpu().MilliValue(),
			100-100*requests.Memory().Value()/r.template.Requests.Memory().Value())
		return requests.Cpu().MilliValue() <= 30 && requests.Memory().Value()>>20 <= max(32, 2*used.memoryMiB) && requests.Memory().Cmp(*r.template.Requests.Memory()) < 0
	})

	s.update(t, func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(2)) })
	p.try(t, r, first, append(r.started(t, s, 1), old...))
	s.eachPod(t, func(requests corev1.ResourceList, used amounts) bool {
		return requests.Memory().Value()>>20 >= used.memoryMiB
	})

	s.update(t, func(d *appsv1.Deployment) { d.Spec.Template.Annotations = map[string]string{"revision": "2"} })
	deployed := r.started(t, s, 2)
	s.eachPod(t, func(requests corev1.ResourceList, _ amounts) bool {
		return requests.Cpu().Cmp(*r.template.Requests.Cpu()) < 0
	})
	p.try(t, r, first, deployed)
}

// try puts a program under the most load that its template allows.
func (p program) try(t *testing.T, r *record, first process, pods []corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		if err := errors.Join(p.fill(t, pod), p.strain(t, pod)); err != nil {
			t.Errorf("pod %s: %v", pod.Name, err)
		}
		now := processOf(t, pod)
		if err := p.check(first, now); err != nil {
			t.Errorf("pod %s: %v", pod.Name, err)
		}
		r.killed += now.limits.OOMKills
		r.outOfHeaps += strings.Count(now.log, "OutOfMemoryError")
	}
}

// processOf waits until the pod is Ready again, if the container was killed.
func processOf(t *testing.T, pod corev1.Pod) (p process) {
	t.Helper()
	testkit.Eventually(t, long, func() string {
		must.Succeed(t, env.Client.Get(t.Context(), client.ObjectKeyFromObject(&pod), &pod))
		if !workload.ReadPod(&pod, true).Ready {
			return "the pod is not Ready"
		}
		log, logErr := node.Pods(t, pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
		limits, limitsErr := node.FindLimits(t.Context(), pod)
		if err := errors.Join(logErr, limitsErr); err != nil {
			return err.Error()
		}
		p = process{string(log), limits}
		return ""
	})
	return p
}

// eachPod waits until the requests of each pod are right for its usage.
func (s scene) eachPod(t *testing.T, isRight func(requests corev1.ResourceList, used amounts) bool) {
	t.Helper()
	testkit.Eventually(t, long, func() string {
		for _, pod := range node.RunningPods(t, s.key) {
			used, err := measure(t.Context(), pod)
			must.Succeed(t, err)
			if has := pod.Spec.Containers[0].Resources.Requests; used == (amounts{}) || !isRight(has, used) {
				applied := meta.FindStatusCondition(s.scaler(t).Status.Conditions, v1beta1.ConditionApplied)
				return fmt.Sprintf("%s and %s are requested, and %dm and %dMi are used: %+v", has.Cpu(), has.Memory(), used.cpuMillis, used.memoryMiB, applied)
			}
		}
		return ""
	})
}

// update edits the Deployment.
func (s scene) update(t *testing.T, edit func(*appsv1.Deployment)) {
	t.Helper()
	must.Succeed(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var d appsv1.Deployment
		if err := env.Client.Get(t.Context(), s.key, &d); err != nil {
			return err
		}
		edit(&d)
		return env.Client.Update(t.Context(), &d)
	}))
}

// record has the events of the pods of a scene.
type record struct {
	template corev1.ResourceRequirements
	// saved is the amount that the reduction saves. ready has the times from the start of a container until its pod is Ready,
	// for the last pod of each kind.
	saved string
	ready []time.Duration
	old   map[types.UID]bool
	// killed counts the processes that the kernel has killed and that were not process 1.
	killed     int64
	outOfHeaps int

	mu           sync.Mutex
	pods         map[types.UID]corev1.Pod
	kills        map[string]bool // by container ID
	lowered      map[string]bool // by pod and resource
	resizeErrors int
	isBlind      bool // the watch has ended too early
}

// follow records the pods until the test ends.
func (r *record) follow(t *testing.T, s scene) {
	t.Helper()
	events, err := env.Client.Watch(t.Context(), &corev1.PodList{}, client.InNamespace(s.key.Namespace))
	must.Succeed(t, err)
	go func() {
		for event := range events.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok {
				r.see(*pod)
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.isBlind = t.Context().Err() == nil
	}()
}

func (r *record) see(pod corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, isKnown := r.pods[pod.UID]
	had := r.template.Limits
	if isKnown {
		had = before.Spec.Containers[0].Resources.Limits
	}
	for name, limit := range pod.Spec.Containers[0].Resources.Limits {
		if was := had[name]; limit.Cmp(was) < 0 {
			r.lowered[pod.Name+"/"+string(name)] = true
		}
	}
	for _, status := range pod.Status.ContainerStatuses {
		for _, ended := range []*corev1.ContainerStateTerminated{status.State.Terminated, status.LastTerminationState.Terminated} {
			if ended != nil && ended.Reason == "OOMKilled" {
				r.kills[ended.ContainerID] = true
			}
		}
	}
	if isResizeError(pod) && !isResizeError(before) {
		r.resizeErrors++
	}
	r.pods[pod.UID] = pod
}

func isResizeError(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodResizeInProgress && c.Reason == corev1.PodReasonError
	})
}

// started waits until so many new pods are Ready. Each must start with the CPU limit of its template or more.
func (r *record) started(t *testing.T, s scene, n int) (fresh []corev1.Pod) {
	t.Helper()
	began := map[types.UID]time.Time{}
	testkit.Eventually(t, long, func() string {
		fresh = nil
		for _, pod := range node.RunningPods(t, s.key) {
			if r.old[pod.UID] {
				continue
			}
			if _, isKnown := began[pod.UID]; !isKnown {
				began[pod.UID] = pod.Status.ContainerStatuses[0].State.Running.StartedAt.Time
				if has, want := node.Limits(t, pod).CPUMillis(), r.template.Limits.Cpu().MilliValue(); has < want {
					t.Errorf("pod %s starts with a CPU limit of %dm, not %dm", pod.Name, has, want)
				}
			}
			if workload.ReadPod(&pod, true).Ready {
				fresh = append(fresh, pod)
			}
		}
		if len(fresh) < n {
			return fmt.Sprintf("%d of %d new pods are Ready", len(fresh), n)
		}
		return ""
	})
	for _, pod := range fresh {
		r.old[pod.UID] = true
	}
	last := fresh[len(fresh)-1]
	r.ready = append(r.ready, workload.ReadPod(&last, true).ReadyChanged.Sub(began[last.UID]))
	return fresh
}

// isClean checks what has happened.
func (r *record) isClean(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.killed + int64(len(r.kills)); n > 0 {
		t.Errorf("the kernel has killed %d processes", n)
	}
	if len(r.lowered) > 0 {
		t.Errorf("limits were lowered: %v", slices.Sorted(maps.Keys(r.lowered)))
	}
	if r.outOfHeaps > 0 || r.resizeErrors > 0 {
		t.Errorf("there were %d OutOfMemoryErrors and %d ResizeErrors", r.outOfHeaps, r.resizeErrors)
	}
	if r.isBlind {
		t.Error("the watch of the pods has ended")
	}
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	ratio := "-"
	if len(r.ready) > 1 && r.ready[0] > 0 {
		ratio = fmt.Sprintf("%.1f", float64(r.ready[1])/float64(r.ready[0]))
	}
	return fmt.Sprintf("%d\t%d\t%d\t%d\t%v\t%s\t%s", r.killed+int64(len(r.kills)), r.outOfHeaps, r.resizeErrors, len(r.lowered), r.ready, ratio, r.saved)
}

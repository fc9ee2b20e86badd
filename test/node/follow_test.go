// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build node

package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// raiseLimit is the most memory that these scenes get without maxAllowed: 1Gi, or eight times what the template has.
var raiseLimit = resource.MustParse("1Gi")

// usesWhatItHas reports the usage that metrics-server has measured. It is 0 until there is a measurement.
func (s scene) usesWhatItHas(t *testing.T, pod corev1.Pod) amounts {
	t.Helper()
	used, err := measure(t.Context(), pod)
	must.Succeed(t, err)
	if used != (amounts{}) {
		s.uses(used.cpuMillis, used.memoryMiB)
	}
	return used
}

// measure returns the usage of a pod's last container that metrics-server has measured. It is 0 until there is a measurement.
func measure(ctx context.Context, pod corev1.Pod) (used amounts, err error) {
	m := &unstructured.Unstructured{}
	m.SetAPIVersion("metrics.k8s.io/v1beta1")
	m.SetKind("PodMetrics")
	if err := env.Client.Get(ctx, client.ObjectKeyFromObject(&pod), m); err != nil {
		return amounts{}, client.IgnoreNotFound(err)
	}
	containers, _, _ := unstructured.NestedSlice(m.Object, "containers")
	for _, c := range containers {
		usage, _, _ := unstructured.NestedStringMap(c.(map[string]any), "usage")
		cpu, memory := resource.MustParse(usage["cpu"]), resource.MustParse(usage["memory"])
		used = amounts{cpu.MilliValue(), memory.Value() >> 20}
	}
	return used, nil
}

// follows reports whether the operator has found that usage follows the limit.
func (s scene) follows(t *testing.T) bool {
	t.Helper()
	rec := s.scaler(t).Status.Recommendation
	return rec != nil && slices.ContainsFunc(rec.ContainerRecommendations[0].Reasons, func(r v1beta1.RecommendationReason) bool {
		return r.Code == v1beta1.ReasonUsageFollowsLimit
	})
}

// A heap that is sized from the limit at each start, as that of a JVM, grows with the limit. The container is restarted after each
// raise. After two raises that were only filled, the request stays.
func TestAHeapThatFollowsItsLimitIsNotRaisedForever(t *testing.T) {
	t.Parallel()
	s := stage(t, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Args = []string{"-cpu=5", "-heap=75"} }, v1beta1.Scaling{})
	started := int64(128) // the limit at the last start, in MiB
	testkit.Eventually(t, long, func() string {
		pods := node.RunningPods(t, s.key)
		if len(pods) != 1 {
			return "the container does not run"
		}
		used, limit := s.usesWhatItHas(t, pods[0]).memoryMiB, node.Limits(t, pods[0]).MemoryLimitBytes>>20
		if s.follows(t) {
			return ""
		}
		if limit > started && used > started*6/10 {
			t.Logf("the heap has %d MiB, and the limit is now %d MiB", used, limit)
			started = limit
			node.Kill(t, pods[0])
		}
		return fmt.Sprintf("%d MiB are used, and the limit is %d MiB, since the last start %d", used, limit, started)
	})
	if memory := s.pod(t).Spec.Containers[0].Resources.Limits.Memory(); memory.Cmp(raiseLimit) > 0 || started < 300 {
		t.Errorf("the limit is %s, and was %d MiB at the last start", memory, started)
	}
}

// The kubelet counts the page cache that is in use as usage, so a program that reads files gets more memory. That ends when the files
// fit, or with the reason that usage follows the limit.
func TestAProgramThatReadsFilesIsNotRaisedForever(t *testing.T) {
	t.Parallel()
	const file = 160 // MiB
	s := stage(t, func(d *appsv1.Deployment) {
		spec := &d.Spec.Template.Spec
		spec.Volumes = []corev1.Volume{{Name: "files"}}
		app := &spec.Containers[0]
		app.VolumeMounts = []corev1.VolumeMount{{Name: "files", MountPath: "/files"}}
		app.Args = []string{"-cpu=5", "-file=/files/data", fmt.Sprintf("-read=%d", file)}
	}, v1beta1.Scaling{})
	most := int64(0)
	testkit.Eventually(t, long, func() string {
		pod := s.pod(t)
		used := s.usesWhatItHas(t, pod).memoryMiB
		if most = max(most, used); s.follows(t) || used >= file {
			return ""
		}
		return fmt.Sprintf("%d MiB are used, with %v", used, pod.Spec.Containers[0].Resources)
	})
	s.reports(t, v1beta1.ReasonApplied, "")
	t.Logf("of files of %d MiB, %d MiB count as usage", file, most)
	pod := s.pod(t)
	if resources := pod.Spec.Containers[0].Resources; resources.Limits.Memory().Cmp(raiseLimit) > 0 || resources.Requests.Memory().Value()>>20 < 64 || most < 64 {
		t.Errorf("the container has %v, and has used %d MiB, most of it page cache", resources, most)
	}
	restarts(t, pod, 0)
}

// A container at its CPU limit is raised until the kernel throttles it no longer, although its usage never exceeds what it has.
func TestAThrottledContainerIsRaised(t *testing.T) {
	t.Parallel()
	const demand = 300 // millicores, and the limit is 50
	s := stage(t, func(d *appsv1.Deployment) {
		app := &d.Spec.Template.Spec.Containers[0]
		app.Args = []string{fmt.Sprintf("-cpu=%d", demand), "-memory=20"}
		app.Resources.Requests[corev1.ResourceCPU] = resource.MustParse("25m")
		app.Resources.Limits[corev1.ResourceCPU] = resource.MustParse("50m")
	}, v1beta1.Scaling{})
	var seen []string
	testkit.Eventually(t, long, func() string {
		pod := s.pod(t)
		used, limit := s.usesWhatItHas(t, pod).cpuMillis, node.Limits(t, pod).CPUMillis()
		if now := fmt.Sprintf("%dm of %dm", used, limit); len(seen) == 0 || seen[len(seen)-1] != now {
			seen = append(seen, now)
		}
		if limit < demand {
			return fmt.Sprintf("%dm are used, and the limit is %dm", used, limit)
		}
		return ""
	})
	t.Logf("CPU used, of the limit: %s", strings.Join(seen, ", "))
	restarts(t, s.pod(t), 0)
}

// Where limits are lowered, a container that does not start again with less gets the requests of its template back, whether it
// crashes or is late.
func TestAContainerThatNeedsMoreToStartGetsItBack(t *testing.T) {
	t.Parallel()
	for name, arg := range map[string]string{
		"it crashes": "-needs=100", // MiB, and the template has 128
		"it is late": "-work=6",    // seconds: 30 with the limit of the template, and 60 with half of it
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stage(t, func(d *appsv1.Deployment) {
				d.Spec.ProgressDeadlineSeconds = ptr.To(int32(40))
				d.Spec.Template.Spec.Containers[0].Args = []string{"-cpu=5", "-memory=20", arg}
			}, v1beta1.Scaling{ResourcePolicy: policies(v1beta1.ContainerPolicy{
				ContainerName: v1beta1.AnyContainer, ControlledValues: v1beta1.RequestsAndLimits,
			})})
			isReady := func(restarts int32) func() string {
				return func() string {
					pods := node.RunningPods(t, s.key)
					if len(pods) != 1 || !pods[0].Status.ContainerStatuses[0].Ready || pods[0].Status.ContainerStatuses[0].RestartCount < restarts {
						return "the container is not ready"
					}
					return ""
				}
			}
			testkit.Eventually(t, long, isReady(0))
			s.uses(2, 20)
			pod := s.pod(t)
			testkit.Eventually(t, long, func() string {
				if has := node.Limits(t, pod); has.MemoryLimitBytes >= 100<<20 || has.CPUMillis() > 100 {
					return fmt.Sprintf("the limits are %d bytes and %dm", has.MemoryLimitBytes, has.CPUMillis())
				}
				return ""
			})
			node.Kill(t, pod)
			testkit.Eventually(t, long, isReady(1))
			pod = s.pod(t)
			t.Logf("it runs with %v after %d restarts", pod.Spec.Containers[0].Resources, pod.Status.ContainerStatuses[0].RestartCount)
		})
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package benchmark

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/bench"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/fleet"
)

const (
	// sizedNamespaces have the sizes of fleet.PerNamespace Deployments each: 5,000 scalers. One more namespace has those
	// of largeNamespace Deployments.
	sizedNamespaces = 50
	largeNamespace  = 500

	// creations is how often a pod of each kind is created, and formerCreations beside the former policy.
	creations, formerCreations = 4000, 60

	// block is how many creations in a row have a 99th percentile of their own: what else happens on the machine then spoils few of them.
	block = 200

	hash = "5d4f8c"
)

// The kinds of pods. Those of the former policy have the label that it selects.
const (
	withoutPolicy   = "baseline"
	samePod         = "control" // as the baseline: how much of a difference is chance
	unrelatedPod    = "unrelated"
	podWithoutSize  = "no-entry-in-100"
	sizedOf100      = "sized-in-100"
	sizedOf500      = "sized-in-500"
	formerBaseline  = "former-baseline"
	formerUnrelated = "former-unrelated"
	formerSized     = "former-sized"
)

// BenchmarkPodCreation measures what the policy for new pods adds to the creation of a pod, with the sizes of 5,000 scalers
// in the cluster. Pods of all kinds are created side by side, in random order, as a dry run: the API server does all but
// store them. What is added is the median of the differences to the baseline, a pod that the policy does not select: of the
// same round for the median, and of the 99th percentiles of the same block for the 99th percentile.
//
// Then it creates the 5,000 bindings of the form that the operator had before, and measures that beside the baseline.
//
//	make bench PKG=./test/benchmark ARGS='-bench PodCreation'
func BenchmarkPodCreation(b *testing.B) {
	c := newCreator(b)
	kinds := c.sizedKinds(b)
	c.round(b, kinds, 50) // warm-up
	for b.Loop() {
		report(b, kinds, c.round(b, kinds, creations))
	}
	former := c.formerKinds(b)
	c.round(b, former, 5)
	report(b, former, c.round(b, former, formerCreations))
	b.ReportMetric(0, "ns/op") // It would be the time of all.
}

// podKind is a kind of pods to create.
type podKind struct {
	name string
	pod  *corev1.Pod
	// cpu is the request that the pod's first container must get.
	cpu string
}

// creator creates pods in an API server.
type creator struct {
	env    *testkit.Env
	random *rand.Rand
}

func newCreator(b *testing.B) *creator {
	b.Helper()
	env, err := testkit.Start()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := env.Stop(); err != nil {
			b.Error(err)
		}
	})
	return &creator{env: env, random: rand.New(rand.NewPCG(1, 2))}
}

// round creates a pod of each kind, in random order, n times. The result is how long it took, by kind.
func (c *creator) round(b *testing.B, kinds []podKind, n int) [][]time.Duration {
	b.Helper()
	took := make([][]time.Duration, len(kinds))
	for range n {
		for _, i := range c.random.Perm(len(kinds)) {
			took[i] = append(took[i], c.create(b, kinds[i]))
		}
	}
	return took
}

// create creates a pod, and returns how long it took.
func (c *creator) create(b *testing.B, kind podKind) time.Duration {
	b.Helper()
	pod := kind.pod.DeepCopy()
	start := time.Now()
	err := c.env.Client.Create(b.Context(), pod, client.DryRunAll)
	took := time.Since(start)
	if err != nil {
		b.Fatalf("%s: %v", kind.name, err)
	}
	if got := pod.Spec.Containers[0].Resources.Requests.Cpu().String(); got != kind.cpu {
		b.Fatalf("%s: the pod requests %s of CPU, want %s", kind.name, got, kind.cpu)
	}
	return took
}

// report reports the times of all kinds, and what they add to the first one.
func report(b *testing.B, kinds []podKind, took [][]time.Duration) {
	b.Helper()
	percentile := func(d []time.Duration, q float64) float64 { return ms(quantile(slices.Sorted(slices.Values(d)), q)) }
	for i, kind := range kinds {
		for _, q := range []int{50, 90, 99} {
			bench.Report(b, kind.name, fmt.Sprintf("p%d-ms", q), percentile(took[i], float64(q)/100))
		}
		if i == 0 {
			continue
		}
		more := make([]time.Duration, len(took[i]))
		for j := range more {
			more[j] = took[i][j] - took[0][j]
		}
		bench.Report(b, kind.name, "added-p50-ms", percentile(more, 0.50))
		var late []float64
		mine := slices.Collect(slices.Chunk(took[i], block))
		for j, base := range slices.Collect(slices.Chunk(took[0], block)) {
			late = append(late, percentile(mine[j], 0.99)-percentile(base, 0.99))
		}
		slices.Sort(late)
		bench.Report(b, kind.name, "added-p99-ms", (late[(len(late)-1)/2]+late[len(late)/2])/2)
	}
}

// sizedKinds installs the policy and the sizes, and returns the kinds of pods to compare, the baseline first.
func (c *creator) sizedKinds(b *testing.B) []podKind {
	b.Helper()
	ours := c.env.Namespace(b)
	c.writeSizes(b, ours, fleet.PerNamespace)
	for range sizedNamespaces - 1 {
		c.writeSizes(b, c.env.Namespace(b), fleet.PerNamespace)
	}
	large, none := c.env.Namespace(b), c.env.Namespace(b)
	c.writeSizes(b, large, largeNamespace)
	c.createAll(b, admission.Policy(), admission.Binding())

	plain := newPod(none, deploymentName(50))
	delete(plain.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	kinds := []podKind{
		{withoutPolicy, plain, "100m"},
		{samePod, plain, "100m"},
		{unrelatedPod, newPod(none, deploymentName(50)), "100m"},
		{podWithoutSize, newPod(ours, "of-no-scaler"), "100m"},
		{sizedOf100, newPod(ours, deploymentName(fleet.PerNamespace/2)), cpuOf(fleet.PerNamespace / 2)},
		{sizedOf500, newPod(large, deploymentName(largeNamespace/2)), cpuOf(largeNamespace / 2)},
	}
	c.await(b, kinds...)
	return kinds
}

// writeSizes writes the sizes of n Deployments of a namespace as the operator does.
func (c *creator) writeSizes(b *testing.B, namespace string, n int) {
	b.Helper()
	lines := map[string]string{}
	for i := range n {
		lines[deploymentName(i)] = admission.Line(deploymentName(i), sizesOf(i))
	}
	for i, text := range admission.Texts(lines, admission.MaxText) {
		c.createAll(b, &v1beta1.NewPodSizes{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%d", v1beta1.NewPodSizesName, i)},
			Spec:       v1beta1.NewPodSizesSpec{Deployments: text},
		})
	}
}

func (c *creator) createAll(b *testing.B, objects ...client.Object) {
	b.Helper()
	for _, o := range objects {
		if err := c.env.Client.Create(b.Context(), o); err != nil {
			b.Fatal(err)
		}
	}
}

// await waits until the API server gives pods what they must get.
func (c *creator) await(b *testing.B, kinds ...podKind) {
	b.Helper()
	for _, kind := range kinds {
		testkit.Eventually(b, 3*time.Minute, func() string {
			pod := kind.pod.DeepCopy()
			if err := c.env.Client.Create(b.Context(), pod, client.DryRunAll); err != nil {
				return err.Error()
			}
			if got := pod.Spec.Containers[0].Resources.Requests.Cpu().String(); got != kind.cpu {
				return fmt.Sprintf("%s requests %s of CPU, want %s", kind.name, got, kind.cpu)
			}
			return ""
		})
	}
}

func deploymentName(i int) string { return fmt.Sprintf("deployment-%04d", i) }

func cpuOf(i int) string { return fmt.Sprintf("%dm", 301+i) }

// sizesOf are the sizes of both containers of a Deployment's pods.
func sizesOf(i int) []v1beta1.NewPodContainer {
	amounts := func(cpu, memory string) v1beta1.Amounts {
		return v1beta1.Amounts{CPU: ptr.To(resource.MustParse(cpu)), Memory: ptr.To(resource.MustParse(memory))}
	}
	return []v1beta1.NewPodContainer{
		{ContainerName: "app", Requests: amounts(cpuOf(i), "333Mi"), Limits: amounts("2222m", "444Mi")},
		{ContainerName: "proxy", Requests: amounts("33m", "33Mi"), Limits: amounts("66m", "44Mi")},
	}
}

// newPod is a pod of a Deployment as the ReplicaSet controller creates it.
func newPod(namespace, deployment string) *corev1.Pod {
	set := deployment + "-" + hash
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, GenerateName: set + "-",
			Labels:          map[string]string{"app": deployment, appsv1.DefaultDeploymentUniqueLabelKey: hash},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: set, UID: "set", Controller: ptr.To(true)}},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{testkit.Container("app"), testkit.Container("proxy")}},
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"regexp"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// heapOf is the heap of a Deployment's only container, whole and as a record keeps it.
func heapOf(t *testing.T, c corev1.Container) workload.Heap {
	t.Helper()
	c.Name = "app"
	kept := corev1.Container{Name: "app"}
	workload.KeepHeap(&kept, &c)
	read := func(c corev1.Container) workload.Heap {
		return workload.ReadDeployment(rolledOut(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers = []corev1.Container{c} })).Heaps["app"]
	}
	if read(c) != read(kept) {
		t.Errorf("the whole container has %+v, and what is kept %+v: %+v", read(c), read(kept), kept)
	}
	return read(c)
}

func env(name, value string) corev1.Container {
	return corev1.Container{Env: []corev1.EnvVar{{Name: "PASSWORD", Value: "a --max secret -Xmx"}, {Name: name, Value: value}}}
}

func args(args ...string) corev1.Container { return corev1.Container{Args: args} }

func TestHeaps(t *testing.T) {
	const gibi = 1 << 30
	for name, tc := range map[string]struct {
		container corev1.Container
		want      workload.Heap
	}{
		"a JVM's environment":            {env("JAVA_TOOL_OPTIONS", "-Dx=y -Xmx2g -Xss1m"), workload.Heap{Bytes: 2 * gibi, Flag: "-Xmx2g in env JAVA_TOOL_OPTIONS"}},
		"in quotes":                      {env("JAVA_OPTS", `"-Xmx1536M"`), workload.Heap{Bytes: 1536 * mebi, Flag: "-Xmx1536M in env JAVA_OPTS"}},
		"a JVM's own name of it":         {env("JDK_JAVA_OPTIONS", "-XX:MaxHeapSize=1073741824"), workload.Heap{Bytes: gibi, Flag: "-XX:MaxHeapSize=1073741824 in env JDK_JAVA_OPTIONS"}},
		"a program's own variable":       {env("KAFKA_HEAP_OPTS", "-Xmx6G -Xms6G"), workload.Heap{Bytes: 6 * gibi, Flag: "-Xmx6G in env KAFKA_HEAP_OPTS"}},
		"Node.js":                        {env("NODE_OPTIONS", "--max-old-space-size=4096"), workload.Heap{Bytes: 4 * gibi, Flag: "--max-old-space-size=4096 in env NODE_OPTIONS"}},
		"Node.js, with V8's spelling":    {args("server.js", "--max_old_space_size=512"), workload.Heap{Bytes: 512 * mebi, Flag: "--max_old_space_size=512 in args"}},
		"Go":                             {env("GOMEMLIMIT", "900MiB"), workload.Heap{Bytes: 900 * mebi, Flag: "GOMEMLIMIT=900MiB in env"}},
		"Go, in bytes":                   {env("GOMEMLIMIT", "1073741824"), workload.Heap{Bytes: gibi, Flag: "GOMEMLIMIT=1073741824 in env"}},
		"Go, with the container's limit": {corev1.Container{Env: []corev1.EnvVar{{Name: "GOMEMLIMIT", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory"}}}}}, workload.Heap{Flag: "GOMEMLIMIT from limits.memory"}},
		"Go without a limit":             {env("GOMEMLIMIT", "off"), workload.Heap{}},
		"an argument":                    {args("-jar", "app.jar", "-Xmx64m"), workload.Heap{Bytes: 64 * mebi, Flag: "-Xmx64m in args"}},
		"a shell's command":              {corev1.Container{Command: []string{"sh", "-c", "exec java -Xmx2g -jar app.jar; exit"}}, workload.Heap{Bytes: 2 * gibi, Flag: "-Xmx2g in command"}},
		"the largest of several":         {args("-Xmx2g", "-Xmx1g", "-XX:MaxRAMPercentage=75"), workload.Heap{Bytes: 2 * gibi, Flag: "-Xmx2g in args"}},
		"a share of the limit":           {env("JAVA_OPTS", "-XX:MaxRAMPercentage=75.0"), workload.Heap{Flag: "-XX:MaxRAMPercentage=75.0 in env JAVA_OPTS"}},
		"a variable's value elsewhere":   {env("JAVA_OPTS", "-Xmx$(HEAP)"), workload.Heap{}},
		"a part of a longer word":        {args("-Xmx2gb", "x-Xmx2g", "--no-max-old-space-size=1", "-Xmx"), workload.Heap{}},
		"nothing":                        {args("-Xmx0", "--max-old-space-size=0"), workload.Heap{}},
		"more than any container has":    {args("-Xmx999999999999999999t", "-Xmx99999999g"), workload.Heap{}},
		"another variable with a number": {env("MEMORY", "900MiB"), workload.Heap{}},
	} {
		if got := heapOf(t, tc.container); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

// For any container, only one flag and its size are kept.
func FuzzHeap(f *testing.F) {
	for _, text := range []string{"-Xmx2g", "java -Xmx2g -Dpassword=secret", "GOMEMLIMIT", "900MiB", `'--max-old-space-size=1'`, "-Xmx9223372036854775807t"} {
		f.Add(text, "JAVA_OPTS", text)
		f.Add("", "GOMEMLIMIT", text)
	}
	known := regexp.MustCompile(`^((-Xmx|-XX:MaxHeapSize=)[0-9]+[kKmMgGtT]?|--max[-_]old[-_]space[-_]size=[0-9]+|-XX:MaxRAMPercentage=[0-9.]+|GOMEMLIMIT=[0-9]+(B|[KMGT]iB)?)$`)
	f.Fuzz(func(t *testing.T, arg, name, value string) {
		c := corev1.Container{Command: []string{value}, Args: []string{arg}, Env: []corev1.EnvVar{{Name: name, Value: value}}}
		heap := heapOf(t, c)
		if heap.Bytes < 0 || heap.Bytes > quantity.MaxMemoryBytes || heap.Flag == "" && heap != (workload.Heap{}) {
			t.Errorf("%+v", heap)
		}
		flag, ok := heap.Flag, false
		for _, place := range []string{" in args", " in command", " in env", " in env " + name} {
			if n := len(flag) - len(place); n >= 0 && flag[n:] == place && known.MatchString(flag[:n]) {
				ok = true
			}
		}
		if flag != "" && !ok {
			t.Errorf("%q has more than a flag", flag)
		}
	})
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// etcd is restored from a backup while the operator runs: all versions go back, and what came after the backup has never
// been. Watches would wait for the lost versions, so the operator ends. Its next process applies no size of the lost time.
func TestARestoredEtcdIsFollowed(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until the lease of the operator has run out")
	}
	t.Run("with a lease", func(t *testing.T) { followsARestoredEtcd(t, true) })
	t.Run("without a lease", func(t *testing.T) { followsARestoredEtcd(t, false) })
}

func followsARestoredEtcd(t *testing.T, elects bool) {
	t.Helper()
	own, err := testkit.Start()
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, own.Stop()) })
	namespace := own.Namespace(t)
	web := testkit.Deployment(namespace, "web")
	web.Spec.Replicas = ptr.To(int32(1))
	must.Succeed(t, own.Client.Create(t.Context(), web))
	pod, err := own.Run(t.Context(), web)
	must.Succeed(t, err)
	scaler := testkit.Scaler(namespace, "web", "web")
	scaler.Spec.UpdatePolicy.CooldownSeconds = ptr.To(int32(0))
	must.Succeed(t, own.Client.Create(t.Context(), scaler))

	c := testkit.OperatorConfig()
	c.Collection.Interval.Duration = 200 * time.Millisecond
	c.LeaderElection.Enabled, c.LeaderElection.Namespace = elects, namespace
	usage := testkit.NewUsage()
	usage.Set(namespace, pod.Name, "app", 300, 240<<20)
	first := own.StartOperator(t, c, usage, namespace)
	running := []*testkit.Operator{first}
	if elects {
		running = append(running, own.StartOperator(t, c, usage, namespace)) // It waits for the lease.
	}

	// asksFor demands an amount of CPU as a user; the test plays the kubelet until the pod has it.
	asksFor := func(cpu string) {
		t.Helper()
		testkit.Eventually(t, soon, func() string {
			if err := own.Client.Get(t.Context(), client.ObjectKeyFromObject(scaler), scaler); err != nil {
				return err.Error()
			}
			scaler.Spec.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{{
				ContainerName: "*", MinAllowed: &v1beta1.ResourceBounds{CPU: ptr.To(resource.MustParse(cpu))},
			}}}
			return testkit.MessageOf(own.Client.Update(t.Context(), scaler))
		})
	}
	has := func(cpu string) {
		t.Helper()
		testkit.Eventually(t, busy, func() string {
			if err := own.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
				return err.Error()
			}
			if !equality.Semantic.DeepEqual(pod.Status.ContainerStatuses[0].Resources, &pod.Spec.Containers[0].Resources) {
				world.Actuate(pod, metav1.Now())
				return fmt.Sprintf("a resize is being applied: %v", own.Client.Status().Update(t.Context(), pod))
			}
			if err := own.Client.Get(t.Context(), client.ObjectKeyFromObject(scaler), scaler); err != nil {
				return err.Error()
			}
			applied := meta.FindStatusCondition(scaler.Status.Conditions, v1beta1.ConditionApplied)
			if got := pod.Spec.Containers[0].Resources.Requests.Cpu(); got.Cmp(resource.MustParse(cpu)) != 0 || applied == nil || applied.Status != metav1.ConditionTrue {
				return fmt.Sprintf("the pod requests %s of CPU, Applied is %+v", got, applied)
			}
			return ""
		})
	}
	asksFor("700m")
	has("700m")
	restore := own.BackUp(t)

	asksFor("800m")
	has("800m")
	// Later versions alone do not end the time in which the past is not noticed. Without a lease, the operator reads the version
	// every 5 seconds.
	for i, begun := 0, time.Now(); i < 200 || time.Since(begun) < 6*time.Second; i++ {
		must.Succeed(t, own.Client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("later-%d", i)}}))
	}
	mark := own.Mark()
	restore()
	for i, o := range running {
		if err := o.AwaitEnd(); err == nil {
			t.Errorf("process %d ended without an error", i)
		}
	}
	second := own.StartOperator(t, c, usage, namespace)
	has("700m")
	asksFor("900m")
	has("900m")
	for _, agent := range []string{first.Agent, second.Agent} {
		for _, write := range own.Writes(t, mark, agent) {
			if elects && write.Resource != "leases" && write.Code >= 400 {
				t.Errorf("refused after the restore: %s", write)
			}
		}
	}
}

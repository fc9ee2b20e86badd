// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

const (
	// soon is the timeout of every wait for the controllers of the cluster.
	soon = 2 * time.Minute
	mebi = int64(1) << 20
)

// fixture is a namespace with its own operator, and the usage of its
// pods.
type fixture struct {
	*world.World
	t        *testing.T
	usage    *podUsage
	config   operatorconfig.Operator
	operator *testkit.Operator
	began    testkit.AuditMark
}

// newFixture creates a namespace and starts an operator for it. Each option changes the
// operator's configuration.
func newFixture(t *testing.T, options ...func(*operatorconfig.Operator)) *fixture {
	t.Helper()
	w := &fixture{t: t, config: testkit.OperatorConfig()}
	w.World = world.New(t, env.Client, env.Namespace(t), world.Options{RealTime: w.eventually})
	for _, option := range options {
		option(&w.config)
	}
	w.usage = &podUsage{Usage: testkit.NewUsage()}
	t.Cleanup(func() {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}
		if err := env.Client.Delete(context.Background(), namespace); err != nil {
			t.Logf("deleting the namespace: %v", err)
		}
	})
	w.eventually(func() string { // pods need the service account
		return testkit.MessageOf(env.Client.Get(t.Context(), w.Key("default"), &corev1.ServiceAccount{}))
	})
	w.began = env.Mark()
	w.start()
	return w
}

func (w *fixture) start() {
	w.Helper()
	w.operator = env.StartOperator(w.t, w.config, w.usage, w.Namespace)
}

// eventually lets rounds of usage pass, each of which counts as a minute, until f describes nothing that is wrong.
func (w *fixture) eventually(f func() string) {
	w.Helper()
	testkit.Eventually(w.t, soon, func() string {
		wrong := f()
		if wrong != "" {
			w.rounds(1)
		}
		return wrong
	})
}

// rounds makes rounds of usage. Each counts as a minute, and begins when nothing is under way in the cluster.
func (w *fixture) rounds(n int) {
	w.Helper()
	for range n {
		w.rest()
		if w.operator != nil {
			w.operator.Collect(w.t)
		}
	}
}

// mostRest is how long a round waits for the cluster at most: a pod may have no node, or a kubelet may never answer.
const mostRest = time.Second

// rest waits until the controllers and kubelets of the cluster have done their work, so that no hours of usage pass
// while a pod starts.
func (w *fixture) rest() {
	w.Helper()
	for began := time.Now(); w.isUnderWay() && time.Since(began) < mostRest; {
		time.Sleep(20 * time.Millisecond)
	}
}

// isUnderWay reports whether a Deployment or a pod is changing.
func (w *fixture) isUnderWay() bool {
	w.Helper()
	var deployments appsv1.DeploymentList
	var pods corev1.PodList
	for _, list := range []client.ObjectList{&deployments, &pods} {
		must.Succeed(w, env.Client.List(w.Context(), list, client.InNamespace(w.Namespace)))
	}
	return slices.ContainsFunc(deployments.Items, func(d appsv1.Deployment) bool {
		s, want := d.Status, ptr.Deref(d.Spec.Replicas, 1)
		return s.ObservedGeneration != d.Generation || s.UpdatedReplicas != want || s.AvailableReplicas != want || s.Replicas != want
	}) || slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool {
		return p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning || p.Status.ObservedGeneration != p.Generation
	})
}

// annotate sets an annotation, or removes it if the value is "".
func (w *fixture) annotate(obj client.Object, key, value string) {
	w.Helper()
	encoded := "null"
	if value != "" {
		encoded = fmt.Sprintf("%q", value)
	}
	w.Patch(obj, `{"metadata":{"annotations":{%q:%s}}}`, key, encoded)
}

// deploy creates a Deployment with three replicas and waits until it runs.
func (w *fixture) deploy(name string, changes ...func(*appsv1.Deployment)) *appsv1.Deployment {
	w.Helper()
	d := testkit.Deployment(w.Namespace, name)
	d.Spec.Replicas = ptr.To(int32(3))
	for _, change := range changes {
		change(d)
	}
	w.Add(d)
	return w.runs(name)
}

// runs waits until the Deployment is rolled out, and returns it.
func (w *fixture) runs(name string) *appsv1.Deployment {
	w.Helper()
	w.eventually(func() string { return w.IsRunning(name) })
	return w.Deployment(name)
}

// change updates the Deployment, as a user does who replaces it as a whole.
func (w *fixture) change(name, manager string, f func(*appsv1.Deployment)) {
	w.Helper()
	w.eventually(func() string { // the Deployment controller writes at the same time
		d := w.Deployment(name)
		f(d)
		err := env.Client.Update(w.Context(), d, client.FieldOwner(manager))
		if err != nil && !apierrors.IsConflict(err) {
			w.Fatal(err)
		}
		return testkit.MessageOf(err)
	})
}

// writes returns this operator's write requests since the mark, without events.
func (w *fixture) writes(since testkit.AuditMark) []testkit.Write {
	w.Helper()
	env.NeedAudit(w.t)
	var out []testkit.Write
	for _, write := range env.Writes(w, since, w.operator.Agent) {
		if write.UserAgent == w.operator.Agent && write.Namespace == w.Namespace && write.Resource != "events" {
			out = append(out, write)
		}
	}
	return out
}

// noted waits for an event on the object whose note contains all the words.
func (w *fixture) noted(uid types.UID, reason string, words ...string) {
	w.Helper()
	w.eventually(func() string {
		var list eventsv1.EventList
		if err := env.Client.List(w.Context(), &list, client.InNamespace(w.Namespace)); err != nil {
			return err.Error()
		}
		var seen []string
		for _, event := range list.Items {
			if event.Regarding.UID != uid {
				continue
			}
			ok := event.Reason == reason
			for _, word := range words {
				ok = ok && strings.Contains(event.Note, word)
			}
			if ok {
				return ""
			}
			seen = append(seen, event.Reason+": "+event.Note)
		}
		return fmt.Sprintf("no event %s with %q among %q", reason, words, seen)
	})
}

// gone waits until the object does not exist.
func (w *fixture) gone(obj client.Object) {
	w.Helper()
	w.eventually(func() string { return env.Remains(w, obj) })
}

// podUsage is a usage source in which all pods of a Deployment have the same usage, including
// future pods.
type podUsage struct {
	*testkit.Usage

	mu   sync.Mutex
	uses map[string]use // by Deployment and container
}

type use struct {
	deployment, container  string
	cpuMillis, memoryBytes int64
}

// uses sets the usage of a container in each pod of the Deployment from now on.
func (w *fixture) uses(deployment, container string, cpuMillis, memoryMebi int64) {
	c := w.usage
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.uses == nil {
		c.uses = map[string]use{}
	}
	c.uses[deployment+"/"+container] = use{deployment, container, cpuMillis, memoryMebi * mebi}
}

// List implements collect.Source.
func (c *podUsage) List(ctx context.Context, namespace string, now time.Time) ([]usage.Sample, []usage.Refused, error) {
	pods := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	if err := env.Client.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pod := range pods.Items {
		for _, use := range c.uses {
			if pod.Labels["app"] == use.deployment {
				c.Set(namespace, pod.Name, use.container, use.cpuMillis, use.memoryBytes)
			}
		}
	}
	return c.Usage.List(ctx, namespace, now)
}

// withProxy gives the template a native sidecar between two init containers that end.
func withProxy(d *appsv1.Deployment) {
	proxy := testkit.Container("proxy")
	proxy.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	d.Spec.Template.Spec.InitContainers = []corev1.Container{testkit.Container("first"), proxy, testkit.Container("second")}
}

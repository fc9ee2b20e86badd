// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/app"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
	"github.com/verticalscaler/verticalscaler-operator/test/world/monitor"
)

// operatorUser is the user of all requests of the operator.
const operatorUser = "system:serviceaccount:" + testkit.System + ":" + testkit.ServiceAccount

// recorder keeps every event of the world.
type recorder struct {
	node    *node
	monitor *monitor.Monitor

	mu      sync.Mutex
	changes []world.Change
	pods    map[types.UID]*corev1.Pod // those that are there now
}

func newRecorder(n *node, m *monitor.Monitor) *recorder {
	return &recorder{node: n, monitor: m, pods: map[types.UID]*corev1.Pod{}}
}

// watch records until the context ends. It returns once it has begun.
func (r *recorder) watch(ctx context.Context, config *rest.Config, namespace string) error {
	informers, err := cache.New(config, cache.Options{Scheme: app.Scheme(), DefaultNamespaces: map[string]cache.Config{namespace: {}}})
	if err != nil {
		return fmt.Errorf("preparing to watch namespace %s: %w", namespace, err)
	}
	for _, kind := range []client.Object{
		&v1beta1.VerticalScaler{}, &v1beta1.ScaledDeployment{}, &v1beta1.VerticalScalerCheckpoint{}, &appsv1.Deployment{},
		&appsv1.ReplicaSet{}, &corev1.Pod{}, &policyv1.PodDisruptionBudget{}, &v1beta1.NewPodSizes{},
	} {
		informer, err := informers.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
		if _, err := informer.AddEventHandler(r); err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
	}
	go informers.Start(ctx) //nolint:errcheck // it ends with the context
	if !informers.WaitForCacheSync(ctx) {
		return fmt.Errorf("watching namespace %s: %w", namespace, context.Cause(ctx))
	}
	return nil
}

// OnAdd implements cache.ResourceEventHandler.
func (r *recorder) OnAdd(object any, _ bool) { r.saw(watch.Added, object) }

// OnUpdate implements cache.ResourceEventHandler.
func (r *recorder) OnUpdate(_, object any) { r.saw(watch.Modified, object) }

// OnDelete implements cache.ResourceEventHandler.
func (r *recorder) OnDelete(object any) {
	if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	r.saw(watch.Deleted, object)
}

func (r *recorder) saw(kind watch.EventType, object any) {
	o, ok := object.(client.Object)
	if !ok {
		return
	}
	r.monitor.Saw(watch.Event{Type: kind, Object: o})
	r.mu.Lock()
	r.changes = append(r.changes, world.Change{Type: kind, Object: o, Seen: time.Now()})
	pod, isPod := o.(*corev1.Pod)
	if isPod && kind == watch.Deleted {
		delete(r.pods, pod.UID)
	} else if isPod {
		r.pods[pod.UID] = pod
	}
	r.mu.Unlock()
	if isPod && kind != watch.Deleted {
		r.node.saw(pod)
	}
}

// runningPods are the pods whose containers run, by name.
func (r *recorder) runningPods() (pods []*corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, pod := range r.pods {
		if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return pods
}

// history are all changes so far, in their order.
func (r *recorder) history() []world.Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	changes := slices.Clone(r.changes)
	slices.SortStableFunc(changes, func(a, b world.Change) int { return cmp.Compare(a.Revision(), b.Revision()) })
	return changes
}

// auditTail reads the audit log bit by bit.
type auditTail struct {
	mu     sync.Mutex
	offset int64
	writes []world.Write
}

// writes are the operator's writes in the world's namespace since its creation, without
// events, leases and dry runs, in the order of the answers.
func (w *World) writes() ([]world.Write, error) {
	t := &w.audit
	t.mu.Lock()
	defer t.mu.Unlock()
	file, err := os.Open(w.env.AuditLog())
	if err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}
	defer file.Close() //nolint:errcheck // only read
	if _, err := file.Seek(t.offset, io.SeekStart); err != nil {
		return nil, fmt.Errorf("seeking in the audit log: %w", err)
	}
	news, read, err := readWrites(file, w.namespace)
	t.offset += read
	t.writes = append(t.writes, news...)
	return slices.Clone(t.writes), err
}

// readWrites reads the operator's writes in a namespace, and those of cluster-wide objects
// whose name contains the namespace's, from an audit log. It returns how many bytes it has
// read: a line without an end is still being written.
func readWrites(log io.Reader, namespace string) (writes []world.Write, read int64, err error) {
	lines := bufio.NewReaderSize(log, 64<<10)
	for {
		text, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return writes, read, nil
		}
		if err != nil {
			return writes, read, fmt.Errorf("reading the audit log: %w", err)
		}
		read += int64(len(text))
		if !bytes.Contains(text, []byte(operatorUser)) || !bytes.Contains(text, []byte(namespace)) {
			continue
		}
		var line auditLine
		if err := json.Unmarshal(text, &line); err != nil {
			return writes, read, fmt.Errorf("decoding the audit log: %w", err)
		}
		if line.isOperators() && (line.ObjectRef.Namespace == namespace || line.ObjectRef.Namespace == "" && strings.Contains(line.ObjectRef.Name, namespace)) &&
			line.ObjectRef.Resource != "events" && line.ObjectRef.Resource != "leases" && !strings.Contains(line.RequestURI, "dryRun=") {
			writes = append(writes, line.write())
		}
	}
}

// auditLine is what is read of an entry of the audit log.
type auditLine struct {
	Verb             string
	RequestURI       string
	User             struct{ Username string }
	ImpersonatedUser struct{ Username string }
	ObjectRef        struct {
		Resource, Subresource, Namespace, Name string
	}
	ResponseStatus           struct{ Code int }
	RequestReceivedTimestamp time.Time
}

func (l auditLine) isOperators() bool {
	return cmp.Or(l.ImpersonatedUser.Username, l.User.Username) == operatorUser
}

func (l auditLine) write() world.Write {
	resource := l.ObjectRef.Resource
	if l.ObjectRef.Subresource != "" {
		resource += "/" + l.ObjectRef.Subresource
	}
	return world.Write{Verb: l.Verb, Resource: resource, Name: l.ObjectRef.Name, Code: l.ResponseStatus.Code, At: l.RequestReceivedTimestamp}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// Write is a write request of the operator.
type Write struct {
	Verb     string // create, update, patch, apply or delete
	Resource string // with subresource: "pods/resize"
	Name     string
	// Code is the API server's answer; 0 if the write has not reached it.
	Code int
	// At is when the API server got it.
	At time.Time
	// Err is what the operator was told; nil if the write was accepted.
	Err error
}

// Kind is the verb and the resource.
func (w Write) Kind() string { return w.Verb + " " + w.Resource }

// IsAccepted reports whether the API server has accepted the write.
func (w Write) IsAccepted() bool { return w.Code >= 200 && w.Code < 300 }

// String describes the write in one line.
func (w Write) String() string {
	if w.Err != nil {
		return fmt.Sprintf("%s %s (%d): %v", w.Kind(), w.Name, w.Code, w.Err)
	}
	return fmt.Sprintf("%s %s (%d)", w.Kind(), w.Name, w.Code)
}

// codeOf is the status code of an answer.
func codeOf(err error) int {
	if err == nil {
		return http.StatusOK
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return int(status.Status().Code)
	}
	return http.StatusInternalServerError
}

// errKilled is the answer to all requests of an operator that a fault has killed.
var errKilled = errors.New("the operator was killed")

// The faults at one write: the n-th of a kind.

// KillBefore kills the operator before the write.
func (o *Operator) KillBefore(Write, func() error) error { return o.kill() }

// KillAfter kills the operator after the write.
func (o *Operator) KillAfter(_ Write, send func() error) error {
	_ = send() // nobody learns of the answer
	return o.kill()
}

// LoseReply does the write and loses the answer.
func (o *Operator) LoseReply(_ Write, send func() error) error {
	_ = send()
	return errors.New("connection reset by peer")
}

// Refuse answers a write with a status code, without doing it.
func Refuse(code int) func(Write, func() error) error {
	return func(w Write, _ func() error) error {
		resource := schema.GroupResource{Resource: w.Resource}
		switch code {
		case http.StatusConflict:
			return apierrors.NewConflict(resource, w.Name, errors.New("the object has been modified"))
		case http.StatusForbidden:
			return apierrors.NewForbidden(resource, w.Name, errors.New("refused by the test"))
		case http.StatusTooManyRequests:
			return apierrors.NewTooManyRequests("refused by the test", 1)
		case http.StatusServiceUnavailable:
			return apierrors.NewServiceUnavailable("refused by the test")
		}
		return apierrors.NewInternalError(errors.New("refused by the test"))
	}
}

// operatorClient is how the operator reaches the API server. It has the indexes of the operator's cache, and its writes
// are recorded and may fail.
type operatorClient struct {
	client.WithWatch
	world *World
	// owner is the process that uses the client.
	owner *Operator
	// isLive is true if it reads from the API server. Others read from a cache, which has no managed fields, if the API server
	// is in memory.
	isLive bool
}

// reader is where the operator reads.
func (c *operatorClient) reader() client.Reader {
	switch {
	case c.isLive:
		return c.WithWatch
	case c.owner.cache == nil:
		return c.world.cache
	}
	return c.owner.cache
}

// List implements client.Reader.
func (c *operatorClient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if c.owner.killed {
		return errKilled
	}
	how := (&client.ListOptions{}).ApplyOptions(options)
	if _, isPods := list.(*corev1.PodList); isPods { // The operator's own store of pods shares them.
		how.UnsafeDisableDeepCopy = ptr.To(true)
	}
	return c.reader().List(ctx, list, how)
}

// Get implements client.Reader.
func (c *operatorClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if c.owner.killed {
		return errKilled
	}
	if _, isCheckpoint := o.(*v1beta1.VerticalScalerCheckpoint); isCheckpoint { // They are not cached.
		return c.WithWatch.Get(ctx, key, o, options...)
	}
	return c.reader().Get(ctx, key, o, options...)
}

// send records a write, and lets the world's fault decide about it.
func (c *operatorClient) send(verb string, o any, subresource, name string, dryRun []string, send func() error) error {
	if c.owner.killed {
		return errKilled
	}
	if len(dryRun) > 0 {
		return send()
	}
	w := Write{Verb: verb, Resource: resourceOf(o), Name: name, At: c.world.Clock.Now()}
	if subresource != "" {
		w.Resource += "/" + subresource
	}
	c.world.numbers[w.Kind()]++
	sent := func() error {
		err := send()
		w.Code = codeOf(err)
		return err
	}
	if fault := c.world.Fault; fault != nil {
		w.Err = fault(w, c.world.numbers[w.Kind()], sent)
	} else {
		w.Err = sent()
	}
	c.world.writes = append(c.world.writes, w)
	object, ok := o.(client.Object)
	if verb == "apply" || !ok {
		c.world.cache.forget()
		c.world.versions() // The document has no type that the monitor knows.
		return w.Err
	}
	c.world.cache.forgetKind(object)
	if w.Err == nil && verb != "delete" && object.GetUID() != "" {
		c.world.see(copyOf(object))
	}
	return w.Err
}

// resourceOf is the plural name of an object's kind.
func resourceOf(o any) string {
	if object, ok := o.(runtime.Object); ok {
		if kind, err := kindOf(object); err == nil {
			return resourceFor(kind).Resource
		}
	} else if document, ok := o.(interface{ GetKind() string }); ok {
		return resourceFor(schema.GroupVersionKind{Kind: document.GetKind()}).Resource
	}
	return ""
}

// Create implements client.Writer.
func (c *operatorClient) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	how := (&client.CreateOptions{}).ApplyOptions(options)
	return c.send("create", o, "", o.GetName(), how.DryRun, func() error { return c.WithWatch.Create(ctx, o, options...) })
}

// Update implements client.Writer.
func (c *operatorClient) Update(ctx context.Context, o client.Object, options ...client.UpdateOption) error {
	how := (&client.UpdateOptions{}).ApplyOptions(options)
	return c.send("update", o, "", o.GetName(), how.DryRun, func() error { return c.WithWatch.Update(ctx, o, options...) })
}

// Patch implements client.Writer.
func (c *operatorClient) Patch(ctx context.Context, o client.Object, patch client.Patch, options ...client.PatchOption) error {
	how := (&client.PatchOptions{}).ApplyOptions(options)
	return c.send("patch", o, "", o.GetName(), how.DryRun, func() error { return c.WithWatch.Patch(ctx, o, patch, options...) })
}

// Delete implements client.Writer.
func (c *operatorClient) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	how := (&client.DeleteOptions{}).ApplyOptions(options)
	return c.send("delete", o, "", o.GetName(), how.DryRun, func() error { return c.WithWatch.Delete(ctx, o, options...) })
}

// Apply implements client.Writer.
func (c *operatorClient) Apply(ctx context.Context, document runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	how := (&client.ApplyOptions{}).ApplyOptions(options)
	name := ""
	if named, ok := document.(interface{ GetName() string }); ok {
		name = named.GetName()
	}
	return c.send("apply", document, "", name, how.DryRun, func() error { return c.WithWatch.Apply(ctx, document, options...) })
}

// Status implements client.StatusClient.
func (c *operatorClient) Status() client.SubResourceWriter { return c.SubResource("status") }

// SubResource implements client.SubResourceClientConstructor.
func (c *operatorClient) SubResource(name string) client.SubResourceClient {
	return &subresource{c.WithWatch.SubResource(name), c, name}
}

type subresource struct {
	client.SubResourceClient
	client *operatorClient
	name   string
}

// Create implements client.SubResourceWriter.
func (s *subresource) Create(ctx context.Context, o client.Object, body client.Object, options ...client.SubResourceCreateOption) error {
	how := (&client.SubResourceCreateOptions{}).ApplyOptions(options)
	return s.client.send("create", o, s.name, o.GetName(), how.DryRun, func() error { return s.SubResourceClient.Create(ctx, o, body, options...) })
}

// Update implements client.SubResourceWriter.
func (s *subresource) Update(ctx context.Context, o client.Object, options ...client.SubResourceUpdateOption) error {
	how := (&client.SubResourceUpdateOptions{}).ApplyOptions(options)
	return s.client.send("update", o, s.name, o.GetName(), how.DryRun, func() error { return s.SubResourceClient.Update(ctx, o, options...) })
}

// Patch implements client.SubResourceWriter.
func (s *subresource) Patch(ctx context.Context, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	how := (&client.SubResourcePatchOptions{}).ApplyOptions(options)
	return s.client.send("patch", o, s.name, o.GetName(), how.DryRun, func() error {
		if err := s.SubResourceClient.Patch(ctx, o, patch, options...); err != nil || s.name != "resize" || s.client.world.api != nil {
			return err
		}
		return s.client.world.stamp(ctx, o)
	})
}

// stamp lets the API server's record of the latest resize of a pod have the time of the world: the API server's own clock is
// behind.
func (w *World) stamp(ctx context.Context, pod client.Object) error {
	fields := pod.GetManagedFields()
	for i := range fields {
		if fields[i].Subresource == "resize" {
			fields[i].Time = ptr.To(metav1.NewTime(w.Clock.Now()))
		}
	}
	encoded, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("encoding managed fields: %w", err)
	}
	return w.Client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"managedFields":%s}}`, encoded)))
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// Write is a write request of the operator.
type Write struct {
	Verb     string // create, update, patch, apply or delete
	Resource string // with subresource: "pods/resize"
	Name     string
	// Err is what the operator was told; nil if the write was accepted.
	Err error
}

// Code is the HTTP status of the answer: 200 if the write was accepted, 0 if there was no answer.
func (w Write) Code() int {
	var status apierrors.APIStatus
	switch {
	case w.Err == nil:
		return http.StatusOK
	case errors.As(w.Err, &status):
		return int(status.Status().Code)
	}
	return 0
}

// Kind is the verb and the resource.
func (w Write) Kind() string { return w.Verb + " " + w.Resource }

// String describes the write in one line.
func (w Write) String() string {
	if w.Err != nil {
		return fmt.Sprintf("%s %s: %v", w.Kind(), w.Name, w.Err)
	}
	return w.Kind() + " " + w.Name
}

// A Fault decides what happens to a write. n counts the writes of its kind from 1. send sends the write to the API
// server.
type Fault func(w Write, n int, send func() error) error

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

// operatorClient is how the operator reaches the API server. Its writes are recorded and may fail.
type operatorClient struct {
	// WithWatch has the operator's rights.
	client.WithWatch
	// cached stands for the operator's cache, which is never late here and has its indexes. It needs other rights than
	// reading live does.
	cached client.Reader
	world  *World
	// owner is the process that uses the client.
	owner *Operator
}

// List implements client.Reader.
func (c *operatorClient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if c.owner.killed {
		return errKilled
	}
	return c.cached.List(ctx, list, options...)
}

// Get implements client.Reader.
func (c *operatorClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if c.owner.killed {
		return errKilled
	}
	if _, ok := o.(*v1beta1.VerticalScalerCheckpoint); ok {
		return c.WithWatch.Get(ctx, key, o, options...) // The operator does not cache them.
	}
	return c.cached.Get(ctx, key, o, options...)
}

// send records a write, and lets the world's fault decide about it.
func (c *operatorClient) send(verb string, o any, subresource, name string, dryRun []string, send func() error) error {
	if c.owner.killed {
		return errKilled
	}
	if len(dryRun) > 0 {
		return send()
	}
	w := Write{Verb: verb, Resource: resourceOf(c.Scheme(), o), Name: name}
	if subresource != "" {
		w.Resource += "/" + subresource
	}
	c.world.numbers[w.Kind()]++
	if fault := c.world.Fault; fault != nil {
		w.Err = fault(w, c.world.numbers[w.Kind()], send)
	} else {
		w.Err = send()
	}
	c.world.writes = append(c.world.writes, w)
	c.world.cache.forget()
	if verb == "apply" {
		c.world.versions() // The document has no type that the monitor knows.
		return w.Err
	}
	if object, ok := o.(client.Object); ok && w.Err == nil && verb != "delete" && object.GetUID() != "" {
		if copied, ok := object.DeepCopyObject().(client.Object); ok {
			c.world.see(copied)
		}
	}
	return w.Err
}

// resourceOf is the plural name of an object's kind.
func resourceOf(scheme *runtime.Scheme, o any) string {
	kind := ""
	if object, ok := o.(runtime.Object); ok {
		if gvk, err := apiutil.GVKForObject(object, scheme); err == nil {
			kind = gvk.Kind
		}
	} else if document, ok := o.(interface{ GetKind() string }); ok {
		kind = document.GetKind()
	}
	plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
	if kind == "NewPodSizes" {
		return "newpodsizes" // a plural already
	}
	return plural.Resource
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
		if err := s.SubResourceClient.Patch(ctx, o, patch, options...); err != nil || s.name != "resize" {
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

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/resizes"
)

// Write is a write request of the operator.
type Write struct {
	Verb     string // create, update, patch, apply or delete
	Resource string // with subresource: "pods/resize"
	Name     string
	// Code is the API server's answer; 0 if the write has not reached it.
	Code int
	// At is the time at which the API server got it.
	At time.Time
	// Err is the error that the operator got; nil if the write was accepted.
	Err error

	// changes is true if the write has changed its object.
	changes bool
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

// client is the operator's client of the API server. Its writes are recorded and may fail. A client that is not live
// reads from a cache with the indexes of the operator's.
func (o *Operator) client(isLive bool) client.WithWatch {
	reader := func(api client.Reader, like runtime.Object) client.Reader {
		_, isCheckpoint := like.(*v1beta1.VerticalScalerCheckpoint) // They are not cached.
		switch {
		case isLive, isCheckpoint:
			return api
		case o.cache == nil:
			return o.world.cache
		}
		return o.cache
	}
	return interceptor.NewClient(o.world.ActsAs, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if o.killed {
				return errKilled
			}
			return reader(c, object).Get(ctx, key, object, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if o.killed {
				return errKilled
			}
			how := (&client.ListOptions{}).ApplyOptions(options)
			if _, isPods := list.(*corev1.PodList); isPods { // The operator's own store of pods shares them.
				how.UnsafeDisableDeepCopy = ptr.To(true)
			}
			return reader(c, list).List(ctx, list, how)
		},
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			how := (&client.CreateOptions{}).ApplyOptions(options)
			return o.send("create", object, "", how.DryRun, func() error { return c.Create(ctx, object, how) })
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			how := (&client.UpdateOptions{}).ApplyOptions(options)
			return o.send("update", object, "", how.DryRun, func() error { return c.Update(ctx, object, how) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			how := (&client.PatchOptions{}).ApplyOptions(options)
			return o.send("patch", object, "", how.DryRun, func() error { return c.Patch(ctx, object, patch, how) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			how := (&client.DeleteOptions{}).ApplyOptions(options)
			return o.send("delete", object, "", how.DryRun, func() error { return c.Delete(ctx, object, how) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, document runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			how := (&client.ApplyOptions{}).ApplyOptions(options)
			return o.send("apply", document, "", how.DryRun, func() error { return c.Apply(ctx, document, how) })
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, name string, object, body client.Object, options ...client.SubResourceCreateOption) error {
			how := (&client.SubResourceCreateOptions{}).ApplyOptions(options)
			return o.send("create", object, name, how.DryRun, func() error { return c.SubResource(name).Create(ctx, object, body, how) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, name string, object client.Object, options ...client.SubResourceUpdateOption) error {
			how := (&client.SubResourceUpdateOptions{}).ApplyOptions(options)
			return o.send("update", object, name, how.DryRun, func() error { return c.SubResource(name).Update(ctx, object, how) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			how := (&client.SubResourcePatchOptions{}).ApplyOptions(options)
			return o.send("patch", object, name, how.DryRun, func() error {
				switch {
				case name != "resize":
					return c.SubResource(name).Patch(ctx, object, patch, how)
				case o.world.api != nil:
					return o.world.resize(ctx, object, patch, how)
				}
				if err := c.SubResource(name).Patch(ctx, object, patch, how); err != nil {
					return err
				}
				return o.world.stamp(ctx, object)
			})
		},
	})
}

// send records a write, and lets the world's fault decide about it.
func (o *Operator) send(verb string, object any, subresource string, dryRun []string, send func() error) error {
	switch {
	case o.killed:
		return errKilled
	case len(dryRun) > 0:
		return send()
	}
	world := o.world
	w := Write{Verb: verb, Resource: resourceOf(object), At: world.Clock.Now()}
	if named, ok := object.(interface{ GetName() string }); ok {
		w.Name = named.GetName()
	}
	if subresource != "" {
		w.Resource += "/" + subresource
	}
	world.numbers[w.Kind()]++
	sent := func() error {
		from := len(world.changes)
		world.isOurs = verb == "patch" || verb == "update"
		err := send()
		world.isOurs = false
		w.Code = codeOf(err)
		if written, isTyped := object.(client.Object); isTyped && verb != "apply" {
			world.cache.forgetKind(written)
		} else {
			world.cache.forget()
		}
		w.changes = slices.ContainsFunc(world.changes[from:], Change.isEffective)
		return err
	}
	if fault := world.Fault; fault != nil {
		w.Err = fault(w, world.numbers[w.Kind()], sent)
	} else {
		w.Err = sent()
	}
	world.writes = append(world.writes, w)
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

// resize resizes a pod on an API server in memory, and records changes that were not requested. On a real one, package testkit
// does.
func (w *World) resize(ctx context.Context, object client.Object, patch client.Patch, how *client.SubResourcePatchOptions) error {
	before := &corev1.Pod{}
	if err := w.api.Get(ctx, client.ObjectKeyFromObject(object), before); err != nil {
		return err
	}
	if err := w.api.SubResource("resize").Patch(ctx, object, patch, how); err != nil {
		return err
	}
	content, err := patch.Data(object)
	if after, ok := object.(*corev1.Pod); ok && err == nil {
		if wrong := resizes.Unrequested(before, content, after); wrong != "" {
			w.unrequested = append(w.unrequested, wrong)
		}
	}
	return err
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

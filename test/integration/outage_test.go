// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// Deletions while all watches are broken cause no event: the next list does not have the objects. The informers of scalers and
// ScaledDeployments tell by a DeletedFinalStateUnknown, and our own feeds of Deployments compare. All controllers react as to
// any deletion. There is no resync.
func TestADeletionDuringABrokenWatchIsSeen(t *testing.T) {
	namespace, fleet := env.Namespace(t), env.Namespace(t)
	broken := breakable(t)
	env.StartOperator(t, testkit.OperatorConfig(), testkit.NewUsage(), namespace, fleet)

	// A scaler whose Deployment will be deleted, and one that waits behind another one.
	env.Create(t, testkit.Deployment(namespace, "web"), testkit.Deployment(namespace, "shared"))
	env.Create(t, testkit.Scaler(namespace, "web", "web"))
	env.Create(t, testkit.Scaler(namespace, "first", "shared"))
	sees(t, namespace, "first", present)
	env.Create(t, testkit.Scaler(namespace, "second", "shared"))
	sees(t, namespace, "web", present)
	reports(t, namespace, "second", "False", v1beta1.ReasonConflict)
	// An owner whose Deployment and scaler will be deleted, and one whose name is taken.
	env.Create(t, testkit.Deployment(namespace, "taken"), ownerOf(namespace, "owned"), ownerOf(namespace, "taken"))
	owned, scaled := hasObjects(t, namespace, "owned", "", "")
	testkit.Eventually(t, soon, func() string {
		return ownerReports(t, namespace, "taken", v1beta1.ConditionStalled, v1beta1.ReasonNotControlled)
	})
	// A policy whose scaler has no Deployment any longer.
	env.Create(t, testkit.Deployment(fleet, "kept"), testkit.Deployment(fleet, "fleet"), policyOf(fleet, "all"))
	hasScalers(t, "creating a policy", fleet, "fleet by all Recommend, kept by all Recommend")

	broken.begin(t)
	for _, object := range []client.Object{
		testkit.Deployment(namespace, "web"), testkit.Scaler(namespace, "first", ""), testkit.Deployment(namespace, "taken"),
		testkit.Deployment(namespace, "owned"), testkit.Scaler(namespace, "owned", ""), testkit.Deployment(fleet, "fleet"),
	} {
		remove(t, object)
		isForgotten(t, object)
	}
	broken.end(t)

	sees(t, namespace, "web", absent)
	sees(t, namespace, "second", present)
	hasObjects(t, namespace, "owned", owned, scaled)
	hasObjects(t, namespace, "taken", "", "")
	hasScalers(t, "the outage", fleet, "kept by all Recommend")
}

func ownerOf(namespace, name string) *v1beta1.ScaledDeployment {
	return &v1beta1.ScaledDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1beta1.ScaledDeploymentSpec{
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "example.com/app:1"}}}},
			Scaling:  &v1beta1.Scaling{},
		},
	}
}

func ownerReports(t *testing.T, namespace, name, kind, reason string) string {
	t.Helper()
	var owner v1beta1.ScaledDeployment
	must.Succeed(t, env.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, &owner))
	if c := meta.FindStatusCondition(owner.Status.Conditions, kind); c == nil || c.Reason != reason {
		return fmt.Sprintf("ScaledDeployment %s: %s is %+v", name, kind, c)
	}
	return ""
}

// hasObjects waits until an owner has a Deployment and a scaler that it controls, other than these.
func hasObjects(t *testing.T, namespace, name string, oldDeployment, oldScaler types.UID) (deployment, scaler types.UID) {
	t.Helper()
	var d appsv1.Deployment
	var vs v1beta1.VerticalScaler
	testkit.Eventually(t, soon, func() string {
		for _, object := range []client.Object{&d, &vs} {
			if err := env.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, object); err != nil {
				return err.Error()
			}
			if by := metav1.GetControllerOf(object); by == nil || by.Name != name || object.GetUID() == oldDeployment || object.GetUID() == oldScaler {
				return fmt.Sprintf("%T %s is the old one, or controlled by %+v", object, name, by)
			}
		}
		return ""
	})
	return d.UID, vs.UID
}

// outage breaks the watches of the operators that start from now on.
type outage struct {
	mu    sync.Mutex
	open  []io.Closer
	ended chan struct{} // closed while the watches work
	// broken and held are numbers of watches: those that begin has ended, and those that wait for the end.
	broken, held int
	// oldest is the oldest version from which the API server can still tell what has changed.
	oldest int64
}

func breakable(t *testing.T) *outage {
	t.Helper()
	o := &outage{ended: make(chan struct{})}
	close(o.ended)
	wrapped := env.Config.WrapTransport
	env.Config.WrapTransport = transport.Wrappers(wrapped, func(next http.RoundTripper) http.RoundTripper { return breaking{o, next} })
	t.Cleanup(func() { env.Config.WrapTransport = wrapped })
	return o
}

// begin ends all watches, and holds new ones.
func (o *outage) begin(t *testing.T) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = make(chan struct{})
	if len(o.open) < 5 {
		t.Fatalf("only %d watches are open", len(o.open))
	}
	for _, watch := range o.open {
		_ = watch.Close()
	}
	o.open, o.broken = nil, len(o.open)
}

// isComplete waits until all ended watches wait for the end of the outage, and have freed their buffers.
func (o *outage) isComplete(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, busy, func() string {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.held < o.broken {
			return fmt.Sprintf("%d of %d watches wait", o.held, o.broken)
		}
		return ""
	})
}

// end lets watches work again. They begin with a list, because the API server does not know what has happened before.
func (o *outage) end(t *testing.T) {
	t.Helper()
	var list corev1.NamespaceList
	must.Succeed(t, env.Client.List(t.Context(), &list))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.oldest, _ = strconv.ParseInt(list.ResourceVersion, 10, 64)
	close(o.ended)
}

// lock waits until the watches work, and keeps it like that.
func (o *outage) lock(ctx context.Context) error {
	for {
		o.mu.Lock()
		ended := o.ended
		select {
		case <-ended:
			return nil
		default:
			o.held++
			o.mu.Unlock()
		}
		var err error
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-ended:
		}
		o.mu.Lock()
		o.held--
		o.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

type breaking struct {
	*outage

	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b breaking) RoundTrip(request *http.Request) (*http.Response, error) {
	query := request.URL.Query()
	if query.Get("watch") == "" {
		return b.next.RoundTrip(request)
	}
	if err := b.lock(request.Context()); err != nil {
		return nil, err
	}
	defer b.mu.Unlock()
	from, err := strconv.ParseInt(query.Get("resourceVersion"), 10, 64)
	if err == nil && from < b.oldest && query.Get("sendInitialEvents") != "true" {
		return expired(request), nil
	}
	response, err := b.next.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusOK {
		b.open = append(b.open, response.Body)
	}
	return response, err
}

// expired is the answer of an API server that no longer knows what was at that time.
func expired(request *http.Request) *http.Response {
	text := `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old resource version","reason":"Expired","code":410}`
	return &http.Response{
		Status: "410 Gone", StatusCode: http.StatusGone, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: request,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)),
	}
}

// reports waits until a scaler is Ready, or not, and kubectl get shows the reason for it.
func reports(t *testing.T, namespace, name, ready, reason string) {
	t.Helper()
	testkit.Eventually(t, soon, func() string {
		c := meta.FindStatusCondition(scaler(t, namespace, name).Status.Conditions, "Ready")
		if got := inShort(t, namespace, name); c == nil || string(c.Status) != ready || got != reason {
			return fmt.Sprintf("scaler %s is %q, with %+v; want %s", name, got, c, reason)
		}
		return ""
	})
}

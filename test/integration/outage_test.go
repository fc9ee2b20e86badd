// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// What is deleted while all watches are broken sends no event: the next list does not have it. The informers of scalers and
// ScaledDeployments tell by a DeletedFinalStateUnknown, and our own feeds of Deployments compare. All controllers react as to any
// deletion. There is no resync.
func TestADeletionDuringABrokenWatchIsSeen(t *testing.T) {
	namespace, fleet := env.Namespace(t), env.Namespace(t)
	broken := breakable(t)
	env.StartOperator(t, testkit.OperatorConfig(), testkit.NewUsage(), namespace, fleet)

	// A scaler whose Deployment will be deleted, and one that waits behind another one.
	create(t, testkit.Deployment(namespace, "missed-web"))
	create(t, testkit.Deployment(namespace, "missed-shared"))
	createScaler(t, namespace, "missed-web", "missed-web")
	createScaler(t, namespace, "missed-first", "missed-shared")
	sees(t, namespace, "missed-first", present)
	createScaler(t, namespace, "second", "missed-shared")
	sees(t, namespace, "missed-web", present)
	says(t, namespace, "second", "False", v1beta1.ReasonConflict)
	// An owner whose Deployment and scaler will be deleted, and one whose name is taken.
	create(t, testkit.Deployment(namespace, "missed-taken"))
	create(t, ownerOf(namespace, "missed-owned"))
	create(t, ownerOf(namespace, "missed-taken"))
	owned, scaled := hasObjects(t, namespace, "missed-owned", "", "")
	testkit.Eventually(t, soon, func() string {
		return ownerSays(t, namespace, "missed-taken", v1beta1.ConditionStalled, v1beta1.ReasonNotControlled)
	})
	// A policy whose scaler has no Deployment any longer.
	create(t, testkit.Deployment(fleet, "missed-kept"))
	create(t, testkit.Deployment(fleet, "missed-fleet"))
	create(t, policyOf(fleet, "all"))
	hasScalers(t, "creating a policy", fleet, "missed-fleet by all Recommend, missed-kept by all Recommend")

	broken.begin(t)
	for _, object := range []client.Object{
		testkit.Deployment(namespace, "missed-web"), testkit.Scaler(namespace, "missed-first", ""), testkit.Deployment(namespace, "missed-taken"),
		testkit.Deployment(namespace, "missed-owned"), testkit.Scaler(namespace, "missed-owned", ""), testkit.Deployment(fleet, "missed-fleet"),
	} {
		remove(t, object)
		isForgotten(t, object)
	}
	broken.end()

	sees(t, namespace, "missed-web", absent)
	sees(t, namespace, "second", present)
	hasObjects(t, namespace, "missed-owned", owned, scaled)
	hasObjects(t, namespace, "missed-taken", "", "")
	hasScalers(t, "the outage", fleet, "missed-kept by all Recommend")
	broken.check(t, "/namespaces/"+fleet+"/verticalscalers") // The policy itself has deleted one there.
}

// isForgotten waits until the cache of the API server does not have an object: a list is read from there, and might otherwise be
// older than the deletion.
func isForgotten(t *testing.T, object client.Object) {
	t.Helper()
	testkit.Eventually(t, soon, func() string {
		var list client.ObjectList = &appsv1.DeploymentList{}
		if _, ok := object.(*v1beta1.VerticalScaler); ok {
			list = &v1beta1.VerticalScalerList{}
		}
		if err := env.Client.List(t.Context(), list, &client.ListOptions{
			Namespace: object.GetNamespace(), Raw: &metav1.ListOptions{ResourceVersion: "0"},
		}); err != nil {
			return err.Error()
		}
		found := ""
		_ = meta.EachListItem(list, func(item runtime.Object) error {
			if item.(client.Object).GetName() == object.GetName() {
				found = object.GetName() + " is still there"
			}
			return nil
		})
		return found
	})
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

func ownerSays(t *testing.T, namespace, name, kind, reason string) string {
	t.Helper()
	var owner v1beta1.ScaledDeployment
	if err := env.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, &owner); err != nil {
		t.Fatal(err)
	}
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

// outage breaks the watches of an operator.
type outage struct {
	mu       sync.Mutex
	open     map[*watched]bool
	ended    chan struct{}  // closed while the watches work
	outdated map[string]int // how many informers may know only what was before the outage, by path
	cut      int
	leaked   []string // the paths on which deletions were sent as events
}

// breakable makes the watches of the operators that start from now on breakable.
func breakable(t *testing.T) *outage {
	t.Helper()
	o := &outage{open: map[*watched]bool{}, ended: make(chan struct{}), outdated: map[string]int{}}
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
	for w := range o.open {
		o.outdated[w.path]++
		o.cut++
		_ = w.ReadCloser.Close()
	}
	if o.cut < 5 {
		t.Fatalf("only %d watches are open", o.cut)
	}
}

// end lets watches work again. They begin with a list.
func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.ended)
}

// check fails if the operator was told about a deletion by an event, except on a path with that end.
func (o *outage) check(t *testing.T, except string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, path := range o.leaked {
		if !strings.HasSuffix(path, except) {
			t.Errorf("%s: a deletion was sent as an event", path)
		}
	}
	t.Logf("%d watches were broken", o.cut)
}

type breaking struct {
	*outage

	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b breaking) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Query().Get("watch") == "" {
		return b.next.RoundTrip(request)
	}
	b.mu.Lock()
	ended := b.ended
	b.mu.Unlock()
	select {
	case <-request.Context().Done():
		return nil, request.Context().Err()
	case <-ended:
	}
	if b.mustListFirst(request) {
		return expired(request), nil
	}
	response, err := b.next.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusOK {
		response.Body = b.watch(request.URL.Path, response.Body)
	}
	return response, err
}

// mustListFirst reports whether an informer may ask to go on where it was before the outage.
func (b breaking) mustListFirst(request *http.Request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.outdated[request.URL.Path] == 0 || request.URL.Query().Get("sendInitialEvents") == "true" {
		return false
	}
	b.outdated[request.URL.Path]--
	return true
}

// expired is the answer of an API server that no longer knows what was at that time.
func expired(request *http.Request) *http.Response {
	text := `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old resource version","reason":"Expired","code":410}`
	return &http.Response{
		Status: "410 Gone", StatusCode: http.StatusGone, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: request,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)),
	}
}

func (o *outage) watch(path string, body io.ReadCloser) io.ReadCloser {
	w := &watched{body, o, path}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open[w] = true
	return w
}

// watched is the body of a watch.
type watched struct {
	io.ReadCloser

	outage *outage
	path   string
}

// Read implements io.Reader.
func (w *watched) Read(into []byte) (int, error) {
	n, err := w.ReadCloser.Read(into)
	if read := into[:n]; bytes.Contains(read, []byte("DELETED")) && bytes.Contains(read, []byte("missed-")) {
		w.outage.mu.Lock()
		defer w.outage.mu.Unlock()
		if !slices.Contains(w.outage.leaked, w.path) {
			w.outage.leaked = append(w.outage.leaked, w.path)
		}
	}
	return n, err
}

// Close implements io.Closer.
func (w *watched) Close() error {
	w.outage.mu.Lock()
	delete(w.outage.open, w)
	w.outage.mu.Unlock()
	return w.ReadCloser.Close()
}

// says waits until a scaler is Ready, or not, and kubectl get shows the reason for it.
func says(t *testing.T, namespace, name, ready, reason string) {
	t.Helper()
	testkit.Eventually(t, soon, func() string {
		c := meta.FindStatusCondition(scaler(t, namespace, name).Status.Conditions, "Ready")
		if got := inShort(t, namespace, name); c == nil || string(c.Status) != ready || got != reason {
			return fmt.Sprintf("scaler %s is %q, with %+v; want %s", name, got, c, reason)
		}
		return ""
	})
}

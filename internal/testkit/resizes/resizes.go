// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resizes checks that a resize changes only the requested fields.
package resizes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/cmd/operator/app"
)

// Unrequested describes changes of a resized pod that the patch does not request; "" for none. The API server may add some:
// LimitRanger sets defaults.
func Unrequested(before *corev1.Pod, patch []byte, after *corev1.Pod) string {
	was, err := json.Marshal(before)
	if err != nil {
		return err.Error()
	}
	is, err := strategicpatch.StrategicMergePatch(was, patch, corev1.Pod{})
	if err != nil {
		return err.Error()
	}
	requested := &corev1.Pod{}
	if err := json.Unmarshal(is, requested); err != nil {
		return err.Error()
	}
	if apiequality.Semantic.DeepEqual(requested.Spec, after.Spec) {
		return ""
	}
	return fmt.Sprintf("a resize of pod %s has changed more than was requested (-) (+):\n%s", after.Name, cmp.Diff(requested.Spec, after.Spec))
}

var (
	mu    sync.Mutex
	wrong error // the violations so far
)

// Err joins the violations of all operators of this process.
func Err() error {
	mu.Lock()
	defer mu.Unlock()
	return wrong
}

// Check checks all resizes of an operator on a real API server with a configuration, which it returns.
func Check(c *rest.Config, pods client.Reader) *rest.Config {
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(request *http.Request) (*http.Response, error) { return send(request, pods, next) })
	})
	return c
}

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func send(request *http.Request, pods client.Reader, next http.RoundTripper) (*http.Response, error) {
	path := strings.Split(request.URL.Path, "/") // /api/v1/namespaces/shop/pods/web-1/resize
	if request.Method != http.MethodPatch || len(path) != 8 || path[7] != "resize" {
		return next.RoundTrip(request)
	}
	patch, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	request = request.Clone(request.Context())
	request.Body = io.NopCloser(bytes.NewReader(patch))
	before, after := &corev1.Pod{}, &corev1.Pod{}
	_ = pods.Get(request.Context(), types.NamespacedName{Namespace: path[4], Name: path[6]}, before)
	response, err := next.RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err
	}
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(answer))
	var what string
	if _, _, err := serializer.NewCodecFactory(app.Scheme()).UniversalDeserializer().Decode(answer, nil, after); err != nil {
		what = err.Error()
	} else {
		what = Unrequested(before, patch, after)
	}
	if what != "" {
		mu.Lock()
		defer mu.Unlock()
		wrong = errors.Join(wrong, errors.New(what))
	}
	return response, nil
}

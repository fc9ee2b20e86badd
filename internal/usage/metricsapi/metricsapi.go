// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metricsapi reads usage from metrics.k8s.io/v1beta1, which metrics-server
// serves, or an adapter in its place.
//
// Responses are decoded once, while they arrive, and checked item by item. A quantity that is not a number costs
// only its container's sample; decoding into the API's own types would cost the whole list. Every returned sample is
// valid as defined by package usage. All other items are returned as refused, with a reason.
package metricsapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

const (
	apiPath = "/apis/metrics.k8s.io/v1beta1"

	// maxAge suits a source that samples at least once a minute: a pod may miss four
	// samples.
	maxAge = 5 * time.Minute

	// defaultTimeout applies to the whole response.
	defaultTimeout = 30 * time.Second
	// nodeTimeout applies to the response about one node.
	nodeTimeout = 5 * time.Second
)

// ErrUnavailable is wrapped by errors that mean that the API is not served: metrics-server is not
// installed or down.
var ErrUnavailable = errors.New("the metrics API is not available")

// Source reads the usage of a namespace's pods. Several namespaces may be read at once.
type Source struct {
	client rest.Interface
	// timeout applies to the whole response.
	timeout time.Duration
	// maxBytes is the largest accepted response.
	maxBytes int64
}

// New returns a source for a cluster.
func New(cfg *rest.Config) (*Source, error) {
	// The client decodes only Status, for errors.
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})

	cfg = rest.CopyConfig(cfg)
	cfg.ContentConfig = rest.ContentConfig{
		ContentType:          runtime.ContentTypeJSON,
		NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion(),
	}
	client, err := rest.UnversionedRESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("creating a client for the metrics API: %w", err)
	}
	return &Source{client: client, timeout: defaultTimeout, maxBytes: defaultMaxBytes}, nil
}

// List reads the usage of all pods of a namespace. An error means that nothing was read. It wraps
// ErrUnavailable if the API is not served.
func (s *Source) List(ctx context.Context, namespace string, now time.Time) ([]usage.Sample, []usage.Refused, error) {
	if namespace == "" { // the client would list all namespaces
		return nil, nil, fmt.Errorf("reading the usage of namespace %q: no namespace given", namespace)
	}
	answers, _, err := s.read(ctx, namespace, []string{namespace}, maxItems, now)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the usage of namespace %q: %w", namespace, err)
	}
	return answers[namespace].Samples, answers[namespace].Refused, nil
}

// ListAll reads the usage of all pods of the namespaces that are wanted, from one list of all namespaces. Each of
// them has an answer. pods is the number of pods in the list, of all namespaces. Errors are as of List.
func (s *Source) ListAll(ctx context.Context, namespaces []string, now time.Time) (answers map[string]usage.Answer, pods int, err error) {
	if answers, pods, err = s.read(ctx, metav1.NamespaceAll, namespaces, maxItemsOfAll, now); err != nil {
		return nil, 0, fmt.Errorf("reading the usage of all namespaces: %w", err)
	}
	return answers, pods, nil
}

// NodeCPU reads the CPU that a node uses, in millicores, and the time of that reading.
func (s *Source) NodeCPU(ctx context.Context, node string) (millis int64, at time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	raw, err := s.client.Get().AbsPath(apiPath).Resource("nodes").Name(node).Do(ctx).Raw()
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("reading the usage of node %s: %w", node, err)
	}
	var reading struct {
		Timestamp metav1.Time         `json:"timestamp"`
		Usage     corev1.ResourceList `json:"usage"`
	}
	if err := json.Unmarshal(raw, &reading); err != nil {
		return 0, time.Time{}, fmt.Errorf("decoding the usage of node %s: %w", node, err)
	}
	if millis, err = quantity.CPUMillis(*reading.Usage.Cpu()); err != nil {
		return 0, time.Time{}, fmt.Errorf("the usage of node %s: %w", node, err)
	}
	return millis, reading.Timestamp.Time, nil
}

// read gets the list of a namespace, or of all, and decodes it while it arrives.
func (s *Source) read(ctx context.Context, namespace string, wanted []string, mostItems int, now time.Time) (answers map[string]usage.Answer, pods int, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()

	// The deadline belongs to the context: a timeout of the request does not bound reading the
	// response.
	stream, err := s.client.Get().AbsPath(apiPath).Namespace(namespace).Resource("pods").Stream(ctx)
	if apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) {
		return nil, 0, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err != nil {
		return nil, 0, err
	}
	defer stream.Close() //nolint:errcheck // read only: no data can be lost
	d := newDecoder(&bounded{stream: stream, most: s.maxBytes}, wanted, now, mostItems)
	err = d.list()
	switch {
	case err != nil && ctx.Err() != nil: // which the connection may only report as closed
		return nil, 0, fmt.Errorf("%w: %w", ctx.Err(), err)
	case err != nil:
		return nil, 0, fmt.Errorf("decoding it: %w", err)
	}
	answers = make(map[string]usage.Answer, len(d.wanted))
	for name, a := range d.wanted {
		answers[name] = a.Answer
	}
	return answers, d.pods, nil
}

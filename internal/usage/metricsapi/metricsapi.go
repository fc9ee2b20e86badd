// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metricsapi reads usage from metrics.k8s.io/v1beta1, which metrics-server
// serves, or an adapter in its place.
//
// Responses are checked item by item. A quantity that is not a number costs only its container's
// sample; decoding into the API's own types would cost the whole list. Every returned sample is
// valid as defined by package usage. All other items are returned as refused, with a reason.
package metricsapi

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

const (
	apiPath = "/apis/metrics.k8s.io/v1beta1"

	// DefaultMaxAge suits a source that samples at least once a minute: a pod may miss four
	// samples.
	DefaultMaxAge = 5 * time.Minute

	// DefaultTimeout applies to the whole response.
	DefaultTimeout = 30 * time.Second
)

// ErrUnavailable is wrapped by errors that mean that the API is not served: metrics-server is not
// installed or down.
var ErrUnavailable = errors.New("the metrics API is not available")

// Getter starts GET requests. A rest.Interface is one.
type Getter interface {
	Get() *rest.Request
}

// Source reads the usage of a namespace's pods. Several namespaces may be read at once.
type Source struct {
	Client Getter
	// MaxAge is the largest accepted age of samples. 0 is DefaultMaxAge.
	MaxAge time.Duration
	// Timeout applies to the whole response. 0 is DefaultTimeout.
	Timeout time.Duration
	// MaxBytes is the largest accepted response. 0 is DefaultMaxBytes.
	MaxBytes int64

	large turn
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
	return &Source{Client: client, large: newTurn()}, nil
}

// List reads the usage of all pods of a namespace. An error means that nothing was read. It wraps
// ErrUnavailable if the API is not served.
func (s *Source) List(ctx context.Context, namespace string, now time.Time) ([]usage.Sample, []usage.Refused, error) {
	body, end, err := s.read(ctx, namespace)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the usage of namespace %q: %w", namespace, err)
	}
	defer end()
	samples, refused, err := decode(body, namespace, now, orDefault(s.MaxAge, DefaultMaxAge))
	if err != nil {
		return nil, nil, fmt.Errorf("decoding the usage of namespace %q: %w", namespace, err)
	}
	return samples, refused, nil
}

// read returns the response. The caller calls end when it has decoded it.
func (s *Source) read(ctx context.Context, namespace string) (body []byte, end func(), err error) {
	if namespace == "" {
		return nil, nil, errors.New("no namespace given") // the client would list all namespaces
	}
	ctx, cancel := context.WithTimeout(ctx, orDefault(s.Timeout, DefaultTimeout))
	defer cancel()

	// The deadline belongs to the context: a timeout of the request does not bound reading the
	// response.
	stream, err := s.Client.Get().AbsPath(apiPath).Namespace(namespace).Resource("pods").Stream(ctx)
	if apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) {
		return nil, nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = stream.Close() }() // read only: no data can be lost

	return readBounded(ctx, stream, orDefault(s.MaxBytes, DefaultMaxBytes), s.large)
}

func orDefault[T time.Duration | int64](value, byDefault T) T {
	if value == 0 {
		return byDefault
	}
	return value
}

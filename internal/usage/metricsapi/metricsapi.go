// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metricsapi reads usage from metrics.k8s.io/v1beta1, which metrics-server
// serves, or an adapter in its place.
//
// What it answers is not ours and is believed item by item: one quantity that is not
// a number costs its container's sample, not the list, which is what decoding into
// the API's own types would cost. Every sample returned is valid as package usage
// has it; everything else is returned as refused, with a reason.
package metricsapi

import (
	"context"
	"errors"
	"fmt"
	"io"
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

	// DefaultMaxAge suits a source that takes a sample each minute or quicker: a pod
	// may miss four of them.
	DefaultMaxAge = 5 * time.Minute

	// DefaultTimeout is for the whole answer.
	DefaultTimeout = 30 * time.Second

	// DefaultMaxBytes is some 200 times what metrics-server answers for 1,000 pods.
	DefaultMaxBytes = 64 << 20
)

// ErrUnavailable is wrapped by the errors that say that the API is not served, or
// not at present: nobody has installed metrics-server, or it is down.
var ErrUnavailable = errors.New("the metrics API is not available")

// Getter begins GET requests. A rest.Interface is one.
type Getter interface {
	Get() *rest.Request
}

// Source reads the usage of a namespace's pods. New makes one; a test may set the
// fields itself.
type Source struct {
	Client Getter
	// MaxAge is the age beyond which samples are refused. 0 is DefaultMaxAge.
	MaxAge time.Duration
	// Timeout is for the whole answer. 0 is DefaultTimeout.
	Timeout time.Duration
	// MaxBytes is the longest answer that is read. 0 is DefaultMaxBytes.
	MaxBytes int64
}

// New makes a source for a cluster.
func New(cfg *rest.Config) (*Source, error) {
	// Only Status is ever decoded by the client, for its errors.
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})

	cfg = rest.CopyConfig(cfg)
	cfg.ContentConfig = rest.ContentConfig{
		ContentType:          runtime.ContentTypeJSON,
		NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion(),
	}
	client, err := rest.UnversionedRESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client for the metrics API: %w", err)
	}
	return &Source{Client: client}, nil
}

// List reads the usage of all pods of a namespace. An error means that nothing was
// read; it wraps ErrUnavailable where the API is not served.
func (s *Source) List(ctx context.Context, namespace string, now time.Time) ([]usage.Sample, []usage.Refused, error) {
	body, err := s.read(ctx, namespace)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the usage of namespace %q: %w", namespace, err)
	}
	samples, refused, err := decode(body, namespace, now, orDefault(s.MaxAge, DefaultMaxAge))
	if err != nil {
		return nil, nil, fmt.Errorf("decoding the usage of namespace %q: %w", namespace, err)
	}
	return samples, refused, nil
}

func (s *Source) read(ctx context.Context, namespace string) (body []byte, err error) {
	if namespace == "" {
		return nil, errors.New("no namespace given") // the client would ask for all of them
	}
	ctx, cancel := context.WithTimeout(ctx, orDefault(s.Timeout, DefaultTimeout))
	defer cancel()

	// The deadline is the context's: a timeout of the request would leave reading
	// the answer unbounded.
	stream, err := s.Client.Get().AbsPath(apiPath).Namespace(namespace).Resource("pods").Stream(ctx)
	if apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }() // it was only read: there is nothing to lose

	most := orDefault(s.MaxBytes, DefaultMaxBytes)
	body, err = io.ReadAll(io.LimitReader(stream, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(body)) > most {
		return nil, fmt.Errorf("the answer is longer than %d bytes", most)
	}
	return body, nil
}

func orDefault[T time.Duration | int64](value, byDefault T) T {
	if value == 0 {
		return byDefault
	}
	return value
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
)

// DefaultOperatorNamespace is where dist/install.yaml installs the operator.
const DefaultOperatorNamespace = "verticalscaler-system"

// Operators reads the leases of the operators. Without the right to list leases, it reads those in the operator's
// namespace and in the given one. It fails if it can read none.
func (c *Cluster) Operators(ctx context.Context, reader client.Reader, namespace string) (explain.Operators, error) {
	operatorNamespace := c.operatorNamespace
	var leases coordinationv1.LeaseList
	if operatorNamespace == "" {
		err := reader.List(ctx, &leases, client.MatchingFields{"metadata.name": v1beta1.LeaseName})
		if err == nil {
			return explain.OperatorsOf(leases.Items), nil
		}
		if !apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("listing leases: %w", err)
		}
	}
	candidates := []string{operatorNamespace}
	if operatorNamespace == "" {
		candidates = []string{DefaultOperatorNamespace, namespace}
	}
	var reasons []string
	for _, candidate := range slices.Compact(candidates) {
		if candidate == "" { // all namespaces
			continue
		}
		var lease coordinationv1.Lease
		switch err := reader.Get(ctx, types.NamespacedName{Namespace: candidate, Name: v1beta1.LeaseName}, &lease); {
		case err == nil:
			leases.Items = append(leases.Items, lease)
		case !apierrors.IsNotFound(err):
			reasons = append(reasons, fmt.Sprintf("reading the lease in namespace %s: %v", candidate, err))
		}
	}
	if len(leases.Items) == 0 && len(reasons) > 0 {
		return nil, errors.New(strings.Join(reasons, "; "))
	}
	return explain.OperatorsOf(leases.Items), nil
}

// OperatorsOr is Operators. An error is added to what is missing.
func (c *Cluster) OperatorsOr(ctx context.Context, reader client.Reader, namespace string, missing *[]string) explain.Operators {
	operators, err := c.Operators(ctx, reader, namespace)
	if err != nil {
		*missing = append(*missing, fmt.Sprintf("Whether the operator runs: %v", err))
	}
	return operators
}

// OperatorNamespace is the namespace of --operator-namespace, or the default.
func (c *Cluster) OperatorNamespace() string {
	return cmp.Or(c.operatorNamespace, DefaultOperatorNamespace)
}

// serverClock tells the time of the API server, by the Date of its responses: the operator's clock is
// closer to it than that of the user's machine. The zero value is the local time.
type serverClock struct{ offset atomic.Int64 }

// Now is the server's time at a local time.
func (c *serverClock) Now(local time.Time) time.Time {
	return local.Add(time.Duration(c.offset.Load()))
}

// wrap notes the time of each response.
func (c *serverClock) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err == nil {
			c.note(response.Header.Get("Date"), clock.RealClock{}.Now())
		}
		return response, err
	})
}

// note notes the time of a response. Dates are in whole seconds, so that smaller offsets mean
// nothing.
func (c *serverClock) note(date string, local time.Time) {
	if at, err := http.ParseTime(date); err == nil {
		offset := at.Sub(local)
		if offset.Abs() < 2*time.Second {
			offset = 0
		}
		c.offset.Store(int64(offset))
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// BenchmarkSlowAPIServer measures how long 100 new scalers wait for their first recommendation if each write takes 0.1 to 1.9
// seconds, with the default number of workers as a ratio to 8 workers.
//
//	make test-integration PKG=./test/integration ARGS='-run ^$ -bench SlowAPIServer -benchtime 1x'
func BenchmarkSlowAPIServer(b *testing.B) {
	standard := operatorconfig.Default().Workers.VerticalScalers
	for b.Loop() {
		eight, ours := firstRecommendations(b, 8), firstRecommendations(b, standard)
		b.ReportMetric(eight.Seconds(), "s-with-8")
		b.ReportMetric(ours.Seconds()/eight.Seconds(), fmt.Sprintf("ratio-with-%d", standard))
	}
}

func firstRecommendations(b *testing.B, workers int) time.Duration {
	b.Helper()
	const scalers = 100
	namespace, use := env.Namespace(b), testkit.NewUsage()
	for i := range scalers {
		name := fmt.Sprintf("d-%03d", i)
		if err := scaled(b.Context(), namespace, name, v1beta1.UpdateModeInPlace); err != nil {
			b.Fatal(err)
		}
		use.Set(namespace, podOf(name), "app", 300, 240<<20)
	}
	c := testkit.OperatorConfig()
	c.Collection.Interval.Duration, c.Workers.VerticalScalers = time.Second, workers
	wrapped := env.Config.WrapTransport
	defer func() { env.Config.WrapTransport = wrapped }()
	env.Config.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if request.Method != http.MethodGet {
				time.Sleep(100*time.Millisecond + rand.N(1800*time.Millisecond)) // the latency that is measured against
			}
			return next.RoundTrip(request)
		})
	}
	began := time.Now()
	operator := env.StartOperator(b, c, use, namespace)
	defer operator.Stop(b)
	testkit.Eventually(b, 10*time.Minute, func() string {
		var list v1beta1.VerticalScalerList
		if err := env.Client.List(b.Context(), &list, client.InNamespace(namespace)); err != nil {
			return err.Error()
		}
		waiting := 0
		for _, s := range list.Items {
			if s.Status.Recommendation == nil {
				waiting++
			}
		}
		if waiting > 0 {
			return fmt.Sprintf("%d of %d scalers have no recommendation", waiting, scalers)
		}
		return ""
	})
	return time.Since(began)
}

type roundTripper func(request *http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

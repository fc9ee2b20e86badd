// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

func TestOneListIsReadWhereThatIsFewerBytes(t *testing.T) {
	for name, tc := range map[string]struct {
		namespaces, pods, all int
		want                  bool
	}{
		"a namespace":                                     {1, 3, 3, false},
		"a few namespaces, without other pods":            {15, 45, 45, false},
		"fifty namespaces with most of the pods":          {50, 15_000, 15_200, true},
		"fifty namespaces, and 20,000 pods of others":     {50, 15_000, 35_000, false},
		"5,000 namespaces with a scaler each":             {5000, 15_000, 35_000, true},
		"5,000 namespaces in a cluster of 150,000 pods":   {5000, 15_000, 150_000, false},
		"a shard with a third of the namespaces and pods": {1700, 5000, 15_000, false},
	} {
		if got := isAllFewer(tc.namespaces, tc.pods, tc.all); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

// clusterListFixture is a collectorFixture whose source can read all namespaces at once.
type clusterListFixture struct {
	*collectorFixture

	pods  int // in all namespaces
	fails error
}

// newClusterListFixture has one scaler with one pod in each of the fewest namespaces.
func newClusterListFixture(t *testing.T) *clusterListFixture {
	t.Helper()
	w := &clusterListFixture{collectorFixture: newCollectorFixture(t), pods: fewestNamespaces + 5}
	w.collector.Source = w
	w.collector.CountPods = func(context.Context) (int, error) { return w.pods, nil }
	for i := range fewestNamespaces {
		namespace := fmt.Sprintf("shop-%d", i)
		w.deployment(namespace, "web", "web-1")
		w.scaler(namespace, "web", "web")
		w.reports(namespace, "web-1", "app", 200, 400*mebi)
	}
	return w
}

// ListAll implements SourceOfAll.
func (w *clusterListFixture) ListAll(ctx context.Context, namespaces []string, now time.Time) (map[string]usage.Answer, int, error) {
	w.mu.Lock()
	w.asked = append(w.asked, "all")
	w.mu.Unlock()
	if w.fails != nil {
		return nil, 0, w.fails
	}
	answers := map[string]usage.Answer{}
	for _, namespace := range namespaces {
		samples, refused, err := w.List(ctx, namespace, now)
		if err != nil {
			return nil, 0, err
		}
		answers[namespace] = usage.Answer{Samples: samples, Refused: refused}
	}
	w.mu.Lock()
	w.asked = w.asked[:1]
	w.mu.Unlock()
	return answers, w.pods, nil
}

// hasAsked makes a round and checks how it has read.
func (w *clusterListFixture) hasAsked(want string) {
	w.t.Helper()
	w.round()
	got := fmt.Sprintf("%d lists", len(w.asked))
	if len(w.asked) > 0 && w.asked[0] == "all" {
		got = fmt.Sprintf("all, then %d lists", len(w.asked)-1)
	}
	if got != want {
		w.t.Errorf("asked for %s, want %s", got, want)
	}
}

func TestAllNamespacesAreReadAtOnce(t *testing.T) {
	w := newClusterListFixture(t)
	w.hasAsked("16 lists") // the number of their pods is still unknown
	w.reports("shop-7", "web-1", "app", 300, 500*mebi)
	w.hasAsked("all, then 0 lists")
	if got := w.history("shop-7", "web")["app"]; got != (seen{Peak: 500 * mebi, Samples: 2}) {
		t.Errorf("the history has seen %+v", got)
	}

	w.pods = 10_000 // of others
	w.hasAsked("all, then 0 lists")
	w.clock.Step(reviewPeriod)
	w.hasAsked("all, then 0 lists")
	w.hasAsked("16 lists")
}

// A rejected list of all namespaces costs no usage if each one can be read, and is not retried in each round.
func TestAListOfAllThatIsRefused(t *testing.T) {
	for name, fails := range map[string]error{
		"forbidden": apierrors.NewForbidden(schema.GroupResource{Group: "metrics.k8s.io", Resource: "pods"}, "", errors.New("no cluster role")),
		"too large": fmt.Errorf("reading the usage of all namespaces: %w", usage.ErrTooLarge),
	} {
		t.Run(name, func(t *testing.T) {
			w := newClusterListFixture(t)
			w.hasAsked("16 lists")
			w.fails = fails
			w.hasAsked("all, then 16 lists")
			w.hasAsked("16 lists")
			w.fails = nil
			w.clock.Step(reviewPeriod)
			w.hasAsked("16 lists")
			w.hasAsked("all, then 0 lists")
			w.expectWoken() // nothing was missing
		})
	}
}

// Without an answer, there is an outage in all namespaces, and the next rounds ask about each.
func TestAListOfAllThatFails(t *testing.T) {
	w := newClusterListFixture(t)
	w.hasAsked("16 lists")
	w.fails = errors.New("EOF")
	w.hasAsked("all, then 0 lists")
	w.expectSilent("shop-3", "web", true)
	w.hasAsked("16 lists")
}

func TestAllNamespacesAreNotReadWithoutTheRight(t *testing.T) {
	w := newClusterListFixture(t)
	w.collector.CountPods = nil // the operator watches some namespaces only
	w.hasAsked("16 lists")
	w.hasAsked("16 lists")

	w = newClusterListFixture(t)
	w.collector.CountPods = func(context.Context) (int, error) { return 0, errors.New("forbidden") }
	w.hasAsked("16 lists")
	w.hasAsked("16 lists")
}

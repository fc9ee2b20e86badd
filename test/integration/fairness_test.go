// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/transport"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// One tenant has hundreds of scalers that never come to rest: each write of their status takes a while,
// and is a conflict. All workers are busy with them, and hundreds wait. A container of another tenant is
// OOM-killed, and its pod is resized long before all of the others had their turn.
func TestAStormInOneNamespaceDelaysNoOOMKillInAnother(t *testing.T) {
	killInAStorm(t, env.Namespace(t), env.Namespace(t))
}

func killInAStorm(t *testing.T, bank, storm string) {
	t.Helper()
	const storming = 600
	traffic := &traffic{holds: "/namespaces/" + storm + "/verticalscalers/" + restless, awaits: "/namespaces/" + bank + "/pods/" + podOf("web") + "/resize"}
	wrapped := env.Config.WrapTransport
	env.Config.WrapTransport = transport.Wrappers(wrapped, func(next http.RoundTripper) http.RoundTripper {
		return slowed{traffic, next}
	})
	t.Cleanup(func() { env.Config.WrapTransport = wrapped })
	if err := scaled(t.Context(), bank, "web", v1beta1.UpdateModeInPlace); err != nil {
		t.Fatal(err)
	}
	env.StartOperator(t, testkit.OperatorConfig(), testkit.NewUsage(), slices.Compact([]string{bank, storm})...)
	testkit.Eventually(t, busy, func() string {
		if reasons := appliedReasons(t, bank); reasons[v1beta1.ReasonNoRecommendation] != 1 {
			return fmt.Sprintf("scalers by reason: %v", reasons)
		}
		return ""
	})
	testkit.InParallel(t, storming, func(i int) error {
		return env.Client.Create(t.Context(), testkit.Scaler(storm, restless+nameOf(i), restless+nameOf(i)))
	})
	testkit.Eventually(t, busy, func() string {
		if n, _ := traffic.counts(); n < 50 {
			return fmt.Sprintf("the storm has not begun: %d writes", n)
		}
		return ""
	})

	var pod corev1.Pod
	if err := env.Client.Get(t.Context(), types.NamespacedName{Namespace: bank, Name: podOf("web")}, &pod); err != nil {
		t.Fatal(err)
	}
	status, now := &pod.Status.ContainerStatuses[0], metav1.Now()
	status.RestartCount = 1
	status.State.Running.StartedAt = now
	status.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137, FinishedAt: now}
	if err := env.Client.Status().Update(t.Context(), &pod); err != nil {
		t.Fatal(err)
	}
	before, _ := traffic.counts()
	testkit.Eventually(t, busy, func() string {
		during, answered := traffic.counts()
		switch {
		case answered:
			t.Logf("%d reconciles of the storm ended before the kill was answered", during-before)
			return ""
		case during-before > storming/2: // without priority, the kill waits for all of them
			t.Fatalf("the kill is not answered after %d reconciles of the storm, which has %d scalers", during-before, storming)
		}
		return "the pod is not resized"
	})
}

// restless begins the names of the scalers that never come to rest.
const restless = "storm-"

// traffic counts what an operator sends to the API server.
type traffic struct {
	holds  string // a part of the path of the writes that are held, and refused
	awaits string // a part of the path of the answer

	mu       sync.Mutex
	refused  int
	answered bool
}

func (c *traffic) counts() (refused int, answered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused, c.answered
}

// slowed is a connection to the API server that is slow for one namespace.
type slowed struct {
	*traffic

	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c slowed) RoundTrip(request *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.answered = c.answered || request.Method == http.MethodPatch && strings.Contains(request.URL.Path, c.awaits)
	c.mu.Unlock()
	if request.Method != http.MethodPut || !strings.Contains(request.URL.Path, c.holds) {
		return c.next.RoundTrip(request)
	}
	select {
	case <-request.Context().Done():
		return nil, request.Context().Err()
	case <-time.After(250 * time.Millisecond): // the others wait in the queue for as long
	}
	c.mu.Lock()
	c.refused++
	c.mu.Unlock()
	conflict := apierrors.NewConflict(schema.GroupResource{Group: v1beta1.GroupVersion.Group, Resource: "verticalscalers"}, "", errors.New("the storm"))
	body, err := json.Marshal(conflict.ErrStatus)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusConflict, Header: http.Header{"Content-Type": {"application/json"}}, Request: request,
		Body: io.NopCloser(bytes.NewReader(body)),
	}, nil
}

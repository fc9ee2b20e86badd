// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/objects"
)

func known(tb testing.TB) (*runtime.Scheme, meta.RESTMapper) {
	tb.Helper()
	scheme := objects.Scheme()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	mapper.Add(v1beta1.GroupVersion.WithKind("VerticalScaler"), meta.RESTScopeNamespace)
	return scheme, mapper
}

// A server serves the lists and watches of a manager from memory. Informers, handlers, queue and
// controller are the real ones.
type server struct {
	scalers, deployments *cachetesting.FakeControllerSource

	mu   sync.Mutex
	seen map[string]string // of each scaler's Deployment, by its last reconcile
}

type memory struct {
	*cachetesting.FakeControllerSource
}

func (memory) IsWatchListSemanticsUnSupported() bool { return true }

func start(tb testing.TB) *server {
	tb.Helper()
	s := &server{scalers: cachetesting.NewFakeControllerSource(), deployments: cachetesting.NewFakeControllerSource(), seen: map[string]string{}}
	scheme, mapper := known(tb)
	ctrl.SetLogger(logr.Discard())
	mgr, err := ctrl.NewManager(&rest.Config{}, ctrl.Options{
		Scheme:         scheme,
		Metrics:        metricsserver.Options{BindAddress: "0"},
		Controller:     config.Controller{SkipNameValidation: ptr.To(true)},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
		Cache:          cache.Options{NewInformer: s.informer},
	})
	must.Succeed(tb, err)
	ctx, cancel := context.WithCancel(tb.Context())
	must.Succeed(tb, (&Reconciler{mgr.GetClient(), s.act}).SetupWithManager(ctx, mgr))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Error(err)
		}
		s.scalers.Broadcaster.Shutdown()
		s.deployments.Broadcaster.Shutdown()
	})
	<-mgr.Elected() // The controller has started.
	return s
}

func (s *server) informer(_ toolscache.ListerWatcher, kind runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	from := s.deployments
	if _, ok := kind.(*v1beta1.VerticalScaler); ok {
		from = s.scalers
	}
	return toolscache.NewSharedIndexInformer(memory{from}, kind, resync, indexers)
}

func (s *server) act(_ context.Context, scaler *v1beta1.VerticalScaler, deployment *appsv1.Deployment) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[scaler.Name] = version(deployment)
	return nil
}

// version describes the Deployment that a reconcile has read.
func version(d *appsv1.Deployment) string {
	if d == nil {
		return "absent"
	}
	return fmt.Sprintf("%s, generation %d", d.UID, d.Generation)
}

// sees fails unless the scaler has seen this version of its Deployment once all reconciles have ended.
func (s *server) sees(t *testing.T, scaler, want string) {
	t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := s.seen[scaler]; got != want {
		t.Errorf("scaler %s has seen %q, not %q", scaler, got, want)
	}
}

func aScaler(name, deployment string) *v1beta1.VerticalScaler {
	s := objects.Scaler("shop", name, deployment)
	s.UID, s.Generation = types.UID(name), 1
	return s
}

func aDeployment(name, uid string, generation int64) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uid), Generation: generation}}
}

func TestTheExampleFollowsTheDeployment(t *testing.T) { synctest.Test(t, testTheExample) }

func testTheExample(t *testing.T) {
	s := start(t)
	s.scalers.Add(aScaler("a", "web"))
	s.sees(t, "a", "absent")
	s.deployments.Add(aDeployment("web", "1", 1))
	s.sees(t, "a", "1, generation 1")
	s.deployments.Modify(aDeployment("web", "1", 2))
	s.sees(t, "a", "1, generation 2")

	s.scalers.Add(aScaler("b", "web")) // another one of the same Deployment
	s.deployments.Delete(aDeployment("web", "1", 2))
	s.sees(t, "a", "absent")
	s.sees(t, "b", "absent")
	s.deployments.Add(aDeployment("web", "2", 1))
	s.sees(t, "a", "2, generation 1")
	s.sees(t, "b", "2, generation 1")

	retargeted := aScaler("b", "api")
	retargeted.Generation = 2
	s.scalers.Modify(retargeted)
	s.sees(t, "b", "absent")
	s.deployments.Add(aDeployment("api", "3", 1))
	s.sees(t, "b", "3, generation 1")
	s.sees(t, "a", "2, generation 1")
}

// read is the page about the example.
func read(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "watch-a-deployment.md"))
	must.Succeed(t, err)
	return string(page)
}

// The page has the code that these tests run.
func TestThePageShowsTheExample(t *testing.T) {
	code, err := os.ReadFile("mapping.go")
	must.Succeed(t, err)
	_, example, _ := strings.Cut(string(code), "// The example begins.\n\n")
	if _, shown, _ := strings.Cut(read(t), "```go\n"); !strings.HasPrefix(shown, example+"```\n") {
		t.Errorf("docs/watch-a-deployment.md does not show the example of mapping.go:\n%s", example)
	}
	lines := 0
	for line := range strings.Lines(example) {
		if text := strings.TrimSpace(line); text != "" && !strings.HasPrefix(text, "//") {
			lines++
		}
	}
	if lines > 45 {
		t.Errorf("the example has %d lines", lines)
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/verticalscaler/verticalscaler-operator/cmd/operator/app"
	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/resizes"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/collect"
)

// never is longer than any test runs.
const never = 24 * time.Hour

// setLogger silences the operators' log, unless VERTICALSCALER_TEST_LOG is set.
var setLogger sync.Once

// Operator is a running operator.
type Operator struct {
	// Agent is the user agent of its requests in the audit log.
	Agent string
	stop  func() error

	running    bool
	ended      chan error
	collector  *collect.Collector
	cache      client.Reader
	live       client.Reader
	namespaces []string
}

// StartOperator runs the operator as main does, except for the usage source. It stops with
// the test, or before.
func (e *Env) StartOperator(t testing.TB, c operatorconfig.Operator, source collect.Source, namespaces ...string) *Operator {
	t.Helper()
	o, err := e.Operate(t.Name(), c, source, namespaces...)
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, o.stop()) })
	return o
}

// Operate starts an operator as StartOperator does, for a TestMain: it runs until the
// process ends.
func (e *Env) Operate(name string, c operatorconfig.Operator, source collect.Source, namespaces ...string) (*Operator, error) {
	setLogger.Do(func() {
		logger := logr.Discard()
		if os.Getenv("VERTICALSCALER_TEST_LOG") != "" {
			logger = zap.New(zap.UseDevMode(true))
		}
		ctrl.SetLogger(logger)
	})
	o := &Operator{Agent: "operator-of-" + name}
	restConfig := rest.CopyConfig(e.Config)
	restConfig.UserAgent = o.Agent
	if e.actsAs.UserName != "" {
		restConfig.Impersonate = e.actsAs
	}
	asking := rest.CopyConfig(restConfig)
	asking.UserAgent, asking.QPS = "testkit", -1 // A review is not a write of the operator.
	scope, err := app.FindScope(context.Background(), asking, c, namespaces...)
	if err != nil {
		return nil, fmt.Errorf("finding the rights of the operator: %w", err)
	}
	mgr, err := app.NewManager(resizes.Check(restConfig, e.Client), c, scope, nil)
	if err != nil {
		return nil, fmt.Errorf("creating the manager: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if o.collector, err = app.Setup(ctx, mgr, c, app.Options{Source: source}, scope); err != nil {
		cancel()
		return nil, fmt.Errorf("setting the operator up: %w", err)
	}
	o.cache, o.live, o.namespaces = mgr.GetCache(), e.Client, namespaces
	o.ended = make(chan error, 1)
	go func() { o.ended <- mgr.Start(ctx) }()
	o.running = true
	queues.began()
	o.stop = func() error {
		if !o.running {
			return nil
		}
		cancel()
		if err := o.AwaitEnd(); err != nil {
			return fmt.Errorf("running the operator: %w", err)
		}
		return nil
	}
	return o, nil
}

// Stop stops the operator, as SIGTERM does.
func (o *Operator) Stop(t testing.TB) {
	t.Helper()
	must.Succeed(t, o.stop())
}

// AwaitEnd waits until the operator has ended.
func (o *Operator) AwaitEnd() error {
	err := <-o.ended
	o.running = false
	queues.ended()
	return err
}

// OperatorConfig is the default configuration, without the parts that several operators in one
// process cannot share, and with a resync too rare for tests to depend on it.
func OperatorConfig() operatorconfig.Operator {
	c := operatorconfig.Default()
	c.Metrics.BindAddress, c.Health.BindAddress = "0", "0"
	c.LeaderElection.Enabled = false
	c.ResyncPeriod.Duration = never
	c.Collection.Interval.Duration = never
	// Only tests of the budget wait for it.
	c.Budget.ChangesPerMinute, c.Budget.ChangesPerMinutePerNamespace = 100000, 100000
	return c
}

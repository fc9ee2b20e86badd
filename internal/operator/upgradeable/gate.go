// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upgradeable asks OLM not to replace the operator while a step is in progress.
//
// A step is a resize of pods or a rollout. During one, the condition Upgradeable of the operator's
// OperatorCondition is False, and OLM keeps the next version waiting. This is a courtesy to users
// who follow a step, and not needed for safety: the next operator continues a step from the objects
// on the API server. So a block is short. An operator that is killed during a step leaves the
// condition False until the next operator starts.
//
// To upgrade at once, a user sets the condition in spec.overrides.
package upgradeable

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"
	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// ConditionNameEnv is the environment variable in which OLM passes the name of the
// operator's OperatorCondition. Without OLM, and with OLM v1, it is unset.
const ConditionNameEnv = "OPERATOR_CONDITION_NAME"

// The reasons of the condition Upgradeable.
const (
	ReasonStepInProgress   = "StepInProgress"
	ReasonNoStepInProgress = "NoStepInProgress"
	ReasonTimeLimitReached = "TimeLimitReached"
	ReasonOperatorStopped  = "OperatorStopped"
)

// messages has the message for each reason.
var messages = map[string]string{
	ReasonStepInProgress:   "Pods are being resized or rolled out: see the scalers with the condition Changing=True",
	ReasonNoStepInProgress: "No pods are being resized or rolled out",
	ReasonTimeLimitReached: "Pods are being resized or rolled out, but upgrades have waited for 30 minutes",
	ReasonOperatorStopped:  "The operator has stopped; the next one continues the step",
}

const (
	// interval is the time between two looks at the scalers.
	interval = 5 * time.Second
	// retryInterval is the time after which a failed request is tried again.
	retryInterval = time.Minute
	// stopTimeout bounds the last request. It is shorter than the time for which a lost
	// lease keeps the next leader waiting.
	stopTimeout = 3 * time.Second

	// stepLimit is the time for which one step blocks upgrades. A resize can be deferred for hours.
	stepLimit = 10 * time.Minute
	// blockLimit is the time for which all steps together block upgrades. A large cluster may
	// always have one in progress.
	blockLimit = 30 * time.Minute
	// openTime is the time for which upgrades are then allowed. OLM looks every five minutes.
	openTime = 10 * time.Minute
	// shortOpening is an opening that OLM may miss. It does not restart blockLimit.
	shortOpening = time.Minute
)

// Setup adds the gate to the manager, if OLM provides an OperatorCondition. The namespace
// is the operator's own.
func Setup(mgr ctrl.Manager, namespace string) error {
	condition, err := Find(mgr, namespace)
	if err != nil || condition == nil {
		return err
	}
	return mgr.Add(&Gate{Scalers: mgr.GetCache(), Condition: condition, Clock: clock.RealClock{}})
}

// OperatorCondition is the object in which the operator reports to OLM and its users.
type OperatorCondition struct {
	Client client.Client
	Key    types.NamespacedName
}

// Find returns the OperatorCondition that OLM provides, or nil. The namespace is the operator's
// own.
func Find(mgr ctrl.Manager, namespace string) (*OperatorCondition, error) {
	key := types.NamespacedName{Namespace: namespace, Name: os.Getenv(ConditionNameEnv)}
	switch {
	case key.Name == "":
		mgr.GetLogger().V(1).Info("Upgrades are not delayed: OLM provides no OperatorCondition")
		return nil, nil
	case namespace == "":
		mgr.GetLogger().Info("Upgrades are not delayed: the operator's namespace is unknown", "operatorCondition", key.Name)
		return nil, nil
	}
	scheme := runtime.NewScheme()
	if err := operatorsv2.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering OperatorCondition: %w", err)
	}
	// OLM grants get, update and patch of the one object. A cache would list and watch.
	live, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("creating a client for the OperatorCondition: %w", err)
	}
	return &OperatorCondition{Client: live, Key: key}, nil
}

// Set sets the condition, unless it is up to date. OLM and administrators write to the same object.
func (o *OperatorCondition) Set(ctx context.Context, c metav1.Condition) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		var object operatorsv2.OperatorCondition
		if err := o.Client.Get(ctx, o.Key, &object); err != nil {
			return err
		}
		if !meta.SetStatusCondition(&object.Spec.Conditions, c) {
			return nil
		}
		return o.Client.Update(ctx, &object)
	})
	if err != nil {
		return fmt.Errorf("writing OperatorCondition %s: %w", o.Key, err)
	}
	return nil
}

// Gate keeps the condition Upgradeable up to date. It runs on the leader, and writes nothing while nothing
// changes.
type Gate struct {
	// Scalers reads all scalers, as of any recent time.
	Scalers client.Reader
	// Condition receives the reports of the gate.
	Condition *OperatorCondition
	Clock     clock.Clock

	state state
	// known is false until the condition has been read, and after a failed request.
	known bool
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (g *Gate) NeedLeaderElection() bool { return true }

// Start runs until the context ends. A failed request is tried again later and never
// stops the operator.
func (g *Gate) Start(ctx context.Context) error {
	logger := log.FromContext(ctx).WithName("upgradeable")
	for {
		pause := interval
		if err := g.update(ctx, logger); err != nil && ctx.Err() == nil {
			pause = retryInterval
			logger.Error(err, "Cannot tell OLM whether it may upgrade the operator", "retryAfter", pause.String())
		}
		timer := g.Clock.NewTimer(pause)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			g.release(ctx, logger)
			return nil
		}
	}
}

// update reads the scalers and writes the condition if it changes.
func (g *Gate) update(ctx context.Context, logger logr.Logger) error {
	var scalers v1beta1.VerticalScalerList
	// The API server answers version 0 from its memory.
	if err := g.Scalers.List(ctx, &scalers, client.UnsafeDisableDeepCopy, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}); err != nil {
		return fmt.Errorf("listing scalers: %w", err)
	}
	now := g.Clock.Now()
	if !g.known {
		var object operatorsv2.OperatorCondition
		if err := g.Condition.Client.Get(ctx, g.Condition.Key, &object); err != nil {
			return fmt.Errorf("reading OperatorCondition %s: %w", g.Condition.Key, err)
		}
		g.state, g.known = restore(meta.FindStatusCondition(object.Spec.Conditions, operatorsv2.Upgradeable), now), true
	}
	next := g.state.next(slices.ContainsFunc(scalers.Items, func(s v1beta1.VerticalScaler) bool { return blocks(s, now) }), now)
	if next.reason != g.state.reason {
		if err := g.write(ctx, next.reason); err != nil {
			g.known = false // the request may have arrived
			return err
		}
		logger.Info("Changed whether OLM may upgrade the operator", "upgradeable", !next.blocked(), "reason", next.reason)
	}
	g.state = next
	return nil
}

// write sets the condition.
func (g *Gate) write(ctx context.Context, reason string) error {
	c := metav1.Condition{Type: operatorsv2.Upgradeable, Status: metav1.ConditionTrue, Reason: reason, Message: messages[reason]}
	if reason == ReasonStepInProgress {
		c.Status = metav1.ConditionFalse
	}
	return g.Condition.Set(ctx, c)
}

// release allows upgrades when the operator stops: a stopped operator cannot.
func (g *Gate) release(ctx context.Context, logger logr.Logger) {
	if g.known && !g.state.blocked() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := g.write(ctx, ReasonOperatorStopped); err != nil {
		logger.Error(err, "Cannot allow upgrades; if one waits, override the condition Upgradeable")
	}
}

// blocks reports whether a step of the scaler is in progress and blocks upgrades.
func blocks(s v1beta1.VerticalScaler, now time.Time) bool {
	c := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionChanging)
	return c != nil && c.Status == metav1.ConditionTrue && now.Sub(c.LastTransitionTime.Time) < stepLimit
}

// state is the content of the condition, and the input of the next decision. Without a reason, the
// condition is absent, and OLM allows upgrades.
type state struct {
	reason string
	// blockStart is the start of the current or the last block.
	blockStart time.Time
	// openStart is the last time at which upgrades became allowed.
	openStart time.Time
}

func (s state) blocked() bool { return s.reason == ReasonStepInProgress }

// restore continues from the previous operator's condition. A crash loop must not restart
// blockLimit each time.
func restore(c *metav1.Condition, now time.Time) state {
	if c == nil {
		return state{}
	}
	since := c.LastTransitionTime.Time
	if since.After(now) {
		since = now
	}
	if c.Status == metav1.ConditionFalse {
		return state{reason: ReasonStepInProgress, blockStart: since}
	}
	return state{reason: c.Reason, openStart: since}
}

// next decides whether upgrades are blocked now. Steps block them for at most 30 minutes,
// and then for 10 minutes not at all.
func (s state) next(stepInProgress bool, now time.Time) state {
	switch {
	case s.reason == ReasonTimeLimitReached && now.Sub(s.openStart) < openTime:
		return s
	case s.blocked() && stepInProgress && now.Sub(s.blockStart) < blockLimit:
		return s
	case s.blocked() && stepInProgress:
		return state{reason: ReasonTimeLimitReached, blockStart: s.blockStart, openStart: now}
	case s.blocked():
		return state{reason: ReasonNoStepInProgress, blockStart: s.blockStart, openStart: now}
	case !stepInProgress && s.reason != "":
		s.reason = ReasonNoStepInProgress
		return s
	case !stepInProgress:
		return s
	case s.blockStart.IsZero() || s.reason == ReasonTimeLimitReached || now.Sub(s.openStart) >= shortOpening:
		s.blockStart = now
	}
	s.reason = ReasonStepInProgress
	return s
}

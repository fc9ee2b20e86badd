// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/kube"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler/precedence"
)

// leastObserved is the usage that a recommendation must be based on: with less, some hours of the day are not known. A
// status notes usage only when it has doubled, so it may have half of what was observed.
const leastObserved = 24 * time.Hour

// fromScalers compares what is deployed with what scalers recommend.
func (r *Reporter) fromScalers(ctx context.Context) (*fleet.Report, error) {
	r.Options.Rules = append([]backtest.Rule{{Name: "scaler", About: "what VerticalScalers in updateMode Recommend recommend now"}}, Rules()...)
	containers, err := r.inventory(ctx, nil)
	if err != nil {
		return nil, err
	}
	scalers, err := r.scalers(ctx)
	if err != nil {
		return nil, err
	}
	var rows []fleet.Row
	for _, c := range containers {
		row, why := r.recommended(c, scalers[types.NamespacedName{Namespace: c.Namespace, Name: c.Deployment}])
		if why != "" {
			r.skip(c, why)
			continue
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("none of the selected Deployments can be reported: %s (--prometheus reports by past usage, without scalers)", reasonsOf(r.skipped))
	}
	return fleet.OfScalers(rows, r.skipped, r.Options), nil
}

// recommended compares a container with what its scaler recommends, or says why it cannot.
func (r *Reporter) recommended(c fleet.Container, s *v1beta1.VerticalScaler) (row fleet.Row, why string) {
	if c.Replicas == 0 {
		return row, "it has no replicas"
	}
	if s == nil {
		return row, "no scaler sizes its Deployment"
	}
	if mode := cmp.Or(s.Spec.UpdatePolicy.UpdateMode, v1beta1.UpdateModeInPlace); mode != v1beta1.UpdateModeRecommend {
		return row, fmt.Sprintf("its scaler applies what it recommends (updateMode %s)", mode)
	}
	rec := scaler.PublishedRecommendation(s.Status.Recommendation, c.Name)
	switch {
	case rec == nil || rec.Target == quantity.Amounts{}:
		return row, "its scaler recommends nothing for it yet, or does not size it"
	case rec.Observed < leastObserved:
		return row, fmt.Sprintf("its scaler has observed less than %s of usage", leastObserved)
	}
	return r.Options.Recommended(c, rec.Target, rec.Observed), ""
}

// scalers are the scalers of the selection by the Deployment that they size, at least one.
func (r *Reporter) scalers(ctx context.Context) (map[types.NamespacedName]*v1beta1.VerticalScaler, error) {
	r.Progress.Say("Reading scalers from the cluster")
	c, err := r.Cluster.Open()
	if err != nil {
		return nil, err
	}
	all, err := kube.Scalers(ctx, c, client.InNamespace(r.Selection.Namespace))
	switch {
	case errors.Is(err, kube.ErrNotInstalled):
		return nil, errors.New("the cluster does not know VerticalScalers: set --prometheus to report by past usage, without the operator")
	case err != nil:
		return nil, err
	case len(all) == 0:
		return nil, fmt.Errorf("no VerticalScaler %s: create some with updateMode Recommend (%s adopt), or set --prometheus to report by past usage, without scalers", r.Selection.where(), cli.Name)
	}
	byDeployment, order := map[types.NamespacedName]*v1beta1.VerticalScaler{}, precedence.Of(all)
	for i := range all {
		s := &all[i]
		// The status of a scaler without this claim is about no Deployment yet, or about another one.
		if order.StandingOf(s).IsFirst() && scaler.RecordedClaim(s) == scaler.Claim(s) {
			byDeployment[scaler.Target(s)] = s
		}
	}
	return byDeployment, nil
}

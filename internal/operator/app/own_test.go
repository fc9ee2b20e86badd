// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/provision"
)

func TestProvisionOptions(t *testing.T) {
	byDefault := provision.Options{
		Namespace: "ops", Deployment: "operator",
		Monitoring: true, NetworkPolicy: true, SecureMetrics: true, CertDir: "/etc/verticalscaler-metrics", ResyncPeriod: 10 * time.Minute,
	}
	for name, tc := range map[string]struct {
		configure func(c *config.Operator)
		scope     Scope
		change    func(o *provision.Options)
	}{
		"everything, by default": {
			configure: func(*config.Operator) {},
			change:    func(*provision.Options) {},
		},
		"what is switched off is not": {
			configure: func(c *config.Operator) { c.Provision.Monitoring, c.Provision.NetworkPolicy = false, false },
			change:    func(o *provision.Options) { o.Monitoring, o.NetworkPolicy = false, false },
		},
		"nothing is monitored where no metrics are served": {
			configure: func(c *config.Operator) { c.Metrics.BindAddress = "0" },
			change:    func(o *provision.Options) { o.Monitoring = false },
		},
		"no monitoring without the rights to authorize requests for metrics": {
			configure: func(*config.Operator) {},
			scope:     Scope{MetricsForbidden: "create tokenreviews.authentication.k8s.io"},
			change:    func(o *provision.Options) { o.Monitoring = false },
		},
		"metrics without TLS are scraped without": {
			configure: func(c *config.Operator) { c.Metrics.Secure = false },
			change:    func(o *provision.Options) { o.SecureMetrics = false },
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, want := config.Default(), byDefault
			tc.configure(&c)
			tc.change(&want)
			if diff := cmp.Diff(want, provisionOptions(c, tc.scope, "ops", "operator")); diff != "" {
				t.Errorf("provisionOptions() (-want +got):\n%s", diff)
			}
		})
	}
}

// The Grafana dashboards, built with Grafana's own types.
module github.com/verticalscaler/verticalscaler-operator/hack/grafana

go 1.26.3

require github.com/grafana/grafana-foundation-sdk/go v0.0.12

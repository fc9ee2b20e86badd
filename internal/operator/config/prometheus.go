// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"time"
)

// maxLabels is the maximum number of extra labels.
const maxLabels = 16

var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]{0,127}$`)

// validate finds settings that cannot work or are unsafe. Errors do not contain the
// address, because it may contain a password by mistake.
func (p Prometheus) validate(maxGap time.Duration) (errs []error) {
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("prometheus."+format, args...)) }
	for _, v := range []struct {
		name        string
		value       time.Duration
		least, most time.Duration
	}{
		{"lookback", p.Lookback.Duration, time.Hour, 90 * 24 * time.Hour},
		{"step", p.Step.Duration, 15 * time.Second, maxGap},
		{"rateWindow", p.RateWindow.Duration, 30 * time.Second, time.Hour},
	} {
		if v.value < v.least || v.value > v.most {
			wrong("%s must be from %s to %s, not %s", v.name, v.least, v.most, v.value)
		}
	}
	if p.Step.Duration%time.Second != 0 || p.RateWindow.Duration%time.Second != 0 {
		wrong("step and prometheus.rateWindow must be whole seconds")
	}
	if len(p.Labels) > maxLabels {
		wrong("labels must have at most %d entries, not %d", maxLabels, len(p.Labels))
	}
	for _, name := range slices.Sorted(maps.Keys(p.Labels)) {
		switch {
		case !labelName.MatchString(name):
			wrong("labels: %.80q is not a valid label name", name)
		case slices.Contains([]string{"__name__", "namespace", "pod", "container"}, name):
			wrong("labels: %s is set by the operator: remove it", name)
		}
	}
	if err := p.validateAddress(); err != nil {
		wrong("%w", err)
	}
	if (p.CertFile == "") != (p.KeyFile == "") {
		wrong("certFile and prometheus.keyFile must be set together")
	}
	if (p.Username == "") != (p.PasswordFile == "") {
		wrong("username and prometheus.passwordFile must be set together")
	}
	if p.BearerTokenFile != "" && p.PasswordFile != "" {
		wrong("bearerTokenFile and prometheus.passwordFile must not both be set")
	}
	return errs
}

func (p Prometheus) validateAddress() error {
	if p.Address == "" {
		if p.CAFile+p.CertFile+p.KeyFile+p.BearerTokenFile+p.Username+p.PasswordFile != "" {
			return errors.New("address must be set, because files or credentials are set")
		}
		return nil
	}
	address, err := url.Parse(p.Address)
	switch {
	case err != nil || address.Hostname() == "" || (address.Scheme != "http" && address.Scheme != "https"):
		return errors.New("address must be an http or https URL, such as https://prometheus.monitoring.svc:9090")
	case address.User != nil:
		return errors.New("address must not contain credentials: use bearerTokenFile, or username and passwordFile")
	case address.RawQuery != "" || address.ForceQuery || address.Fragment != "":
		return errors.New("address must not have a query or a fragment")
	case address.Scheme == "http" && p.CAFile+p.CertFile+p.KeyFile+p.BearerTokenFile+p.PasswordFile != "":
		return errors.New("address must be an https URL, because TLS files or credentials are set")
	}
	return nil
}

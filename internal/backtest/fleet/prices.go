// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

const (
	// hoursPerMonth is a twelfth of a year's.
	hoursPerMonth = 730
	// GiBPerCore is the memory that counts as a core without prices.
	GiBPerCore = 8
	// mostPrice is the highest price that is accepted.
	mostPrice = 1e6
)

// Prices are the costs of requests.
type Prices struct {
	// Currency is shown with amounts, such as EUR. Default: none.
	Currency string `json:"currency"`
	// CPUCoreHour and MemoryGiBHour are the prices of a core and a GiB for an hour. Both are at least 0, and
	// one is more.
	CPUCoreHour   float64 `json:"cpuCoreHour"`
	MemoryGiBHour float64 `json:"memoryGiBHour"`
}

// ReadPrices reads prices from YAML. An unknown key is an error.
func ReadPrices(text []byte) (*Prices, error) {
	var p Prices
	if err := yaml.UnmarshalStrict(text, &p); err != nil {
		// The decoder's prefixes are about how it works.
		what := err.Error()
		for _, prefix := range []string{"error unmarshaling JSON: ", "error converting YAML to JSON: ", "while decoding JSON: ", "json: "} {
			what = strings.TrimPrefix(what, prefix)
		}
		return nil, fmt.Errorf("%s: the keys are currency, cpuCoreHour and memoryGiBHour", what)
	}
	for key, price := range map[string]float64{"cpuCoreHour": p.CPUCoreHour, "memoryGiBHour": p.MemoryGiBHour} {
		if price < 0 || price > mostPrice {
			return nil, fmt.Errorf("%s must be from 0 to %g", key, mostPrice)
		}
	}
	if p.CPUCoreHour+p.MemoryGiBHour == 0 {
		return nil, errors.New("cpuCoreHour and memoryGiBHour are both 0")
	}
	return &p, nil
}

func (p *Prices) perMonth(cores, gib float64) float64 {
	return (cores*p.CPUCoreHour + gib*p.MemoryGiBHour) * hoursPerMonth
}

// inCores weighs memory by its price. Where CPU is free, GiB are the unit.
func (p *Prices) inCores(cores, gib float64) float64 {
	switch {
	case p == nil:
		return cores + gib/GiBPerCore
	case p.CPUCoreHour == 0:
		return gib
	}
	return cores + gib*p.MemoryGiBHour/p.CPUCoreHour
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"cmp"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
)

// Fleet is how several scalers are doing.
type Fleet struct {
	At   time.Time
	Rows []Row
	// Missing says what could not be read, and why.
	Missing []string
}

// Row is one scaler of a fleet. Its resources are totals of all pods and containers.
type Row struct {
	explain.Row
	CPU, Memory Resource
}

// RowOf sums up a scaler.
func RowOf(s Scaler) Row {
	return Row{Row: s.State, CPU: s.Total(Resources[0]), Memory: s.Total(Resources[1])}
}

// Total is the sum of all rows.
func (f Fleet) Total() (cpu, memory Resource) {
	cpu.Resource, memory.Resource = Resources[0], Resources[1]
	for _, r := range f.Rows {
		cpu.include(r.CPU)
		memory.include(r.Memory)
	}
	return cpu, memory
}

// Order is how the rows of a fleet are sorted.
type Order string

const (
	// ByGap has the rows first whose pods request most above or below their targets.
	ByGap Order = "gap"
	// ByWaste has the rows first whose pods request most above their targets.
	ByWaste Order = "waste"
	// ByLack has the rows first whose pods request most below their targets.
	ByLack Order = "lack"
	// ByName sorts by namespace and name.
	ByName Order = "name"
)

// Orders are all orders, the default first.
var Orders = []Order{ByGap, ByWaste, ByLack, ByName}

// Sort sorts the rows. CPU and memory are compared as shares of what all rows request
// together, and the larger share of the two counts. Equal rows are sorted by name.
func (f *Fleet) Sort(by Order) {
	cpu, memory := f.Total()
	weight := func(r Row) float64 {
		share := func(amount, of int64) float64 { return float64(amount) / float64(max(1, of)) }
		waste := max(share(r.CPU.Over, cpu.Request.Total), share(r.Memory.Over, memory.Request.Total))
		lack := max(share(r.CPU.Short, cpu.Request.Total), share(r.Memory.Short, memory.Request.Total))
		switch by {
		case ByWaste:
			return waste
		case ByLack:
			return lack
		case ByName:
			return 0
		}
		return max(waste, lack)
	}
	slices.SortStableFunc(f.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(weight(b), weight(a)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

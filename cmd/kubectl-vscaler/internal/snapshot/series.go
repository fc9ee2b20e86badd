// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"maps"
	"slices"
	"time"
)

const (
	// Unknown is an amount of a point that is not known.
	Unknown int64 = -1
	// None is a request or a limit that no pod has.
	None int64 = 0
)

// Point is one resource of one container at a time.
type Point struct {
	At time.Time
	// Used is the highest usage of a pod, or Unknown.
	Used int64
	// Request and Limit are the amounts of the pod that is furthest from the target, or Unknown, or None.
	Request, Limit int64
}

// series names a resource of a container.
type series struct{ container, resource string }

// Record is the history of one scaler, as far as it was seen. It is for one goroutine.
type Record struct {
	// Keep is how long points are kept.
	Keep   time.Duration
	points map[series][]Point
}

// Add adds newer usage, and drops old points.
func (r *Record) Add(s Scaler) {
	for _, c := range s.Containers {
		for _, of := range c.Resources {
			p := Point{At: s.At, Used: Unknown, Request: Unknown, Limit: Unknown}
			if len(s.Pods) > 0 { // else there are none, or they may not be read
				p.Request, p.Limit = of.Request.FurthestFrom(of.Target), of.Limit.FurthestFrom(of.Target)
			}
			if of.Used.Pods > 0 {
				p.Used = of.Used.Most
			}
			r.add(series{c.Name, of.Resource}, s.AppliedSince, p)
		}
	}
}

func (r *Record) add(to series, applied time.Time, p Point) {
	if r.points == nil {
		r.points = map[series][]Point{}
	}
	known := r.points[to]
	if len(known) > 0 && !p.At.After(known[len(known)-1].At) {
		return
	}
	if len(known) == 0 && !applied.IsZero() && applied.Before(p.At) {
		known = append(known, Point{At: applied, Used: Unknown, Request: p.Request, Limit: p.Limit})
	}
	known = append(known, p)
	old := slices.IndexFunc(known, func(k Point) bool { return !k.At.Before(p.At.Add(-r.Keep)) })
	r.points[to] = known[max(0, old-1):] // the last one before tells what was requested then
}

// Fill adds points from before the first one, such as those of Prometheus.
func (r *Record) Fill(container, resource string, past []Point) {
	if r.points == nil {
		r.points = map[series][]Point{}
	}
	to := series{container, resource}
	known := r.points[to]
	firstUsed := slices.IndexFunc(known, func(p Point) bool { return p.Used != Unknown })
	for _, p := range past {
		if firstUsed < 0 || p.At.Before(known[firstUsed].At) {
			r.points[to] = append(r.points[to], p)
		}
	}
	slices.SortStableFunc(r.points[to], func(a, b Point) int { return a.At.Compare(b.At) })
}

// Clone is a copy, which may be read while the record changes.
func (r *Record) Clone() Record {
	out := Record{Keep: r.Keep, points: maps.Clone(r.points)}
	for of, points := range out.points {
		out.points[of] = slices.Clone(points)
	}
	return out
}

// Series are the points of a resource of a container, the oldest first.
func (r *Record) Series(container, resource string) []Point {
	return slices.Clone(r.points[series{container, resource}])
}

// Columns divides the time from one time to another into n parts of the same length, and
// tells the highest usage and the last request and limit in each. A request and a limit
// last until the next point that knows one, or that there is none.
func Columns(points []Point, from, to time.Time, n int) []Point {
	out := make([]Point, n)
	request, limit, next := Unknown, Unknown, 0
	for i := range out {
		end := from.Add(to.Sub(from) * time.Duration(i+1) / time.Duration(n))
		used := Unknown
		for ; next < len(points) && (points[next].At.Before(end) || i == n-1 && points[next].At.Equal(end)); next++ {
			p := points[next]
			if !p.At.Before(from) {
				used = max(used, p.Used)
			}
			if p.Request != Unknown {
				request = p.Request
			}
			if p.Limit != Unknown {
				limit = p.Limit
			}
		}
		out[i] = Point{At: end, Used: used, Request: request, Limit: limit}
	}
	return out
}

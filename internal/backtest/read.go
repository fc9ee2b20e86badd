// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package backtest

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// The columns of a table of usage, and of a table of containers. Others are ignored.
const (
	columnSeries    = "series"
	columnTimestamp = "timestamp"
	columnCPU       = "cpu_cores"
	columnMemory    = "memory_bytes"

	columnStep       = "step_s"
	columnInitCPU    = "init_cpu"
	columnInitMemory = "init_mem"
)

var known = []string{columnSeries, columnTimestamp, columnCPU, columnMemory, columnStep, columnInitCPU, columnInitMemory}

const (
	// latest is the latest accepted time: the end of the year 2199.
	latest = 7_258_118_399
	// longestStep is the longest interval from which a policy can learn.
	longestStep = daySeconds
	// longestName bounds the names in a report.
	longestName = 253
)

// Reader reads traces from comma-separated values, compressed with gzip or not:
//
//	series,timestamp,cpu_cores,memory_bytes       series,step_s,init_cpu,init_mem
//	web,1767225600,0.41,523239424                 web,300,2,1073741824
//	web,2026-01-01T00:05:00Z,0.39,523304960
//
// The left table is usage. The right table describes containers: the length of the intervals and
// the current requests. The header distinguishes the two. The order of columns, rows and tables
// does not matter. Unrecorded memory is 0 throughout. Without a step, the interval is the most
// frequent distance of timestamps.
//
// The zero value is ready for use.
type Reader struct {
	series map[string]*series
	table  string // that is read
}

// series is the part of one container read so far.
type series struct {
	samples []Sample
	table   string // with the first sample
	// about is true if a table of containers has set the fields that follow.
	about     bool
	step      int64 // 0 if not given
	cpuMillis int64
	memory    int64
	hasMemory bool
}

// Read reads a table. Errors quote its name and the line.
func (r *Reader) Read(name string, from io.Reader) error {
	if r.series == nil {
		r.series = map[string]*series{}
	}
	r.table = name
	if err := r.read(from); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (r *Reader) read(from io.Reader) error {
	plain, err := decompressed(from)
	if err != nil {
		return err
	}
	table := csv.NewReader(plain)
	table.ReuseRecord = true
	header, err := table.Read()
	if errors.Is(err, io.EOF) {
		return errors.New("is empty: a header was expected, such as series,timestamp,cpu_cores,memory_bytes")
	}
	if err != nil {
		return csvError(err)
	}
	columns, err := columnsOf(header)
	if err != nil {
		return err
	}
	for {
		record, err := table.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return csvError(err)
		}
		line, _ := table.FieldPos(0)
		if next := (&row{columns: columns, record: record}); columns.isUsage() {
			err = r.addUsage(next)
		} else {
			err = r.addContainer(next)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
}

// decompressed looks for the two bytes with which gzip begins.
func decompressed(from io.Reader) (io.Reader, error) {
	buffered := bufio.NewReaderSize(from, 1<<16)
	if start, _ := buffered.Peek(2); !bytes.Equal(start, []byte{0x1f, 0x8b}) {
		return skipMark(buffered), nil
	}
	unzipped, err := gzip.NewReader(buffered)
	if err != nil {
		return nil, fmt.Errorf("unpacking: %w", err)
	}
	return skipMark(bufio.NewReaderSize(unzipped, 1<<16)), nil
}

// skipMark skips the byte order mark that spreadsheets write.
func skipMark(r *bufio.Reader) io.Reader {
	if start, _ := r.Peek(3); bytes.Equal(start, []byte("\xef\xbb\xbf")) {
		_, _ = r.Discard(3) // just seen
	}
	return r
}

// csvError gives the line as the other errors do.
func csvError(err error) error {
	var parse *csv.ParseError
	if errors.As(err, &parse) {
		return fmt.Errorf("line %d: %w", parse.Line, parse.Err)
	}
	return err
}

// columns are the positions of the known columns, by name.
type columns map[string]int

func columnsOf(header []string) (columns, error) {
	c := columns{}
	for i, name := range header {
		name = strings.ToLower(strings.TrimSpace(name))
		if !slices.Contains(known, name) {
			continue
		}
		if _, ok := c[name]; ok {
			return nil, fmt.Errorf("line 1: the column %s appears twice", name)
		}
		c[name] = i
	}
	needed := []string{columnSeries, columnTimestamp, columnCPU}
	if !c.isUsage() {
		needed = []string{columnSeries, columnInitCPU}
	}
	for _, name := range needed {
		if _, ok := c[name]; !ok {
			return nil, fmt.Errorf("line 1: the column %s is missing; usage has the header series,timestamp,cpu_cores,memory_bytes", name)
		}
	}
	return c, nil
}

func (c columns) isUsage() bool {
	_, hasTime := c[columnTimestamp]
	_, hasRequest := c[columnInitCPU]
	return hasTime || !hasRequest
}

// row is a row of a table.
type row struct {
	columns
	record []string
	err    error // the first one
}

func (r *row) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// text is a field without the spaces around it; empty without such a column.
func (r *row) text(name string) string {
	i, ok := r.columns[name]
	if !ok {
		return ""
	}
	return strings.TrimSpace(r.record[i])
}

// number reads a field as a number from 0 to most. Empty is 0.
func (r *row) number(name string, most float64) float64 {
	text := r.text(name)
	if text == "" {
		return 0
	}
	v, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || math.IsNaN(v):
		r.fail("%s is %q, which is not a number", name, text)
	case v < 0 || v > most:
		r.fail("%s is %s, which is not from 0 to %g", name, text, most)
	}
	return v
}

// timestamp reads whole seconds since 1970, or RFC 3339.
func (r *row) timestamp() int64 {
	text := r.text(columnTimestamp)
	at, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			r.fail("%s is %q, which is neither whole seconds since 1970 nor a time such as 2026-01-01T00:05:00Z", columnTimestamp, text)
		}
		at = t.Unix()
	}
	if at < 0 || at > latest {
		r.fail("%s is %s, which is not between 1970 and 2200 (milliseconds?)", columnTimestamp, text)
	}
	return at
}

func (r *Reader) addUsage(row *row) error {
	at, cores, memory := row.timestamp(), row.number(columnCPU, quantity.MaxCPUMillis/1000), row.number(columnMemory, quantity.MaxMemoryBytes)
	if row.text(columnCPU) == "" {
		row.fail("%s is empty", columnCPU)
	}
	s := r.of(row)
	if row.err != nil {
		return row.err
	}
	if len(s.samples) == 0 {
		s.table = r.table
	}
	s.hasMemory = s.hasMemory || memory >= 1
	s.samples = append(s.samples, Sample{At: at, CPUMillis: cores * 1000, MemoryBytes: int64(memory)})
	return nil
}

func (r *Reader) addContainer(row *row) error {
	cores, memory := row.number(columnInitCPU, quantity.MaxCPUMillis/1000), row.number(columnInitMemory, quantity.MaxMemoryBytes)
	step := row.number(columnStep, longestStep)
	if step != math.Trunc(step) {
		row.fail("%s is %g, which is not in whole seconds", columnStep, step)
	}
	s := r.of(row)
	switch {
	case row.err != nil:
		return row.err
	case s.about:
		return fmt.Errorf("series %q is described twice", row.text(columnSeries))
	}
	s.about, s.step, s.cpuMillis, s.memory = true, int64(step), int64(math.Ceil(cores*1000-1e-6)), int64(math.Ceil(memory))
	return nil
}

// of is the series of a row; nil after an error.
func (r *Reader) of(row *row) *series {
	name := row.text(columnSeries)
	if name == "" || len(name) > longestName {
		row.fail("%s must be a name of 1 to %d bytes", columnSeries, longestName)
	}
	if row.err == nil && r.series[name] == nil {
		r.series[strings.Clone(name)] = &series{}
	}
	return r.series[name]
}

// Traces returns the traces read so far, sorted by name. The requests of containers that no table describes are 0.
func (r *Reader) Traces() ([]Trace, error) {
	var traces []Trace
	for _, name := range slices.Sorted(maps.Keys(r.series)) {
		s := r.series[name]
		if len(s.samples) == 0 {
			continue // described, but without usage
		}
		t, err := s.trace(name)
		if err != nil {
			return nil, fmt.Errorf("series %q: %w", name, err)
		}
		traces = append(traces, t)
	}
	if len(traces) == 0 {
		return nil, errors.New("no usage to replay")
	}
	return traces, nil
}

func (s *series) trace(name string) (Trace, error) {
	samples := s.samples
	slices.SortStableFunc(samples, func(a, b Sample) int { return cmp.Compare(a.At, b.At) })
	if len(samples) < 2 {
		return Trace{}, errors.New("there is only one row; at least two are required")
	}
	distances := map[int64]int{}
	for i := 1; i < len(samples); i++ {
		distance := samples[i].At - samples[i-1].At
		if distance == 0 {
			return Trace{}, fmt.Errorf("there are two rows for the timestamp %d", samples[i].At)
		}
		distances[distance]++
	}
	usual := int64(0) // the most frequent distance, in seconds
	for _, distance := range slices.Sorted(maps.Keys(distances)) {
		if distances[distance] > distances[usual] {
			usual = distance
		}
	}
	step := cmp.Or(s.step, usual)
	if step > longestStep {
		return Trace{}, fmt.Errorf("its rows are usually %s apart; the longest supported interval is %s", seconds(step), seconds(longestStep))
	}
	return Trace{
		Name: name, Table: s.table, Step: seconds(step), HasMemory: s.hasMemory,
		Requests: quantity.Amounts{CPUMillis: s.cpuMillis, MemoryBytes: s.memory}, Samples: samples,
	}, nil
}

func seconds(s int64) time.Duration { return time.Duration(s) * time.Second }

// WriteUsage writes a usage table for a Reader.
func WriteUsage(w io.Writer, traces ...Trace) error {
	if _, err := fmt.Fprintln(w, "series,timestamp,cpu_cores,memory_bytes"); err != nil {
		return err
	}
	for _, t := range traces {
		for _, s := range t.Samples {
			if _, err := fmt.Fprintf(w, "%s,%d,%.4f,%d\n", t.Name, s.At, s.CPUMillis/1000, s.MemoryBytes); err != nil {
				return err
			}
		}
	}
	return nil
}

// WriteContainers writes a table of containers for a Reader.
func WriteContainers(w io.Writer, traces ...Trace) error {
	if _, err := fmt.Fprintln(w, "series,step_s,init_cpu,init_mem"); err != nil {
		return err
	}
	for _, t := range traces {
		if _, err := fmt.Fprintf(w, "%s,%d,%g,%d\n", t.Name, int(t.Step.Seconds()), float64(t.Requests.CPUMillis)/1000, t.Requests.MemoryBytes); err != nil {
			return err
		}
	}
	return nil
}

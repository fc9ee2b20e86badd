// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsapi

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

const (
	// maxAhead tolerates clock skew.
	maxAhead = time.Minute
	// maxWindow is far above the averaging length of any source.
	maxWindow = time.Hour

	// maxPodName and maxContainerName are the limits of Kubernetes.
	maxPodName       = 253
	maxContainerName = 63

	// maxQuantity is the longest accepted quantity. A valid one has at most 20 characters.
	maxQuantity = 40
)

// decoder reads one response, token by token and once. A malformed item costs nothing but itself, and what nobody
// asked for is skipped without being decoded.
type decoder struct {
	json   *jsontext.Decoder
	now    time.Time
	maxAge time.Duration
	// answerFor is where an item of a namespace goes; nil for nowhere. It may be asked for any name.
	answerFor func(namespace string) *answer
	// namespace is the only valid namespace of an item; empty for any.
	namespace string
	// most is how many pods and containers may be kept, valid or not. kept is how many are.
	most, kept   int
	pods         int             // items of the list
	unquoted     []byte          // of the amount that is read
	containersOf map[string]bool // of the item that is judged
}

// answer is what a response says about one namespace.
type answer struct {
	samples []usage.Sample
	refused []usage.Refused
	seen    map[string]bool // the pods
}

func (a *answer) refuse(pod, container string, why usage.Refusal) {
	a.refused = append(a.refused, usage.Refused{Pod: pod, Container: container, Why: why})
}

// podMetrics is an item of the list. Its fields may have any order, so it is judged when all are known.
type podMetrics struct {
	namespace, name   string
	timestamp, window string
	containers        []containerMetrics
	isMalformed       bool
}

// containerMetrics is a container of an item, or the reason why it cannot be used.
type containerMetrics struct {
	name                   string
	cpuMillis, memoryBytes int64
	why                    usage.Refusal
}

func newDecoder(body io.Reader, now time.Time, maxAge time.Duration, most int) *decoder {
	return &decoder{
		json: jsontext.NewDecoder(body, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)),
		now:  now, maxAge: maxAge, most: most, containersOf: map[string]bool{},
	}
}

// list reads the whole response. It returns an error only if that is not a list of pod metrics.
func (d *decoder) list() error {
	kind := ""
	isObject, err := d.object(func(name string) (err error) {
		switch name {
		case "kind":
			kind, _, err = d.text()
		case "items":
			err = d.items()
		default:
			err = d.json.SkipValue()
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case !isObject:
		return errors.New("it is no object")
	case kind != "PodMetricsList":
		// Another JSON document, such as an error, must not look like a namespace without usage.
		return fmt.Errorf("its kind is %.40q, not PodMetricsList", kind)
	}
	if _, err := d.json.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.New("there is data after its end")
	}
	return nil
}

func (d *decoder) items() error {
	isNull := d.json.PeekKind() == 'n' // a list without items may have null
	isArray, err := d.array(d.item)
	if err == nil && !isArray && !isNull {
		return errors.New("its items are not an array")
	}
	return err
}

// object reads an object field by field. It is false, and nothing but skipped, for another value.
func (d *decoder) object(field func(name string) error) (isObject bool, err error) {
	if d.json.PeekKind() != '{' {
		return false, d.json.SkipValue()
	}
	if _, err := d.json.ReadToken(); err != nil {
		return true, err
	}
	for d.json.PeekKind() != '}' {
		name, err := d.json.ReadValue()
		if err != nil {
			return true, err
		}
		if err := field(known(name)); err != nil {
			return true, err
		}
	}
	_, err = d.json.ReadToken()
	return true, err
}

// known is the name of a field that is read; empty for another one. It takes no memory.
func known(name jsontext.Value) string {
	for _, known := range []string{"kind", "items", "metadata", "name", "namespace", "timestamp", "window", "containers", "usage", "cpu", "memory"} {
		if len(name) == len(known)+2 && string(name[1:len(name)-1]) == known {
			return known
		}
	}
	return ""
}

// array reads an array, as object does.
func (d *decoder) array(element func() error) (isArray bool, err error) {
	if d.json.PeekKind() != '[' {
		return false, d.json.SkipValue()
	}
	if _, err := d.json.ReadToken(); err != nil {
		return true, err
	}
	for d.json.PeekKind() != ']' {
		if err := element(); err != nil {
			return true, err
		}
	}
	_, err = d.json.ReadToken()
	return true, err
}

// text reads a string. It is false, and empty, for another value but null, which is no value.
func (d *decoder) text() (text string, isText bool, err error) {
	switch d.json.PeekKind() {
	case '"':
		token, err := d.json.ReadToken()
		if err != nil {
			return "", false, err
		}
		return token.String(), true, nil
	case 'n':
		isText = true
	}
	return "", isText, d.json.SkipValue()
}

// textInto reads a string into a field of an item.
func (d *decoder) textInto(field *string, isMalformed *bool) error {
	text, isText, err := d.text()
	*field, *isMalformed = text, *isMalformed || !isText
	return err
}

// item reads one item of the list.
func (d *decoder) item() error {
	d.pods++
	var pod podMetrics
	isObject, err := d.object(func(name string) error {
		switch name {
		case "metadata":
			return d.metadata(&pod)
		case "timestamp":
			return d.textInto(&pod.timestamp, &pod.isMalformed)
		case "window":
			return d.textInto(&pod.window, &pod.isMalformed)
		case "containers":
			return d.containers(&pod)
		}
		return d.json.SkipValue()
	})
	if err != nil {
		return err
	}
	pod.isMalformed = pod.isMalformed || !isObject
	d.judge(pod)
	if d.kept > d.most {
		return d.tooMany()
	}
	return nil
}

// tooMany is the error for a response with more items than any cluster has.
func (d *decoder) tooMany() error {
	return fmt.Errorf("%w: more than %d pods and containers", errTooMany, d.most)
}

func (d *decoder) metadata(pod *podMetrics) error {
	isNull := d.json.PeekKind() == 'n'
	isObject, err := d.object(func(name string) error {
		switch name {
		case "name":
			return d.textInto(&pod.name, &pod.isMalformed)
		case "namespace":
			return d.textInto(&pod.namespace, &pod.isMalformed)
		}
		return d.json.SkipValue()
	})
	pod.isMalformed = pod.isMalformed || !isObject && !isNull
	return err
}

func (d *decoder) containers(pod *podMetrics) error {
	pod.containers = nil
	if pod.namespace != "" && d.answerFor(pod.namespace) == nil {
		return d.json.SkipValue()
	}
	isNull := d.json.PeekKind() == 'n'
	isArray, err := d.array(func() error {
		if d.kept+len(pod.containers) > d.most {
			return d.tooMany()
		}
		c, err := d.container()
		pod.containers = append(pod.containers, c)
		return err
	})
	pod.isMalformed = pod.isMalformed || !isArray && !isNull
	return err
}

// container reads one container of a pod.
func (d *decoder) container() (c containerMetrics, err error) {
	missing := usage.Malformed
	cpu, memory, isMalformed := missing, missing, false
	isObject, err := d.object(func(name string) error {
		switch name {
		case "name":
			return d.textInto(&c.name, &isMalformed)
		case "usage":
			cpu, memory = missing, missing
			isObject, err := d.object(func(name string) (err error) {
				switch name {
				case "cpu":
					c.cpuMillis, cpu, err = d.amount(quantity.CPUMillis)
				case "memory":
					c.memoryBytes, memory, err = d.amount(quantity.MemoryBytes)
				default:
					err = d.json.SkipValue()
				}
				return err
			})
			isMalformed = isMalformed || !isObject
			return err
		}
		return d.json.SkipValue()
	})
	if len(c.name) > maxContainerName {
		c.name = ""
	}
	switch {
	case !isObject, isMalformed, c.name == "":
		c.why = usage.Malformed
	case cpu != "":
		c.why = cpu
	default:
		c.why = memory
	}
	return c, err
}

// judge adds an item to the answer of its namespace. A problem of the whole pod is rejected once, without a
// container.
func (d *decoder) judge(pod podMetrics) {
	to := d.answerFor(pod.namespace)
	if to == nil {
		return
	}
	d.kept++
	if len(pod.name) > maxPodName {
		pod.name = ""
	}
	if pod.isMalformed || pod.name == "" || d.namespace != "" && pod.namespace != d.namespace {
		to.refuse(pod.name, "", usage.Malformed)
		return
	}
	if to.seen[pod.name] {
		to.refuse(pod.name, "", usage.Duplicate)
		return
	}
	if to.seen == nil {
		to.seen = map[string]bool{}
	}
	to.seen[pod.name] = true

	at, window, why := d.times(pod)
	if why != "" {
		to.refuse(pod.name, "", why)
		return
	}
	d.kept += len(pod.containers)
	clear(d.containersOf)
	for _, c := range pod.containers {
		why := c.why
		if c.name != "" && d.containersOf[c.name] {
			why = usage.Duplicate
		}
		if why != "" {
			to.refuse(pod.name, c.name, why)
			continue
		}
		d.containersOf[c.name] = true
		to.samples = append(to.samples, usage.Sample{
			Namespace: pod.namespace, Pod: pod.name, Container: c.name, Time: at, Window: window,
			CPUMillis: c.cpuMillis, MemoryBytes: c.memoryBytes,
		})
	}
}

func (d *decoder) times(pod podMetrics) (at time.Time, window time.Duration, why usage.Refusal) {
	at, err := time.Parse(time.RFC3339, pod.timestamp)
	if err != nil {
		return at, window, usage.Malformed
	}
	if window, err = time.ParseDuration(pod.window); err != nil {
		return at, window, usage.Malformed
	}
	switch age := d.now.Sub(at); {
	case age > d.maxAge:
		return at, window, usage.Stale
	case age < -maxAhead:
		return at, window, usage.FromTheFuture
	case window <= 0 || window > maxWindow:
		return at, window, usage.BadWindow
	}
	return at.UTC(), window, ""
}

// amount reads a quantity, with or without quotes.
func (d *decoder) amount(convert func(resource.Quantity) (int64, error)) (int64, usage.Refusal, error) {
	raw, err := d.json.ReadValue()
	if err != nil {
		return 0, "", err
	}
	text := raw
	if raw.Kind() == '"' {
		if text, err = jsontext.AppendUnquote(d.unquoted[:0], raw); err != nil {
			return 0, usage.Malformed, nil //nolint:nilerr // it costs its container only
		}
		d.unquoted = text
	}
	amount, why := readAmount(string(text), convert)
	return amount, why, nil
}

// readAmount reads a quantity. convert rounds it up to whole units:
//
//	12345678n → 13m   250m → 250m   2 → 2000m   1536Ki → 1572864   NaN → NotANumber
func readAmount(text string, convert func(resource.Quantity) (int64, error)) (int64, usage.Refusal) {
	if isNotANumber(text) {
		return 0, usage.NotANumber
	}
	if len(text) > maxQuantity {
		return 0, usage.Malformed
	}
	// Comparing 1e100000000 takes minutes, because it is written out in full.
	if exponentDigits(text) > 2 {
		return 0, usage.TooLarge
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, usage.Malformed
	}
	if q.Sign() < 0 {
		return 0, usage.Negative
	}
	v, err := convert(q)
	if err != nil {
		return 0, usage.TooLarge
	}
	return v, ""
}

func isNotANumber(text string) bool {
	return slices.ContainsFunc([]string{"nan", "inf", "infinity"}, func(word string) bool {
		return strings.EqualFold(strings.TrimLeft(text, "+-"), word)
	})
}

// exponentDigits is the number of digits of the decimal exponent: 3 in 1e-100.
func exponentDigits(text string) int {
	i := strings.IndexAny(text, "eE")
	if i < 0 {
		return 0
	}
	return len(strings.TrimLeft(text[i+1:], "+-"))
}

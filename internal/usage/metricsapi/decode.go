// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

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

// podMetrics and containerMetrics are the fields of the API's types that are read. Fields that can
// be invalid on their own stay raw and are decoded one by one.
type podMetrics struct {
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Timestamp  string            `json:"timestamp"`
	Window     string            `json:"window"`
	Containers []json.RawMessage `json:"containers"`
}

type containerMetrics struct {
	Name  string `json:"name"`
	Usage struct {
		CPU    json.RawMessage `json:"cpu"`
		Memory json.RawMessage `json:"memory"`
	} `json:"usage"`
}

// decoder collects the samples of one response.
type decoder struct {
	namespace string
	now       time.Time
	maxAge    time.Duration

	samples []usage.Sample
	refused []usage.Refused
}

// decode reads a response. It returns an error only if the response is not a list of pod metrics.
func decode(body []byte, namespace string, now time.Time, maxAge time.Duration) ([]usage.Sample, []usage.Refused, error) {
	d := decoder{namespace: namespace, now: now, maxAge: maxAge}
	pods := map[string]bool{}
	kind, err := eachItem(body, func(item json.RawMessage) error {
		if d.pod(item, pods); len(d.samples)+len(d.refused) > maxItems {
			return errTooMany
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if kind != "PodMetricsList" {
		// Another JSON document, such as an error, must not look like a namespace without usage.
		return nil, nil, fmt.Errorf("its kind is %.40q, not PodMetricsList", kind)
	}
	return d.samples, d.refused, nil
}

// eachItem calls back for each item of a list, and returns the list's kind. Items are decoded one
// at a time: a list of many tiny ones would take a multiple of its bytes.
func eachItem(body []byte, callback func(json.RawMessage) error) (kind string, err error) {
	list := json.NewDecoder(bytes.NewReader(body))
	if err := expect(list, '{'); err != nil {
		return "", err
	}
	var item json.RawMessage
	for list.More() {
		key, err := list.Token()
		if err != nil {
			return "", err
		}
		switch key {
		case "kind":
			err = list.Decode(&kind)
		case "items":
			err = eachElement(list, callback)
		default:
			err = list.Decode(&item)
		}
		if err != nil {
			return "", err
		}
	}
	if err := expect(list, '}'); err != nil {
		return "", err
	}
	if _, err := list.Token(); !errors.Is(err, io.EOF) {
		return "", errors.New("there is data after its end")
	}
	return kind, nil
}

// eachElement calls back for each element of an array, if there is one: a list without items may
// have null.
func eachElement(list *json.Decoder, callback func(json.RawMessage) error) error {
	switch opening, err := list.Token(); {
	case err != nil:
		return err
	case opening == nil:
		return nil
	case opening != json.Delim('['):
		return errors.New("its items are not an array")
	}
	var item json.RawMessage
	for list.More() {
		item = item[:0]
		if err := list.Decode(&item); err != nil {
			return err
		}
		if err := callback(item); err != nil {
			return err
		}
	}
	return expect(list, ']')
}

// expect reads a bracket.
func expect(list *json.Decoder, want json.Delim) error {
	got, err := list.Token()
	if err == nil && got != want {
		err = fmt.Errorf("there is %v instead of %v", got, want)
	}
	return err
}

func (d *decoder) refuse(pod, container string, why usage.Refusal) {
	d.refused = append(d.refused, usage.Refused{Pod: pod, Container: container, Why: why})
}

// pod reads one item of the list. A problem of the whole pod is rejected once, without a container.
func (d *decoder) pod(item json.RawMessage, seen map[string]bool) {
	if len(item) > maxItem {
		d.refuse("", "", usage.Malformed)
		return
	}
	var pod podMetrics
	err := json.Unmarshal(item, &pod)
	name := pod.Metadata.Name
	if len(name) > maxPodName {
		name = ""
	}
	if err != nil || name == "" || pod.Metadata.Namespace != d.namespace {
		d.refuse(name, "", usage.Malformed)
		return
	}
	if seen[name] {
		d.refuse(name, "", usage.Duplicate)
		return
	}
	seen[name] = true

	at, window, why := d.times(pod)
	if why != "" {
		d.refuse(name, "", why)
		return
	}
	containers := make(map[string]bool, len(pod.Containers))
	for _, item := range pod.Containers {
		s := usage.Sample{Namespace: d.namespace, Pod: name, Time: at, Window: window}
		if why := d.container(item, containers, &s); why != "" {
			d.refuse(name, s.Container, why)
			continue
		}
		d.samples = append(d.samples, s)
	}
}

func (d *decoder) times(pod podMetrics) (at time.Time, window time.Duration, why usage.Refusal) {
	at, err := time.Parse(time.RFC3339, pod.Timestamp)
	if err != nil {
		return at, window, usage.Malformed
	}
	if window, err = time.ParseDuration(pod.Window); err != nil {
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

// container reads one container of a pod into a sample, or returns the reason why not.
func (d *decoder) container(item json.RawMessage, seen map[string]bool, s *usage.Sample) usage.Refusal {
	var c containerMetrics
	err := json.Unmarshal(item, &c)
	if len(c.Name) <= maxContainerName {
		s.Container = c.Name
	}
	if err != nil || s.Container == "" {
		return usage.Malformed
	}
	if seen[s.Container] {
		return usage.Duplicate
	}
	seen[s.Container] = true

	var why usage.Refusal
	if s.CPUMillis, why = amount(c.Usage.CPU, quantity.CPUMillis); why != "" {
		return why
	}
	s.MemoryBytes, why = amount(c.Usage.Memory, quantity.MemoryBytes)
	return why
}

// amount reads a quantity. convert rounds it up to whole units:
//
//	"12345678n" → 13m   "250m" → 250m   2 → 2000m   "1536Ki" → 1572864   "NaN" → NotANumber
func amount(raw json.RawMessage, convert func(resource.Quantity) (int64, error)) (int64, usage.Refusal) {
	text := string(raw)
	if strings.HasPrefix(text, `"`) {
		if err := json.Unmarshal(raw, &text); err != nil {
			return 0, usage.Malformed
		}
	}
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
	switch strings.ToLower(strings.TrimLeft(text, "+-")) {
	case "nan", "inf", "infinity":
		return true
	}
	return false
}

// exponentDigits is the number of digits of the decimal exponent: 3 in 1e-100.
func exponentDigits(text string) int {
	_, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	return len(strings.TrimLeft(exponent, "+-"))
}

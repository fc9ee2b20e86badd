// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
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

// decoder reads a PodMetricsList pod by pod. A pod or an amount that is wrong costs only itself.
type decoder struct {
	body *bounded
	json *json.Decoder
	now  time.Time
	// wanted has the answers by namespace. Items of other namespaces are ignored.
	wanted map[string]*answer
	// most limits the pods and containers to keep, valid or not. kept counts them.
	most, kept   int
	pods         int             // items of the list
	containersOf map[string]bool // of the current item
	raw          json.RawMessage // of the item that is read
}

// answer is the part of a response about one namespace.
type answer struct {
	usage.Answer

	seen map[string]bool // the pods
}

func (a *answer) refuse(pod, container string, why usage.Refusal) {
	a.Refused = append(a.Refused, usage.Refused{Pod: pod, Container: container, Why: why})
}

// podMetrics is an item.
type podMetrics struct {
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Timestamp  string             `json:"timestamp"`
	Window     string             `json:"window"`
	Containers []containerMetrics `json:"containers"`
}

// containerMetrics is one container; Usage is nil if it has none.
type containerMetrics struct {
	Name  string `json:"name"`
	Usage *struct {
		CPU    amount `json:"cpu"`
		Memory amount `json:"memory"`
	} `json:"usage"`
}

// amount is the text of a quantity, with or without quotes, if any.
type amount string

// UnmarshalJSON implements json.Unmarshaler.
func (a *amount) UnmarshalJSON(data []byte) error {
	*a = amount(bytes.Trim(data, `"`)) // An escaped character is in no quantity.
	return nil
}

// read returns the amounts of a container, or why it has none.
func (c containerMetrics) read() (cpuMillis, memoryBytes int64, why usage.Refusal) {
	if c.Name == "" || len(c.Name) > maxContainerName || c.Usage == nil {
		return 0, 0, usage.Malformed
	}
	if cpuMillis, why = readAmount(string(c.Usage.CPU), quantity.CPUMillis); why != "" {
		return 0, 0, why
	}
	memoryBytes, why = readAmount(string(c.Usage.Memory), quantity.MemoryBytes)
	return cpuMillis, memoryBytes, why
}

func newDecoder(body *bounded, namespaces []string, now time.Time, most int) *decoder {
	d := &decoder{body: body, json: json.NewDecoder(body), now: now, wanted: make(map[string]*answer, len(namespaces)), most: most, containersOf: map[string]bool{}}
	for _, namespace := range namespaces {
		d.wanted[namespace] = &answer{seen: map[string]bool{}}
	}
	return d
}

// list reads the whole answer.
func (d *decoder) list() error {
	start, err := d.json.Token()
	switch {
	case err != nil:
		return err
	case start != json.Delim('{'):
		return errors.New("it is not an object")
	}
	kind := ""
	for d.json.More() {
		name, err := d.json.Token()
		if err != nil {
			return err
		}
		switch name {
		case "kind":
			err = d.json.Decode(&kind)
		case "items":
			err = d.items()
		default:
			err = d.json.Decode(&json.RawMessage{})
		}
		if err != nil {
			return err
		}
	}
	if _, err := d.json.Token(); err != nil { // the end of the object
		return err
	}
	if kind != "PodMetricsList" {
		// Another JSON document, such as an error, must not look like a namespace without usage.
		return fmt.Errorf("its kind is %.40q, not PodMetricsList", kind)
	}
	if _, err := d.json.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is data after its end")
	}
	return nil
}

func (d *decoder) items() error {
	start, err := d.json.Token()
	switch {
	case err != nil:
		return err
	case start == nil: // a list without items may have null
		return nil
	case start != json.Delim('['):
		return errors.New("its items are not an array")
	}
	for d.json.More() {
		if err := d.item(); err != nil {
			return err
		}
	}
	_, err = d.json.Token()
	return err
}

func (d *decoder) item() error {
	d.pods++
	d.raw = d.raw[:0]
	if err := d.json.Decode(&d.raw); err != nil {
		return err
	}
	d.body.part = 0
	var pod podMetrics
	err := json.Unmarshal(d.raw, &pod) // fields of another type are left out
	d.judge(pod, err != nil)
	if d.kept > d.most {
		return fmt.Errorf("%w: more than %d pods and containers", errTooMany, d.most)
	}
	return nil
}

// judge adds an item to the answer of its namespace. A problem of the whole pod is rejected once, without a
// container.
func (d *decoder) judge(pod podMetrics, isMalformed bool) {
	name, namespace := pod.Metadata.Name, pod.Metadata.Namespace
	to := d.wanted[namespace]
	if to == nil {
		return
	}
	d.kept++
	if len(name) > maxPodName {
		name = ""
	}
	if isMalformed || name == "" {
		to.refuse(name, "", usage.Malformed)
		return
	}
	if to.seen[name] {
		to.refuse(name, "", usage.Duplicate)
		return
	}
	to.seen[name] = true

	at, window, why := d.times(pod)
	if why != "" {
		to.Refused = append(to.Refused, usage.Refused{Pod: name, Why: why, Time: at})
		return
	}
	d.kept += len(pod.Containers)
	clear(d.containersOf)
	for _, c := range pod.Containers {
		cpuMillis, memoryBytes, why := c.read()
		container := c.Name
		if len(container) > maxContainerName {
			container = ""
		}
		if container != "" && d.containersOf[container] {
			why = usage.Duplicate
		}
		if why != "" {
			to.refuse(name, container, why)
			continue
		}
		d.containersOf[container] = true
		to.Samples = append(to.Samples, usage.Sample{
			Namespace: namespace, Pod: name, Container: container, Time: at, Window: window,
			CPUMillis: cpuMillis, MemoryBytes: memoryBytes,
		})
	}
}

func (d *decoder) times(pod podMetrics) (at time.Time, window time.Duration, why usage.Refusal) {
	at, err := time.Parse(time.RFC3339, pod.Timestamp)
	if err != nil {
		return at, window, usage.Malformed
	}
	at = at.UTC()
	if window, err = time.ParseDuration(pod.Window); err != nil {
		return at, window, usage.Malformed
	}
	switch age := d.now.Sub(at); {
	case age > maxAge:
		return at, window, usage.Stale
	case age < -maxAhead:
		return at, window, usage.FromTheFuture
	case window <= 0 || window > maxWindow:
		return at, window, usage.BadWindow
	}
	return at, window, ""
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

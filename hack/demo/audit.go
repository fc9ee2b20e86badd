// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/hack/internal/stage"
)

// operatorUser is who the operator is to the API server.
const operatorUser = "system:serviceaccount:" + stage.SystemNamespace + ":" + stage.ServiceAccount

// audit sums up what the operator has asked the API server.
type audit struct {
	// requests is the number of all requests, reads and writes.
	requests int
	// writes counts the writes by kind: "patch pods/resize".
	writes map[string]int
	// leases is the number of writes of the leader's lease, which are not among the
	// writes: it is renewed every two seconds.
	leases int
	// forbidden names, by kind, the requests that a right was missing for.
	forbidden map[string]int
	// failed counts, by kind and code, the other requests that were refused.
	failed map[string]int
	// lastWrite is when the last write was done.
	lastWrite time.Time
}

// entry is the part of a line of the audit log that matters here.
type entry struct {
	Stage          string
	StageTimestamp time.Time
	Verb           string
	User           struct{ Username string }
	ObjectRef      struct{ Resource, Subresource string }
	ResponseStatus struct{ Code int }
}

// add counts an answered request.
func (a *audit) add(e entry) {
	if e.Stage != "ResponseComplete" {
		return
	}
	a.requests++
	kind := e.Verb + " " + e.ObjectRef.Resource
	if e.ObjectRef.Subresource != "" {
		kind += "/" + e.ObjectRef.Subresource
	}
	code := e.ResponseStatus.Code
	switch e.Verb {
	case "get", "list", "watch":
		if code == 403 || code == 401 {
			increment(&a.forbidden, kind)
		}
		return
	}
	if e.ObjectRef.Resource == "selfsubjectaccessreviews" && code < 400 {
		return // asks what it may do: nothing is written, though the verb is create
	}
	switch {
	case code == 403 || code == 401:
		increment(&a.forbidden, kind)
	case code >= 400:
		increment(&a.failed, fmt.Sprintf("%s: %d", kind, code))
	case e.ObjectRef.Resource == "leases":
		a.leases++
		return
	default:
		increment(&a.writes, kind)
	}
	if e.StageTimestamp.After(a.lastWrite) {
		a.lastWrite = e.StageTimestamp
	}
}

func increment(counts *map[string]int, kind string) {
	if *counts == nil {
		*counts = map[string]int{}
	}
	(*counts)[kind]++
}

// clone shares nothing.
func (a audit) clone() audit {
	a.writes, a.forbidden, a.failed = maps.Clone(a.writes), maps.Clone(a.forbidden), maps.Clone(a.failed)
	return a
}

// auditLog follows the audit log as it grows.
type auditLog struct {
	path   string
	user   string
	offset int64
	sum    audit
}

// read counts what has been added since the last time.
func (l *auditLog) read() (audit, error) {
	file, err := os.Open(l.path)
	if errors.Is(err, os.ErrNotExist) {
		return l.sum.clone(), nil
	}
	if err != nil {
		return audit{}, fmt.Errorf("opening the audit log: %w", err)
	}
	defer file.Close() //nolint:errcheck // only read
	if _, err := file.Seek(l.offset, io.SeekStart); err != nil {
		return audit{}, fmt.Errorf("reading the audit log: %w", err)
	}
	added, err := io.ReadAll(file)
	if err != nil {
		return audit{}, fmt.Errorf("reading the audit log: %w", err)
	}
	for {
		line, rest, whole := bytes.Cut(added, []byte("\n"))
		if !whole {
			return l.sum.clone(), nil // the rest of the line comes later
		}
		l.offset += int64(len(line)) + 1
		added = rest
		if !bytes.Contains(line, []byte(l.user)) {
			continue
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return audit{}, fmt.Errorf("decoding the audit log: %w", err)
		}
		if e.User.Username == l.user {
			l.sum.add(e)
		}
	}
}

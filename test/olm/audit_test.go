// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build olm

package olm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// request is a request that the API server has answered.
type request struct {
	verb      string
	group     string
	resource  string // with subresource: "pods/resize"
	namespace string
	name      string
	code      int32
	message   string // where it was refused
	at        time.Time
}

func (r request) String() string {
	return fmt.Sprintf("%s %s.%s %s/%s: %d", r.verb, r.resource, r.group, r.namespace, r.name, r.code)
}

// requests are those of the operator for resources, as long as it was installed. The
// discovery of what is served, which everybody may ask for, is left out.
func (i *installation) requests(t *testing.T) (out []request) {
	t.Helper()
	file, err := os.Open(env.AuditLog())
	if err != nil {
		t.Fatalf("opening the audit log: %v", err)
	}
	defer file.Close() //nolint:errcheck // only read
	user := []byte(i.user())
	lines := bufio.NewReaderSize(file, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return out // a line without an end is still being written
		}
		if err != nil {
			t.Fatalf("reading the audit log: %v", err)
		}
		if !bytes.Contains(line, user) {
			continue
		}
		var entry struct {
			Stage                    string
			Verb                     string
			RequestReceivedTimestamp time.Time
			User                     struct{ Username string }
			ObjectRef                *struct {
				APIGroup, Resource, Subresource, Namespace, Name string
			}
			ResponseStatus struct {
				Code    int32
				Message string
			}
		}
		if err := json.Unmarshal(line, &entry); err != nil {
			t.Fatalf("decoding the audit log: %v", err)
		}
		at := entry.RequestReceivedTimestamp
		if entry.User.Username != i.user() || entry.ObjectRef == nil || at.Before(i.began) || !i.ended.IsZero() && at.After(i.ended) {
			continue
		}
		// A watch is answered when it begins, everything else when it ends.
		if (entry.Stage == "ResponseStarted") != (entry.Verb == "watch") {
			continue
		}
		ref := entry.ObjectRef
		r := request{
			verb: entry.Verb, group: ref.APIGroup, resource: ref.Resource, namespace: ref.Namespace, name: ref.Name,
			code: entry.ResponseStatus.Code, message: entry.ResponseStatus.Message, at: at,
		}
		if ref.Subresource != "" {
			r.resource += "/" + ref.Subresource
		}
		out = append(out, r)
		if r.verb == "patch" && r.code == http.StatusCreated {
			// An apply that makes the object: the API server has asked for both rights.
			r.verb = "create"
			out = append(out, r)
		}
	}
}

// isAllowed fails the test for each request that a right was missing for, or that
// came without a valid token.
//
// OLM itself leaves a gap: where all namespaces are watched, it deletes the old
// version's ClusterRoles with the old version, and makes those of the new one half a
// second later. What is forbidden then is asked again, so it only is told of. The same
// goes for a kind that the API server's guard of owner references has not heard of yet:
// it asks for what is served only every so often.
func (i *installation) isAllowed(t *testing.T) {
	t.Helper()
	all := i.requests(t)
	if len(all) == 0 {
		t.Errorf("the audit log has no request of %s", i.user())
	}
	var refused []string
	for _, r := range all {
		switch {
		case r.code != http.StatusForbidden && r.code != http.StatusUnauthorized:
		case i.swapped.has(r.at) && r.code == http.StatusForbidden:
			t.Logf("forbidden while OLM exchanges roles: %s", r)
		case strings.Contains(r.message, "cannot find RESTMapping for APIVersion "+v1beta1.GroupVersion.String()):
			t.Logf("forbidden until the kind is known: %s", r)
		default:
			refused = append(refused, r.String())
		}
	}
	if len(refused) > 0 {
		slices.Sort(refused)
		t.Errorf("%d of %d requests of %s were forbidden:\n%s", len(refused), len(all), i.user(), strings.Join(slices.Compact(refused), "\n"))
		return
	}
	t.Logf("%d requests of %s, none forbidden", len(all), i.user())
}

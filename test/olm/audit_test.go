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
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/policies"
)

// request is an answered request to the API server.
type request struct {
	verb      string
	group     string
	resource  string // with subresource: "pods/resize"
	namespace string
	name      string
	code      int32
	message   string // of a rejected request
	at        time.Time
}

func (r request) String() string {
	return fmt.Sprintf("%s %s.%s %s/%s: %d", r.verb, r.resource, r.group, r.namespace, r.name, r.code)
}

// requests returns the operator's requests for resources while it was installed. It omits
// API discovery, which every user may request.
func (i *installation) requests(t *testing.T) (out []request) {
	t.Helper()
	name, began, ended := i.user(), i.began, i.ended
	file, err := os.Open(env.AuditLog())
	if err != nil {
		t.Fatalf("opening the audit log: %v", err)
	}
	defer file.Close() //nolint:errcheck // only read
	user := []byte(name)
	lines := bufio.NewReaderSize(file, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return out // an incomplete line is still being written
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
		if entry.User.Username != name || entry.ObjectRef == nil || at.Before(began) || !ended.IsZero() && at.After(ended) {
			continue
		}
		// A watch is answered when it begins, other requests when they end.
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
	}
}

// isAllowed fails the test for each request that lacked a right or a valid token.
//
// OLM itself leaves a gap: if all namespaces are watched, it deletes the old version's
// ClusterRoles with the old version, and creates those of the new one half a second later.
// The operator retries requests that are forbidden in the gap, so they are only logged. The
// same applies to a kind that OwnerReferencesPermissionEnforcement does not know yet: it
// refreshes its discovery only from time to time, and to the dry runs that show whether the
// admission policies are installed.
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
		case strings.Contains(r.message, strconv.Quote(policies.Name)):
			t.Logf("refused by a policy, as the operator expects: %s", r)
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

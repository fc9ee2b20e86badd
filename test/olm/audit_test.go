// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build olm

package olm

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/policies"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// requests returns the operator's requests for resources since it was installed. It omits API discovery, which every user may
// request.
func (i *installation) requests(t *testing.T) []testkit.Write {
	t.Helper()
	return slices.DeleteFunc(env.Writes(t, i.began, ""), func(r testkit.Write) bool { return r.User != i.user() || r.Resource == "" })
}

// isAllowed fails the test for each request that lacked a right or a valid token.
//
// OLM itself leaves a gap if all namespaces are watched: it deletes the old version's ClusterRoles with
// the old version, and creates the new ones half a second later. The operator retries requests that are
// forbidden in the gap, so they are only logged. The same applies to a kind that
// OwnerReferencesPermissionEnforcement does not know yet, because it refreshes its discovery only from
// time to time. It also applies to the dry runs that show whether the admission policies are installed.
func (i *installation) isAllowed(t *testing.T) {
	t.Helper()
	all := i.requests(t)
	if len(all) == 0 {
		t.Errorf("the audit log has no request of %s", i.user())
	}
	var refused []string
	for _, r := range all {
		switch {
		case r.Code != http.StatusForbidden && r.Code != http.StatusUnauthorized:
		case i.swapped.has(r.Received) && r.Code == http.StatusForbidden:
			t.Logf("forbidden while OLM exchanges roles: %s", r)
		case strings.Contains(r.Message, "cannot find RESTMapping for APIVersion "+v1beta1.GroupVersion.String()):
			t.Logf("forbidden until the kind is known: %s", r)
		case strings.Contains(r.Message, strconv.Quote(policies.Name)):
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

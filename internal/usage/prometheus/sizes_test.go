// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

var sized = Target{Namespace: "shop", Deployment: "web", Containers: []string{"app", "mesh"}, Scaler: "web-scaler"}

// sizeStream is a series of kube-state-metrics, or of the operator.
func sizeStream(labels string, points ...string) string {
	return strings.Replace(stream("", "", points...), `"pod":"","container":""`, labels, 1)
}

func TestSizes(t *testing.T) {
	declares := func(metric, container, resource string, points ...string) string {
		return sizeStream(fmt.Sprintf(`"__name__":"kube_pod_%s","container":%q,"resource":%q`, metric, container, resource), points...)
	}
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch query := r.FormValue("query"); {
		case strings.HasPrefix(query, "min"):
			answer(w,
				declares("container_resource_requests", "app", "cpu", at(0), "0.1", at(1), "0.3"),
				declares("container_resource_limits", "app", "memory", at(0), "2097152"),
				declares("init_container_resource_requests", "mesh", "cpu", at(1), "0.05"),
			)
		case strings.HasPrefix(query, "max by (__name__"):
			answer(w,
				declares("container_resource_requests", "app", "cpu", at(0), "0.5", at(1), "0.3", at(-9), "1", at(2), "NaN", at(3), "-1", at(4), "1e9", at(99), "1"),
				declares("container_resource_limits", "app", "memory", at(0), "4194304"),
				declares("init_container_resource_requests", "mesh", "cpu", at(1), "0.05"),
				declares("container_resource_requests", "other", "cpu", at(1), "9"), // not asked for
				declares("container_resource_requests", "app", "pods", at(1), "9"),
				`{"metric":{},"values":[]}`,
			)
		case strings.HasPrefix(query, "max by (target_container"):
			answer(w, sizeStream(`"target_container":"app","resource":"cpu"`, at(1), "0.7", at(5), "0.25"), sizeStream(`"target_container":"other","resource":"cpu"`, at(5), "9"))
		default:
			t.Errorf("asked %s", query)
		}
	})
	got, err := source(t, server.URL).Sizes(t.Context(), sized, noon, noon.Add(10*time.Minute))
	must.Succeed(t, err)
	minute := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Minute) }
	unknown := Amount{Unknown, Unknown}
	want := Sizes{HasRequests: true, HasLimits: true, At: map[Of]map[time.Time]Size{
		{"app", "cpu"}: {
			minute(0): {Request: Amount{100, 500}}, minute(1): {Request: Amount{300, 300}},
			minute(5): {Request: Amount{250, 250}, Limit: unknown}, // only the operator knows it
		},
		{"app", "memory"}:  {minute(0): {Limit: Amount{2 << 20, 4 << 20}}, minute(1): {}},
		{"mesh", "cpu"}:    {minute(1): {Request: Amount{50, 50}}},
		{"mesh", "memory"}: {minute(1): {}},
	}}
	assert.Equal(t, "sizes", want, got)
}

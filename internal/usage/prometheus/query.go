// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The pods of a Deployment are named <Deployment>-<hash>-<suffix>. The hash is a
// decimal number of 32 bits whose digits are written as 4 to 9, b, c, d and f; the
// suffix avoids vowels. Fewer than 6 digits are one in 40,000, and left out: they would
// take the pods of a DaemonSet web-db for those of a Deployment web.
const (
	hashPattern   = "[4-9bcdf]{6,10}"
	suffixPattern = "[bcdfghjklmnpqrstvwxz2456789]{5}"

	// longestName is the longest Deployment name that its pods' names contain in full, because
	// the API server cuts a generated name to 58 characters plus the suffix. Pods of
	// Deployments with longer, similar names cannot be told apart.
	longestName = 58 - len("-") - 10 - len("-")
)

// queries are the queries for a target, with the values to check the response.
type queries struct {
	namespace   string
	cpu, memory string
	sizes       [2]string // the least and the most of what kube-state-metrics reports
	requests    string    // what the operator reports; empty without a scaler
	pods        *regexp.Regexp
	containers  []string
}

// queriesFor returns the queries. It validates and quotes all names, so that no name can change a
// query.
//
// A container that was restarted has two series for some minutes, and one that two
// servers scrape always has two. The larger one counts.
func (s *Source) queriesFor(t Target) (q queries, err error) {
	if wrong := validation.IsDNS1123Label(t.Namespace); len(wrong) > 0 {
		return q, fmt.Errorf("%.80q is not a valid namespace name", t.Namespace)
	}
	if wrong := validation.IsDNS1123Subdomain(t.Deployment); len(wrong) > 0 {
		return q, fmt.Errorf("%.80q is not a valid Deployment name", t.Deployment)
	}
	if len(t.Deployment) > longestName {
		return q, fmt.Errorf("the name of the Deployment is longer than %d characters, so its pods' names do not contain it in full", longestName)
	}
	if len(t.Containers) == 0 {
		return q, fmt.Errorf("no containers given")
	}
	containers := make([]string, len(t.Containers))
	for i, name := range t.Containers {
		if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
			return q, fmt.Errorf("%.80q is not a valid container name", name)
		}
		containers[i] = regexp.QuoteMeta(name)
	}
	pods := regexp.QuoteMeta(t.Deployment) + "-" + hashPattern + "-" + suffixPattern
	selector := fmt.Sprintf(`namespace=%s,pod=~%s,container=~%s,container!="",container!="POD"`,
		strconv.Quote(t.Namespace), strconv.Quote(pods), strconv.Quote(strings.Join(containers, "|")))
	labels := s.labels()
	selector += labels
	q = queries{
		namespace: t.Namespace,
		cpu:       fmt.Sprintf("max by (pod,container) (rate(container_cpu_usage_seconds_total{%s}[%s]))", selector, promDuration(s.options.RateWindow)),
		memory: fmt.Sprintf("max by (pod,container) (max_over_time(container_memory_working_set_bytes{%s}[%s]))", selector,
			promDuration(cmp.Or(s.options.MemoryWindow, 2*s.options.Step))),
		pods:       regexp.MustCompile("^" + pods + "$"),
		containers: t.Containers,
	}
	if err := q.askForSizes(t, pods, containers, labels); err != nil {
		return queries{}, err
	}
	return q, nil
}

// askForSizes adds the queries for requests and limits. A pod that has ended is not deleted at
// once, and still has its requests in kube-state-metrics.
func (q *queries) askForSizes(t Target, pods string, containers []string, labels string) error {
	of := fmt.Sprintf(`namespace=%s,pod=~%s`, strconv.Quote(t.Namespace), strconv.Quote(pods))
	those := fmt.Sprintf(`container=~%s,resource=~"cpu|memory"`, strconv.Quote(strings.Join(containers, "|")))
	for i, aggregation := range []string{"min", "max"} {
		q.sizes[i] = fmt.Sprintf(
			`%s by (__name__,container,resource) ({__name__=~"kube_pod_(init_)?container_resource_(requests|limits)",%s,%s%s} unless on (namespace,pod) (kube_pod_status_phase{%s,phase!="Running"%s} == 1))`,
			aggregation, of, those, labels, of, labels)
	}
	if t.Scaler == "" {
		return nil
	}
	if wrong := validation.IsDNS1123Subdomain(t.Scaler); len(wrong) > 0 {
		return fmt.Errorf("%.80q is not a valid name of a VerticalScaler", t.Scaler)
	}
	q.requests = fmt.Sprintf(`max by (target_container,resource) (verticalscaler_container_request{target_namespace=%s,scaler=%s,target_%s%s})`,
		strconv.Quote(t.Namespace), strconv.Quote(t.Scaler), those, labels)
	return nil
}

func promDuration(d time.Duration) string { return model.Duration(d).String() }

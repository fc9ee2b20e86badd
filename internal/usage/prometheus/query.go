// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// podSuffix follows the Deployment in the name of a pod: <Deployment>-<hash>-<suffix>. The hash is a
	// decimal number of 32 bits whose digits are written as 4 to 9, b, c, d and f; the
	// suffix avoids vowels. Fewer than 6 digits are one in 40,000, and left out: they would
	// take the pods of a DaemonSet web-db for those of a Deployment web.
	podSuffix = "-[4-9bcdf]{6,10}" + randomSuffix

	// randomSuffix ends a name that the API server generates.
	randomSuffix = "-[bcdfghjklmnpqrstvwxz2456789]{5}"

	// LongestDeployment is the length of the longest name of a Deployment that the names of its pods have in
	// full. The API server cuts a generated name to 58 characters plus the suffix. Pods of Deployments with
	// longer, similar names cannot be distinguished.
	LongestDeployment = 58 - len("-") - 10 - len("-")
)

// The kinds of workloads whose pods are found by their names.
const (
	Deployment  = "Deployment"
	Rollout     = "Rollout" // of Argo
	StatefulSet = "StatefulSet"
	DaemonSet   = "DaemonSet"
	CronJob     = "CronJob"
)

// naming is the naming scheme of a kind's pods.
type naming struct {
	kind string
	// suffix follows the name of the workload in the names of its pods.
	suffix string
	// longest is the longest name of a workload that its pods have in full.
	longest int
}

// namings are the kinds, in the order of the search for a pod's workload. A Rollout names its pods like a Deployment, and a
// CronJob starts Jobs with the minute of their start in the name.
var namings = []naming{
	{Deployment, podSuffix, LongestDeployment},
	{Rollout, podSuffix, LongestDeployment},
	{StatefulSet, "-[0-9]{1,6}", 253},
	{DaemonSet, randomSuffix, 58 - len("-")},
	{CronJob, "-[0-9]{8}" + randomSuffix, 58 - len("-") - 8 - len("-")},
}

// podsOf match the names of pods, by kind. The first group is the name of the workload.
var podsOf = func() map[string]*regexp.Regexp {
	all := map[string]*regexp.Regexp{}
	for _, n := range namings {
		all[n.kind] = regexp.MustCompile("^(.+)" + n.suffix + "$")
	}
	return all
}()

// workloadOf finds the workload in the name of a pod. It is not ok for the pods of other kinds.
func workloadOf(pod, kind string) (name string, ok bool) {
	found := podsOf[kind].FindStringSubmatch(pod)
	if found == nil {
		return "", false
	}
	return found[1], true
}

// LongestName is the longest name of a workload of a kind whose pods have it in full in their names.
func LongestName(kind string) int {
	for _, n := range namings {
		if n.kind == kind {
			return n.longest
		}
	}
	return 0
}

// queries are the queries for a target.
type queries struct {
	usage    [2]string // CPU and memory
	sizes    [2]string // the least and the most by kube-state-metrics
	requests string    // from the operator; empty without a scaler
}

// queriesFor returns the queries. It validates and quotes all names, so that no name can change a
// query. A pod that has ended is not deleted at once, and still has its requests in kube-state-metrics.
func (s *Source) queriesFor(t Target) (q queries, err error) {
	of, err := inNamespaces([]string{t.Namespace})
	switch {
	case err != nil:
		return q, err
	case len(validation.IsDNS1123Subdomain(t.Deployment)) > 0:
		return q, fmt.Errorf("%.80q is not a valid Deployment name", t.Deployment)
	case len(t.Deployment) > LongestDeployment:
		return q, fmt.Errorf("the name of the Deployment is longer than %d characters, so its pods' names do not contain it in full", LongestDeployment)
	case len(t.Containers) == 0:
		return q, fmt.Errorf("no containers given")
	case t.Scaler != "" && len(validation.IsDNS1123Subdomain(t.Scaler)) > 0:
		return q, fmt.Errorf("%.80q is not a valid name of a VerticalScaler", t.Scaler)
	}
	for _, name := range t.Containers {
		if len(validation.IsDNS1123Label(name)) > 0 {
			return q, fmt.Errorf("%.80q is not a valid container name", name)
		}
	}
	of += ",pod=~" + strconv.Quote(regexp.QuoteMeta(t.Deployment)+podSuffix)
	those := "container=~" + strconv.Quote(strings.Join(t.Containers, "|"))
	q.usage = s.usageQueries(of + "," + those)
	those += `,resource=~"cpu|memory"`
	for i, aggregation := range []string{"min", "max"} {
		q.sizes[i] = fmt.Sprintf(
			`%s by (__name__,container,resource) ({__name__=~"kube_pod_(init_)?container_resource_(requests|limits)",%s,%s%s} unless on (namespace,pod) (kube_pod_status_phase{%s,phase!="Running"%s} == 1))`,
			aggregation, of, those, s.labels(), of, s.labels())
	}
	if t.Scaler != "" {
		q.requests = fmt.Sprintf(`max by (target_container,resource) (verticalscaler_container_request{target_namespace=%s,scaler=%s,target_%s%s})`,
			strconv.Quote(t.Namespace), strconv.Quote(t.Scaler), those, s.labels())
	}
	return q, nil
}

// fleetQueries are the queries for all workloads of some kinds in some namespaces.
func (s *Source) fleetQueries(namespaces, kinds []string) (queries [2]string, err error) {
	of, err := inNamespaces(namespaces)
	if err != nil {
		return queries, err
	}
	names := ".+"
	if len(s.options.Deployments) > 0 {
		var quoted []string
		for _, name := range s.options.Deployments {
			quoted = append(quoted, regexp.QuoteMeta(name))
		}
		names = "(" + strings.Join(quoted, "|") + ")"
	}
	var suffixes []string
	for _, n := range namings {
		if slices.Contains(kinds, n.kind) && !slices.Contains(suffixes, n.suffix) {
			suffixes = append(suffixes, n.suffix)
		}
	}
	suffix := strings.Join(suffixes, "|")
	if len(suffixes) > 1 {
		suffix = "(" + suffix + ")"
	}
	return s.usageQueries(of + ",pod=~" + strconv.Quote(names+suffix)), nil
}

// usageQueries are the queries for CPU and for memory. A container that was restarted has two series for some minutes,
// and one that two servers scrape always has two. They are merged here, not by the query: with "max by (...)",
// Prometheus takes twice as long.
func (s *Source) usageQueries(matchers string) [2]string {
	matchers += `,container!="",container!="POD"` + s.labels()
	return [2]string{
		fmt.Sprintf("rate(%s{%s}[%s])", CPUMetric, matchers, promDuration(s.options.RateWindow)),
		fmt.Sprintf("max_over_time(%s{%s}[%s])", MemoryMetric, matchers, promDuration(cmp.Or(s.options.MemoryWindow, 2*s.options.Step))),
	}
}

// inNamespaces is a label matcher. Without namespaces, it matches all.
func inNamespaces(namespaces []string) (matcher string, err error) {
	for _, name := range namespaces {
		if len(validation.IsDNS1123Label(name)) > 0 {
			return "", fmt.Errorf("%.80q is not a valid namespace name", name)
		}
	}
	switch len(namespaces) {
	case 0:
		return `namespace!=""`, nil
	case 1:
		return "namespace=" + strconv.Quote(namespaces[0]), nil
	}
	return "namespace=~" + strconv.Quote(strings.Join(namespaces, "|")), nil
}

// labels are the additional label matchers, each after a comma.
func (s *Source) labels() (matchers string) {
	for _, name := range slices.Sorted(maps.Keys(s.options.Labels)) {
		matchers += fmt.Sprintf(",%s=%s", name, strconv.Quote(s.options.Labels[name]))
	}
	return matchers
}

func promDuration(d time.Duration) string { return model.Duration(d).String() }

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

func resourceQuota(name string, hard, used map[corev1.ResourceName]string, change ...func(*corev1.ResourceQuotaSpec)) corev1.ResourceQuota {
	read := func(in map[corev1.ResourceName]string) corev1.ResourceList {
		out := corev1.ResourceList{}
		for key, v := range in {
			out[key] = resource.MustParse(v)
		}
		return out
	}
	q := corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.ResourceQuotaStatus{Hard: read(hard), Used: read(used)}}
	for _, c := range change {
		c(&q.Spec)
	}
	return q
}

func TestReadQuotas(t *testing.T) {
	cpu := func(key string) map[corev1.ResourceName]string {
		return map[corev1.ResourceName]string{corev1.ResourceName(key): "2"}
	}
	of := func(name, key string) []workload.Quota {
		return []workload.Quota{{Name: name, Key: key, Hard: 2000, Used: 2000}}
	}
	scopes := func(scopes ...corev1.ResourceQuotaScope) func(*corev1.ResourceQuotaSpec) {
		return func(s *corev1.ResourceQuotaSpec) { s.Scopes = scopes }
	}
	selector := func(scope corev1.ResourceQuotaScope, operator corev1.ScopeSelectorOperator) func(*corev1.ResourceQuotaSpec) {
		return func(s *corev1.ResourceQuotaSpec) {
			s.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{{ScopeName: scope, Operator: operator}}}
		}
	}
	for name, tc := range map[string]struct {
		quota corev1.ResourceQuota
		want  []workload.Quota
		part  bool // some are left to the API server
	}{
		"all resources that we change": {
			quota: resourceQuota("team", map[corev1.ResourceName]string{
				"cpu": "1", "requests.cpu": "2", "limits.cpu": "3", "memory": "1Ki", "requests.memory": "2Ki", "limits.memory": "3Ki", "pods": "7", "requests.storage": "1Gi",
			}, map[corev1.ResourceName]string{
				"cpu": "100m", "requests.cpu": "200m", "limits.cpu": "300m", "memory": "1", "requests.memory": "2", "limits.memory": "3", "pods": "1", "requests.storage": "1",
			}),
			want: []workload.Quota{
				{Name: "team", Key: "cpu", Hard: 1000, Used: 100},
				{Name: "team", Key: "limits.cpu", Hard: 3000, Used: 300},
				{Name: "team", Key: "limits.memory", Hard: 3072, Used: 3},
				{Name: "team", Key: "memory", Hard: 1024, Used: 1},
				{Name: "team", Key: "requests.cpu", Hard: 2000, Used: 200},
				{Name: "team", Key: "requests.memory", Hard: 2048, Used: 2},
			},
		},
		"zero is a bound":                 {quota: resourceQuota("team", map[corev1.ResourceName]string{"cpu": "0"}, map[corev1.ResourceName]string{"cpu": "0"}), want: []workload.Quota{{Name: "team", Key: "cpu"}}},
		"usage is not known yet":          {quota: resourceQuota("team", cpu("cpu"), nil)},
		"more than a container can have":  {quota: resourceQuota("fleet", map[corev1.ResourceName]string{"requests.cpu": "12k", "limits.memory": "2Pi"}, map[corev1.ResourceName]string{"requests.cpu": "11999", "limits.memory": "1Pi"}), want: []workload.Quota{{Name: "fleet", Key: "limits.memory", Hard: 2 << 50, Used: 1 << 50}, {Name: "fleet", Key: "requests.cpu", Hard: 12_000_000, Used: 11_999_000}}},
		"more than a number can count":    {quota: resourceQuota("any", map[corev1.ResourceName]string{"cpu": "9E"}, cpu("cpu")), want: []workload.Quota{{Name: "any", Key: "cpu", Hard: quantity.MaxSum, Used: 2000}}},
		"an absurd amount":                {quota: resourceQuota("team", map[corev1.ResourceName]string{"cpu": "1e99"}, cpu("cpu")), part: true},
		"a negative amount":               {quota: resourceQuota("team", cpu("cpu"), map[corev1.ResourceName]string{"cpu": "-1"}), part: true},
		"of pods without a deadline":      {quota: resourceQuota("a", cpu("cpu"), cpu("cpu"), scopes("NotTerminating", "NotBestEffort")), want: of("a", "cpu")},
		"a scope selector":                {quota: resourceQuota("a", cpu("cpu"), cpu("cpu"), selector("NotBestEffort", "Exists")), want: of("a", "cpu")},
		"of pods with a deadline":         {quota: resourceQuota("a", cpu("cpu"), cpu("cpu"), scopes("Terminating"))},
		"of pods without requests":        {quota: resourceQuota("a", cpu("cpu"), cpu("cpu"), scopes("BestEffort"))},
		"of a priority, which is unknown": {quota: resourceQuota("a", cpu("cpu"), cpu("cpu"), scopes("PriorityClass")), part: true},
		"of some priorities":              {quota: resourceQuota("a", cpu("cpu"), cpu("cpu"), selector("PriorityClass", "In")), part: true},
		"of a known and an unknown scope": {quota: resourceQuota("a", cpu("cpu"), cpu("cpu"), scopes("NotBestEffort", "CrossNamespacePodAffinity")), part: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, all := workload.ReadQuotas([]corev1.ResourceQuota{tc.quota})
			assert.Equal(t, "ReadQuotas()", tc.want, got)
			if all == tc.part {
				t.Errorf("all are judged: %t", all)
			}
		})
	}
}

func TestMoreRoom(t *testing.T) {
	team := func(hard, used string) []corev1.ResourceQuota {
		return []corev1.ResourceQuota{resourceQuota("team",
			map[corev1.ResourceName]string{"cpu": hard, "pods": "9"}, map[corev1.ResourceName]string{"cpu": used, "pods": "3"})}
	}
	for name, tc := range map[string]struct {
		before, after []corev1.ResourceQuota
		want          bool
	}{
		"the same":                 {team("2", "1"), team("2", "1"), false},
		"more is used":             {team("2", "1"), team("2", "1.5"), false},
		"less is used":             {team("2", "1"), team("2", "0.5"), true},
		"more is allowed":          {team("2", "1"), team("3", "1"), true},
		"less is allowed":          {team("2", "1"), team("1", "1"), false},
		"less is used and allowed": {team("2", "1"), team("1", "0"), false},
		"the quota is deleted":     {team("2", "1"), nil, true},
		"the quota is created":     {nil, team("2", "1"), false},
	} {
		if got := workload.MoreRoom(tc.before, tc.after); got != tc.want {
			t.Errorf("%s: MoreRoom() = %t", name, got)
		}
	}
}

func TestUnavailable(t *testing.T) {
	rolling := func(unavailable, surge string) appsv1.DeploymentStrategy {
		read := func(s string) *intstr.IntOrString {
			if s == "" {
				return nil
			}
			return ptr.To(intstr.Parse(s))
		}
		return appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: read(unavailable), MaxSurge: read(surge)}}
	}
	for name, tc := range map[string]struct {
		strategy appsv1.DeploymentStrategy
		replicas int32
		want     int32
	}{
		"all of them with Recreate":                          {appsv1.DeploymentStrategy{Type: "Recreate"}, 7, 7},
		"a quarter by default, rounded down":                 {appsv1.DeploymentStrategy{}, 7, 1},
		"none of three by default":                           {appsv1.DeploymentStrategy{}, 3, 0},
		"a number":                                           {rolling("2", "1"), 7, 2},
		"a percentage":                                       {rolling("50%", "0"), 7, 3},
		"none, with a surge":                                 {rolling("0", "1"), 7, 0},
		"one if both are zero":                               {rolling("10%", "0"), 7, 1},
		"no more than the replicas":                          {rolling("9", "0"), 7, 7},
		"all with an invalid value":                          {rolling("some", "1"), 7, 7},
		"a surge only, with the default of unavailable pods": {rolling("", "1"), 8, 2},
		"no unavailable pods, with the default surge":        {rolling("0", ""), 8, 0},
	} {
		d := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: &tc.replicas, Strategy: tc.strategy}}
		if got := workload.ReadDeployment(d).Unavailable; got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

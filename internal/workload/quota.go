// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// Quota is the allowance of one resource by one ResourceQuota.
type Quota struct {
	// Name is the name of the ResourceQuota, Key the resource that it counts: "requests.cpu".
	Name, Key string
	// Hard and Used are millicores or bytes.
	Hard, Used int64
}

// quotaKeys are the keys under which quotas count CPU and memory, with their readers.
var quotaKeys = map[corev1.ResourceName]func(resource.Quantity) (int64, bool){
	corev1.ResourceCPU:            quantity.SumOfCPU,
	corev1.ResourceRequestsCPU:    quantity.SumOfCPU,
	corev1.ResourceLimitsCPU:      quantity.SumOfCPU,
	corev1.ResourceMemory:         quantity.SumOfMemory,
	corev1.ResourceRequestsMemory: quantity.SumOfMemory,
	corev1.ResourceLimitsMemory:   quantity.SumOfMemory,
}

// ReadQuotas returns the allowances of a namespace's ResourceQuotas for pods of Deployments that
// have requests. all is true if none was left out, and each amount could be read.
//
// It reads the status, as the API server does. A quota with scopes counts only if it certainly
// matches such pods: NotTerminating does, because pods of a Deployment cannot have a deadline,
// and so does NotBestEffort. Terminating and BestEffort match none of them. Whether other
// scopes match is left to the API server.
func ReadQuotas(quotas []corev1.ResourceQuota) (out []Quota, all bool) {
	all = true
	for i := range quotas {
		matches, sure := matchesScopes(&quotas[i])
		all = all && sure
		if !matches || !sure {
			continue
		}
		for key, read := range quotaKeys {
			most, isBound := quotas[i].Status.Hard[key]
			sum, isCounted := quotas[i].Status.Used[key]
			if !isBound || !isCounted {
				continue
			}
			hard, isAmount := read(most)
			used, isSum := read(sum)
			if all = all && isAmount && isSum; isAmount && isSum {
				out = append(out, Quota{Name: quotas[i].Name, Key: string(key), Hard: hard, Used: used})
			}
		}
	}
	slices.SortFunc(out, func(a, b Quota) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key)) })
	return out, all
}

func matchesScopes(q *corev1.ResourceQuota) (matches, sure bool) {
	scopes := slices.Clone(q.Spec.Scopes)
	sure = true
	if q.Spec.ScopeSelector != nil {
		for _, e := range q.Spec.ScopeSelector.MatchExpressions {
			if e.Operator != corev1.ScopeSelectorOpExists {
				sure = false
			}
			scopes = append(scopes, e.ScopeName)
		}
	}
	for _, scope := range scopes {
		switch scope {
		case corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeNotBestEffort:
		case corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeBestEffort:
			return false, true
		default:
			sure = false
		}
	}
	return sure, sure
}

// MoreRoom reports whether any quota has more room than before.
func MoreRoom(before, after []corev1.ResourceQuota) bool {
	had, _ := ReadQuotas(before)
	has, _ := ReadQuotas(after)
	for _, was := range had {
		i := slices.IndexFunc(has, func(is Quota) bool { return is.Name == was.Name && is.Key == was.Key })
		if i < 0 || has[i].Hard-has[i].Used > was.Hard-was.Used {
			return true
		}
	}
	return false
}
